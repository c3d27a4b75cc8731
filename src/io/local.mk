# The files of src/io; Makefile.am includes this.
libgpttrain_a_SOURCES += \
	src/io/checkpoint.h \
	src/io/checkpoint_load.c \
	src/io/checkpoint_open.c \
	src/io/checkpoint_publish.c src/io/checkpoint_publish.h \
	src/io/checkpoint_record.c src/io/checkpoint_record.h \
	src/io/checkpoint_save.c \
	src/io/hf_config.c src/io/hf_config.h \
	src/io/hf_layout.c src/io/hf_layout.h \
	src/io/safetensors.c src/io/safetensors.h \
	src/io/safetensors_write.c
