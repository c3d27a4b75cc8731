# The loop, evaluation, sampling, saving and what is said of them.
libgpttrain_a_SOURCES += \
	src/train/evaluate.c src/train/evaluate.h \
	src/train/feed.c src/train/feed.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/generate.c src/train/generate.h \
	src/train/metrics.c src/train/metrics.h \
	src/train/progress.c src/train/progress.h \
	src/train/restore.c src/train/restore.h \
	src/train/schedule.c src/train/schedule.h \
	src/train/session.c src/train/session.h \
	src/train/stop.c src/train/stop.h \
	src/train/trainer.c src/train/trainer.h
