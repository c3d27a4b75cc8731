# Unit tests of src/plan; tests/model covers src/exec.
PLAN_CHECKS = \
	tests/unit/check_calibrate \
	tests/unit/check_device_profile \
	tests/unit/check_plan_cost \
	tests/unit/check_plan_create \
	tests/unit/check_plan_place \
	tests/unit/check_plan_verify
check_PROGRAMS += $(PLAN_CHECKS)
PLAN_FIXTURES = tests/unit/graph_fixture.c tests/unit/graph_fixture.h tests/unit/backend_fixture.c \
	tests/unit/backend_fixture.h tests/unit/log_capture.h
tests_unit_check_plan_create_SOURCES = tests/unit/check_plan_create.c $(PLAN_FIXTURES)
tests_unit_check_plan_place_SOURCES = tests/unit/check_plan_place.c $(PLAN_FIXTURES)
tests_unit_check_plan_verify_SOURCES = tests/unit/check_plan_verify.c $(PLAN_FIXTURES)
check_PROGRAMS += tests/unit/check_plan_fastest tests/unit/check_plan_search
tests_unit_check_plan_fastest_SOURCES = tests/unit/check_plan_fastest.c
tests_unit_check_plan_search_SOURCES = tests/unit/check_plan_search.c
check_PROGRAMS += tests/unit/check_oom_message
tests_unit_check_oom_message_SOURCES = tests/unit/check_oom_message.c
tests_unit_check_calibrate_SOURCES = tests/unit/check_calibrate.c tests/unit/log_capture.h
tests_unit_check_device_profile_SOURCES = tests/unit/check_device_profile.c tests/unit/log_capture.h
tests_unit_check_plan_cost_SOURCES = tests/unit/check_plan_cost.c
