# Ops: one file per family, and the shared parts.
libgpttrain_a_SOURCES += \
	src/ops/infer.c src/ops/infer.h \
	src/ops/op.c src/ops/op.h src/ops/ops.def \
	src/ops/adamw.c \
	src/ops/attention.c \
	src/ops/cross_entropy.c \
	src/ops/delta.c \
	src/ops/elementwise.c \
	src/ops/embed.c \
	src/ops/gate.c \
	src/ops/gelu.c \
	src/ops/gemm.c \
	src/ops/layernorm.c \
	src/ops/muon.c \
	src/ops/norm.c \
	src/ops/parts.c \
	src/ops/rope.c
