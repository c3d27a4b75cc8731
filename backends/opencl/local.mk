# The opencl backend.  config/embed.sh turns the kernels' text into a C file in the build folder; drivers compile it at
# run time.  A new kernel file must be listed in opencl_kernels and declared in opencl_launch.h.
opencl_kernels = \
	backends/opencl/kernels/adamw_lean.cl \
	backends/opencl/kernels/attention_backward.cl \
	backends/opencl/kernels/attention_forward.cl \
	backends/opencl/kernels/common.clh \
	backends/opencl/kernels/cross_entropy.cl \
	backends/opencl/kernels/delta.cl \
	backends/opencl/kernels/elementwise.cl \
	backends/opencl/kernels/embed.cl \
	backends/opencl/kernels/gate.cl \
	backends/opencl/kernels/gelu.cl \
	backends/opencl/kernels/gemm.cl \
	backends/opencl/kernels/gemm_few.cl \
	backends/opencl/kernels/gemm_matrix.cl \
	backends/opencl/kernels/gemm_single.cl \
	backends/opencl/kernels/layernorm.cl \
	backends/opencl/kernels/muon.cl \
	backends/opencl/kernels/norm.cl \
	backends/opencl/kernels/probe.cl \
	backends/opencl/kernels/rope.cl

opencl_headers = src/base/bits.h backends/delta.h backends/gelu.h tests/opcheck/emulated_units.clh
EXTRA_DIST += $(opencl_kernels) $(opencl_headers)

OPENCL_LIBS =
if HAVE_OPENCL
noinst_LIBRARIES += libopencl_backend.a
OPENCL_LIBS += libopencl_backend.a
libopencl_backend_a_SOURCES = \
	backends/opencl/opencl.h backends/opencl/opencl_api.def \
	backends/opencl/opencl_attention.c \
	backends/opencl/opencl_backend.c \
	backends/opencl/opencl_child.c backends/opencl/opencl_child.h \
	backends/opencl/opencl_clblast.c backends/opencl/opencl_clblast.h \
	backends/opencl/opencl_device.c backends/opencl/opencl_device.h \
	backends/opencl/opencl_error.c backends/opencl/opencl_error.h \
	backends/opencl/opencl_gemm.c backends/opencl/opencl_gemm.h \
	backends/opencl/opencl_known.c backends/opencl/opencl_known.h \
	backends/opencl/opencl_launch.c backends/opencl/opencl_launch.h \
	backends/opencl/opencl_matrix.c backends/opencl/opencl_matrix.h \
	backends/opencl/opencl_memory.c backends/opencl/opencl_memory.h \
	backends/opencl/opencl_open.c backends/opencl/opencl_open.h \
	backends/opencl/opencl_ops.c \
	backends/opencl/opencl_program.c backends/opencl/opencl_program.h \
	backends/opencl/opencl_tune.c backends/opencl/opencl_tune.h \
	backends/opencl/opencl_vendor.c backends/opencl/opencl_vendor.h
nodist_libopencl_backend_a_SOURCES = backends/opencl/opencl_sources.c
endif

backends/opencl/opencl_sources.c: $(opencl_kernels) $(opencl_headers) config/embed.sh
	$(AM_V_GEN)$(MKDIR_P) backends/opencl && (cd $(srcdir) && $(SHELL) config/embed.sh opencl_source opencl_source \
		backends/opencl/opencl.h $(opencl_kernels)) >$@.new && mv $@.new $@
CLEANFILES += backends/opencl/opencl_sources.c backends/opencl/opencl_sources.c.new

# The folders in which tests keep compiled kernels and timings.
clean-local:
	-rm -rf tests/pocl-cache tests/cache
