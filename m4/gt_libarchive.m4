# GT_LIBARCHIVE
# libarchive, with which gpt-prepare reads compressed files and tar archives; optional.  Sets LIBARCHIVE_CFLAGS,
# LIBARCHIVE_LIBS and HAVE_LIBARCHIVE.  --without-libarchive leaves it out where it is installed.
AC_DEFUN([GT_LIBARCHIVE], [
  AC_ARG_WITH([libarchive],
    [AS_HELP_STRING([--without-libarchive], [gpt-prepare refuses .gz .xz .zst .bz2 .tar])],
    [], [with_libarchive=check])
  gt_libarchive=no
  AS_IF([test "x$with_libarchive" != xno],
    [PKG_CHECK_MODULES([LIBARCHIVE], [libarchive >= 3.3.3], [gt_libarchive=yes],
      [AS_IF([test "x$with_libarchive" = xyes],
        [AC_MSG_ERROR([libarchive 3.3.3 or later was not found.  Debian: apt-get install libarchive-dev])])])])
  AS_IF([test "x$gt_libarchive" = xyes],
    [AC_DEFINE([HAVE_LIBARCHIVE], [1], [Compressed files and tar archives can be read.])],
    [LIBARCHIVE_CFLAGS= LIBARCHIVE_LIBS=])
  AM_CONDITIONAL([HAVE_LIBARCHIVE], [test "x$gt_libarchive" = xyes])
  AC_SUBST([LIBARCHIVE_CFLAGS])
  AC_SUBST([LIBARCHIVE_LIBS])
])
