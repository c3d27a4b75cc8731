# How good a model is, without training it.
libgpttrain_a_SOURCES += \
	src/judge/export_check.c src/judge/export_check.h \
	src/judge/judge.c
