# Text from a model.
libgpttrain_a_SOURCES += \
	src/sample/generate.c src/sample/generate.h
