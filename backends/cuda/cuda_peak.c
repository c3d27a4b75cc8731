/* The card's measured rate of matrix products, for MFU and forecasts.
 *
 * Square products of growing side, each timed by itself, as long as they fit the scratch and the time; the best rate counts.
 * What is multiplied are zeros: the rate of a card under its power limit is somewhat lower with real numbers.
 */
#include "backends/cuda/cuda_peak.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define SIDE_MIN 64
#define SIDE_MAX 8192
#define RUNS_EACH 3

/* A square product of `side`, its three matrices and the workspace one after the other from `scratch`. */
static struct op_call square_call(const struct backend *backend, enum dtype dtype, struct address scratch, int64_t side,
                                  size_t *out_bytes)
{
    struct op_call call = {.kind = OP_GEMM, .workspace = scratch};
    const int32_t slots[3] = {GEMM_A, GEMM_B, GEMM_D};
    const uint64_t bytes = (uint64_t)(side * side) * dtype_size_bytes(dtype);
    for (int32_t i = 0; i < 3; i++) {
        call.operand[slots[i]] = (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {side, side}};
        call.operand[slots[i]].at = scratch;
        call.operand[slots[i]].at.offset_bytes += (uint64_t)i * bytes;
    }
    call.workspace.offset_bytes += 3 * bytes; /* aligned, as the sides are multiples of 64 */
    call.workspace_bytes = backend->ops->table[OP_GEMM].workspace_bytes(backend, &call);
    *out_bytes = (size_t)(3 * bytes) + call.workspace_bytes;
    return call;
}

static enum gt_status call_time(struct backend *backend, const struct op_call *call, int64_t *out_ns)
{
    const int64_t start = clock_monotonic_ns();
    TRY(backend->ops->run(backend, 0, call, 1));
    TRY(backend->ops->sync(backend, 0));
    *out_ns = clock_monotonic_ns() - start + 1;
    return GT_OK;
}

static enum gt_status zeros_write(struct backend *backend, struct address scratch, size_t bytes)
{
    return cuda_check(backend, cudaMemsetAsync(cuda_at(backend, scratch), 0, bytes, cuda_stream(backend, 0)),
                      "clearing the scratch");
}

enum gt_status cuda_peak_flops(struct backend *backend, enum dtype dtype, struct address scratch, size_t scratch_bytes,
                               double seconds, double *out)
{
    const int64_t limit_ns = (int64_t)(seconds * 1e9 * 0.8), begin = clock_monotonic_ns();
    const enum dtype stored = cuda_dtype_is_float(backend, dtype) ? dtype : DTYPE_F32;
    double best = 0.0;
    TRY(zeros_write(backend, scratch, scratch_bytes));
    for (int64_t side = SIDE_MIN; side <= SIDE_MAX; side *= 2) {
        size_t bytes;
        const struct op_call call = square_call(backend, stored, scratch, side, &bytes);
        const double flops = 2.0 * (double)side * (double)side * (double)side;
        int64_t last_ns = 0;
        for (int run = 0; run < RUNS_EACH && bytes <= scratch_bytes; run++) {
            TRY(call_time(backend, &call, &last_ns));
            best = flops / ((double)last_ns * 1e-9) > best ? flops / ((double)last_ns * 1e-9) : best;
        }
        /* The next one takes eight times as long. */
        if (bytes > scratch_bytes || clock_monotonic_ns() - begin + 8 * RUNS_EACH * last_ns > limit_ns)
            break;
    }
    if (best == 0.0) {
        log_error("cuda: peak_flops needs %zu B of scratch, have %zu B",
                  (size_t)(3 * SIDE_MIN * SIDE_MIN) * dtype_size_bytes(stored), scratch_bytes);
        return GT_NO_MEMORY;
    }
    *out = best;
    return GT_OK;
}
