# GT_CPU_SIMD
# The kernels of the cpu backend are compiled once per instruction set and picked at run time, so that one binary runs
# everywhere; -march=native never appears.  Sets CPU_CFLAGS (all kernels), AVX2_CFLAGS, AVX512_CFLAGS, BF16_CFLAGS (bf16
# products) and the conditionals HAVE_X86_SIMD and HAVE_X86_BF16.  Call after GT_SANITIZERS.
AC_DEFUN([GT_CPU_SIMD], [
  AC_REQUIRE([AC_CANONICAL_HOST])
  CPU_CFLAGS="-fno-math-errno -fno-trapping-math"
  AS_IF([test "x$enable_debug" != xyes], [CPU_CFLAGS="-O3 $CPU_CFLAGS"])
  AVX2_CFLAGS="-mavx2 -mfma -mf16c"
  AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512dq -mavx512vl $AVX2_CFLAGS"
  BF16_CFLAGS="-mamx-tile -mamx-bf16 -mavx512bf16 $AVX512_CFLAGS"
  gt_x86_simd=no
  gt_x86_bf16=no
  AS_CASE([$host_cpu], [x86_64 | amd64], [GT_CPU_SIMD_TRY])
  AM_CONDITIONAL([HAVE_X86_SIMD], [test "x$gt_x86_simd" = xyes])
  AS_IF([test "x$gt_x86_simd" = xyes],
    [AC_DEFINE([HAVE_X86_SIMD], [1], [The AVX2 and AVX-512 variants of the cpu kernels are part of this build.])])
  AC_SUBST([CPU_CFLAGS])
  AM_CONDITIONAL([HAVE_X86_BF16], [test "x$gt_x86_bf16" = xyes])
  AS_IF([test "x$gt_x86_bf16" = xyes],
    [AC_DEFINE([HAVE_X86_BF16], [1], [Products of bf16 in AMX and AVX512-BF16 instructions are part of this build.])])
  AC_SUBST([AVX2_CFLAGS])
  AC_SUBST([AVX512_CFLAGS])
  AC_SUBST([BF16_CFLAGS])
])

AC_DEFUN([GT_CPU_SIMD_TRY], [
  AC_MSG_CHECKING([for AVX2 and AVX-512 intrinsics])
  gt_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $AVX512_CFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[
    __m256 a = _mm256_fmadd_ps(_mm256_set1_ps(1), _mm256_set1_ps(2), _mm256_cvtph_ps(_mm_setzero_si128()));
    __m512 b = _mm512_add_ps(_mm512_set1_ps(1), _mm512_castps256_ps512(a));
    return !__builtin_cpu_supports("avx2") || (int)_mm512_reduce_add_ps(b);]])], [gt_x86_simd=yes])
  CFLAGS=$gt_saved_CFLAGS
  AC_MSG_RESULT([$gt_x86_simd])
  AS_IF([test "x$gt_x86_simd" = xyes], [GT_CPU_BF16_TRY])
])

AC_DEFUN([GT_CPU_BF16_TRY], [
  AC_MSG_CHECKING([for AMX and AVX512-BF16 intrinsics])
  gt_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $BF16_CFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cpuid.h>
    #include <immintrin.h>]], [[
    unsigned a, b, c, d;
    __m512 e = _mm512_dpbf16_ps(_mm512_setzero_ps(), (__m512bh)_mm512_setzero_ps(), (__m512bh)_mm512_setzero_ps());
    _tile_zero(0);
    _tile_dpbf16ps(0, 1, 2);
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) + __builtin_cpu_supports("avx512bf16") + (int)_mm512_reduce_add_ps(e);]])], [gt_x86_bf16=yes])
  CFLAGS=$gt_saved_CFLAGS
  AC_MSG_RESULT([$gt_x86_bf16])
])
