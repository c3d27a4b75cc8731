# A session: device, budget, plan, memory and weights; where a run begins.
libgpttrain_a_SOURCES += \
	src/session/bad_value.c src/session/bad_value.h \
	src/session/finetune.c src/session/finetune.def src/session/finetune.h \
	src/session/restore.c src/session/restore.h \
	src/session/restore_weights.c \
	src/session/resume_check.c \
	src/session/session.c src/session/session.h \
	src/session/session_device.c \
	src/session/session_plan.c \
	src/session/session_rates.c \
	src/session/stop.c src/session/stop.h
