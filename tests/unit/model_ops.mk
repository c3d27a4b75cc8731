# Tests of src/ops.
check_PROGRAMS += tests/unit/check_op
tests_unit_check_op_SOURCES = tests/unit/check_op.c tests/unit/log_capture.h
