# The memory plan.
libgpttrain_a_SOURCES += \
	src/plan/plan.h src/plan/plan_internal.h \
	src/plan/plan_cost.c src/plan/plan_cost.h \
	src/plan/plan_create.c \
	src/plan/plan_json.c \
	src/plan/plan_lifetimes.c \
	src/plan/plan_place.c \
	src/plan/plan_report.c \
	src/plan/plan_search.c src/plan/plan_search.h \
	src/plan/plan_verify.c
