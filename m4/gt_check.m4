# GT_CHECK
# The unit test library, needed by `make check` only: without it everything builds, and `make check` says what it lacks.
AC_DEFUN([GT_CHECK], [
  PKG_CHECK_MODULES([CHECK], [check >= 0.13], [gt_have_check=yes], [gt_have_check=no])
  AM_CONDITIONAL([HAVE_CHECK], [test "x$gt_have_check" = xyes])
])
