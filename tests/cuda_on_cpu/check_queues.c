/* The forecast of a program whose copies run beside computing, against the clocks of the emulated card's engines.
 *
 * A program passes slices of a state in host memory through the card, as the update does.  A kernel of the emulator takes
 * 10 ms, so the rates follow from the bytes of a slice.  Each case has another ratio of copying to computing.
 */
#include <math.h>
#include <stdlib.h>

#include "backends/cuda/cuda.h"
#include "exec/exec.h"
#include "fake_runtime.h"
#include "plan/plan_cost.h"
#include "plan/plan_create.h"
#include "plan/plan_verify.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/unit_main.h"

enum { SLICES = 12, COLUMNS = 1024 };
#define SLICE_BYTES (COLUMNS * 4.0)
#define KERNEL_SECONDS 1e-2
#define TOLERANCE 0.02

static void op_append(const struct graph_pen *pen, enum op_kind kind, int32_t x, int32_t *y)
{
    union op_arguments arguments = {.COPY = {.x = x, .y = *y}}; /* as those of fetch, store and wait */
    ck_assert_int_eq(graph_op_add(pen, kind, "state", &arguments, NULL), GT_OK);
    *y = arguments.COPY.y;
}

/* Each slice is fetched while the one before it is computed, by `kernels` kernels, and stored while the next one is. */
static int32_t program_make(struct graph *graph, int kernels)
{
    int32_t home = fixture_tensor(graph, "state", SLICES, COLUMNS, LIFETIME_RUN, CATEGORY_MOMENT);
    int32_t host[SLICES], device[SLICES];
    graph->tensors[home].home = SPACE_HOST;
    const struct graph_pen pen = {.graph = graph, .program = fixture_program(graph, PROGRAM_UPDATE)};
    for (int32_t i = 0; i < SLICES + 3; i++) {
        if (i >= 3)
            op_append(&pen, OP_WAIT, device[i - 3], &host[i - 3]);
        if (i < SLICES) {
            ck_assert_int_eq(graph_view_add(graph, home, i, 1, &host[i]), GT_OK);
            device[i] = TENSOR_NONE;
            op_append(&pen, OP_FETCH, host[i], &device[i]);
        }
        if (i < 1 || i > SLICES)
            continue;
        op_append(&pen, OP_WAIT, host[i - 1], &device[i - 1]);
        for (int k = 0; k < kernels; k++)
            op_append(&pen, OP_COPY, device[i - 1], &device[i - 1]);
        op_append(&pen, OP_STORE, device[i - 1], &host[i - 1]);
    }
    return pen.program;
}

static void is_near(double forecast, size_t before_us, size_t after_us, const char *what)
{
    const double clock = 1e-6 * (double)(after_us - before_us);
    ck_assert_msg(fabs(forecast - clock) <= TOLERANCE * clock, "%s: %g s forecast, %g s by the clock", what, forecast,
                  clock);
}

/* Compares forecast and clocks of one program, at a link that moves a slice in `copy_seconds`. */
static void clocks_compare(double copy_seconds, int kernels, int32_t engines)
{
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct backend *device;
    struct exec *exec;
    struct fake_cuda_counters before, after;
    char link[32], number[8];
    snprintf(link, sizeof link, "%g", SLICE_BYTES / copy_seconds);
    snprintf(number, sizeof number, "%d", (int)engines);
    ck_assert_int_eq(setenv("GT_CUDA_ON_CPU_LINK", link, 1) | setenv("GT_CUDA_ON_CPU_ENGINES", number, 1), 0);
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(graph_create(mem, &graph), GT_OK);
    const int32_t program = program_make(graph, kernels);
    const struct backend_open_options open = {.device = 0};
    ck_assert_int_eq(cuda_backend_ops.open(&open, &device), GT_OK);
    const struct plan_options options = {.device = device, .alignment_bytes = 256};
    ck_assert_int_eq(plan_create(mem, graph, &options, &plan), GT_OK);
    ck_assert(plan_verify(plan));
    ck_assert_int_eq(exec_create(mem, device, plan, false, &exec), GT_OK);
    fake_cuda_counters_get(&before);
    ck_assert_int_eq(exec_run(exec, program), GT_OK);
    fake_cuda_counters_get(&after);
    struct backend_info info;
    ck_assert_int_eq(device->ops->info(device, &info), GT_OK);
    ck_assert_int_eq(info.copy_engines, engines);
    struct plan_rates rates = {.bytes_per_s = {[OP_COPY] = 2.0 * SLICE_BYTES / KERNEL_SECONDS, [OP_WAIT] = 1.0}};
    plan_rates_link_set(&rates, SLICE_BYTES / copy_seconds, info.copy_engines);
    const struct plan_queues forecast = plan_cost_queues(graph, program, &rates);
    is_near(forecast.busy[QUEUE_COMPUTE], before.compute_us, after.compute_us, "kernels");
    is_near(forecast.busy[QUEUE_IN], before.in_us, after.in_us, "copies in");
    is_near(forecast.busy[QUEUE_OUT], before.out_us, after.out_us, "copies out");
    is_near(forecast.makespan, before.makespan_us, after.makespan_us, "the program");
    hostmem_free(exec);
    device->ops->close(device);
    hostmem_free(plan);
    hostmem_free(graph);
    hostmem_destroy(mem);
}

TEST(copies_beyond_the_slots_are_an_error)
{
    static struct op_call calls[CUDA_COPIES_MAX + 1];
    const struct backend_segment segments[] = {{.space = SPACE_HOST, .size_bytes = COLUMNS * sizeof(float)},
                                               {.space = SPACE_DEVICE, .size_bytes = COLUMNS * sizeof(float)}};
    const struct backend_open_options open = {.device = 0};
    struct backend *device;
    ck_assert_int_eq(cuda_backend_ops.open(&open, &device), GT_OK);
    ck_assert_int_eq(device->ops->arena(device, segments, 2), GT_OK);
    for (int i = 0; i <= CUDA_COPIES_MAX; i++) {
        calls[i].kind = OP_FETCH;
        for (uint8_t slot = 0; slot < 2; slot++)
            calls[i].operand[slot] = (struct operand){.present = true,
                                                      .dtype = DTYPE_F32,
                                                      .rank = 1,
                                                      .dims = {COLUMNS},
                                                      .at = {.space = segments[slot].space, .segment = slot}};
    }
    ck_assert_int_eq(device->ops->run(device, calls, CUDA_COPIES_MAX + 1), GT_DEVICE);
    device->ops->close(device);
}

/* The fake library reads its environment once, so each case has a process of its own. */
TEST(copies_are_the_bottleneck)
{
    clocks_compare(0.025, 1, 2);
}

TEST(kernels_are_the_bottleneck)
{
    clocks_compare(0.015, 3, 2);
}

TEST(all_take_equally_long)
{
    clocks_compare(0.020, 2, 2);
}

TEST(one_engine_copies_both_ways)
{
    clocks_compare(0.012, 2, 1);
}
