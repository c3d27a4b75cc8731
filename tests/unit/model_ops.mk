# Tests of src/model/op.c, op_infer.c and op_cost.c.
check_PROGRAMS += tests/unit/check_op
tests_unit_check_op_SOURCES = tests/unit/check_op.c
