# Unit tests of src/model's builder and parameters; tests/model/check_autodiff covers autodiff.c and the rules.
check_PROGRAMS += tests/unit/check_model tests/unit/check_plan_choice tests/unit/check_state_format
