# The cpu backend.  Kernels are compiled once per instruction set, which is the suffix of their names; the rest once.
cpu_kernels = \
	backends/cpu/cpu_attention.h \
	backends/cpu/cpu_attention_backward.c \
	backends/cpu/cpu_attention_forward.c \
	backends/cpu/cpu_conv.c \
	backends/cpu/cpu_cross_entropy.c \
	backends/cpu/cpu_delta.c \
	backends/cpu/cpu_delta.h \
	backends/cpu/cpu_delta_backward.c \
	backends/cpu/cpu_elementwise.c \
	backends/cpu/cpu_embed.c \
	backends/cpu/cpu_gate.c \
	backends/cpu/cpu_gemm.c \
	backends/cpu/cpu_gemm.h \
	backends/cpu/cpu_gemm_few.c \
	backends/cpu/cpu_gemm_packed.c \
	backends/cpu/cpu_half.h \
	backends/cpu/cpu_layernorm.c \
	backends/cpu/cpu_norm.c \
	backends/cpu/cpu_philox.h \
	backends/cpu/cpu_rope.c \
	backends/cpu/cpu_table.c \
	backends/cpu/cpu_tile.h

cpu_exact_kernels = backends/cpu/cpu_exact.c

libcpu_generic_a_SOURCES += $(cpu_kernels) \
	backends/cpu/cpu.h \
	backends/cpu/cpu_backend.c \
	backends/cpu/cpu_memory.c backends/cpu/cpu_memory.h
libcpu_generic_a_CPPFLAGS += -DCPU_ISA=generic
# Allows the compiler to fuse a multiplication and an addition; ISO mode forbids it by default.
libcpu_generic_a_CFLAGS += -ffp-contract=fast
libcpu_avx2_a_SOURCES += $(cpu_kernels)
libcpu_avx2_a_CPPFLAGS += -UCPU_ISA -DCPU_ISA=avx2
libcpu_avx512_a_SOURCES += $(cpu_kernels)
libcpu_avx512_a_CPPFLAGS += -UCPU_ISA -DCPU_ISA=avx512
libcpu_exact_generic_a_SOURCES += $(cpu_exact_kernels)
libcpu_exact_generic_a_CPPFLAGS += -DCPU_ISA=generic
libcpu_exact_avx2_a_SOURCES += $(cpu_exact_kernels)
libcpu_exact_avx2_a_CPPFLAGS += -UCPU_ISA -DCPU_ISA=avx2
libcpu_exact_avx512_a_SOURCES += $(cpu_exact_kernels)
libcpu_exact_avx512_a_CPPFLAGS += -UCPU_ISA -DCPU_ISA=avx512
libcpu_bf16_a_SOURCES += backends/cpu/cpu_gemm_amx.c backends/cpu/cpu_gemm_packed.c
libcpu_bf16_a_CPPFLAGS += -UCPU_ISA -DCPU_ISA=avx512_bf16
