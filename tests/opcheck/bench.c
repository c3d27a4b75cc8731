/* opcheck --bench: the time of one op at the shapes of a 124M step, with rates from the op's declared cost.
 *
 * The best of several runs after one warm-up; at most about a second per op.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/opcheck/opcheck.h"

#define BENCH_RUNS_MAX 50
#define BENCH_NS_MAX 800000000

static double best_seconds(struct device *device, const struct check_case *check)
{
    const struct backend_ops *ops = device->backend->ops;
    int64_t start = clock_monotonic_ns(), best = INT64_MAX;
    for (int32_t i = 0; i < BENCH_RUNS_MAX && (i < 2 || clock_monotonic_ns() - start < BENCH_NS_MAX); i++) {
        int64_t before = clock_monotonic_ns();
        if (ops->run(device->backend, 0, &check->call, 1) != GT_OK || ops->sync(device->backend, 0) != GT_OK)
            return 0.0;
        int64_t elapsed = clock_monotonic_ns() - before;
        best = i > 0 && elapsed < best ? elapsed : best;
    }
    return (double)best * 1e-9;
}

void bench_run(struct device *device, enum op_kind kind, enum dtype dtype)
{
    struct check_case check;
    double *value[OP_OPERANDS_MAX] = {NULL};
    const struct op_declaration *declaration = op_declaration(kind);
    if (!case_make_bench(kind, dtype, &check) || !device_supports(device, &check.call)) {
        printf("%-20s %-8s not supported\n", declaration->name, dtype_name(dtype));
        return;
    }
    device_layout(device, &check);
    uint8_t *image = malloc(check.image_bytes);
    bool complete = image != NULL;
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        size_t count = (size_t)operand_elements(&check.call.operand[slot]);
        if (check.call.operand[slot].present && (value[slot] = calloc(count, sizeof(double))) == NULL)
            complete = false;
    }
    if (!complete)
        abort();
    inputs_fill(&check, value);
    image_prepare(&check, value, image);
    struct address start = {.space = SPACE_DEVICE};
    double seconds = 0.0;
    if (device->backend->ops->upload(device->backend, 0, start, image, check.image_bytes) == GT_OK)
        seconds = best_seconds(device, &check);
    printf("%-20s %-8s %10.3f ms %9.2f GFLOP/s %8.2f GB/s\n", declaration->name, dtype_name(dtype), seconds * 1e3,
           seconds > 0.0 ? op_flops(&check.call) / seconds * 1e-9 : 0.0,
           seconds > 0.0 ? op_bytes(&check.call) / seconds * 1e-9 : 0.0);
    fflush(stdout);
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        free(value[slot]);
    free(image);
}
