/* Tests of plan/plan_create: layout of the arena, sums, segments, refusals,
 * failing allocations, time. */
#include <string.h>

#include "plan/plan_create.h"
#include "plan/plan_item.h"
#include "plan/plan_report.h"
#include "plan/plan_verify.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct hostmem *mem_create(void)
{
    struct hostmem *mem = NULL;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    return mem;
}

static struct graph *graph_make(struct hostmem *mem)
{
    struct graph *graph = NULL;
    ck_assert_int_eq(graph_create(mem, &graph), GT_OK);
    return graph;
}

static void nothing_is_left(struct hostmem *mem)
{
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    ck_assert_uint_eq(counters.allocations, counters.releases);
    hostmem_destroy(mem);
}

/* Checks the invariants of every plan. */
static void plan_is_sound(const struct plan *plan)
{
    ck_assert(plan_verify(plan));
    uint64_t segments = 0, categories = 0, phase_max = 0;
    for (int32_t k = 0; k < plan->segment_count; k++)
        segments += plan->segment[k].size_bytes;
    for (int32_t p = 0; p < plan->program_count; p++)
        ck_assert_uint_ge(plan->program[p].bytes, plan->program[p].bytes_bound);
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        categories += plan->category_bytes[c];
    for (int32_t p = 0; p < PHASE_COUNT; p++)
        phase_max = plan->phase_bytes[p] > phase_max ? plan->phase_bytes[p] : phase_max;
    ck_assert_uint_eq(segments, plan->arena_bytes);
    ck_assert_uint_ge(plan->arena_bytes, plan->arena_bytes_bound);
    ck_assert_uint_ge(plan->arena_bytes, plan->run_bytes + phase_max);
    if (plan->options.largest_segment_bytes == 0)
        ck_assert_uint_eq(plan->arena_bytes, plan->run_bytes + phase_max);
    ck_assert_uint_eq(categories + plan_unused_bytes(plan), plan->arena_bytes);
    ck_assert_uint_le(categories, plan->arena_bytes_bound);
}

TEST(arena_is_run_then_phases_that_overlap)
{
    struct hostmem *mem = mem_create();
    struct graph *g = graph_make(mem);
    int32_t w = fixture_tensor(g, "w", 1, 32, LIFETIME_RUN, CATEGORY_PARAMETER);        /* 128 */
    int32_t grad = fixture_tensor(g, "grad", 1, 32, LIFETIME_PHASE, CATEGORY_GRADIENT); /* 128 */
    int32_t cache = fixture_tensor(g, "cache", 1, 64, LIFETIME_PHASE, CATEGORY_CACHE);  /* 256 */
    g->tensors[cache].phase = PHASE_GENERATE;
    int32_t unused = fixture_tensor(g, "unused", 1, 64, LIFETIME_PHASE, CATEGORY_GRADIENT);
    int32_t train = fixture_program(g, PROGRAM_TRAIN_FIRST);
    int32_t a = fixture_copy(g, train, w, TENSOR_NONE, false);
    int32_t b = fixture_copy(g, train, a, TENSOR_NONE, false);
    int32_t c = fixture_copy(g, train, b, TENSOR_NONE, false);
    fixture_copy(g, train, c, grad, false);
    int32_t evaluate = fixture_program(g, PROGRAM_EVALUATE);
    int32_t e = fixture_copy(g, evaluate, w, TENSOR_NONE, false);
    int32_t decode = fixture_program(g, PROGRAM_DECODE);
    fixture_fill(g, decode, cache, 0.0f);
    int32_t view;
    ck_assert_int_eq(graph_view_add(g, cache, 0, 1, &view), GT_OK);
    int32_t d = fixture_copy(g, decode, view, TENSOR_NONE, false);
    struct plan_options options = {.alignment_bytes = 64};
    struct plan *plan = NULL;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan_is_sound(plan);
    ck_assert_uint_eq(plan->tensor[w].offset_bytes, 0);
    ck_assert_uint_eq(plan->tensor[grad].offset_bytes, 128);
    ck_assert_uint_eq(plan->tensor[cache].offset_bytes, 128);
    ck_assert_uint_eq(plan->tensor[view].offset_bytes, 128);
    ck_assert_uint_eq(plan->tensor[unused].offset_bytes, PLAN_UNPLACED);
    /* a and b meet, b and c meet, a and c do not. */
    ck_assert_uint_eq(plan->tensor[a].offset_bytes, plan->tensor[c].offset_bytes);
    ck_assert_uint_ne(plan->tensor[a].offset_bytes, plan->tensor[b].offset_bytes);
    ck_assert_uint_eq(plan->tensor[e].offset_bytes, 128);
    ck_assert_uint_eq(plan->tensor[d].offset_bytes, 384);
    ck_assert_uint_eq(plan->run_bytes, 128);
    ck_assert_uint_eq(plan->phase_bytes[PHASE_TRAIN], 384);
    ck_assert_uint_eq(plan->phase_bytes[PHASE_EVALUATE], 128);
    ck_assert_uint_eq(plan->phase_bytes[PHASE_GENERATE], 512);
    ck_assert_uint_eq(plan->arena_bytes, 640);
    ck_assert_uint_eq(plan->arena_bytes_bound, 640);
    ck_assert_int_eq(plan->peak_program, decode);
    ck_assert_uint_eq(plan->category_bytes[CATEGORY_PARAMETER], 128);
    ck_assert_uint_eq(plan->category_bytes[CATEGORY_CACHE], 256);
    ck_assert_uint_eq(plan->category_bytes[CATEGORY_TEMPORARY], 256);
    ck_assert_uint_eq(plan->category_bytes[CATEGORY_GRADIENT], 0);
    ck_assert_int_eq(plan->segment_count, 1);
    hostmem_free(plan);
    hostmem_free(g);
    nothing_is_left(mem);
}

/* Two programs of the same ops in the same order, of which the second is larger: its placement is
 * one of its own. */
TEST(programs_of_other_sizes_are_placed_anew)
{
    struct hostmem *mem = mem_create();
    struct graph *g = graph_make(mem);
    for (int64_t rows = 4; rows <= 8; rows += 4) {
        const int32_t program =
            fixture_program(g, rows == 4 ? PROGRAM_TRAIN_FIRST : PROGRAM_TRAIN_NEXT);
        const int32_t x = fixture_tensor(g, "x", rows, 16, LIFETIME_PROGRAM, CATEGORY_TEMPORARY);
        fixture_fill(g, program, x, 1.0f);
        const int32_t y = fixture_copy(g, program, x, TENSOR_NONE, false);
        const int32_t z = fixture_residual(g, program, x, y, TENSOR_NONE);
        fixture_copy(g, program, z, TENSOR_NONE, false);
    }
    struct plan_options options = {.alignment_bytes = 64};
    struct plan *plan = NULL;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan_is_sound(plan);
    ck_assert_uint_eq(plan->program[1].bytes, 2 * plan->program[0].bytes);
    hostmem_free(plan);
    hostmem_free(g);
    nothing_is_left(mem);
}

TEST(segments_keep_tensors_whole)
{
    struct hostmem *mem = mem_create();
    struct graph *g = graph_make(mem);
    int32_t run[5];
    for (int32_t i = 0; i < 5; i++)
        run[i] = fixture_tensor(g, "run", 1, 160, LIFETIME_RUN, CATEGORY_PARAMETER); /* 640 */
    int32_t program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    int32_t small =
        fixture_tensor(g, "small", 1, 80, LIFETIME_PROGRAM, CATEGORY_TEMPORARY); /* 320 */
    fixture_fill(g, program, small, 1.0f);
    struct plan_options options = {.alignment_bytes = 64,
                                   .largest_segment_bytes = 1000}; /* 960 used */
    struct plan *plan = NULL;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan_is_sound(plan);
    ck_assert_int_eq(plan->segment_count, 5);
    ck_assert_uint_eq(plan->segment[0].size_bytes,
                      960); /* the small one fills a gap next to the first */
    ck_assert_uint_eq(plan->segment[4].size_bytes, 640);
    ck_assert_uint_eq(plan->arena_bytes, 5 * 640 + 320);
    ck_assert_int_eq(plan->tensor[small].segment, 0);
    ck_assert_uint_eq(plan->tensor[small].offset_bytes, 640);
    for (int32_t i = 0; i < 5; i++)
        ck_assert_int_eq(plan->tensor[run[i]].segment, i);
    hostmem_free(plan);
    hostmem_free(g);
    nothing_is_left(mem);
}

/* Expects that plan_create() on `g` fails with `status` and one line with `words`. */
static void create_fails(struct hostmem *mem, const struct graph *g,
                         const struct plan_options *options, enum gt_status status,
                         const char *words)
{
    struct log_capture capture;
    struct plan *plan = NULL;
    log_capture_begin(&capture);
    ck_assert_int_eq(plan_create(mem, g, options, &plan), status);
    log_capture_one_error(&capture, words);
    log_capture_end();
    ck_assert_ptr_null(plan);
}

TEST(what_cannot_be_planned_is_refused_by_name)
{
    struct hostmem *mem = mem_create();
    struct graph *g = graph_make(mem);
    int32_t big =
        fixture_tensor(g, "the_big_one", 1, 400, LIFETIME_RUN, CATEGORY_PARAMETER); /* 1600 */
    int32_t program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    fixture_copy(g, program, big, TENSOR_NONE, false);
    struct plan_options options = {.alignment_bytes = 64, .largest_segment_bytes = 1500};
    create_fails(mem, g, &options, GT_NO_FIT, "the_big_one needs 1600 bytes");
    for (int32_t i = 0; i < BACKEND_SEGMENTS_MAX; i++)
        fixture_tensor(g, "more", 1, 400, LIFETIME_RUN, CATEGORY_PARAMETER);
    options.largest_segment_bytes = 1700;
    create_fails(mem, g, &options, GT_NO_FIT, "more does not fit 128 segments of 1700 bytes");
    hostmem_free(g);

    g = graph_make(mem);
    program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    struct tensor proto = {.name = "halves", .dtype = DTYPE_BF16, .rank = 2, .dims = {3, 5}};
    proto.lifetime = LIFETIME_RUN;
    int32_t halves;
    ck_assert_int_eq(graph_tensor_add(g, &proto, &halves), GT_OK);
    fixture_copy(g, program, halves, TENSOR_NONE, false);
    options = (struct plan_options){.alignment_bytes = 64};
    options.device = fixture_backend();
    create_fails(mem, g, &options, GT_UNSUPPORTED,
                 "fixture cannot run copy (x=bfloat16[3,5] y=bfloat16[3,5])");
    struct backend_info info = {
        .device = "a small card", .detail = "driver 7", .limits = "no bfloat16"};
    options.info = &info;
    create_fails(mem, g, &options, GT_UNSUPPORTED, "; a small card; driver 7; no bfloat16");
    hostmem_free(g);

    g = graph_make(mem); /* an op that the backend does not support at all */
    program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    int32_t x = fixture_tensor(g, "x", 2, 2, LIFETIME_RUN, CATEGORY_PARAMETER);
    struct graph_pen pen = {.graph = g, .program = program};
    ck_assert_int_eq(GRAPH_ADD(GELU_FORWARD, &pen, "gelu", NULL, .x = x), GT_OK);
    create_fails(mem, g, &options, GT_UNSUPPORTED,
                 "op 0 of program train_first, which writes gelu.y");
    hostmem_free(g);

    g = graph_make(mem);
    for (int32_t i = 0; i < 3; i++)
        fixture_tensor(g, "huge", INT64_C(1) << 28, INT64_C(1) << 27, LIFETIME_RUN,
                       CATEGORY_PARAMETER);
    options = (struct plan_options){.alignment_bytes = 64};
    create_fails(mem, g, &options, GT_USAGE, "huge needs 144115188075855872 bytes");
    struct log_capture capture;
    proto.dims[0] = proto.dims[1] = INT64_C(1) << 40;
    log_capture_begin(&capture);
    log_capture_refused(&capture, graph_tensor_add(g, &proto, &x), GT_USAGE, "halves is too large");
    log_capture_end();
    hostmem_free(g);
    nothing_is_left(mem);
}

TEST(empty_graphs_have_plans)
{
    struct hostmem *mem = mem_create();
    struct graph *g = graph_make(mem);
    struct plan_options options = {.alignment_bytes = 64};
    struct plan *plan = NULL;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan_is_sound(plan);
    ck_assert_uint_eq(plan->arena_bytes, 0);
    ck_assert_int_eq(plan->segment_count, 0);
    ck_assert_int_eq(plan->peak_program, -1);
    hostmem_free(plan);
    fixture_tensor(g, "kept", 1, 1, LIFETIME_RUN, CATEGORY_PARAMETER);
    fixture_program(g, PROGRAM_EVALUATE);
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan_is_sound(plan);
    ck_assert_uint_eq(plan->arena_bytes, 64);
    ck_assert_uint_eq(plan->category_bytes[CATEGORY_PARAMETER], 64);
    hostmem_free(plan);
    hostmem_free(g);
    nothing_is_left(mem);
}
