# Unit tests of src/data.
check_PROGRAMS += tests/unit/check_data_batch
tests_unit_check_data_batch_SOURCES = tests/unit/check_data_batch.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_corpus
tests_unit_check_data_corpus_SOURCES = tests/unit/check_data_corpus.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_prepare
tests_unit_check_data_prepare_SOURCES = tests/unit/check_data_prepare.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_sampler
tests_unit_check_data_sampler_SOURCES = tests/unit/check_data_sampler.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_tokenizer
tests_unit_check_data_tokenizer_SOURCES = tests/unit/check_data_tokenizer.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_tokens
tests_unit_check_data_tokens_SOURCES = tests/unit/check_data_tokens.c tests/unit/data_fixture.h
check_PROGRAMS += tests/unit/check_data_utf8
tests_unit_check_data_utf8_SOURCES = tests/unit/check_data_utf8.c
