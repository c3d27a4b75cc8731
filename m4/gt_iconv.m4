# GT_ICONV
# iconv(3), with which gpt-prepare reads text that is not UTF-8; in the C library, or in one of its own.  Sets HAVE_ICONV.
# --without-iconv leaves it out.
AC_DEFUN([GT_ICONV], [
  AC_ARG_WITH([iconv],
    [AS_HELP_STRING([--without-iconv], [gpt-prepare reads UTF-8 only])],
    [], [with_iconv=check])
  gt_iconv=no
  AS_IF([test "x$with_iconv" != xno], [
    AC_MSG_CHECKING([for iconv])
    gt_iconv_libs=$LIBS
    for gt_iconv_library in '' -liconv; do
      LIBS="$gt_iconv_library $gt_iconv_libs"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <iconv.h>]], [[return iconv_open("UTF-8", "UTF-16") == 0;]])],
        [gt_iconv=yes])
      AS_IF([test "x$gt_iconv" = xyes], [break])
      LIBS=$gt_iconv_libs
    done
    AC_MSG_RESULT([$gt_iconv])])
  AS_IF([test "x$gt_iconv" = xyes], [AC_DEFINE([HAVE_ICONV], [1], [Text in other encodings can be read.])],
    [test "x$with_iconv" = xyes], [AC_MSG_ERROR([iconv was not found])])
])
