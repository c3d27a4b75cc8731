/* What most tests of src/io have: a scratch folder, a file's path in it, memory and a captured log,
 * fresh for each test. */
#ifndef GPT_TRAIN_UNIT_IO_CASE_H
#define GPT_TRAIN_UNIT_IO_CASE_H

#include "tests/unit/io_fixture.h"

static char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
static struct hostmem *mem;
static struct log_capture capture;

static inline void io_setup(void)
{
    scratch_make(folder);
    io_path(path, folder, "file");
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    log_capture_begin(&capture);
}

static inline void io_teardown(void)
{
    struct hostmem_counters counters;
    log_capture_end();
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    hostmem_destroy(mem);
    scratch_remove(folder);
}

#endif
