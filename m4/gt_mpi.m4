# GT_MPI
# --with-mpi: the module gpt-train-mpi.so, for ranks that MPI's launcher starts.  $MPICC, by default mpicc, makes it.  Sets
# MPICC, HAVE_MPI and its conditional.
AC_DEFUN([GT_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi], [ranks on several machines, through the MPI whose mpicc is found])],
    [], [with_mpi=no])
  AC_ARG_VAR([MPICC], [MPI's compiler])
  AS_IF([test "x$with_mpi" != xno], [
    AC_CHECK_PROGS([MPICC], [mpicc], [no])
    AC_MSG_CHECKING([whether $MPICC makes modules of MPI 3])
    cat >conftest.c <<\_GT_EOF
#include <mpi.h>
int local(MPI_Comm *out) { return MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, out); }
_GT_EOF
    AS_IF([$MPICC -shared -fPIC conftest.c -o conftest.so >&AS_MESSAGE_LOG_FD 2>&1], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([--with-mpi: $MPICC does not work.  Debian: apt-get install libopenmpi-dev openmpi-bin, or MPICC=...])])
    rm -f conftest.c conftest.so
    AC_DEFINE([HAVE_MPI], [1], [The programs load gpt-train-mpi.so under MPI's launcher.])])
  AM_CONDITIONAL([HAVE_MPI], [test "x$with_mpi" != xno])
])
