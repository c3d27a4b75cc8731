# GT_CUDA
# --with-cuda[=PREFIX]: the cuda backend.  Needs nvcc, cudart and cuBLASLt of CUDA 11.8 or later, and no card; looked for in
# PREFIX, $CUDA_HOME, PATH, /usr/local/cuda.  --with-cuda-arch=86,89 narrows what is compiled; the default is what the
# toolkit knows of 75, 80, 86, 89, 90, 100 and 120.  PTX is added, for cards to come.
# --enable-cuda-module: the programs load the backend from gpt-train-cuda.so; --with-cuda makes that module.
# Sets NVCC, NVCC_FLAGS, CUDA_CPPFLAGS, CUDA_LIBS, CUDA_ARCHS, CUDA_PTX_ARCH, HAVE_CUDA and its conditional.  The driver is
# not linked: a program starts without one.
AC_DEFUN([GT_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=PREFIX@:>@], [the cuda backend, with the toolkit in PREFIX (needs no card)])],
    [], [with_cuda=no])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST], [architectures to compile for, e.g. 86,89; default: all])],
    [], [with_cuda_arch=all])
  AC_ARG_ENABLE([cuda-module],
    [AS_HELP_STRING([--enable-cuda-module], [the programs load gpt-train-cuda.so, which --with-cuda then makes])],
    [], [enable_cuda_module=no])
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  AC_ARG_VAR([NVCCFLAGS], [more flags for nvcc, e.g. -ccbin=g++-11])
  CUDA_CPPFLAGS= CUDA_LIBS= CUDA_ARCHS= CUDA_PTX_ARCH= NVCC_FLAGS=
  AS_CASE([$with_cuda_arch], [yes | no | ''], [AC_MSG_ERROR([--with-cuda-arch expects numbers, e.g. 86,89])])
  AS_IF([test "x$with_cuda" != xno], [GT_CUDA_FIND],
    [AS_IF([test "x$with_cuda_arch" != xall], [AC_MSG_ERROR([--with-cuda-arch has no effect without --with-cuda])])])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$with_cuda" != xno])
  AS_IF([test "x$with_cuda" != xno], [AC_DEFINE([HAVE_CUDA], [1], [The cuda backend is part of this build.])])
  AC_DEFINE_UNQUOTED([CUDA_ARCH_LIST], ["${CUDA_ARCHS:-75 80 86 89 90}"],
    [The capabilities, in tenths, that the kernels have machine code for; without --with-cuda those of emulated cards.])
  AM_CONDITIONAL([HAVE_CUDA_MODULE], [test "x$enable_cuda_module" != xno])
  AS_IF([test "x$enable_cuda_module" != xno],
    [AC_DEFINE([HAVE_CUDA_MODULE], [1], [The cuda backend is a module, which is loaded when it is asked for.])])
  AC_SEARCH_LIBS([dlopen], [dl])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([CUDA_ARCHS])
  AC_SUBST([CUDA_PTX_ARCH])
  AC_SUBST([NVCC_FLAGS])
])

# The toolkit's folder, then its compiler, its libraries and its architectures.
AC_DEFUN([GT_CUDA_FIND], [
  AS_CASE([$with_cuda], [yes], [gt_cuda_prefix=$CUDA_HOME], [gt_cuda_prefix=$with_cuda])
  AS_IF([test -n "$gt_cuda_prefix"], [gt_cuda_where=$gt_cuda_prefix/bin],
    [gt_cuda_where="PATH or /usr/local/cuda/bin"])
  AS_IF([test -n "$gt_cuda_prefix"],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$gt_cuda_prefix/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])
     gt_cuda_prefix=`AS_DIRNAME(["$NVCC"])`/..])
  AS_IF([test -z "$NVCC"],
    [AC_MSG_ERROR([--with-cuda: no nvcc in $gt_cuda_where.  Debian: apt-get install nvidia-cuda-toolkit (contrib, non-free), or --with-cuda=PREFIX])])
  AS_IF([gt_cuda_physical=`cd "$gt_cuda_prefix" 2>/dev/null && pwd`], [gt_cuda_prefix=$gt_cuda_physical])
  GT_CUDA_ARCHS
  GT_CUDA_LIBS
  GT_CUDA_NVCC_TRY
])

# CUDA_ARCHS: the wanted ones that nvcc knows, smallest first; NVCC_FLAGS: the flags that make code for them.  The kernels
# know two kinds of card, before 8.0 and since; so machine code for all since is made from one PTX, that of the lowest,
# which takes a third of the time, and this PTX is kept: it is right for every later card.  CUDA_PTX_ARCH names it.  PTX of
# before 8.0 is not kept: later cards would run it, and it has not the kernels that they are started with.
AC_DEFUN([GT_CUDA_ARCHS], [
  AC_MSG_CHECKING([for CUDA architectures])
  gt_cuda_known=`"$NVCC" --list-gpu-arch 2>/dev/null | sed -n 's/^compute_\(@<:@0-9@:>@*\)$/\1/p' | sort -n | tr '\n' ' '`
  AS_IF([test "x$with_cuda_arch" = xall], [gt_cuda_wanted="75 80 86 89 90 100 120"],
    [gt_cuda_wanted=`echo "$with_cuda_arch" | tr ',' '\n' | sort -n -u`])
  gt_cuda_since=
  for gt_arch in $gt_cuda_wanted; do
    AS_IF([test "x$with_cuda_arch" != xall && test "0$gt_arch" -lt 75],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: the kernels need 75 or newer])])
    AS_IF([echo " $gt_cuda_known" | grep -q " $gt_arch "], [
      CUDA_ARCHS="$CUDA_ARCHS$gt_arch "
      AS_IF([test "$gt_arch" -lt 80],
        [NVCC_FLAGS="$NVCC_FLAGS -gencode=arch=compute_$gt_arch,code=sm_$gt_arch"],
        [AS_IF([test -z "$gt_cuda_since"], [CUDA_PTX_ARCH=$gt_arch])
         gt_cuda_since="${gt_cuda_since}sm_$gt_arch,"])
    ], [test "x$with_cuda_arch" != xall], [
      AC_MSG_RESULT([no])
      AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: $NVCC does not know $gt_arch; it knows $gt_cuda_known])
    ])
  done
  AC_MSG_RESULT([${CUDA_ARCHS:-none}])
  AS_IF([test -z "$CUDA_ARCHS"],
    [AC_MSG_ERROR([--with-cuda: $NVCC lists none of the architectures $gt_cuda_wanted (nvcc --list-gpu-arch)])])
  AS_IF([test -n "$CUDA_PTX_ARCH"],
    [NVCC_FLAGS="$NVCC_FLAGS -gencode=arch=compute_$CUDA_PTX_ARCH,code=@<:@${gt_cuda_since}compute_$CUDA_PTX_ARCH@:>@"])
])

# Headers and libraries.  cudart is taken static where it can be had, so that the version is that of the headers.  cuBLASLt
# must be there, and its folder is recorded in the programs, but it is opened when a card is (backends/cuda/cuda_lt.h).
AC_DEFUN([GT_CUDA_LIBS], [
  AS_IF([test "$gt_cuda_prefix" != /usr && test -d "$gt_cuda_prefix/include"],
    [CUDA_CPPFLAGS="-isystem $gt_cuda_prefix/include"])
  gt_cuda_ldflags=
  for gt_folder in "$gt_cuda_prefix/lib64" "$gt_cuda_prefix/targets/$host_cpu-linux/lib" \
    "$gt_cuda_prefix/targets/sbsa-linux/lib" "$gt_cuda_prefix/lib"; do
    AS_IF([test -z "$gt_cuda_ldflags" && test "$gt_cuda_prefix" != /usr && test -f "$gt_folder/libcublasLt.so"],
      [gt_cuda_ldflags="-L$gt_folder -Wl,-rpath,$gt_folder"])
  done
  gt_cuda_linked=no
  gt_saved_CPPFLAGS=$CPPFLAGS
  gt_saved_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
  for gt_cudart in "-lcudart_static -ldl -lrt -lpthread" -lcudart; do
    AS_IF([test "$gt_cuda_linked" = no], [
      AC_MSG_CHECKING([for cuBLASLt and the CUDA run-time library with $gt_cudart])
      LIBS="$gt_cuda_ldflags -lcublasLt $gt_cudart $gt_saved_LIBS"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime.h>
        #include <cublasLt.h>
        #if CUDART_VERSION < 11080
        #error "CUDA 11.8 or later is needed"
        #endif]], [[int count = 0; return (int)cudaGetDeviceCount(&count) + (int)cublasLtGetVersion();]])],
        [gt_cuda_linked=yes
         CUDA_LIBS="$gt_cuda_ldflags $gt_cudart"])
      AC_MSG_RESULT([$gt_cuda_linked])
    ])
  done
  CPPFLAGS=$gt_saved_CPPFLAGS
  LIBS=$gt_saved_LIBS
  AS_IF([test "$gt_cuda_linked" = no],
    [AC_MSG_ERROR([--with-cuda: cuda_runtime.h, cublasLt.h and their libraries of CUDA 11.8 or later are not usable in $gt_cuda_prefix; config.log has the compiler's error])])
])

# nvcc refuses host compilers newer than itself: where it does not like its own choice, older ones are tried by name.
AC_DEFUN([GT_CUDA_NVCC_TRY], [
  AC_MSG_CHECKING([for a host compiler that $NVCC works with])
  cat >conftest.cu <<\_GT_EOF
#include <cuda_bf16.h>
#include <math.h>
#include <string.h>
__global__ static void add(float *x) { x[[threadIdx.x]] += expf(1.0f); }
extern "C" cudaError_t launch(float *x) { add<<<1, 32>>>(x); return cudaGetLastError(); }
_GT_EOF
  gt_cuda_host=none
  for gt_arch in $CUDA_ARCHS; do break; done
  for gt_host in "" -ccbin=g++-14 -ccbin=g++-13 -ccbin=g++-12 -ccbin=g++-11 -ccbin=g++-10 -ccbin=g++-9; do
    AS_IF([test "$gt_cuda_host" = none &&
        "$NVCC" $NVCCFLAGS $gt_host -std=c++17 -arch=compute_$gt_arch -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
      [gt_cuda_host=${gt_host:-"its own choice"}
       NVCC_FLAGS="${gt_host:+$gt_host }$NVCC_FLAGS"])
  done
  AC_MSG_RESULT([$gt_cuda_host])
  AS_IF([test "$gt_cuda_host" = none],
    [AC_MSG_ERROR([--with-cuda: $NVCC cannot compile with this g++, nor with an older one that was found; config.log has its error.  Install g++-11, or set NVCCFLAGS=-ccbin=COMPILER])])
  rm -f conftest.cu conftest.o
])
