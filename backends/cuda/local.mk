# The cuda backend: plain C for the host side, and kernels in kernels/*.cu, which nvcc compiles one file at a time for
# every architecture.  tests/cuda_on_cpu compiles the same lists where there is a C++ compiler.  Add a family's files
# here, in alphabetical order; kernel_headers are the headers that kernels include.
cuda_sources = \
	backends/cuda/cuda_attention.c \
	backends/cuda/cuda.h backends/cuda/cuda_backend.c \
	backends/cuda/cuda_cards.c backends/cuda/cuda_cards.h \
	backends/cuda/cuda_error.c backends/cuda/cuda_error.h \
	backends/cuda/cuda_gemm.c backends/cuda/cuda_gemm.h \
	backends/cuda/cuda_gemm_cache.c backends/cuda/cuda_gemm_cache.h \
	backends/cuda/cuda_lt.h \
	backends/cuda/cuda_memory.c backends/cuda/cuda_memory.h \
	backends/cuda/cuda_nccl.c backends/cuda/cuda_nccl.h \
	backends/cuda/cuda_ops.c backends/cuda/cuda_ops.h \
	backends/cuda/cuda_table.c \
	backends/cuda/cuda_trial.c backends/cuda/cuda_trial.h \
	backends/cuda/cuda_tuning.c backends/cuda/cuda_tuning.h

# Not part of the emulated backend, which links cuBLASLt's functions.
cuda_loader = backends/cuda/cuda_lt.c
EXTRA_DIST += $(cuda_loader)

cuda_kernels = \
	backends/cuda/kernels/attention_cached.cu \
	backends/cuda/kernels/attention_plain_backward.cu \
	backends/cuda/kernels/attention_plain_forward.cu \
	backends/cuda/kernels/attention_tile_backward.cu \
	backends/cuda/kernels/attention_tile_forward.cu \
	backends/cuda/kernels/adamw.cu \
	backends/cuda/kernels/cross_entropy.cu \
	backends/cuda/kernels/delta.cu \
	backends/cuda/kernels/elementwise.cu \
	backends/cuda/kernels/embed.cu \
	backends/cuda/kernels/gate.cu \
	backends/cuda/kernels/gelu.cu \
	backends/cuda/kernels/gemm.cu \
	backends/cuda/kernels/gemm_own.cu \
	backends/cuda/kernels/layernorm.cu \
	backends/cuda/kernels/muon.cu \
	backends/cuda/kernels/norm.cu \
	backends/cuda/kernels/rope.cu \
	backends/cuda/kernels/rows_sum.cu

cuda_kernel_headers = \
	backends/cuda/cuda_attention.h \
	backends/cuda/cuda_device.h \
	backends/cuda/cuda_floats.h \
	backends/cuda/cuda_kernels.h \
	backends/cuda/kernels/attention_place.h \
	backends/cuda/kernels/attention_plain.h \
	backends/cuda/kernels/attention_tile.h \
	backends/cuda/kernels/gelu_fast.h

EXTRA_DIST += $(cuda_kernels) $(cuda_kernel_headers)

cuda_module = backends/cuda/cuda_module.c
cuda_module_map = backends/cuda/cuda_module.map
EXTRA_DIST += $(cuda_module) $(cuda_module_map)
CUDA_MODULE_LINK = -shared -Wl,--version-script=$(top_srcdir)/$(cuda_module_map) -Wl,--no-undefined-version

CUDA_ARCHIVE =
CUDA_PROGRAM_LIBS =
if HAVE_CUDA
noinst_LIBRARIES += libcuda_backend.a
libcuda_backend_a_SOURCES = $(cuda_sources) $(cuda_loader)
libcuda_backend_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libcuda_backend_a_CFLAGS = $(AM_CFLAGS) $(CUDA_PIC)
libcuda_backend_a_LIBADD = $(CUDA_OBJECTS)
libcuda_backend_a_DEPENDENCIES = $(CUDA_OBJECTS)

# Position-independent, because programs and modules are; without exceptions, so that the C++ library is not needed.
CUDA_OBJECTS = $(cuda_kernels:.cu=.o)
NVCC_COMPILE = $(NVCC) $(NVCC_FLAGS) -std=c++17 -O3 -I$(top_srcdir)/src -I$(top_srcdir) \
	-Xcompiler=$(CUDA_PIC),-fno-exceptions,-fno-threadsafe-statics,-Wall $(NVCCFLAGS)
backends/cuda/kernels/%.o: backends/cuda/kernels/%.cu backends/cuda/kernels/nvcc.flags
	$(AM_V_GEN)$(NVCC_COMPILE) -MD -MF $(@:.o=.d) -c $< -o $@
-include $(CUDA_OBJECTS:.o=.d)
# This file changes only with the compiler or its flags; then all kernels are compiled again.
backends/cuda/kernels/nvcc.flags: nvcc-flags-force
	@$(MKDIR_P) $(@D)
	@echo '$(NVCC_COMPILE)' | cmp -s - $@ || echo '$(NVCC_COMPILE)' >$@
nvcc-flags-force:
CLEANFILES += $(CUDA_OBJECTS) $(CUDA_OBJECTS:.o=.d) backends/cuda/kernels/nvcc.flags

if HAVE_CUDA_MODULE
CUDA_PIC = -fPIC
modulesdir = $(pkglibdir)
modules_PROGRAMS = gpt-train-cuda.so
gpt_train_cuda_so_SOURCES = backends/cuda/cuda_module.c
gpt_train_cuda_so_CPPFLAGS = $(AM_CPPFLAGS)
gpt_train_cuda_so_CFLAGS = $(AM_CFLAGS) $(CUDA_PIC)
gpt_train_cuda_so_LDFLAGS = $(BUILD_LDFLAGS) $(CUDA_MODULE_LINK)
gpt_train_cuda_so_LDADD = libcuda_backend.a $(CUDA_LIBS)
else
CUDA_PIC = -fPIE
CUDA_ARCHIVE += libcuda_backend.a
CUDA_PROGRAM_LIBS += $(CUDA_LIBS)
endif
endif
