# GT_OPENMP
# OpenMP is the threading of the cpu backend and of nothing else.  Without it the backend runs on one thread, which the
# summary says.  Sets OPENMP_CFLAGS.
AC_DEFUN([GT_OPENMP], [
  AC_OPENMP
  gt_openmp=no
  AS_IF([test "x$ac_cv_prog_c_openmp" != xunsupported && test "x$enable_openmp" != xno], [gt_openmp=yes])
])
