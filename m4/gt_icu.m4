# GT_ICU
# ICU, which normalizes text for tokenizers that want NFC (Qwen's); optional.  Sets ICU_CFLAGS, ICU_LIBS and HAVE_ICU.
# --without-icu leaves it out where it is installed.
AC_DEFUN([GT_ICU], [
  AC_ARG_WITH([icu],
    [AS_HELP_STRING([--without-icu], [tokenizers that normalize text, as Qwen's, are refused])],
    [], [with_icu=check])
  gt_icu=no
  AS_IF([test "x$with_icu" != xno],
    [PKG_CHECK_MODULES([ICU], [icu-uc >= 60], [gt_icu=yes],
      [AS_IF([test "x$with_icu" = xyes],
        [AC_MSG_ERROR([ICU 60 or later was not found.  Debian: apt-get install libicu-dev])])])])
  AS_IF([test "x$gt_icu" = xyes], [AC_DEFINE([HAVE_ICU], [1], [Text can be normalized.])], [ICU_CFLAGS= ICU_LIBS=])
  AC_SUBST([ICU_CFLAGS])
  AC_SUBST([ICU_LIBS])
])
