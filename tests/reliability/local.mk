# What a run survives: kills, failing calls, power cuts, full disks and faulty ranks; and how the programs are
# hardened.  `make check` tries a sample of the cases; `make check-long` every one.
dist_check_SCRIPTS += \
	tests/reliability/crash_states.py \
	tests/reliability/failing_calls.py \
	tests/reliability/hardening.py \
	tests/reliability/kills.py \
	tests/reliability/rank_faults.py \
	tests/reliability/strict_resume.py \
	tests/reliability/surroundings.py
EXTRA_DIST += tests/reliability/sanitizers.sh tests/reliability/commands.py tests/reliability/faulty_device.py \
	tests/reliability/faulty_ranks.c tests/reliability/lsan.supp tests/reliability/tiny.py

check_PROGRAMS += tests/reliability/check_flips
tests_reliability_check_flips_SOURCES = tests/reliability/check_flips.c tests/unit/io_fixture.h tests/unit/log_capture.h

# gpt-train with a planted fault: its registry of backends replaces that of libgpttrain.a.
tests_reliability_gpt_train_faulty_SOURCES = $(gpt_train_SOURCES) tests/reliability/faulty_registry.c
tests_reliability_gpt_train_faulty_LDADD = $(gpt_train_LDADD)
EXTRA_PROGRAMS += tests/reliability/gpt-train-faulty
check_DATA += tests/reliability/gpt-train-faulty$(EXEEXT)
CLEANFILES += tests/reliability/gpt-train-faulty$(EXEEXT)

# More cases than `make check` has: kills of every kind of run, failing calls, power cuts and ranks; 20 seconds of
# fuzzing for each parser; products of every shape in every instruction set; kernels under sanitizers; then the programs
# under sanitizers, in build folders below sanitizers/.  LONG_TESTS='...' and SANITIZERS='...' select parts.
LONG_TESTS = \
	tests/reliability/kills.py tests/reliability/rank_faults.py tests/reliability/failing_calls.py \
	tests/reliability/crash_states.py tests/reliability/check_flips \
	tests/e2e/prepare_resume.py tests/e2e/cuda_registers.py tests/fuzz/run.sh \
	tests/cuda_on_cpu/orders.sh tests/cuda_on_cpu/sanitizers.py \
	tests/opcheck/opcheck_isa.sh tests/opcheck/opcheck_opencl.sh tests/opcheck/opcheck_oclgrind.sh
SANITIZERS = asan tsan
check-long:
	CHECK_LONG=1 FUZZ_SECONDS=20 TEST_LIMIT_S=1800 $(MAKE) check TESTS='$(LONG_TESTS)'
	[ -z '$(SANITIZERS)' ] || \
	$(SHELL) $(srcdir)/tests/reliability/sanitizers.sh '$(abs_top_srcdir)' sanitizers $(SANITIZERS)
