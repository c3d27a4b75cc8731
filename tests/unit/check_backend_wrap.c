/* Tests of the backend wrapper: its counters, that it passes every call on, and that the n-th call fails; and of the
 * registry.
 */
#include <check.h>
#include <string.h>

#include "backend/backend.h"
#include "base/log.h"
#include "tests/unit/unit_main.h"

#define SEGMENT_BYTES 65536

static void sink_silent(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static struct backend *wrapped_open(void)
{
    const struct backend_open_options options = {.threads = 1};
    struct backend *inner = NULL, *wrapper = NULL;
    ck_assert_int_eq(backend_find("cpu")->open(&options, &inner), GT_OK);
    ck_assert_int_eq(backend_wrap(inner, &wrapper), GT_OK);
    return wrapper;
}

static struct op_call fill_call(const struct backend *backend)
{
    struct op_call call = {.kind = OP_FILL, .attrs = {.value = 2.5f}};
    call.operand[FILL_Y] = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 1, .dims = {8}};
    ck_assert(backend->ops->supports(backend, &call));
    ck_assert_uint_eq(backend->ops->workspace_bytes(backend, &call), 0);
    return call;
}

START_TEST(counts_and_passes_on)
{
    struct backend *backend = wrapped_open();
    const struct backend_segment segments[2] = {{SPACE_DEVICE, SEGMENT_BYTES}, {SPACE_HOST, 100}};
    ck_assert_int_eq(backend->ops->arena(backend, segments, 2), GT_OK);
    ck_assert_str_eq(backend->ops->name, "cpu");
    struct op_call calls[2] = {fill_call(backend), fill_call(backend)};
    calls[1].operand[FILL_Y].at.offset_bytes = 64;
    const struct address begin = {.space = SPACE_DEVICE};
    float values[24] = {0};
    ck_assert_int_eq(backend->ops->upload(backend, 0, begin, values, sizeof values), GT_OK);
    ck_assert_int_eq(backend->ops->run(backend, 0, calls, 2), GT_OK);
    ck_assert_int_eq(backend->ops->sync(backend, 0), GT_OK);
    ck_assert_int_eq(backend->ops->download(backend, 0, values, begin, sizeof values), GT_OK);
    for (int i = 0; i < 24; i++)
        ck_assert(values[i] == (i < 8 || i >= 16 ? 2.5f : 0.0f));
    struct backend_counters counters;
    backend_wrap_counters(backend, &counters);
    ck_assert_uint_eq(counters.arena_calls, 1);
    ck_assert_uint_eq(counters.arena_bytes, SEGMENT_BYTES + 100);
    ck_assert_uint_eq(counters.upload_calls, 1);
    ck_assert_uint_eq(counters.upload_bytes, sizeof values);
    ck_assert_uint_eq(counters.download_calls, 1);
    ck_assert_uint_eq(counters.download_bytes, sizeof values);
    ck_assert_uint_eq(counters.run_calls, 1);
    ck_assert_uint_eq(counters.ops, 2);
    ck_assert_uint_eq(counters.sync_calls, 1);
    double rate = 0.0;
    ck_assert_int_eq(backend_peak_flops(backend, DTYPE_F32, begin, SEGMENT_BYTES, 0.01, &rate), GT_OK);
    ck_assert(rate > 0.0);
    backend->ops->close(backend);
    backend_find("cpu")->close(NULL);
}
END_TEST

/* Makes one call of the given kind. */
static enum gt_status call_of(struct backend *backend, enum backend_call call)
{
    const struct backend_segment segment = {SPACE_DEVICE, SEGMENT_BYTES};
    const struct address begin = {.space = SPACE_DEVICE};
    struct backend_info info;
    float value = 0.0f;
    const struct op_call fill = fill_call(backend);
    switch (call) {
    case BACKEND_CALL_INFO:
        return backend->ops->info(backend, &info);
    case BACKEND_CALL_ARENA:
        return backend->ops->arena(backend, &segment, 1);
    case BACKEND_CALL_UPLOAD:
        return backend->ops->upload(backend, 0, begin, &value, sizeof value);
    case BACKEND_CALL_DOWNLOAD:
        return backend->ops->download(backend, 0, &value, begin, sizeof value);
    case BACKEND_CALL_RUN:
        return backend->ops->run(backend, 0, &fill, 1);
    case BACKEND_CALL_BIND:
        return backend->ops->bind(backend, &fill, 1);
    case BACKEND_CALL_CHOOSE:
        return backend->ops->choose(backend, NULL, 0);
    default:
        return backend->ops->sync(backend, 0);
    }
}

START_TEST(nth_call_fails_once)
{
    const enum backend_call kind = (enum backend_call)_i;
    log_sink_set(sink_silent, NULL);
    struct backend *backend = wrapped_open();
    if (kind == BACKEND_CALL_ARENA) {
        backend_wrap_fail_at(backend, kind, 1, GT_NO_MEMORY);
        ck_assert_int_eq(call_of(backend, kind), GT_NO_MEMORY);
        ck_assert_int_eq(call_of(backend, kind), GT_OK); /* the failed call did not reach the inner backend */
    } else {
        ck_assert_int_eq(call_of(backend, BACKEND_CALL_ARENA), GT_OK);
        const size_t errors = log_count(LOG_ERROR);
        backend_wrap_fail_at(backend, kind, 3, GT_DEVICE);
        ck_assert_int_eq(call_of(backend, kind), GT_OK);
        ck_assert_int_eq(call_of(backend, kind), GT_OK);
        ck_assert_int_eq(call_of(backend, kind), GT_DEVICE);
        ck_assert_int_eq(call_of(backend, kind), GT_OK);
        ck_assert_uint_eq(log_count(LOG_ERROR), errors + 1);
    }
    backend->ops->close(backend);
}
END_TEST

START_TEST(wrapper_cannot_be_opened)
{
    log_sink_set(sink_silent, NULL);
    struct backend *backend = wrapped_open(), *other = NULL;
    const struct backend_open_options options = {0};
    ck_assert_int_eq(backend->ops->open(&options, &other), GT_UNSUPPORTED);
    ck_assert_ptr_null(other);
    backend->ops->close(backend);
}
END_TEST

START_TEST(registry_knows_cpu)
{
    bool seen = false;
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++)
        seen = seen || strcmp((*ops)->name, "cpu") == 0;
    ck_assert(seen);
    ck_assert_str_eq(backend_find("cpu")->name, "cpu");
    ck_assert_ptr_null(backend_find("gpu"));
    ck_assert_ptr_null(backend_find(""));
}
END_TEST

Suite *backend_wrap_suite(void)
{
    Suite *suite = suite_create("backend_wrap");
    TCase *tests = tcase_create("backend_wrap");
    tcase_add_test(tests, counts_and_passes_on);
    tcase_add_loop_test(tests, nth_call_fails_once, 0, BACKEND_CALL_CLOSE); /* later calls cannot fail */
    tcase_add_test(tests, wrapper_cannot_be_opened);
    tcase_add_test(tests, registry_knows_cpu);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(backend_wrap)
