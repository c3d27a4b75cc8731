# Unit tests of src/base.
BASE_CHECKS = \
	tests/unit/check_clock \
	tests/unit/check_dtype \
	tests/unit/check_file \
	tests/unit/check_hostmem \
	tests/unit/check_json \
	tests/unit/check_library \
	tests/unit/check_log \
	tests/unit/check_progress \
	tests/unit/check_recompute \
	tests/unit/check_rng \
	tests/unit/check_size \
	tests/unit/check_status \
	tests/unit/check_thread \
	tests/unit/check_ticker \
	tests/unit/check_user_cache
check_PROGRAMS += $(BASE_CHECKS)
tests_unit_check_clock_SOURCES = tests/unit/check_clock.c
tests_unit_check_dtype_SOURCES = tests/unit/check_dtype.c
tests_unit_check_file_SOURCES = tests/unit/check_file.c tests/unit/log_capture.h
tests_unit_check_hostmem_SOURCES = tests/unit/check_hostmem.c tests/unit/log_capture.h
tests_unit_check_json_SOURCES = tests/unit/check_json.c tests/unit/log_capture.h
tests_unit_check_library_SOURCES = tests/unit/check_library.c
tests_unit_check_log_SOURCES = tests/unit/check_log.c tests/unit/log_capture.h
tests_unit_check_progress_SOURCES = tests/unit/check_progress.c
tests_unit_check_recompute_SOURCES = tests/unit/check_recompute.c
tests_unit_check_rng_SOURCES = tests/unit/check_rng.c
tests_unit_check_size_SOURCES = tests/unit/check_size.c
tests_unit_check_status_SOURCES = tests/unit/check_status.c
tests_unit_check_thread_SOURCES = tests/unit/check_thread.c
tests_unit_check_ticker_SOURCES = tests/unit/check_ticker.c tests/unit/log_capture.h
tests_unit_check_user_cache_SOURCES = tests/unit/check_user_cache.c tests/unit/log_capture.h
check_PROGRAMS += tests/unit/check_heads
tests_unit_check_heads_SOURCES = tests/unit/check_heads.c
