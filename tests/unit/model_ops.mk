# Tests of src/ops.
check_PROGRAMS += tests/unit/check_op
