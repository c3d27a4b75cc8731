# What a run survives: kills, failing calls, power cuts; and how the programs are hardened.  `make check` tries a sample of the
# cases, `make check-long` every one (an hour or more).
RELIABILITY_TESTS = \
	tests/reliability/crash_states.py \
	tests/reliability/failing_calls.py \
	tests/reliability/hardening.py \
	tests/reliability/kills.py
dist_check_SCRIPTS += $(RELIABILITY_TESTS)
EXTRA_DIST += tests/reliability/tiny.py

check-long:
	CHECK_LONG=1 TEST_LIMIT_S=14400 $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(RELIABILITY_TESTS)'
