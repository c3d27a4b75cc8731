# Fuzzing by libFuzzer, a few seconds for each target in `make check`.  A target is a file fuzz_NAME.c, its seeds in
# corpus/NAME, and a line "FUZZ_TARGETS += NAME" here.  They are built by clang whatever CC is, from the sources of
# src/base and src/data and the readers of src/io with AddressSanitizer and UndefinedBehaviorSanitizer; without such a clang they are skipped by
# name.  To run one for longer: tests/fuzz/fuzz_NAME -max_total_time=600 SCRATCH-FOLDER tests/fuzz/corpus/NAME
FUZZ_TARGETS = archive bpe_encode choices jsonl llmc_model merges nanogpt pickle safetensors tiktoken token_file \
	tokenizer_json
# What these sources need.
FUZZ_CPPFLAGS = $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) $(LIBARCHIVE_CFLAGS)
FUZZ_LINK = $(JANSSON_LIBS) $(PCRE2_LIBS) $(LIBARCHIVE_LIBS) -lpthread -lm

dist_check_SCRIPTS += tests/fuzz/every_bit.py tests/fuzz/run.sh
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/fuzz_common.h tests/fuzz/fuzz_weights.h \
	$(FUZZ_TARGETS:%=tests/fuzz/fuzz_%.c)

FUZZ_IO_FILES = src/io/array_table.c src/io/hf_layout.c src/io/llmc_model.c src/io/nanogpt.c src/io/pickle.c \
	src/io/pickle_call.c src/io/safetensors.c src/io/safetensors_index.c src/io/zip_stored.c
FUZZ_C_FILES = $(filter src/base/%.c src/data/%.c,$(libgpttrain_a_SOURCES)) $(FUZZ_IO_FILES)
FUZZ_H_FILES = $(filter src/base/%.h src/data/%.h src/io/%.h,$(libgpttrain_a_SOURCES)) tests/fuzz/fuzz_common.h \
	tests/fuzz/fuzz_weights.h
FUZZ_SANITIZERS = address,undefined
FUZZ_BINARIES = $(FUZZ_TARGETS:%=tests/fuzz/fuzz_%)
# The warnings are CC's; CFLAGS may hold what only CC knows.
FUZZ_COMPILE = $(FUZZ_CC) -std=c11 -g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all \
	-I. -I$(top_srcdir)/src -I$(top_srcdir) -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 \
	-DHAVE_CONFIG_H $(FUZZ_CPPFLAGS)

if HAVE_FUZZER
check_DATA += $(FUZZ_BINARIES)
endif
CLEANFILES += $(FUZZ_BINARIES) tests/fuzz/libfuzz.a

tests/fuzz/libfuzz.a: $(FUZZ_C_FILES) $(FUZZ_H_FILES)
	@$(MKDIR_P) tests/fuzz/objects && rm -f $@ tests/fuzz/objects/*.o
	$(AM_V_at)sources=`for file in $(FUZZ_C_FILES); do echo "$(abs_top_srcdir)/$$file"; done`; \
	top=`cd $(top_srcdir) && pwd`; cd tests/fuzz/objects && \
	$(FUZZ_COMPILE) -I../../.. -I$$top/src -I$$top -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZERS) -c $$sources
	$(AM_V_AR)$(AR) cr $@ tests/fuzz/objects/*.o && rm -rf tests/fuzz/objects

tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/libfuzz.a tests/fuzz/fuzz_common.h
	$(AM_V_CCLD)$(FUZZ_COMPILE) -fsanitize=fuzzer,$(FUZZ_SANITIZERS) -o $@ $(top_srcdir)/tests/fuzz/fuzz_$*.c \
		tests/fuzz/libfuzz.a $(FUZZ_LINK)
