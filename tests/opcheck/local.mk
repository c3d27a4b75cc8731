# opcheck: every op on every backend against the oracle.  There is one script for each dtype, so that they run in
# parallel, one for the narrower instruction sets of the cpu, one for opencl, and one
# for the opencl kernels on a simulator that reports stray accesses and races.  tests/model/check_autodiff compares the
# oracle with central differences.  The fragment of tests/ops must precede this one.  gpt-check runs the installed opcheck.
pkglibexec_PROGRAMS = tests/opcheck/opcheck
dist_check_SCRIPTS += \
	tests/opcheck/opcheck_bfloat16.sh \
	tests/opcheck/opcheck_float16.sh \
	tests/opcheck/opcheck_float32.sh \
	tests/opcheck/opcheck_isa.sh \
	tests/opcheck/opcheck_oclgrind.sh \
	tests/opcheck/opcheck_opencl.sh
EXTRA_DIST += tests/opcheck/bounds.md tests/opcheck/opcheck.inc
tests_opcheck_opcheck_SOURCES = \
	tests/opcheck/opcheck.c \
	tests/opcheck/bench.c \
	tests/opcheck/device.c \
	tests/opcheck/mutants.c \
	tests/opcheck/suite.c \
	tests/opcheck/threads.c
tests_opcheck_opcheck_LDADD = tests/ops/libops_test.a $(PROGRAM_LIBS)
tests_opcheck_opcheck_LDFLAGS = $(DEVICE_LINK)
