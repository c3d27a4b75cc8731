# What a run survives: kills, failing calls, power cuts; and how the programs are hardened.  `make check` tries a sample
# of the cases; `make check-long` every one, with a minute for each parser and a soak of 15 minutes.
RELIABILITY_TESTS = \
	tests/reliability/crash_states.py \
	tests/reliability/device_faults.py \
	tests/reliability/failing_calls.py \
	tests/reliability/failing_memory.py \
	tests/reliability/hardening.py \
	tests/reliability/hostile_record.py \
	tests/reliability/kills.py \
	tests/reliability/rank_faults.py \
	tests/reliability/soak.py \
	tests/reliability/strict_resume.py \
	tests/reliability/surroundings.py
dist_check_SCRIPTS += $(RELIABILITY_TESTS)
EXTRA_DIST += tests/reliability/aside_links.c tests/reliability/clock_jumps.c tests/reliability/opencl_faults.c tests/reliability/sanitizers.sh \
	tests/reliability/commands.py tests/reliability/faulty_device.py tests/reliability/faulty_ranks.c tests/reliability/lsan.supp tests/reliability/tiny.py \
	tests/reliability/valgrind.supp

check_PROGRAMS += tests/reliability/check_flips
tests_reliability_check_flips_SOURCES = tests/reliability/check_flips.c tests/unit/io_fixture.h tests/unit/log_capture.h

# The programs with planted faults.  Those that compute have their own registry of backends, which replaces that of
# libgpttrain.a; the linker wraps allocations, if it can.
tests_reliability_gpt_train_faulty_SOURCES = $(gpt_train_SOURCES) tests/reliability/faulty_registry.c
tests_reliability_gpt_train_faulty_LDADD = $(gpt_train_LDADD)
tests_reliability_gpt_sample_faulty_SOURCES = $(gpt_sample_SOURCES) tests/reliability/faulty_registry.c
tests_reliability_gpt_sample_faulty_LDADD = $(gpt_sample_LDADD)
faulty_programs = tests/reliability/gpt-train-faulty tests/reliability/gpt-sample-faulty
EXTRA_PROGRAMS += tests/reliability/gpt-train-faulty tests/reliability/gpt-sample-faulty \
	tests/reliability/gpt-prepare-faulty tests/reliability/gpt-export-faulty
check_DATA += $(faulty_programs:=$(EXEEXT))
CLEANFILES += $(faulty_programs:=$(EXEEXT))
if HAVE_WRAP
FAULTY_WRAPPED = main free malloc calloc realloc aligned_alloc mmap64 fopen64 opendir pthread_create
FAULTY_LINK = $(AM_LDFLAGS) $(FAULTY_WRAPPED:%=-Wl,--wrap=%)
faulty_programs += tests/reliability/gpt-prepare-faulty tests/reliability/gpt-export-faulty
tests_reliability_gpt_train_faulty_SOURCES += tests/reliability/faulty_memory.c
tests_reliability_gpt_train_faulty_LDFLAGS = $(FAULTY_LINK)
tests_reliability_gpt_sample_faulty_SOURCES += tests/reliability/faulty_memory.c
tests_reliability_gpt_sample_faulty_LDFLAGS = $(FAULTY_LINK)
endif
# The same with the emulated cuda backend, in the registry of its own programs.
if HAVE_WRAP
if HAVE_CXX
faulty_cxx_sources = tests/reliability/faulty_memory.c tests/reliability/faulty_new.cpp
EXTRA_PROGRAMS += tests/reliability/gpt-train-cuda-faulty tests/reliability/gpt-sample-cuda-faulty
faulty_programs += tests/reliability/gpt-train-cuda-faulty tests/reliability/gpt-sample-cuda-faulty
tests_reliability_gpt_train_cuda_faulty_SOURCES = $(tests_cuda_on_cpu_gpt_train_cuda_SOURCES) $(faulty_cxx_sources)
tests_reliability_gpt_train_cuda_faulty_CXXFLAGS = $(EMULATED_CXXFLAGS)
tests_reliability_gpt_train_cuda_faulty_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA
tests_reliability_gpt_train_cuda_faulty_LDADD = $(tests_cuda_on_cpu_gpt_train_cuda_LDADD)
tests_reliability_gpt_train_cuda_faulty_LDFLAGS = $(FAULTY_LINK)
tests_reliability_gpt_sample_cuda_faulty_SOURCES = $(tests_cuda_on_cpu_gpt_sample_cuda_SOURCES) $(faulty_cxx_sources)
tests_reliability_gpt_sample_cuda_faulty_CXXFLAGS = $(EMULATED_CXXFLAGS)
tests_reliability_gpt_sample_cuda_faulty_CPPFLAGS = $(AM_CPPFLAGS) -DHAVE_CUDA
tests_reliability_gpt_sample_cuda_faulty_LDADD = $(tests_cuda_on_cpu_gpt_sample_cuda_LDADD)
tests_reliability_gpt_sample_cuda_faulty_LDFLAGS = $(FAULTY_LINK)
endif
endif
tests_reliability_gpt_prepare_faulty_SOURCES = $(gpt_prepare_SOURCES) tests/reliability/faulty_memory.c
tests_reliability_gpt_prepare_faulty_LDADD = $(gpt_prepare_LDADD)
tests_reliability_gpt_prepare_faulty_LDFLAGS = $(FAULTY_LINK)
tests_reliability_gpt_export_faulty_SOURCES = $(gpt_export_SOURCES) tests/reliability/faulty_memory.c
tests_reliability_gpt_export_faulty_LDADD = $(gpt_export_LDADD)
tests_reliability_gpt_export_faulty_LDFLAGS = $(FAULTY_LINK)

# All the sweeps (days), in the parts of tests/long-parts; each pass leaves a stamp in tests/long-stamps.  PARTS='kills
# fuzz-record' selects some, MINUTES=30 stops after the part that is running then.
check-long: all $(check_PROGRAMS) $(check_DATA)
	@$(AM_TESTS_ENVIRONMENT) $(PYTHON) -B $(srcdir)/tests/tools/check_long.py run $(FUZZ_TARGETS)
check-long-table:
	@$(AM_TESTS_ENVIRONMENT) $(PYTHON) -B $(srcdir)/tests/tools/check_long.py table $(FUZZ_TARGETS)

# The suite once more for each sanitizer, in separate build folders below sanitizers/.
check-sanitizers:
	$(SHELL) $(srcdir)/tests/reliability/sanitizers.sh '$(abs_top_srcdir)' sanitizers
