# Unit tests of src/session, src/train and of the system functions that it uses.  tests/model covers generate.c, tests/e2e the rest.
TRAIN_CHECKS = \
	tests/unit/check_forecast \
	tests/unit/check_metrics \
	tests/unit/check_schedule \
	tests/unit/check_session \
	tests/unit/check_spikes \
	tests/unit/check_steps_ahead
check_PROGRAMS += $(TRAIN_CHECKS)
tests_unit_check_forecast_SOURCES = tests/unit/check_forecast.c tests/unit/log_capture.h
tests_unit_check_metrics_SOURCES = tests/unit/check_metrics.c tests/unit/io_fixture.h tests/unit/log_capture.h
tests_unit_check_schedule_SOURCES = tests/unit/check_schedule.c
tests_unit_check_session_SOURCES = tests/unit/check_session.c tests/unit/log_capture.h
tests_unit_check_spikes_SOURCES = tests/unit/check_spikes.c
tests_unit_check_steps_ahead_SOURCES = tests/unit/check_steps_ahead.c
