# opcheck: every op on every backend against the oracle; ref_selftest: the oracle against finite differences.
# The fragment of tests/ref comes before this one.
check_PROGRAMS += tests/opcheck/opcheck tests/opcheck/ref_selftest
EXTRA_DIST += tests/opcheck/bounds.md
tests_opcheck_opcheck_SOURCES = \
	tests/opcheck/opcheck.c tests/opcheck/opcheck.h \
	tests/opcheck/bench.c \
	tests/opcheck/cases.c \
	tests/opcheck/data.c \
	tests/opcheck/device.c \
	tests/opcheck/image.c \
	tests/opcheck/inputs.c \
	tests/opcheck/judge.c \
	tests/opcheck/mutants.c \
	$(ref_sources) $(naive_sources)
tests_opcheck_ref_selftest_SOURCES = \
	tests/opcheck/ref_selftest.c \
	tests/opcheck/cases.c \
	tests/opcheck/image.c \
	$(ref_sources)
