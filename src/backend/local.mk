# The backend interface, the list of backends and the calls of one; the backends themselves are in backends/.
libgpttrain_a_SOURCES += \
	src/backend/backend.h \
	src/backend/backend_call.c \
	src/backend/backend_call.h \
	src/backend/backend_holders.c \
	src/backend/backend_list.def \
	src/backend/backend_peak.c \
	src/backend/backend_registry.c
