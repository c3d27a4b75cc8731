# How good a model is, without training it.
libgpttrain_a_SOURCES += \
	src/judge/eval_only.c src/judge/eval_only.h \
	src/judge/export_check.c src/judge/export_check.h \
	src/judge/judge.c src/judge/judge.h
