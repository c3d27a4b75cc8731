# GT_WARNINGS
# Sets WARNING_CFLAGS.  --enable-werror makes every warning an error; off by default, because compilers newer than
# ours have warnings that we have not seen.
AC_DEFUN([GT_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat compiler warnings as errors])], [], [enable_werror=no])
  WARNING_CFLAGS=
  for gt_flag in -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wstrict-prototypes -Wpointer-arith; do
    GT_WARNING_TRY([$gt_flag])
  done
  AS_IF([test "x$enable_werror" = xyes], [WARNING_CFLAGS="$WARNING_CFLAGS -Werror"])
  AC_SUBST([WARNING_CFLAGS])
])

AC_DEFUN([GT_WARNING_TRY], [
  gt_saved_CFLAGS=$CFLAGS
  CFLAGS="-Werror $1"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [WARNING_CFLAGS="$WARNING_CFLAGS $1"])
  CFLAGS=$gt_saved_CFLAGS
])
