# GT_BUILD
# What --version says of the build: BUILD_BACKENDS and BUILD_LIBRARIES.  Sets gt_backends and gt_cuda_release.
AC_DEFUN([GT_BUILD], [
  gt_backends=cpu
  gt_libraries="jansson `$PKG_CONFIG --modversion jansson`, PCRE2 `$PKG_CONFIG --modversion libpcre2-8`"
  AS_IF([test "x$gt_libarchive" = xyes], [gt_libraries="$gt_libraries, libarchive `$PKG_CONFIG --modversion libarchive`"])
  AS_IF([test "x$gt_icu" = xyes], [gt_libraries="$gt_libraries, ICU `$PKG_CONFIG --modversion icu-uc`"])
  AS_IF([test "x$gt_yaml" = xyes], [gt_libraries="$gt_libraries, libyaml `$PKG_CONFIG --modversion yaml-0.1`"])
  AS_IF([test "x$gt_libedit" = xyes], [gt_libraries="$gt_libraries, libedit `$PKG_CONFIG --modversion libedit`"])
  AS_CASE([$BLAS_LIBS], [*openblas*], [gt_blas="OpenBLAS `$PKG_CONFIG --modversion openblas 2>/dev/null`"],
    [gt_blas=`echo $BLAS_LIBS`])
  gt_libraries="$gt_libraries,\\n           $gt_blas"
  AS_IF([test "x$gt_openmp" = xyes],
    [gt_libraries="$gt_libraries, OpenMP `echo _OPENMP | $CC $OPENMP_CFLAGS -E -x c - | sed -n '$p'`"])
  AS_IF([test "x$gt_opencl" = xyes], [gt_backends="opencl, $gt_backends"])
  AS_IF([test "x$enable_cuda_module" != xno], [gt_backends="cuda (module), $gt_backends"])
  AS_IF([test "x$with_cuda" != xno],
    [gt_cuda_release=`"$NVCC" --version | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
     AS_IF([test "x$enable_cuda_module" = xno],
       [gt_backends="cuda, $gt_backends" gt_libraries="$gt_libraries, CUDA $gt_cuda_release"])])
  AC_DEFINE_UNQUOTED([BUILD_BACKENDS], ["$gt_backends"], [The backends of this build.])
  AC_DEFINE_UNQUOTED([BUILD_LIBRARIES], ["$gt_libraries"], [The libraries of this build, with their versions.])
])

# GT_SUMMARY
# The table at the end of configure: what was found and what the build will contain.
AC_DEFUN([GT_SUMMARY], [
  AS_IF([test "x$gt_have_check" = xyes], [gt_text_check="yes"],
    [gt_text_check="no (make check needs it; Debian: check)"])
  AS_IF([test "x$gt_libarchive" = xyes], [gt_text_archive=`$PKG_CONFIG --modversion libarchive`],
    [gt_text_archive="no (gpt-prepare refuses compressed files; Debian: libarchive-dev)"])
  AS_IF([test "x$gt_icu" = xyes], [gt_text_icu=`$PKG_CONFIG --modversion icu-uc`],
    [gt_text_icu="no (tokenizers that normalize text are refused; Debian: libicu-dev)"])
  AS_IF([test "x$gt_yaml" = xyes], [gt_text_yaml=`$PKG_CONFIG --modversion yaml-0.1`],
    [gt_text_yaml="no (configurations in YAML are refused; Debian: libyaml-dev)"])
  AS_IF([test "x$gt_libedit" = xyes], [gt_text_edit=`$PKG_CONFIG --modversion libedit`],
    [gt_text_edit="no (gpt-sample --chat does not edit lines; Debian: libedit-dev)"])
  AS_IF([test "x$FUZZ_CC" != xno], [gt_text_fuzzer="yes ($FUZZ_CC)"],
    [gt_text_fuzzer="no (fuzzing is skipped; Debian: clang libclang-rt-dev)"])
  AS_IF([test "x$PYTHON_TORCH" != xno], [gt_text_torch=$PYTHON_TORCH],
    [gt_text_torch="no (comparisons with PyTorch are skipped; Debian: python3-torch)"])
  AS_IF([test "x$gt_openmp" = xyes], [gt_text_openmp="yes ($OPENMP_CFLAGS)"],
    [gt_text_openmp="no: the cpu backend runs on one thread"])
  AS_IF([test "x$gt_opencl" = xyes], [gt_text_opencl=yes],
    [gt_text_opencl="no (Debian: opencl-headers)"])
  AS_IF([test "x$gt_x86_simd" = xyes], [gt_text_simd="generic avx2 avx512 (picked at run time)"],
    [gt_text_simd="generic"])
  AS_IF([test "x$gt_x86_bf16" = xyes], [gt_text_bf16="AMX, AVX512-BF16 (picked at run time), else in fp32"],
    [gt_text_bf16="in fp32"])
  AS_IF([test "x$enable_hardening" = xyes],
    [gt_text_hardening=`echo $HARDENING_CPPFLAGS $HARDENING_CFLAGS $HARDENING_LDFLAGS`], [gt_text_hardening=no])
  AS_IF([test -n "$gt_sanitizers"], [gt_text_sanitizers=`echo $gt_sanitizers`], [gt_text_sanitizers=none])
  AS_IF([test "x$with_cuda" != xno],
    [gt_text_cuda="$gt_cuda_release for $CUDA_ARCHS(${NVCC})"],
    [gt_text_cuda="no (--with-cuda; needs the toolkit, no card)"])
  AS_IF([test "x$with_mpi" != xno], [gt_text_mpi="yes ($MPICC)"],
    [gt_text_mpi="no (--with-mpi; Debian: libopenmpi-dev openmpi-bin)"])
  AS_IF([test "x$gt_have_cxx" = xyes], [gt_text_cxx="$CXX"],
    [gt_text_cxx="no (tests of the cuda backend are skipped; Debian: g++)"])
  AS_ECHO(["
  $PACKAGE_NAME $PACKAGE_VERSION
    prefix             $prefix
    compiler           $CC (`$CC --version 2>/dev/null | sed -n 1p`)
    flags              `echo $BUILD_CFLAGS $CFLAGS`
    warnings fatal     $enable_werror
    debug              $enable_debug
    sanitizers         $gt_text_sanitizers
    hardening          $gt_text_hardening
    OpenMP             $gt_text_openmp
    BLAS               `echo $BLAS_LIBS`
    kernels            $gt_text_simd
    bf16 products      $gt_text_bf16
    jansson            `$PKG_CONFIG --modversion jansson 2>/dev/null`
    PCRE2              `$PKG_CONFIG --modversion libpcre2-8 2>/dev/null`
    libarchive         $gt_text_archive
    ICU                $gt_text_icu
    libyaml            $gt_text_yaml
    libedit            $gt_text_edit
    iconv              $gt_iconv
    Check (tests)      $gt_text_check
    libFuzzer (tests)  $gt_text_fuzzer
    Python (style)     ${PYTHON:-no (make check-style needs it; Debian: python3)}
    Python with torch  $gt_text_torch
    CUDA               $gt_text_cuda
    MPI                $gt_text_mpi
    C++ (tests)        $gt_text_cxx
    OpenCL             $gt_text_opencl
    backends           $gt_backends
"])
])
