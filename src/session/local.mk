# A session: device, budget, plan, memory and weights; where a run begins.
libgpttrain_a_SOURCES += \
	src/session/bad_value.c src/session/bad_value.h \
	src/session/finetune.c src/session/finetune.def src/session/finetune.h \
	src/session/loss_scaler.c src/session/loss_scaler.h \
	src/session/report_block.c src/session/report_block.h \
	src/session/restore.c src/session/restore.h \
	src/session/restore_weights.c src/session/restore_weights.h \
	src/session/resume_check.c src/session/resume_check.h \
	src/session/run.c src/session/run.h \
	src/session/session.c src/session/session.h \
	src/session/session_budget.c src/session/session_budget.h \
	src/session/session_device.c src/session/session_device.h \
	src/session/session_open.c src/session/session_open.h \
	src/session/session_plan.c src/session/session_plan.h \
	src/session/session_rates.c src/session/session_rates.h \
	src/session/session_start.c src/session/session_start.h \
	src/session/stop.c src/session/stop.h \
	src/session/values.c src/session/values.h \
	src/session/watchdog.c src/session/watchdog.h
