# The training loop, its data, evaluation, saving, ranks, and the log lines of a run.
libgpttrain_a_SOURCES += \
	src/train/conversation.c src/train/conversation.h \
	src/train/diagnose.c src/train/diagnose.h \
	src/train/evaluate.c src/train/evaluate.h \
	src/train/feed.c src/train/feed.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/loop.c src/train/loop.h \
	src/train/metrics.c src/train/metrics.h \
	src/train/ranks.c src/train/ranks.h \
	src/train/run_log.c src/train/run_log.h \
	src/train/run_metrics.c src/train/run_metrics.h \
	src/train/runner.h \
	src/train/samples.c src/train/samples.h \
	src/train/save.c src/train/save.h \
	src/train/saver.c src/train/saver.h \
	src/train/schedule.c src/train/schedule.h \
	src/train/start.c src/train/start.h \
	src/train/start_log.c src/train/start_log.h \
	src/train/steps_ahead.c src/train/steps_ahead.h \
	src/train/train.c src/train/train.h \
	src/train/trainer.h \
	src/train/use_log.c src/train/use_log.h
