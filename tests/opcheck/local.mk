# opcheck: every op on every backend against the oracle.  There is one script for each dtype, so that they run in
# parallel, one for the narrower instruction sets of the cpu, one for opencl, one for another OpenCL compiler, and one
# for the opencl kernels on a simulator that reports stray accesses and races.  ref_selftest: the oracle against finite
# differences.  The fragment of tests/ops must precede this one.
check_PROGRAMS += tests/opcheck/ref_selftest
EXTRA_PROGRAMS += tests/opcheck/opcheck
check_DATA += tests/opcheck/opcheck$(EXEEXT)
CLEANFILES += tests/opcheck/opcheck$(EXEEXT)
dist_check_SCRIPTS += \
	tests/opcheck/opcheck_bfloat16.sh \
	tests/opcheck/opcheck_float16.sh \
	tests/opcheck/opcheck_float32.sh \
	tests/opcheck/opcheck_isa.sh \
	tests/opcheck/opcheck_oclgrind.sh \
	tests/opcheck/opcheck_opencl.sh \
	tests/opcheck/opcheck_rusticl.sh
EXTRA_DIST += tests/opcheck/bounds.md
tests_opcheck_opcheck_SOURCES = \
	tests/opcheck/opcheck.c \
	tests/opcheck/bench.c \
	tests/opcheck/device.c \
	tests/opcheck/mutants.c \
	tests/opcheck/suite.c
tests_opcheck_opcheck_LDADD = tests/ops/libops_test.a $(LDADD)
tests_opcheck_ref_selftest_SOURCES = tests/opcheck/ref_selftest.c
tests_opcheck_ref_selftest_LDADD = tests/ops/libops_test.a $(LDADD)
