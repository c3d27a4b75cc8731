# Unit tests of src/io.
IO_CHECKS = \
	tests/unit/check_io_checkpoint_load \
	tests/unit/check_io_checkpoint_open \
	tests/unit/check_io_checkpoint_record \
	tests/unit/check_io_checkpoint_save \
	tests/unit/check_io_export_compare \
	tests/unit/check_io_ggml_block \
	tests/unit/check_io_hf_cache \
	tests/unit/check_io_hf_config \
	tests/unit/check_io_known_models \
	tests/unit/check_io_peft \
	tests/unit/check_io_pickle \
	tests/unit/check_io_safetensors \
	tests/unit/check_io_safetensors_table \
	tests/unit/check_io_safetensors_write
check_PROGRAMS += $(IO_CHECKS)
