# The oracle and the naive reference, compiled into the programs that need them.
ref_sources = \
	tests/ref/ref.c tests/ref/ref.h \
	tests/ref/ref_attention.c \
	tests/ref/ref_rows.c
naive_sources = \
	tests/ref/naive.c tests/ref/naive.h \
	tests/ref/naive_attention.c \
	tests/ref/naive_rows.c
