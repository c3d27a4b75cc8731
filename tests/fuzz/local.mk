# Fuzzing by libFuzzer, 1,000 inputs for each target in `make check`.  A target is fuzz_one() in a file fuzz_NAME.c, its
# seeds in corpus/NAME, and NAME in FUZZ_TARGETS.  clang builds them, whatever CC is, from the sources of src/base,
# src/config and src/data and the readers of src/io, src/plan and src/train, with AddressSanitizer and
# UndefinedBehaviorSanitizer; without such a clang they are skipped by name.  To run one for longer: FUZZ_SECONDS=600
# tests/fuzz/run.sh NAME, with top_srcdir and top_builddir; or run the program itself with the arguments SCRATCH-FOLDER
# and tests/fuzz/corpus/NAME: new inputs go into the first.
FUZZ_TARGETS = archive config config_flat device_profile encoding gguf gguf_texts gpt_tokenizer hf_hub jsonl llmc_model merges \
	nanogpt oom_message pickle record safetensors tiktoken token_file tokenizer_json vocab
FUZZ_CPPFLAGS = $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) $(LIBARCHIVE_CFLAGS) $(ICU_CFLAGS) $(YAML_CFLAGS)
FUZZ_LINK = $(JANSSON_LIBS) $(PCRE2_LIBS) $(LIBARCHIVE_LIBS) $(ICU_LIBS) $(YAML_LIBS) -lpthread -lm \
	-Wl,--wrap=pcre2_compile_8,--wrap=pcre2_jit_compile_8,--wrap=pcre2_code_free_8

FUZZ_SHARED = tests/fuzz/fuzz_common.h tests/fuzz/fuzz_config.h tests/fuzz/fuzz_folder.h \
	tests/fuzz/fuzz_tokenizer.h tests/fuzz/fuzz_weights.h
dist_check_SCRIPTS += tests/fuzz/run.sh
EXTRA_DIST += tests/fuzz/corpus $(FUZZ_SHARED) tests/fuzz/fuzz_common.c tests/fuzz/pattern_once.c \
	$(FUZZ_TARGETS:%=tests/fuzz/fuzz_%.c)

FUZZ_IO_FILES = src/io/checkpoint_load.c src/io/checkpoint_record.c src/io/ggml_block.c src/io/gguf.c src/io/gguf_model.c \
	src/io/foreign_models.c src/io/gguf_tokenizer.c src/io/hf_config.c src/io/known_models.c src/io/llmc_model.c \
	src/io/nanogpt.c src/io/pickle.c src/io/safetensors.c src/io/safetensors_table.c src/io/zip_stored.c
FUZZ_PLAN_FILES = src/plan/device_profile.c src/plan/device_profile_file.c src/plan/oom_message.c src/plan/oom_text.c
# Profiles look at the declarations of ops, which bring the differentiation rules.
FUZZ_MODEL_FILES = src/model/graph.c src/model/autodiff.c src/model/parameters.c src/model/state_format.c $(filter src/ops/%.c,$(libgpttrain_a_SOURCES))
FUZZ_C_FILES = $(filter src/base/%.c src/config/%.c src/data/%.c,$(libgpttrain_a_SOURCES)) $(FUZZ_IO_FILES) \
	$(FUZZ_PLAN_FILES) $(FUZZ_MODEL_FILES) tests/fuzz/fuzz_common.c tests/fuzz/pattern_once.c
FUZZ_H_FILES = $(filter src/base/%.h src/config/%.h src/config/%.def src/data/%.h src/io/%.h src/model/%.h src/ops/%.h src/ops/%.def \
	src/plan/%.h src/plan/%.def src/backend/backend.h,$(libgpttrain_a_SOURCES)) \
	$(FUZZ_SHARED)
FUZZ_SANITIZERS = address,undefined
FUZZ_BINARIES = $(FUZZ_TARGETS:%=tests/fuzz/fuzz_%)
# Small tables and blocks fill, grow and end within inputs of a few KiB, and do not dominate the execution time.
FUZZ_SIZES = -DARCHIVE_BLOCK_BYTES=1024 -DBPE_PIECES_MIN=16 -DCACHE_BITS=6 -DFIRST_BYTES=512 \
	-DRAW_BYTES=128 -DSTAGING_BYTES=256 -DTOKEN_WRITER_BYTES=4096
# Loops over hashes, distances and offsets compare with no magic words (memcmp() is traced separately); tracing their
# comparisons would take half of the time.
FUZZ_UNTRACED = bpe bpe_split bpe_train config_key crc32c oom_message tokenizer_encoder
# CC already gave its warnings; CFLAGS may contain flags that only CC knows.
FUZZ_COMPILE = $(FUZZ_CC) -std=c11 -g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all \
	-I. -I$(top_srcdir)/src -I$(top_srcdir) -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 \
	-DHAVE_CONFIG_H $(FUZZ_SIZES) $(FUZZ_CPPFLAGS)

if HAVE_FUZZER
check_DATA += $(FUZZ_BINARIES)
endif
CLEANFILES += $(FUZZ_BINARIES) tests/fuzz/libfuzz.a

tests/fuzz/libfuzz.a: $(FUZZ_C_FILES) $(FUZZ_H_FILES)
	@$(MKDIR_P) tests/fuzz/objects && rm -f $@ tests/fuzz/objects/*.o
	$(AM_V_at)sources=`for file in $(FUZZ_C_FILES); do echo "$(abs_top_srcdir)/$$file"; done`; \
	top=`cd $(top_srcdir) && pwd`; cd tests/fuzz/objects && \
	for file in $$sources; do \
		case " $(FUZZ_UNTRACED) " in \
		*" `basename $$file .c` "*) trace=-fno-sanitize-coverage=trace-cmp ;; \
		*) trace= ;; \
		esac; \
		$(FUZZ_COMPILE) -I../../.. -I$$top/src -I$$top -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZERS) $$trace -c $$file \
			|| exit 1; \
	done
	$(AM_V_AR)$(AR) cr $@ tests/fuzz/objects/*.o && rm -rf tests/fuzz/objects

tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/libfuzz.a $(FUZZ_SHARED)
	$(AM_V_CCLD)$(FUZZ_COMPILE) -fsanitize=fuzzer,$(FUZZ_SANITIZERS) -o $@ $(top_srcdir)/tests/fuzz/fuzz_$*.c \
		tests/fuzz/libfuzz.a $(FUZZ_LINK)
