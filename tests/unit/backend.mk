# Unit tests of the cpu backend; tests/model covers src/backend.
check_PROGRAMS += tests/unit/check_cpu_backend tests/unit/check_cpu_gemm \
	tests/unit/check_cpu_half tests/unit/check_cpu_math tests/unit/check_cpu_ops
if HAVE_OPENCL
check_PROGRAMS += tests/unit/check_opencl
endif
if HAVE_X86_SIMD
# cpu_gemm_amx.c on emulated instructions, beside the one that the backend has.
check_LIBRARIES += tests/unit/libamx_emulated.a
UNIT_LIB += tests/unit/libamx_emulated.a
tests_unit_libamx_emulated_a_SOURCES = backends/cpu/cpu_gemm_amx.c tests/unit/amx_emulation.h
tests_unit_libamx_emulated_a_CPPFLAGS = $(libcpu_generic_a_CPPFLAGS) -UCPU_ISA -DCPU_ISA=avx512 \
	-Dcpu_gemm_path_amx=cpu_gemm_path_amx_emulated -include immintrin.h -include $(srcdir)/tests/unit/amx_emulation.h
tests_unit_libamx_emulated_a_CFLAGS = $(libcpu_avx512_a_CFLAGS)
endif
