# Tensors, programs, the model's builder and autodiff.
libgpttrain_a_SOURCES += \
	src/model/autodiff.c src/model/autodiff.h \
	src/model/graph.c src/model/graph.h \
	src/model/left_out.c src/model/left_out.h \
	src/model/micro_step.c src/model/micro_step.h \
	src/model/model.h src/model/model_create.c src/model/model_create.h \
	src/model/parameters.c src/model/parameters.h \
	src/model/parts.c src/model/parts.h \
	src/model/plan_choice.c src/model/plan_choice.h \
	src/model/state_format.c src/model/state_format.h \
	src/model/transformer.c src/model/transformer.h \
	src/model/update.c src/model/update.h
