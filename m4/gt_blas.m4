# GT_BLAS
# --with-blas=LIBS|auto: a library with cblas_sgemm and its header cblas.h.  auto tries OpenBLAS (pkg-config, then
# -lopenblas), BLIS, and the reference names.  Sets BLAS_CFLAGS, BLAS_LIBS, and HAVE_..._SET_NUM_THREADS for the
# library's own way to be told "one thread": the cpu backend parallelises over tiles itself.
AC_DEFUN([GT_BLAS], [
  AC_ARG_WITH([blas],
    [AS_HELP_STRING([--with-blas=LIBS], [link flags of a CBLAS, e.g. "-lblis"; auto tries the known ones])],
    [], [with_blas=auto])
  AC_ARG_VAR([BLAS_CFLAGS], [compiler flags that find cblas.h])
  AS_CASE([$with_blas],
    [no], [AC_MSG_ERROR([the cpu backend needs a CBLAS; --without-blas is not possible])],
    [yes | auto], [GT_BLAS_AUTO],
    [GT_BLAS_TRY([$BLAS_CFLAGS], [$with_blas])])
  AS_IF([test "x$gt_blas_found" != xyes], [
    AS_CASE([$with_blas],
      [yes | auto], [AC_MSG_ERROR([no CBLAS library was found (cblas.h with cblas_sgemm).  On Debian: apt-get install libopenblas-dev.  For another library, set --with-blas=LIBS and BLAS_CFLAGS=-I...])],
      [AC_MSG_ERROR([--with-blas=$with_blas: cblas.h (BLAS_CFLAGS="$BLAS_CFLAGS") with cblas_sgemm does not compile and link; config.log has the compiler's error])])
  ])
  gt_saved_LIBS=$LIBS
  LIBS="$BLAS_LIBS -lm $LIBS"
  AC_CHECK_FUNCS([openblas_set_num_threads bli_thread_set_num_threads MKL_Set_Num_Threads])
  LIBS=$gt_saved_LIBS
  AC_SUBST([BLAS_CFLAGS])
  AC_SUBST([BLAS_LIBS])
])

AC_DEFUN([GT_BLAS_AUTO], [
  gt_blas_found=no
  AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists openblas],
    [GT_BLAS_TRY([$BLAS_CFLAGS `$PKG_CONFIG --cflags openblas`], [`$PKG_CONFIG --libs openblas`])])
  for gt_blas_libs in -lopenblas -lblis -lcblas -lblas "-lcblas -lblas"; do
    AS_IF([test "x$gt_blas_found" = xno], [GT_BLAS_TRY([$BLAS_CFLAGS], [$gt_blas_libs])])
  done
])

# GT_BLAS_TRY(CFLAGS, LIBS): sets gt_blas_found, and on success BLAS_CFLAGS and BLAS_LIBS.
AC_DEFUN([GT_BLAS_TRY], [
  gt_blas_try_cflags="$1"
  gt_blas_try_libs="$2"
  AC_MSG_CHECKING([for cblas_sgemm with $gt_blas_try_libs])
  gt_saved_CFLAGS=$CFLAGS
  gt_saved_LIBS=$LIBS
  CFLAGS="$CFLAGS $gt_blas_try_cflags"
  LIBS="$gt_blas_try_libs $LIBS -lm"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]], [[float a = 2, b = 3, c = 0;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
    return c != 6;]])],
    [gt_blas_found=yes
     BLAS_CFLAGS=$gt_blas_try_cflags
     BLAS_LIBS=$gt_blas_try_libs],
    [gt_blas_found=no])
  AC_MSG_RESULT([$gt_blas_found])
  CFLAGS=$gt_saved_CFLAGS
  LIBS=$gt_saved_LIBS
])
