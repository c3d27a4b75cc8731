# The whole model on a real device, against the oracle and against itself; the helpers of tests/e2e/parity_*.py.
# The fragment of tests/ops must precede this one.
model_fixture = tests/model/model_fixture.c tests/model/model_fixture.h
check_PROGRAMS += tests/model/check_autodiff tests/model/check_generate tests/model/check_muon \
	tests/model/check_plans tests/model/check_programs
tests_model_check_autodiff_LDADD = tests/ops/libops_test.a $(LDADD)
tests_model_check_autodiff_SOURCES = tests/model/check_autodiff.c $(model_fixture)
tests_model_check_generate_LDADD = tests/ops/libops_test.a $(LDADD)
tests_model_check_generate_SOURCES = tests/model/check_generate.c $(model_fixture)
tests_model_check_muon_LDADD = tests/ops/libops_test.a $(LDADD)
tests_model_check_muon_SOURCES = tests/model/check_muon.c $(model_fixture)
tests_model_check_plans_LDADD = tests/ops/libops_test.a $(LDADD)
tests_model_check_plans_SOURCES = tests/model/check_plans.c $(model_fixture)
tests_model_check_programs_LDADD = tests/ops/libops_test.a $(LDADD)
tests_model_check_programs_SOURCES = tests/model/check_programs.c $(model_fixture)

EXTRA_PROGRAMS += tests/model/logits_dump tests/model/step_dump
check_DATA += tests/model/logits_dump$(EXEEXT) tests/model/step_dump$(EXEEXT)
tests_model_logits_dump_SOURCES = tests/model/logits_dump.c
tests_model_step_dump_SOURCES = tests/model/step_dump.c
CLEANFILES += tests/model/logits_dump$(EXEEXT) tests/model/step_dump$(EXEEXT)
