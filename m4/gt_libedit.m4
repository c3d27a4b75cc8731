# GT_LIBEDIT
# libedit, with which gpt-sample --chat edits lines on a terminal; optional.  Sets LIBEDIT_CFLAGS, LIBEDIT_LIBS and
# HAVE_LIBEDIT.  --without-libedit leaves it out where it is installed.
AC_DEFUN([GT_LIBEDIT], [
  AC_ARG_WITH([libedit],
    [AS_HELP_STRING([--without-libedit], [gpt-sample --chat reads lines without editing])],
    [], [with_libedit=check])
  gt_libedit=no
  AS_IF([test "x$with_libedit" != xno],
    [PKG_CHECK_MODULES([LIBEDIT], [libedit], [gt_libedit=yes],
      [AS_IF([test "x$with_libedit" = xyes],
        [AC_MSG_ERROR([libedit was not found.  Debian: apt-get install libedit-dev])])])])
  AS_IF([test "x$gt_libedit" = xyes],
    [AC_DEFINE([HAVE_LIBEDIT], [1], [Lines can be edited on a terminal.])],
    [LIBEDIT_CFLAGS= LIBEDIT_LIBS=])
  AC_SUBST([LIBEDIT_CFLAGS])
  AC_SUBST([LIBEDIT_LIBS])
])
