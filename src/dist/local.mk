# Ranks: processes that train one model together.
libgpttrain_a_SOURCES += \
	src/dist/comm_shm.c \
	src/dist/dist.c src/dist/dist.h
