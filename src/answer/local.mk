# Answers to questions about a run: --plan, --print_program, --compare, --explain and --explain_oom.
libgpttrain_a_SOURCES += \
	src/answer/answer.c src/answer/answer.h \
	src/answer/compare.c src/answer/compare.h \
	src/answer/explain_error.c src/answer/explain_error.h \
	src/answer/explain_oom.c src/answer/explain_oom.h \
	src/answer/explain_oom_text.c src/answer/explain_oom_text.h \
	src/answer/plan_answer.c src/answer/plan_answer.h

# What --explain prints.
nodist_libgpttrain_a_SOURCES = src/answer/errors_page.c
src/answer/errors_page.c: doc/errors.md config/embed.sh
	$(AM_V_GEN)$(MKDIR_P) src/answer && (cd $(srcdir) && $(SHELL) config/embed.sh embedded embedded_page \
		answer/explain_error.h doc/errors.md) >$@.new && mv $@.new $@
CLEANFILES += src/answer/errors_page.c src/answer/errors_page.c.new
