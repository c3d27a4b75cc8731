/* opcheck --bench: times one op at the shapes of a 124M step, and compares it with the device's
 * limits.
 *
 * It prints the minimum and the median of several runs after one warm-up, at most about a second
 * per op.  Next to them it prints what the op declares: the bytes that it must move at least and
 * the FLOPs that it must do; rates are computed from these.  The roofs are measured on the same
 * device: backend_peak_flops() gives the matrix rate of each dtype, and the residual op gives the
 * memory rate, on three arrays that fit no cache (two read, one written, as in STREAM's Add).  The
 * share is that of the roof that binds: the larger of FLOPs over the matrix rate and bytes over the
 * memory rate.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend_peak.h"
#include "base/clock.h"
#include "tests/opcheck/opcheck.h"

#define BENCH_RUNS_MAX 50
#define BENCH_RUNS_MIN 3
#define BENCH_NS_MAX 800000000
#define PRODUCT_NS_MAX 100000000 /* of one of many products */
#define PEAK_SECONDS 0.5

static const enum dtype floats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

struct timing {
    double least_s, median_s;
};

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool timed(struct device *device, const struct op_call *call, int64_t limit_ns,
                  struct timing *out)
{
    const struct backend_ops *ops = device->backend->ops;
    int64_t elapsed_ns[BENCH_RUNS_MAX], start = 0;
    int32_t runs = 0;
    for (int32_t i = -1; i < BENCH_RUNS_MAX; i++) { /* the first run warms up */
        int64_t before = clock_monotonic_ns();
        if (ops->run(device->backend, call, 1) != GT_OK || ops->sync(device->backend) != GT_OK)
            return false;
        int64_t after = clock_monotonic_ns();
        if (i < 0)
            start = after;
        else
            elapsed_ns[runs++] = after - before;
        if (runs >= BENCH_RUNS_MIN && after - start > limit_ns)
            break;
    }
    qsort(elapsed_ns, (size_t)runs, sizeof elapsed_ns[0], ascending);
    out->least_s = (double)elapsed_ns[0] * 1e-9;
    out->median_s = (double)elapsed_ns[runs / 2] * 1e-9;
    return true;
}

static double triad_rate(struct device *device)
{
    struct op_call call = {.kind = OP_RESIDUAL};
    struct timing timing;
    for (int32_t slot = 0; slot < RESIDUAL_OPERANDS; slot++) {
        struct operand *operand = &call.operand[slot];
        *operand = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 2};
        operand->dims[0] = (int64_t)(BENCH_TRIAD_BYTES / sizeof(float) / 1024);
        operand->dims[1] = 1024;
        operand->at = (struct address){.space = SPACE_DEVICE,
                                       .offset_bytes = (uint64_t)slot * BENCH_TRIAD_BYTES};
        struct op_call fill = {.kind = OP_FILL};
        fill.operand[FILL_Y] = *operand;
        if (device->backend->ops->run(device->backend, &fill, 1) != GT_OK)
            return 0.0;
    }
    return device_supports(device, &call) && timed(device, &call, BENCH_NS_MAX, &timing)
               ? op_bytes(&call) / timing.least_s
               : 0.0;
}

void bench_roofs(struct device *device, struct roofs *out)
{
    struct address scratch = {.space = SPACE_DEVICE};
    const struct backend_ops *ops = device->backend->ops;
    *out = (struct roofs){.bytes = triad_rate(device)};
    printf("%s: %s; memory rate %.1f GB/s (two read, one written), matrix rates", ops->name,
           device->info.device, out->bytes * 1e-9);
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        double *rate = &out->flops[floats[i]];
        if (backend_peak_flops(device->backend, floats[i], scratch, 3 * BENCH_TRIAD_BYTES,
                               PEAK_SECONDS, rate) != GT_OK)
            *rate = 0.0;
        printf("%s %s %.1f GFLOP/s", i > 0 ? "," : "", dtype_name(floats[i]), *rate * 1e-9);
    }
    printf("\n%-20s %-8s %10s %10s %10s %10s %10s %9s %6s\n", "op", "dtype", "min ms", "median ms",
           "least MB", "GFLOP", "GFLOP/s", "GB/s", "roof");
}

static void result_print(const struct op_call *call, enum dtype dtype, const struct timing *timing,
                         const struct roofs *roofs)
{
    double flops = op_flops(call) / timing->least_s, bytes = op_bytes(call) / timing->least_s;
    double of_matrix = roofs->flops[dtype] > 0.0 ? flops / roofs->flops[dtype] : 0.0;
    double of_memory = roofs->bytes > 0.0 ? bytes / roofs->bytes : 0.0;
    printf("%-20s %-8s %10.3f %10.3f %10.3f %10.4f %10.2f %9.2f %4.0f %% of %s\n",
           op_declaration(call->kind)->name, dtype_name(dtype), timing->least_s * 1e3,
           timing->median_s * 1e3, op_bytes(call) * 1e-6, op_flops(call) * 1e-9, flops * 1e-9,
           bytes * 1e-9, 100.0 * fmax(of_matrix, of_memory),
           of_matrix > of_memory ? "matrix" : "memory");
}

void bench_run(struct device *device, enum op_kind kind, enum dtype dtype, int32_t product,
               const struct roofs *roofs)
{
    struct check_case check;
    struct timing timing;
    const struct op_declaration *declaration = op_declaration(kind);
    if (!case_make_bench(kind, dtype, product, &check) || !device_supports(device, &check.call)) {
        printf("%-20s %-8s not supported\n", declaration->name, dtype_name(dtype));
        return;
    }
    device_layout(device, &check);
    uint8_t *image = case_image_make(&check);
    struct address start = {.space = SPACE_DEVICE};
    if (device->backend->ops->upload(device->backend, start, image, check.image_bytes) == GT_OK &&
        timed(device, &check.call, product > 0 ? PRODUCT_NS_MAX : BENCH_NS_MAX, &timing))
        result_print(&check.call, dtype, &timing, roofs);
    else
        printf("%-20s %-8s failed\n", declaration->name, dtype_name(dtype));
    fflush(stdout);
    free(image);
}
