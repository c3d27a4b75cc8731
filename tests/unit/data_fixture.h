/* Shared by the tests of src/data: a scratch folder, files in it, and the last line that was
 * logged. */
#ifndef GPT_TRAIN_UNIT_DATA_FIXTURE_H
#define GPT_TRAIN_UNIT_DATA_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

struct data_fixture {
    struct hostmem *mem;
    char folder[FILE_PATH_MAX];
    char path[FILE_PATH_MAX]; /* the result of the latest fixture_path() */
    char line[4096];          /* the last line of the log */
};

static inline void fixture_sink(void *context, enum log_level level, const char *line)
{
    struct data_fixture *fixture = context;
    (void)level;
    snprintf(fixture->line, sizeof fixture->line, "%s", line);
}

static inline void fixture_open(struct data_fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    scratch_make(fixture->folder);
    ck_assert_int_eq(hostmem_create(&fixture->mem), GT_OK);
    log_sink_set(fixture_sink, fixture);
}

/* Removes the folder and all memory. */
static inline void fixture_drop(struct data_fixture *fixture)
{
    log_sink_set(NULL, NULL);
    scratch_remove(fixture->folder);
    hostmem_destroy(fixture->mem);
}

/* Fails when the test's objects were not released. */
static inline void fixture_close(struct data_fixture *fixture)
{
    struct hostmem_counters counters;
    hostmem_counters_get(fixture->mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    fixture_drop(fixture);
}

static inline const char *fixture_path(struct data_fixture *fixture, const char *name)
{
    file_join(fixture->path, fixture->folder, name);
    return fixture->path;
}

static inline void fixture_write(struct data_fixture *fixture, const char *name, const void *bytes,
                                 size_t count)
{
    scratch_write(fixture_path(fixture, name), bytes, count);
}

static inline void fixture_write_text(struct data_fixture *fixture, const char *name,
                                      const char *text)
{
    fixture_write(fixture, name, text, strlen(text));
}

static inline void fixture_make_folder(struct data_fixture *fixture, const char *name)
{
    ck_assert_int_eq(mkdir(fixture_path(fixture, name), 0777), 0);
}

/* Returns a file's content with a terminator; the caller calls free(). */
static inline char *fixture_read(struct data_fixture *fixture, const char *name, size_t *out_count)
{
    char *bytes;
    ck_assert_int_eq(file_read_all(fixture_path(fixture, name), (size_t)1 << 24, &bytes, out_count),
                     GT_OK);
    return bytes;
}

/* Writes a headerless file of `count` 16-bit ids: first, first + 1, ... modulo 65,536. */
static inline void fixture_write_u16(struct data_fixture *fixture, const char *name, size_t count,
                                     unsigned first)
{
    unsigned char *bytes = malloc(2 * count + 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < count; i++) {
        bytes[2 * i] = (unsigned char)((first + i) & 0xFF);
        bytes[2 * i + 1] = (unsigned char)((first + i) >> 8 & 0xFF);
    }
    fixture_write(fixture, name, bytes, 2 * count);
    free(bytes);
}

/* Writes an llm.c shard with ids first, first + 1, ...: the header fields as given, and `count` ids
 * of `width` bytes, even when the header differs. */
static inline void fixture_write_shard(struct data_fixture *fixture, const char *name,
                                       const uint32_t header[3], size_t width, size_t count,
                                       uint32_t first)
{
    const size_t size = 1024 + count * width;
    unsigned char *bytes = calloc(size, 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < 12; i++)
        bytes[i] = (unsigned char)(header[i / 4] >> 8 * (i % 4) & 0xFF);
    for (size_t i = 0; i < count * width; i++)
        bytes[1024 + i] =
            (unsigned char)((first + (uint32_t)(i / width)) >> 8 * (i % width) & 0xFF);
    fixture_write(fixture, name, bytes, size);
    free(bytes);
}

#define FIXTURE_SAYS(fixture, text) \
    ck_assert_msg(strstr((fixture)->line, text) != NULL, "the log says: %s", (fixture)->line)

#endif
