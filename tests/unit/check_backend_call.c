/* Tests of the calls of a backend, with and without a record, and of the registry. */
#include <check.h>
#include <string.h>

#include "backend/backend_call.h"
#include "backend/backend_peak.h"
#include "backend/backend_registry.h"
#include "tests/unit/unit_main.h"

#define SEGMENT_BYTES 65536

static struct op_call fill_call(const struct backend *backend)
{
    struct op_call call = {.kind = OP_FILL, .attrs = {.value = 2.5f}};
    call.operand[FILL_Y] =
        (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 1, .dims = {8}};
    ck_assert(backend->ops->supports(backend, &call));
    ck_assert_uint_eq(backend->ops->workspace_bytes(backend, &call), 0);
    return call;
}

TEST(passes_on_and_records_the_arena)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        const struct backend_open_options options = {.threads = 1};
        const struct backend_segment segments[2] = {{SPACE_DEVICE, SEGMENT_BYTES},
                                                    {SPACE_HOST, 100}};
        struct backend_record record = {0};
        struct backend *backend;
        ck_assert_int_eq(backend_find("cpu")->open(&options, &backend), GT_OK);
        ck_assert_ptr_null(backend->record);
        backend->record = recorded ? &record : NULL;
        ck_assert_int_eq(backend_arena(backend, segments, 2), GT_OK);
        ck_assert_uint_eq(record.arena_bytes, recorded ? SEGMENT_BYTES + 100 : 0);
        struct op_call calls[2] = {fill_call(backend), fill_call(backend)};
        calls[1].operand[FILL_Y].at.offset_bytes = 64;
        const struct address begin = {.space = SPACE_DEVICE};
        float values[24] = {0};
        ck_assert_int_eq(backend_bind(backend, calls, 2), GT_OK);
        ck_assert_int_eq(backend_upload(backend, begin, values, sizeof values), GT_OK);
        ck_assert_int_eq(backend_run(backend, calls, 2), GT_OK);
        ck_assert_int_eq(backend_sync(backend), GT_OK);
        ck_assert_int_eq(backend_download(backend, values, begin, sizeof values), GT_OK);
        for (int i = 0; i < 24; i++)
            ck_assert(values[i] == (i < 8 || i >= 16 ? 2.5f : 0.0f));
        double rate = 0.0;
        ck_assert_int_eq(backend_peak_flops(backend, DTYPE_F32, begin, SEGMENT_BYTES, 0.01, &rate),
                         GT_OK);
        ck_assert(rate > 0.0);
        backend_close(backend);
        ck_assert_int_eq(atomic_load(&record.number) > 0, recorded);
    }
    backend_close(NULL);
    backend_find("cpu")->close(NULL);
}

TEST(registry_knows_cpu)
{
    bool seen = false;
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++)
        seen = seen || strcmp((*ops)->name, "cpu") == 0;
    ck_assert(seen);
    ck_assert_str_eq(backend_find("cpu")->name, "cpu");
    ck_assert_ptr_null(backend_find("gpu"));
    ck_assert_ptr_null(backend_find(""));
}
