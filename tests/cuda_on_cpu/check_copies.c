/* Asynchronous copies of the cuda backend, on the emulated card: as many as it has events for are
 * waited for, each by its own wait; one more is an error, which names the cure.
 */
#include "backends/cuda/cuda.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

#define COPIES (CUDA_COPIES_MAX + 1)
#define COPY_BYTES 256

static struct operand bytes_at(enum memory_space space, int32_t number)
{
    return (struct operand){.present = true,
                            .dtype = DTYPE_U8,
                            .rank = 1,
                            .dims = {COPY_BYTES},
                            .at = {.space = space,
                                   .segment = space == SPACE_HOST,
                                   .offset_bytes = (uint64_t)number * COPY_BYTES}};
}

/* Fetches `count` copies from host memory, and then waits for them, the last one first. */
static enum gt_status copies_run(struct backend *backend, int32_t count)
{
    static struct op_call calls[2 * COPIES];
    memset(calls, 0, sizeof calls);
    for (int32_t i = 0; i < count; i++) {
        struct op_call *fetch = &calls[i], *wait = &calls[2 * count - 1 - i];
        fetch->kind = OP_FETCH;
        fetch->operand[FETCH_X] = bytes_at(SPACE_HOST, i);
        fetch->operand[FETCH_Y] = bytes_at(SPACE_DEVICE, i);
        *wait = *fetch;
        wait->kind = OP_WAIT;
    }
    return backend->ops->run(backend, calls, (size_t)count * 2);
}

TEST(copies_have_events)
{
    static const struct backend_segment segments[] = {
        {.space = SPACE_DEVICE, .size_bytes = COPIES * COPY_BYTES},
        {.space = SPACE_HOST, .size_bytes = COPIES * COPY_BYTES}};
    static unsigned char sent[COPIES * COPY_BYTES], received[COPIES * COPY_BYTES];
    const struct backend_open_options options = {.device = 0};
    struct log_capture capture;
    struct backend *backend = NULL;
    log_capture_begin(&capture);
    ck_assert_int_eq(cuda_backend_ops.open(&options, &backend), GT_OK);
    ck_assert_int_eq(backend->ops->arena(backend, segments, 2), GT_OK);
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (unsigned char)(i * 7 + i / COPY_BYTES);
    const struct address host = {.space = SPACE_HOST, .segment = 1};
    ck_assert_int_eq(backend->ops->upload(backend, host, sent, sizeof sent), GT_OK);
    ck_assert_int_eq(copies_run(backend, CUDA_COPIES_MAX), GT_OK);
    ck_assert_int_eq(copies_run(backend, CUDA_COPIES_MAX), GT_OK); /* no event is still taken */
    const struct address device = {.space = SPACE_DEVICE};
    ck_assert_int_eq(backend->ops->download(backend, received, device, sizeof received), GT_OK);
    ck_assert_mem_eq(received, sent, CUDA_COPIES_MAX * COPY_BYTES);
    log_capture_refused(&capture, copies_run(backend, COPIES), GT_DEVICE, "--offload=none");
    backend->ops->close(backend);
    log_capture_end();
}
