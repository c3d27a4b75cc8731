# What a run survives: kills, failing calls, power cuts; and how the programs are hardened.  `make check` tries a sample of the
# cases, `make check-long` every one (an hour or more).
RELIABILITY_TESTS = \
	tests/reliability/crash_states.py \
	tests/reliability/device_faults.py \
	tests/reliability/failing_calls.py \
	tests/reliability/hardening.py \
	tests/reliability/kills.py \
	tests/reliability/soak.py \
	tests/reliability/strict_resume.py \
	tests/reliability/surroundings.py
dist_check_SCRIPTS += $(RELIABILITY_TESTS)
EXTRA_DIST += tests/reliability/clock_jumps.c tests/reliability/opencl_faults.c tests/reliability/sanitizers.sh \
	tests/reliability/tiny.py tests/reliability/valgrind.supp

check_PROGRAMS += tests/reliability/check_flips
tests_reliability_check_flips_SOURCES = tests/reliability/check_flips.c tests/unit/io_fixture.h tests/unit/log_capture.h

# gpt-train with planted faults: its registry of backends is another one, and that of libgpttrain.a is then not taken.
EXTRA_PROGRAMS += tests/reliability/gpt-train-faulty
check_DATA += tests/reliability/gpt-train-faulty$(EXEEXT)
CLEANFILES += tests/reliability/gpt-train-faulty$(EXEEXT)
tests_reliability_gpt_train_faulty_SOURCES = $(gpt_train_SOURCES) tests/reliability/faulty_registry.c
tests_reliability_gpt_train_faulty_LDADD = $(gpt_train_LDADD)

check-long:
	CHECK_LONG=1 TEST_LIMIT_S=14400 $(MAKE) $(AM_MAKEFLAGS) check \
		TESTS='$(RELIABILITY_TESTS) tests/reliability/check_flips tests/fuzz/every_bit.py'

# The suite once more for each sanitizer, in build folders of its own below sanitizers/.
check-sanitizers:
	$(SHELL) $(srcdir)/tests/reliability/sanitizers.sh '$(abs_top_srcdir)' sanitizers
