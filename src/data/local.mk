# Token files, sample order, batches, tokenizers, and the work of gpt-prepare.
libgpttrain_a_SOURCES += \
	src/data/bpe.c src/data/bpe.h \
	src/data/bpe_split.c src/data/bpe_split.h \
	src/data/bpe_train.c \
	src/data/chat.c src/data/chat.h src/data/chat_internal.h src/data/chat_kind.h \
	src/data/chat_forms.c src/data/chat_out.c src/data/chat_render.c src/data/chat_templates.c \
	src/data/choices.c src/data/choices.h \
	src/data/converter.c src/data/converter.h \
	src/data/corpus.c src/data/corpus.h \
	src/data/dedup.c src/data/dedup.h \
	src/data/documents.c src/data/documents.h \
	src/data/hf_hub.c src/data/hf_hub.h \
	src/data/input.c src/data/input.h \
	src/data/manifest.c src/data/manifest.h \
	src/data/mixture.c src/data/mixture.h \
	src/data/prepare.c src/data/prepare.h \
	src/data/records.c src/data/records.h \
	src/data/prepare_commit.c src/data/prepare_encode.c src/data/prepare_internal.h \
	src/data/prepare_manifest.c \
	src/data/sampler.c src/data/sampler.h \
	src/data/stop_text.c src/data/stop_text.h \
	src/data/text_kind.c src/data/text_kind.h \
	src/data/token_kind.c src/data/token_kind.h \
	src/data/token_writer.c src/data/token_writer.h \
	src/data/tokenizer.c src/data/tokenizer.h \
	src/data/tokenizer_bpe.c src/data/tokenizer_bpe.h \
	src/data/tokenizer_encoder.c \
	src/data/tokenizer_export.c \
	src/data/tokenizer_import.c \
	src/data/tokens.c src/data/tokens.h
