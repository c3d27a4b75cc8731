# Unit tests of src/config.
CONFIG_CHECKS = \
	tests/unit/check_config_args \
	tests/unit/check_config_check \
	tests/unit/check_config_file \
	tests/unit/check_config_key \
	tests/unit/check_config_names
check_PROGRAMS += $(CONFIG_CHECKS)
tests_unit_check_config_args_SOURCES = tests/unit/check_config_args.c tests/unit/config_fixture.h
tests_unit_check_config_check_SOURCES = tests/unit/check_config_check.c tests/unit/config_fixture.h
tests_unit_check_config_file_SOURCES = tests/unit/check_config_file.c tests/unit/config_fixture.h
tests_unit_check_config_key_SOURCES = tests/unit/check_config_key.c tests/unit/config_fixture.h
tests_unit_check_config_names_SOURCES = tests/unit/check_config_names.c tests/unit/config_fixture.h
