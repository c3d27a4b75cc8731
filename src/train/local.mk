# The training loop, its data, saving, and the log lines of a run.
libgpttrain_a_SOURCES += \
	src/train/conversation.c \
	src/train/diagnose.c \
	src/train/feed.c src/train/feed.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/metrics.c src/train/metrics.h \
	src/train/ranks.c src/train/ranks.h \
	src/train/run.h src/train/run_log.c src/train/run_loop.c \
	src/train/saver.c \
	src/train/schedule.c \
	src/train/trainer.c \
	src/train/watchdog.c
