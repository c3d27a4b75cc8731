/* Tests of exec/exec: binding, runs, transfers and their bounds, timing, faults,
 * with and without poison. */
#include "exec/exec.h"

#include <signal.h>
#include <string.h>

#include "plan/plan_create.h"
#include "plan/plan_verify.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

enum { GUARD_BYTES = 128 };

struct bench {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct fixture_backend backend;
    struct exec *exec;
};

static void bench_open(struct bench *b)
{
    memset(b, 0, sizeof *b);
    ck_assert_int_eq(hostmem_create(&b->mem), GT_OK);
    fixture_backend_init(&b->backend);
}

static void bench_plan(struct bench *b, uint32_t guard_bytes, uint64_t largest_segment_bytes)
{
    struct plan_options options = {.device = &b->backend.base,
                                   .alignment_bytes = 64,
                                   .guard_bytes = guard_bytes,
                                   .largest_segment_bytes = largest_segment_bytes};
    ck_assert_int_eq(plan_create(b->mem, b->graph, &options, &b->plan), GT_OK);
    ck_assert(plan_verify(b->plan));
}

static void bench_exec(struct bench *b, bool poison)
{
    ck_assert_int_eq(exec_create(b->mem, &b->backend.base, b->plan, poison, &b->exec), GT_OK);
    hostmem_phase_set(b->mem, HOSTMEM_RUN); /* from here on an allocation fails an assert */
}

static void bench_close(struct bench *b)
{
    hostmem_phase_set(b->mem, HOSTMEM_CLOSE);
    hostmem_free(b->exec);
    hostmem_free(b->plan);
    hostmem_free(b->graph);
    struct hostmem_counters counters;
    hostmem_counters_get(b->mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    hostmem_destroy(b->mem);
    fixture_backend_release(&b->backend);
}

/* x(run), y(run) -> s = x + y -> z(run) += s[1:] */
struct sum {
    struct bench b;
    int32_t x, y, z, s, program;
};

static void sum_create(struct sum *sum, uint32_t guard_bytes, bool poison)
{
    bench_open(&sum->b);
    ck_assert_int_eq(graph_create(sum->b.mem, &sum->b.graph), GT_OK);
    struct graph *g = sum->b.graph;
    sum->x = fixture_tensor(g, "x", 2, 3, LIFETIME_RUN, CATEGORY_PARAMETER);
    sum->y = fixture_tensor(g, "y", 2, 3, LIFETIME_RUN, CATEGORY_PARAMETER);
    sum->z = fixture_tensor(g, "z", 1, 3, LIFETIME_RUN, CATEGORY_PARAMETER);
    sum->program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    sum->s = fixture_residual(g, sum->program, sum->x, sum->y, TENSOR_NONE);
    int32_t row;
    ck_assert_int_eq(graph_view_add(g, sum->s, 1, 1, &row), GT_OK);
    fixture_copy(g, sum->program, row, sum->z, true);
    bench_plan(&sum->b, guard_bytes, 0);
    bench_exec(&sum->b, poison);
}

static void sum_upload(struct sum *sum)
{
    static const float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {10, 20, 30, 40, 50, 60},
                       z[3] = {100, 200, 300};
    ck_assert_int_eq(exec_upload(sum->b.exec, sum->x, 0, x, 6), GT_OK);
    ck_assert_int_eq(exec_upload(sum->b.exec, sum->y, 0, y, 6), GT_OK);
    ck_assert_int_eq(exec_upload(sum->b.exec, sum->z, 0, z, 3), GT_OK);
}

static void sum_runs(bool poison, uint32_t guard_bytes)
{
    struct sum sum;
    sum_create(&sum, guard_bytes, poison);
    sum_upload(&sum);
    float z[3];
    for (int32_t run = 1; run <= 3; run++) {
        ck_assert_int_eq(exec_run(sum.b.exec, sum.program), GT_OK);
        ck_assert_int_eq(exec_download(sum.b.exec, sum.z, 0, z, 3), GT_OK);
        for (int32_t i = 0; i < 3; i++)
            ck_assert_float_eq(z[i], (float)(100 * (i + 1) + 11 * run * (i + 4)));
    }
    ck_assert_uint_eq(sum.b.backend.ops, 6);
    ck_assert_uint_eq(sum.b.backend.runs, poison ? 6 : 3);
    ck_assert_uint_eq(sum.b.backend.lasts, 3); /* s, which the copy reads */
    bench_close(&sum.b);
}

TEST(programs_run_at_their_planned_addresses)
{
    sum_runs(false, 0);
}

TEST(poison_does_not_change_a_sound_program)
{
    sum_runs(true, 0);
    sum_runs(true, GUARD_BYTES);
}

TEST(the_arena_asked_for_is_the_plan)
{
    struct sum sum;
    sum_create(&sum, 0, false);
    ck_assert_uint_eq(sum.b.backend.arenas, 1);
    ck_assert_int_eq(sum.b.backend.segment_count, 1);
    ck_assert_uint_eq(sum.b.backend.segment_bytes[0], sum.b.plan->arena_bytes);
    bench_close(&sum.b);
}

TEST(parts_and_views_are_transferred)
{
    struct sum sum;
    sum_create(&sum, 0, false);
    sum.b.backend.spoils = false; /* a view of s is read below */
    static const float six[6] = {1, 2, 3, 4, 5, 6}, two[2] = {7, 8};
    ck_assert_int_eq(exec_upload(sum.b.exec, sum.x, 0, six, 6), GT_OK);
    ck_assert_int_eq(exec_upload(sum.b.exec, sum.x, 4, two, 2), GT_OK);
    ck_assert_int_eq(exec_upload(sum.b.exec, sum.x, 6, two, 0), GT_OK);
    float got[6];
    ck_assert_int_eq(exec_download(sum.b.exec, sum.x, 1, got, 5), GT_OK);
    static const float expected[5] = {2, 3, 4, 7, 8};
    ck_assert_int_eq(memcmp(got, expected, sizeof expected), 0);
    int32_t row = sum.b.graph->programs[sum.program].ops[1].operand[COPY_X];
    static const float zeros[3] = {0};
    ck_assert_int_eq(exec_upload(sum.b.exec, sum.y, 0, six, 6), GT_OK);
    ck_assert_int_eq(exec_upload(sum.b.exec, sum.z, 0, zeros, 3), GT_OK);
    ck_assert_int_eq(exec_run(sum.b.exec, sum.program), GT_OK);
    ck_assert_int_eq(exec_download(sum.b.exec, row, 1, got, 2), GT_OK);
    ck_assert_float_eq(got[0], 12.0f);
    ck_assert_float_eq(got[1], 14.0f);
    bench_close(&sum.b);
}

#ifndef NDEBUG
TEST_SIGNAL(transfers_beyond_a_tensor_assert, 4, SIGABRT)
{
    struct sum sum;
    sum_create(&sum, 0, false);
    float values[8] = {0};
    int32_t row = sum.b.graph->programs[sum.program].ops[1].operand[COPY_X];
    switch (_i) {
    case 0:
        (void)exec_upload(sum.b.exec, sum.x, 1, values, 6);
        break;
    case 1:
        (void)exec_upload(sum.b.exec, sum.x, -1, values, 1);
        break;
    case 2:
        (void)exec_download(sum.b.exec, sum.x, 7, values, 0);
        break;
    default:
        (void)exec_download(sum.b.exec, row, 1, values, 3); /* inside the base, beyond the view */
        break;
    }
}
#endif

/* When the callback runs, the op's output is in place, even if no op reads it any more. */
static enum gt_status look(void *context, int32_t program, int32_t index)
{
    struct sum *sum = context;
    const struct op *op = &sum->b.graph->programs[program].ops[index];
    const int32_t out = index == 0 ? op->operand[RESIDUAL_R] : op->operand[COPY_Y];
    float value[3];
    TRY(exec_download(sum->b.exec, out, 0, value, 3));
    ck_assert_float_eq(value[0], index == 0 ? 11.0f : 144.0f);
    return index == 1 ? GT_STOPPED : GT_OK;
}

TEST_LOOP(each_op_is_looked_at, 2)
{
    struct sum sum;
    sum_create(&sum, GUARD_BYTES, _i == 1);
    sum_upload(&sum);
    exec_callback_set(sum.b.exec, look, &sum);
    ck_assert(!exec_runs_ahead(sum.b.exec));
    ck_assert_int_eq(exec_start(sum.b.exec, sum.program), GT_STOPPED);
    exec_callback_set(sum.b.exec, NULL, NULL);
    ck_assert_int_eq(exec_run(sum.b.exec, sum.program), GT_OK);
    bench_close(&sum.b);
}

/* ---- refusals ---- */
