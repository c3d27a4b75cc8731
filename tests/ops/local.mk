# The tests of all ops, and the part of opcheck that makes and judges cases: one library, because it needs another flag.
noinst_LIBRARIES += tests/ops/libops_test.a
tests_ops_libops_test_a_SOURCES = \
	tests/ops/adamw.c \
	tests/ops/adamw_lean.c \
	tests/ops/attention.c \
	tests/ops/blend.c \
	tests/ops/conv.c \
	tests/ops/cross_entropy.c \
	tests/ops/delta.c \
	tests/ops/dropout.c \
	tests/ops/embed.c \
	tests/ops/fill_copy.c \
	tests/ops/gate.c \
	tests/ops/gelu.c \
	tests/ops/gemm.c \
	tests/ops/gradient_round.c \
	tests/ops/layernorm.c \
	tests/ops/muon.c \
	tests/ops/norm.c \
	tests/ops/op_test.c \
	tests/ops/parts.c \
	tests/ops/residual.c \
	tests/ops/rope.c \
	tests/ops/op_test.h \
	tests/opcheck/cases.c \
	tests/opcheck/data.c \
	tests/opcheck/image.c \
	tests/opcheck/inputs.c \
	tests/opcheck/judge.c \
	tests/opcheck/opcheck.h
tests_ops_libops_test_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
