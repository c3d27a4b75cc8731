# The lowest layer: it uses only the C library and jansson.
libgpttrain_a_SOURCES += \
	src/base/bits.h \
	src/base/bytes.h \
	src/base/clock.c src/base/clock.h \
	src/base/crc32c.c src/base/crc32c.h \
	src/base/dtype.c src/base/dtype.h \
	src/base/file.c src/base/file.h \
	src/base/heads.c src/base/heads.h \
	src/base/hostmem.c src/base/hostmem.h \
	src/base/json.c src/base/json.h \
	src/base/json_put.c src/base/json_put.h \
	src/base/log.c src/base/log.h \
	src/base/module.c src/base/module.h \
	src/base/offload.c src/base/offload.h \
	src/base/platform.h \
	src/base/progress.c src/base/progress.h \
	src/base/recompute.c src/base/recompute.h \
	src/base/rng.c src/base/rng.h \
	src/base/rope_angles.c src/base/rope_angles.h \
	src/base/archs.def src/base/shape.c src/base/shape.def src/base/shape.h \
	src/base/size.h \
	src/base/status.c src/base/status.h \
	src/base/svg.c src/base/svg.h \
	src/base/system_memory.c src/base/system_memory.h \
	src/base/terminal.c src/base/terminal.h \
	src/base/thread.c src/base/thread.h \
	src/base/user_cache.c src/base/user_cache.h \
	src/base/utf8.c src/base/utf8.h
