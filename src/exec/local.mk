# Runs planned programs on a device.
libgpttrain_a_SOURCES += \
	src/exec/exec.c src/exec/exec.h \
	src/exec/exec_poison.c src/exec/exec_poison.h
