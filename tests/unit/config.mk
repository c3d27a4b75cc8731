# Unit tests of src/config.
CONFIG_CHECKS = \
	tests/unit/check_config_args \
	tests/unit/check_config_check \
	tests/unit/check_config_file \
	tests/unit/check_config_key \
	tests/unit/check_config_names
check_PROGRAMS += $(CONFIG_CHECKS)
