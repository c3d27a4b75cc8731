# The training loop, evaluation, sampling, saving, and the log lines of a run.
libgpttrain_a_SOURCES += \
	src/train/answers.c \
	src/train/diagnose.c src/train/diagnose.h \
	src/train/explain.c \
	src/train/feed.c src/train/feed.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/generate.c src/train/generate.h \
	src/train/judge.c \
	src/train/loss_scaler.c src/train/loss_scaler.h \
	src/train/metrics.c src/train/metrics.h \
	src/train/plan_answer.c src/train/plan_answer.h \
	src/train/ranks.c src/train/ranks.h \
	src/train/report_block.c \
	src/train/restore.c src/train/restore.h \
	src/train/restore_weights.c \
	src/train/resume_check.c \
	src/train/run.h src/train/run_log.c src/train/run_loop.c \
	src/train/saver.c src/train/saver.h \
	src/train/session.c src/train/session.h \
	src/train/session_device.c \
	src/train/session_plan.c \
	src/train/session_rates.c \
	src/train/steps_ahead.c src/train/steps_ahead.h \
	src/train/stop.c src/train/stop.h \
	src/train/trainer.c \
	src/train/watchdog.c src/train/watchdog.h
