# The memory plan.
libgpttrain_a_SOURCES += \
	src/plan/calibrate.c src/plan/calibrate.h \
	src/plan/oom_message.c src/plan/oom_message.h src/plan/oom_text.c src/plan/oom_text.h \
	src/plan/plan.h src/plan/plan_item.h \
	src/plan/device_profile.c src/plan/device_profile.h src/plan/device_profiles.def \
	src/plan/device_profile_file.c src/plan/device_profile_file.h \
	src/plan/plan_alternatives.c src/plan/plan_alternatives.h \
	src/plan/plan_cost.c src/plan/plan_cost.h \
	src/plan/plan_create.c src/plan/plan_create.h \
	src/plan/plan_json.c src/plan/plan_json.h \
	src/plan/plan_place.c src/plan/plan_place.h \
	src/plan/plan_measure.c src/plan/plan_measure.h \
	src/plan/plan_report.c src/plan/plan_report.h \
	src/plan/plan_search.c src/plan/plan_search.h \
	src/plan/plan_svg.c src/plan/plan_svg.h \
	src/plan/plan_verify.c src/plan/plan_verify.h
