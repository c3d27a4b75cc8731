# Op declarations, shape rules and costs.
libgpttrain_a_SOURCES += \
	src/model/op.c src/model/op.h src/model/ops.def \
	src/model/op_cost.c \
	src/model/op_infer.c
