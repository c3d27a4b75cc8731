# GT_OPENCL
# The opencl backend, which needs the headers of OpenCL and nothing else to build: the ICD loader is opened at run time.
# --with-opencl=auto (the default) builds it where CL/cl.h is.  Sets HAVE_OPENCL.
AC_DEFUN([GT_OPENCL], [
  AC_ARG_WITH([opencl],
    [AS_HELP_STRING([--with-opencl=yes|no|auto], [build the opencl backend; auto: where CL/cl.h is found])],
    [], [with_opencl=auto])
  gt_opencl=no
  AS_IF([test "x$with_opencl" != xno], [
    AC_CHECK_HEADER([CL/cl.h], [gt_opencl=yes], [], [[
      #define CL_TARGET_OPENCL_VERSION 120
      #define CL_USE_DEPRECATED_OPENCL_1_2_APIS
    ]])
    AC_SEARCH_LIBS([dlopen], [dl], [], [gt_opencl=no])])
  AS_IF([test "x$with_opencl" = xyes && test "x$gt_opencl" = xno],
    [AC_MSG_ERROR([--with-opencl: CL/cl.h was not found.  Debian: apt-get install opencl-headers])])
  AS_IF([test "x$gt_opencl" = xyes], [AC_DEFINE([HAVE_OPENCL], [1], [The opencl backend is built.])])
  AM_CONDITIONAL([HAVE_OPENCL], [test "x$gt_opencl" = xyes])
])
