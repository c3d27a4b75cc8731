# Unit tests of src/plan; tests/model covers src/exec.
PLAN_CHECKS = \
	tests/unit/check_calibrate \
	tests/unit/check_device_profile \
	tests/unit/check_oom_message \
	tests/unit/check_plan_cost \
	tests/unit/check_plan_create \
	tests/unit/check_plan_fastest \
	tests/unit/check_plan_place \
	tests/unit/check_plan_search \
	tests/unit/check_plan_verify
check_PROGRAMS += $(PLAN_CHECKS)
