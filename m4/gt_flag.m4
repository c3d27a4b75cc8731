# GT_FLAG_COMPILE(VARIABLE, FLAG), GT_FLAG_LINK(VARIABLE, FLAG)
# Appends FLAG to VARIABLE when the compiler takes it without a warning (for LINK: when a program links with it).
# The user's CFLAGS stand behind FLAG in the trial, as they do in the build.
AC_DEFUN([GT_FLAG_COMPILE], [
  AS_VAR_PUSHDEF([cache], [gt_cv_flag_$2])
  AC_CACHE_CHECK([whether $CC takes $2], [cache], [
    gt_saved_CFLAGS=$CFLAGS
    CFLAGS="-O2 -Werror $2 $gt_saved_CFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]], [[return puts("") < 0;]])],
      [AS_VAR_SET([cache], [yes])], [AS_VAR_SET([cache], [no])])
    CFLAGS=$gt_saved_CFLAGS
  ])
  AS_VAR_IF([cache], [yes], [AS_VAR_APPEND([$1], [" $2"])])
  AS_VAR_POPDEF([cache])
])

AC_DEFUN([GT_FLAG_LINK], [
  AS_VAR_PUSHDEF([cache], [gt_cv_link_$2])
  AC_CACHE_CHECK([whether $CC links with $2], [cache], [
    gt_saved_CFLAGS=$CFLAGS
    gt_saved_LDFLAGS=$LDFLAGS
    CFLAGS="-O2 -Werror $HARDENING_CFLAGS $gt_saved_CFLAGS"
    LDFLAGS="$2 $gt_saved_LDFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]], [[return puts("") < 0;]])],
      [AS_VAR_SET([cache], [yes])], [AS_VAR_SET([cache], [no])])
    CFLAGS=$gt_saved_CFLAGS
    LDFLAGS=$gt_saved_LDFLAGS
  ])
  AS_VAR_IF([cache], [yes], [AS_VAR_APPEND([$1], [" $2"])])
  AS_VAR_POPDEF([cache])
])
