# Answers to questions about a run: --plan, --compare, --explain and --explain_oom.
libgpttrain_a_SOURCES += \
	src/answer/answers.c \
	src/answer/explain.c \
	src/answer/plan_answer.c

# What --explain prints.
nodist_libgpttrain_a_SOURCES = src/answer/errors_page.c
src/answer/errors_page.c: doc/errors.md config/embed.sh
	$(AM_V_GEN)$(MKDIR_P) src/answer && (cd $(srcdir) && $(SHELL) config/embed.sh embedded embedded_page train/run.h \
		doc/errors.md) >$@.new && mv $@.new $@
CLEANFILES += src/answer/errors_page.c src/answer/errors_page.c.new
