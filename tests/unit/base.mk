# Unit tests of src/base.
BASE_CHECKS = \
	tests/unit/check_dtype \
	tests/unit/check_file \
	tests/unit/check_hostmem \
	tests/unit/check_json \
	tests/unit/check_log \
	tests/unit/check_recompute \
	tests/unit/check_rng \
	tests/unit/check_shape \
	tests/unit/check_thread \
	tests/unit/check_user_cache
check_PROGRAMS += $(BASE_CHECKS)
