# The oracle and the naive reference, compiled into the programs that need them.
ref_sources = \
	tests/ref/ref.c tests/ref/ref.h \
	tests/ref/ref_attention.c \
	tests/ref/ref_rows.c
naive_sources = \
	tests/ref/naive.c tests/ref/naive.h \
	tests/ref/naive_attention.c \
	tests/ref/naive_rows.c

# The bit-exact references: a library, for a flag of their own.
check_LIBRARIES += tests/ref/libexact.a
tests_ref_libexact_a_SOURCES = tests/ref/exact.c tests/ref/exact.h tests/ref/lean.c tests/ref/lean.h \
	tests/ref/muon.c
tests_ref_libexact_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
