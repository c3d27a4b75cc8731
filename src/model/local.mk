# Tensors, programs, the GPT-2 builder and autodiff.
libgpttrain_a_SOURCES += \
	src/model/autodiff.c src/model/autodiff.h src/model/autodiff_rules.c \
	src/model/gpt2.c src/model/gpt2.h \
	src/model/graph.c src/model/graph.h \
	src/model/model.c src/model/model.h \
	src/model/parameters.c src/model/parameters.h
include src/model/ops.mk
