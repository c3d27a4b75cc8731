# Unit tests: one program per source file of its name, run by Check (unit_main.h).  Each folder of src/ has a list here.
check_LIBRARIES += tests/unit/libunit.a
tests_unit_libunit_a_SOURCES = tests/unit/unit_main.c tests/unit/unit_main.h \
	tests/unit/backend_fixture.c tests/unit/backend_fixture.h \
	tests/unit/bpe_fixture.h \
	tests/unit/config_fixture.h \
	tests/unit/cpu_fixture.c tests/unit/cpu_fixture.h \
	tests/unit/data_fixture.h \
	tests/unit/graph_fixture.c tests/unit/graph_fixture.h \
	tests/unit/io_case.h \
	tests/unit/io_fixture.h \
	tests/unit/log_capture.h \
	tests/unit/scratch.h \
	tests/unit/search_fixture.h
UNIT_LIB += tests/unit/libunit.a

include tests/unit/base.mk
include tests/unit/config.mk
include tests/unit/data.mk
include tests/unit/backend.mk
include tests/unit/io.mk
include tests/unit/model_ops.mk
include tests/unit/plan.mk
include tests/unit/model.mk
include tests/unit/train.mk
