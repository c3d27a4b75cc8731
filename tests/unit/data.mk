# Unit tests of src/data.
DATA_CHECKS = \
	tests/unit/check_data_batch \
	tests/unit/check_data_bpe \
	tests/unit/check_data_bpe_split \
	tests/unit/check_data_bpe_train \
	tests/unit/check_data_chat \
	tests/unit/check_data_dedup \
	tests/unit/check_data_documents \
	tests/unit/check_data_manifest \
	tests/unit/check_data_records \
	tests/unit/check_data_sampler \
	tests/unit/check_data_stop_text \
	tests/unit/check_data_token_kind \
	tests/unit/check_data_tokenizer \
	tests/unit/check_data_tokenizer_encoder \
	tests/unit/check_data_tokenizer_find \
	tests/unit/check_data_tokenizer_import \
	tests/unit/check_data_tokens
check_PROGRAMS += $(DATA_CHECKS)
# A helper of the tokenizers' tests.
EXTRA_PROGRAMS += tests/tools/tokenizer_tool
check_DATA += tests/tools/tokenizer_tool$(EXEEXT)
CLEANFILES += tests/tools/tokenizer_tool$(EXEEXT)
tests_tools_tokenizer_tool_SOURCES = tests/tools/tokenizer_tool.c
