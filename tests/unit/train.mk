# Unit tests of src/session, src/train and of the system functions that it uses.  tests/model covers generate.c, tests/e2e the rest.
TRAIN_CHECKS = \
	tests/unit/check_forecast \
	tests/unit/check_metrics \
	tests/unit/check_schedule \
	tests/unit/check_session \
	tests/unit/check_spikes \
	tests/unit/check_steps_ahead
check_PROGRAMS += $(TRAIN_CHECKS)
