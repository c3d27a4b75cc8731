# The training loop, evaluation, sampling, saving, and the log lines of a run.
libgpttrain_a_SOURCES += \
	src/train/answers.c \
	src/train/bad_value.c src/train/bad_value.h \
	src/train/conversation.c \
	src/train/diagnose.c \
	src/train/explain.c \
	src/train/export_check.c src/train/export_check.h \
	src/train/feed.c src/train/feed.h \
	src/train/finetune.c src/train/finetune.def src/train/finetune.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/generate.c src/train/generate.h \
	src/train/judge.c \
	src/train/metrics.c src/train/metrics.h \
	src/train/plan_answer.c \
	src/train/ranks.c src/train/ranks.h \
	src/train/restore.c src/train/restore.h \
	src/train/restore_weights.c \
	src/train/resume_check.c \
	src/train/run.h src/train/run_log.c src/train/run_loop.c \
	src/train/saver.c \
	src/train/schedule.c \
	src/train/session.c src/train/session.h \
	src/train/session_device.c \
	src/train/session_plan.c \
	src/train/session_rates.c \
	src/train/stop.c src/train/stop.h \
	src/train/trainer.c \
	src/train/watchdog.c

# What --explain prints.
nodist_libgpttrain_a_SOURCES = src/train/errors_page.c
src/train/errors_page.c: doc/errors.md config/embed.sh
	$(AM_V_GEN)$(MKDIR_P) src/train && (cd $(srcdir) && $(SHELL) config/embed.sh embedded embedded_page train/run.h \
		doc/errors.md) >$@.new && mv $@.new $@
CLEANFILES += src/train/errors_page.c src/train/errors_page.c.new
