# The training loop, evaluation, sampling, saving, and the log lines of a run.
libgpttrain_a_SOURCES += \
	src/train/diagnose.c src/train/diagnose.h \
	src/train/disk_room.c src/train/disk_room.h \
	src/train/evaluate.c src/train/evaluate.h \
	src/train/explain.c src/train/explain.h \
	src/train/feed.c src/train/feed.h \
	src/train/forecast.c src/train/forecast.h \
	src/train/generate.c src/train/generate.h \
	src/train/generate_draw.c \
	src/train/judge.c src/train/judge.h src/train/judge_internal.h \
	src/train/judge_choices.c \
	src/train/judge_text.c \
	src/train/loss_scaler.c src/train/loss_scaler.h \
	src/train/metrics.c src/train/metrics.h \
	src/train/plan_answer.c src/train/plan_answer.h \
	src/train/replay.c src/train/replay.h \
	src/train/report_block.c src/train/report_block.h \
	src/train/restore.c src/train/restore.h \
	src/train/restore_algorithms.c src/train/restore_algorithms.h \
	src/train/restore_parts.c src/train/restore_parts.h \
	src/train/resume_check.c src/train/resume_check.h \
	src/train/run.h src/train/run_log.c src/train/run_loop.c \
	src/train/saver.c src/train/saver.h \
	src/train/schedule.c src/train/schedule.h \
	src/train/session.c src/train/session.h \
	src/train/session_budget.c src/train/session_budget.h \
	src/train/session_choices.c src/train/session_choices.h \
	src/train/session_device.c src/train/session_device.h \
	src/train/session_plan.c src/train/session_plan.h \
	src/train/session_start.c \
	src/train/session_rates.c src/train/session_rates.h \
	src/train/session_weights.c \
	src/train/spikes.c src/train/spikes.h \
	src/train/steps_ahead.c src/train/steps_ahead.h \
	src/train/stop.c src/train/stop.h \
	src/train/trainer.c src/train/trainer.h \
	src/train/values.c src/train/values.h \
	src/train/watchdog.c src/train/watchdog.h
