# Unit tests of src/backend and of the cpu backend.
check_PROGRAMS += tests/unit/check_backend_call tests/unit/check_cpu_backend tests/unit/check_cpu_gemm \
	tests/unit/check_cpu_half tests/unit/check_cpu_lean tests/unit/check_cpu_math tests/unit/check_cpu_ops \
	tests/unit/check_cuda_choices \
	tests/unit/check_cuda_lt
if HAVE_OPENCL
check_PROGRAMS += tests/unit/check_opencl tests/unit/check_opencl_division
tests_unit_check_opencl_SOURCES = tests/unit/check_opencl.c
tests_unit_check_opencl_division_SOURCES = tests/unit/check_opencl_division.c
endif
tests_unit_check_backend_call_SOURCES = tests/unit/check_backend_call.c
tests_unit_check_cpu_backend_SOURCES = tests/unit/check_cpu_backend.c
tests_unit_check_cpu_gemm_SOURCES = tests/unit/check_cpu_gemm.c tests/unit/cpu_fixture.c tests/unit/cpu_fixture.h
tests_unit_check_cpu_half_SOURCES = tests/unit/check_cpu_half.c tests/unit/cpu_fixture.c tests/unit/cpu_fixture.h
tests_unit_check_cpu_lean_SOURCES = tests/unit/check_cpu_lean.c tests/unit/cpu_fixture.c tests/unit/cpu_fixture.h
tests_unit_check_cuda_lt_SOURCES = tests/unit/check_cuda_lt.c
tests_unit_check_cuda_lt_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests/cuda_on_cpu/include
tests_unit_check_cuda_choices_SOURCES = tests/unit/check_cuda_choices.c \
	backends/cuda/cuda_choices.c backends/cuda/cuda_choices.h
tests_unit_check_cpu_math_SOURCES = tests/unit/check_cpu_math.c
tests_unit_check_cpu_ops_SOURCES = tests/unit/check_cpu_ops.c tests/unit/cpu_fixture.c tests/unit/cpu_fixture.h
