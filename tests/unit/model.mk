# Unit tests of src/model's graphs, builder and parameters; tests/model/check_autodiff covers autodiff.c and the rules.
check_PROGRAMS += tests/unit/check_graph tests/unit/check_model tests/unit/check_plan_choice \
	tests/unit/check_state_format
tests_unit_check_graph_SOURCES = tests/unit/check_graph.c tests/unit/graph_fixture.c tests/unit/graph_fixture.h \
	tests/unit/log_capture.h
tests_unit_check_model_SOURCES = tests/unit/check_model.c tests/unit/log_capture.h
tests_unit_check_plan_choice_SOURCES = tests/unit/check_plan_choice.c tests/unit/log_capture.h
tests_unit_check_state_format_SOURCES = tests/unit/check_state_format.c
