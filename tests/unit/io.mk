# Unit tests of src/io.
IO_CHECKS = \
	tests/unit/check_io_array_table \
	tests/unit/check_io_checkpoint_keep \
	tests/unit/check_io_checkpoint_load \
	tests/unit/check_io_checkpoint_open \
	tests/unit/check_io_checkpoint_parts \
	tests/unit/check_io_checkpoint_publish \
	tests/unit/check_io_checkpoint_record \
	tests/unit/check_io_checkpoint_save \
	tests/unit/check_io_export \
	tests/unit/check_io_foreign \
	tests/unit/check_io_gguf \
	tests/unit/check_io_hf_cache \
	tests/unit/check_io_hf_config \
	tests/unit/check_io_hf_layout \
	tests/unit/check_io_nanogpt_meta \
	tests/unit/check_io_pickle \
	tests/unit/check_io_safetensors \
	tests/unit/check_io_safetensors_index \
	tests/unit/check_io_safetensors_write
check_PROGRAMS += $(IO_CHECKS)
tests_unit_check_io_array_table_SOURCES = tests/unit/check_io_array_table.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_keep_SOURCES = tests/unit/check_io_checkpoint_keep.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_load_SOURCES = tests/unit/check_io_checkpoint_load.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_open_SOURCES = tests/unit/check_io_checkpoint_open.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_parts_SOURCES = tests/unit/check_io_checkpoint_parts.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_publish_SOURCES = tests/unit/check_io_checkpoint_publish.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_record_SOURCES = tests/unit/check_io_checkpoint_record.c tests/unit/io_fixture.h
tests_unit_check_io_checkpoint_save_SOURCES = tests/unit/check_io_checkpoint_save.c tests/unit/io_fixture.h
tests_unit_check_io_export_SOURCES = tests/unit/check_io_export.c tests/unit/io_fixture.h
tests_unit_check_io_foreign_SOURCES = tests/unit/check_io_foreign.c tests/unit/io_fixture.h
tests_unit_check_io_gguf_SOURCES = tests/unit/check_io_gguf.c tests/unit/io_fixture.h
tests_unit_check_io_hf_cache_SOURCES = tests/unit/check_io_hf_cache.c tests/unit/io_fixture.h
tests_unit_check_io_hf_config_SOURCES = tests/unit/check_io_hf_config.c tests/unit/io_fixture.h
tests_unit_check_io_hf_layout_SOURCES = tests/unit/check_io_hf_layout.c tests/unit/io_fixture.h
tests_unit_check_io_nanogpt_meta_SOURCES = tests/unit/check_io_nanogpt_meta.c tests/unit/io_fixture.h
tests_unit_check_io_pickle_SOURCES = tests/unit/check_io_pickle.c tests/unit/io_fixture.h
tests_unit_check_io_safetensors_SOURCES = tests/unit/check_io_safetensors.c tests/unit/io_fixture.h
tests_unit_check_io_safetensors_index_SOURCES = tests/unit/check_io_safetensors_index.c tests/unit/io_fixture.h
tests_unit_check_io_safetensors_write_SOURCES = tests/unit/check_io_safetensors_write.c tests/unit/io_fixture.h
