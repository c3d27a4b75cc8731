# The cuda backend on the CPU: its host code and its kernels, compiled against the headers in include/, with emulated
# threads, a fake run-time library and a fake cuBLASLt.  The programs are the project's, with this backend in place of
# the real one: gpt-train-cuda, gpt-sample-cuda, opcheck-cuda.  Without a C++17 compiler they are not built, and the
# tests that need them are skipped by name.
emulator_sources = \
	tests/cuda_on_cpu/emulator.cpp tests/cuda_on_cpu/emulator.h tests/cuda_on_cpu/emulator_run.h \
	tests/cuda_on_cpu/fake_cublaslt.cpp \
	tests/cuda_on_cpu/fake_runtime.cpp tests/cuda_on_cpu/fake_runtime.h \
	tests/cuda_on_cpu/rounding.cpp
emulator_headers = \
	tests/cuda_on_cpu/include/cublasLt.h \
	tests/cuda_on_cpu/include/cuda_bf16.h \
	tests/cuda_on_cpu/include/cuda_errors.def \
	tests/cuda_on_cpu/include/cuda_fp16.h \
	tests/cuda_on_cpu/include/cuda_runtime.h \
	tests/cuda_on_cpu/include/library_types.h
EXTRA_DIST += $(emulator_headers) tests/cuda_on_cpu/fake_nvml.c tests/cuda_on_cpu/fake_nccl.c

EMULATED_CPPFLAGS = -I$(top_srcdir)/tests/cuda_on_cpu -I$(top_srcdir)/tests/cuda_on_cpu/include -DGT_CUDA_EMULATED \
	$(AM_CPPFLAGS)
EMULATED_WARNINGS = -Wall -Wextra -Wno-unknown-pragmas
# Kernels are compiled as in a release, whatever the build is, because they are slow enough; products and sums are never
# fused.  They access memory as words and as numbers, as device code may; they go into programs and into a module.
EMULATED_PIC = -fPIC -fvisibility=hidden
EMULATED_CODE = $(EMULATED_PIC) -fno-strict-aliasing -ffp-contract=off
EMULATED_CXXFLAGS = -std=c++17 $(BUILD_CFLAGS) -O2 $(EMULATED_CODE) $(EMULATED_WARNINGS) $(CXXFLAGS)

if HAVE_CXX
# The emulator itself is never instrumented: it switches stacks, and tells the sanitizers so.  Its own files and stacks
# must not fail in the programs of tests/reliability, which wrap fopen64 and mmap64, so it calls fopen and mmap.
check_LIBRARIES += tests/cuda_on_cpu/libemulator.a tests/cuda_on_cpu/libcuda_emulated.a
tests_cuda_on_cpu_libemulator_a_SOURCES = $(emulator_sources)
tests_cuda_on_cpu_libemulator_a_CPPFLAGS = $(EMULATED_CPPFLAGS) -U_FILE_OFFSET_BITS
tests_cuda_on_cpu_libemulator_a_CXXFLAGS = -std=c++17 -g -O2 $(EMULATED_CODE) $(EMULATED_WARNINGS)
tests_cuda_on_cpu_libcuda_emulated_a_SOURCES = $(cuda_sources) tests/cuda_on_cpu/linked_lt.c
tests_cuda_on_cpu_libcuda_emulated_a_CPPFLAGS = $(EMULATED_CPPFLAGS)
tests_cuda_on_cpu_libcuda_emulated_a_CFLAGS = $(AM_CFLAGS) $(EMULATED_PIC)
tests_cuda_on_cpu_libcuda_emulated_a_LIBADD = $(EMULATED_KERNELS)
tests_cuda_on_cpu_libcuda_emulated_a_DEPENDENCIES = $(EMULATED_KERNELS)

EMULATED_KERNELS = $(cuda_kernels:backends/cuda/kernels/%.cu=tests/cuda_on_cpu/kernels/%.o)
tests/cuda_on_cpu/kernels/%.o: backends/cuda/kernels/%.cu
	@$(MKDIR_P) $(@D)
	$(AM_V_CXX)$(CXX) $(EMULATED_CPPFLAGS) $(EMULATED_CXXFLAGS) -MD -MP -MF $(@:.o=.d) -x c++ -c $< -o $@
-include $(EMULATED_KERNELS:.o=.d)

EMULATED_LIBS = tests/cuda_on_cpu/libcuda_emulated.a tests/cuda_on_cpu/libemulator.a
emulated_programs = tests/cuda_on_cpu/gpt-train-cuda tests/cuda_on_cpu/gpt-sample-cuda tests/cuda_on_cpu/opcheck-cuda
EXTRA_PROGRAMS += $(emulated_programs)
fake_libraries = tests/cuda_on_cpu/nvml/libnvidia-ml.so.1 tests/cuda_on_cpu/libnccl.so.2
check_DATA += $(emulated_programs:=$(EXEEXT)) $(fake_libraries)
CLEANFILES += $(emulated_programs:=$(EXEEXT)) $(EMULATED_KERNELS) $(EMULATED_KERNELS:.o=.d) $(fake_libraries)

# The registry is compiled again, with cuda in it, and replaces that of libgpttrain.a.
tests_cuda_on_cpu_gpt_train_cuda_SOURCES = $(gpt_train_SOURCES) src/backend/backend_registry.c
nodist_EXTRA_tests_cuda_on_cpu_gpt_train_cuda_SOURCES = links_with_cxx.cpp
tests_cuda_on_cpu_gpt_train_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA
tests_cuda_on_cpu_gpt_train_cuda_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic-symbol=cudaMalloc \
	-Wl,--export-dynamic-symbol=cudaFree -Wl,--export-dynamic-symbol=cudaLaunchHostFunc
tests_cuda_on_cpu_gpt_train_cuda_LDADD = libgpttrain.a $(EMULATED_LIBS) $(BACKEND_LIBS)
tests_cuda_on_cpu_gpt_sample_cuda_SOURCES = $(gpt_sample_SOURCES) src/backend/backend_registry.c
nodist_EXTRA_tests_cuda_on_cpu_gpt_sample_cuda_SOURCES = links_with_cxx.cpp
tests_cuda_on_cpu_gpt_sample_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA
tests_cuda_on_cpu_gpt_sample_cuda_LDADD = libgpttrain.a $(EMULATED_LIBS) $(BACKEND_LIBS) $(LIBEDIT_LIBS)
tests_cuda_on_cpu_opcheck_cuda_SOURCES = $(tests_opcheck_opcheck_SOURCES) src/backend/backend_registry.c
nodist_EXTRA_tests_cuda_on_cpu_opcheck_cuda_SOURCES = links_with_cxx.cpp
tests_cuda_on_cpu_opcheck_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA
tests_cuda_on_cpu_opcheck_cuda_LDADD = tests/ops/libops_test.a libgpttrain.a $(EMULATED_LIBS) $(BACKEND_LIBS)

check_PROGRAMS += tests/cuda_on_cpu/check_copies
tests_cuda_on_cpu_check_copies_SOURCES = tests/cuda_on_cpu/check_copies.c
nodist_EXTRA_tests_cuda_on_cpu_check_copies_SOURCES = links_with_cxx.cpp
tests_cuda_on_cpu_check_copies_CPPFLAGS = $(EMULATED_CPPFLAGS)
tests_cuda_on_cpu_check_copies_LDADD = $(UNIT_LIB) libgpttrain.a $(EMULATED_LIBS) $(BACKEND_LIBS) $(CHECK_LIBS)

# The emulated backend as a module, and programs that load it (--enable-cuda-module).
module_programs = tests/cuda_on_cpu/gpt-train-module tests/cuda_on_cpu/opcheck-module
EXTRA_PROGRAMS += $(module_programs) tests/cuda_on_cpu/module/gpt-train-cuda.so
check_DATA += $(module_programs:=$(EXEEXT)) tests/cuda_on_cpu/module/gpt-train-cuda.so$(EXEEXT)
CLEANFILES += $(module_programs:=$(EXEEXT)) tests/cuda_on_cpu/module/gpt-train-cuda.so$(EXEEXT)
tests_cuda_on_cpu_gpt_train_module_SOURCES = $(gpt_train_SOURCES) src/backend/backend_registry.c
tests_cuda_on_cpu_gpt_train_module_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA_MODULE=1
tests_cuda_on_cpu_gpt_train_module_LDFLAGS = $(AM_LDFLAGS) $(MODULE_HOST_LINK)
tests_cuda_on_cpu_gpt_train_module_LDADD = libgpttrain.a $(BACKEND_LIBS)
tests_cuda_on_cpu_opcheck_module_SOURCES = $(tests_opcheck_opcheck_SOURCES) src/backend/backend_registry.c
tests_cuda_on_cpu_opcheck_module_CPPFLAGS = $(tests_cuda_on_cpu_gpt_train_module_CPPFLAGS)
tests_cuda_on_cpu_opcheck_module_LDFLAGS = $(tests_cuda_on_cpu_gpt_train_module_LDFLAGS)
tests_cuda_on_cpu_opcheck_module_LDADD = tests/ops/libops_test.a libgpttrain.a $(BACKEND_LIBS)
tests_cuda_on_cpu_module_gpt_train_cuda_so_SOURCES = $(cuda_module)
nodist_EXTRA_tests_cuda_on_cpu_module_gpt_train_cuda_so_SOURCES = links_with_cxx.cpp
tests_cuda_on_cpu_module_gpt_train_cuda_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_cuda_on_cpu_module_gpt_train_cuda_so_LDFLAGS = $(BUILD_LDFLAGS) $(CUDA_MODULE_LINK)
tests_cuda_on_cpu_module_gpt_train_cuda_so_LDADD = $(EMULATED_LIBS)

# A test makes the dynamic linker find this fake management library, which reports invented processes, by naming its
# folder.
tests/cuda_on_cpu/nvml/libnvidia-ml.so.1: tests/cuda_on_cpu/fake_nvml.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) -std=c11 -g -O1 -shared -fPIC $(WARNING_CFLAGS) -D_POSIX_C_SOURCE=200809L -o $@ $<
# NCCL's stand-in, which GPT_TRAIN_NCCL_LIBRARY names.
tests/cuda_on_cpu/libnccl.so.2: tests/cuda_on_cpu/fake_nccl.c
	$(AM_V_CCLD)$(CC) -std=c11 -g -O1 -shared -fPIC $(WARNING_CFLAGS) -o $@ $<
endif

# The scripts' build settings: they recompile kernels with sanitizers.
tests/cuda_on_cpu/build.env: Makefile
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN){ echo "cxx='$(CXX)'"; \
	echo "kernel_flags='$(EMULATED_CPPFLAGS) $(EMULATED_CXXFLAGS)'"; \
	echo "kernels='$(cuda_kernels)'"; \
	echo "have_cxx='$(HAVE_CXX_WORD)'"; \
	echo "link_flags='$(AM_LDFLAGS) $(LDFLAGS)'"; \
	echo "libs='$(tests_cuda_on_cpu_opcheck_cuda_LDADD) $(LIBS)'"; \
	echo "opcheck='$(tests_cuda_on_cpu_opcheck_cuda_OBJECTS)'"; } >$@.tmp && mv $@.tmp $@
check_DATA += tests/cuda_on_cpu/build.env
CLEANFILES += tests/cuda_on_cpu/build.env
EXTRA_DIST += bench/gpu_rates.cu tests/cuda_on_cpu/README.md tests/cuda_on_cpu/smoke.cu tests/cuda_on_cpu/kernels.py
dist_check_SCRIPTS += \
	tests/cuda_on_cpu/orders.sh \
	tests/cuda_on_cpu/real_headers.sh \
	tests/cuda_on_cpu/sanitizers.py \
	tests/cuda_on_cpu/smoke.sh
