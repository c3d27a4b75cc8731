# Token files, sample order, batches, tokenizers, and the work of gpt-prepare.
libgpttrain_a_SOURCES += \
	src/data/batch.c src/data/batch.h \
	src/data/corpus.c src/data/corpus.h \
	src/data/prepare.c src/data/prepare.h \
	src/data/sampler.c src/data/sampler.h \
	src/data/tokenizer.c src/data/tokenizer.h \
	src/data/tokens.c src/data/tokens.h \
	src/data/utf8.c src/data/utf8.h
