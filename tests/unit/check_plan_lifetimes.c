/* Tests of plan/plan_lifetimes: items of a program, live items at each op, the peak and its
 * categories. */
#include <string.h>

#include "plan/plan_create.h"
#include "plan/plan_item.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/unit_main.h"

enum { ITEMS = 16, OPS = 8 };

/* in -> a -> b(out) = a + in, with a base of two rows written by views in between, at an alignment
 * of 64:
 *   op 0  copy      in -> a
 *   op 1  fill      base[0]
 *   op 2  fill      base[1]
 *   op 3  residual  a + in -> b
 *   op 4  copy      base -> c */
struct small {
    struct hostmem *mem;
    struct graph *graph;
    struct plan plan;
    uint64_t workspace_bytes[OPS];
    struct tensor_range ranges[ITEMS];
    int32_t program, in, a, base, b, c;
};

static void small_create(struct small *s)
{
    memset(s, 0, sizeof *s);
    ck_assert_int_eq(hostmem_create(&s->mem), GT_OK);
    ck_assert_int_eq(graph_create(s->mem, &s->graph), GT_OK);
    struct graph *g = s->graph;
    s->program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    fixture_tensor(g, "weights", 9, 9, LIFETIME_RUN, CATEGORY_PARAMETER);
    s->in = fixture_tensor(g, "in", 1, 16, LIFETIME_PROGRAM, CATEGORY_DATA);
    g->tensors[s->in].input = true;
    s->base = fixture_tensor(g, "base", 2, 20, LIFETIME_PROGRAM, CATEGORY_LOGITS);
    int32_t row0, row1;
    ck_assert_int_eq(graph_view_add(g, s->base, 0, 1, &row0), GT_OK);
    ck_assert_int_eq(graph_view_add(g, s->base, 1, 1, &row1), GT_OK);
    s->a = fixture_copy(g, s->program, s->in, TENSOR_NONE, false);
    fixture_fill(g, s->program, row0, 1.0f);
    fixture_fill(g, s->program, row1, 2.0f);
    s->b = fixture_residual(g, s->program, s->a, s->in, TENSOR_NONE);
    g->tensors[s->b].output = true;
    s->c = fixture_copy(g, s->program, s->base, TENSOR_NONE, false);
    s->workspace_bytes[3] = 70;
    s->plan = (struct plan){.graph = g, .options = {.alignment_bytes = 64}};
    s->plan.workspace_bytes[s->program] = s->workspace_bytes;
    graph_ranges(g, s->program, s->ranges);
}

static void small_destroy(struct small *s)
{
    hostmem_free(s->graph);
    hostmem_destroy(s->mem);
}

static const struct plan_item *item_of(const struct plan_item *items, int32_t count, int32_t tensor)
{
    for (int32_t i = 0; i < count; i++) {
        if (items[i].tensor == tensor)
            return &items[i];
    }
    ck_abort_msg("tensor %d has no item", (int)tensor);
    return NULL;
}

static void item_is(const struct plan_item *item, int32_t first, int32_t last, uint64_t bytes)
{
    ck_assert_int_eq(item->first, first);
    ck_assert_int_eq(item->last, last);
    ck_assert_uint_eq(item->bytes, bytes);
}

TEST(items_have_lives_and_footprints)
{
    struct small s;
    small_create(&s);
    struct plan_item items[ITEMS];
    int32_t count = plan_items_collect(&s.plan, s.program, s.ranges, items);
    ck_assert_int_eq(count, 6); /* five storages and one workspace; no weights, no views */
    item_is(item_of(items, count, s.in), 0, 3, 64);
    item_is(item_of(items, count, s.a), 0, 3, 64);
    item_is(item_of(items, count, s.base), 1, 4, 192);
    item_is(item_of(items, count, s.b), 3, 4, 64);
    item_is(item_of(items, count, s.c), 4, 4, 192);
    const struct plan_item *workspace = item_of(items, count, TENSOR_NONE);
    item_is(workspace, 3, 3, 128);
    ck_assert_int_eq(workspace->op, 3);
    small_destroy(&s);
}

TEST(live_bytes_and_peak_are_the_sums)
{
    struct small s;
    small_create(&s);
    struct plan_item items[ITEMS];
    int32_t count = plan_items_collect(&s.plan, s.program, s.ranges, items);
    uint64_t live[OPS + 1];
    struct plan_program out = {0};
    plan_live_measure(&s.plan, s.program, items, count, live, &out);
    static const uint64_t expected[] = {128, 320, 320, 512, 448};
    for (int32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(live[i], expected[i]);
    ck_assert_uint_eq(out.bytes_bound, 512);
    ck_assert_int_eq(out.peak_op, 3);
    ck_assert_uint_eq(out.live_bytes[CATEGORY_DATA], 64);
    ck_assert_uint_eq(out.live_bytes[CATEGORY_LOGITS], 192);
    ck_assert_uint_eq(out.live_bytes[CATEGORY_TEMPORARY], 128);
    ck_assert_uint_eq(out.live_bytes[CATEGORY_WORKSPACE], 128);
    ck_assert_uint_eq(out.live_bytes[CATEGORY_PARAMETER], 0);
    small_destroy(&s);
}

TEST(guards_count)
{
    struct small s;
    small_create(&s);
    s.plan.options.guard_bytes = 128;
    ck_assert_uint_eq(plan_footprint(&s.plan.options, 65), 256);
    ck_assert_uint_eq(plan_footprint(&s.plan.options, 0), 192);
    struct plan_item items[ITEMS];
    int32_t count = plan_items_collect(&s.plan, s.program, s.ranges, items);
    item_is(item_of(items, count, s.base), 1, 4, 320);
    item_is(item_of(items, count, TENSOR_NONE), 3, 3, 256);
    small_destroy(&s);
}

TEST(an_empty_program_needs_nothing)
{
    struct small s;
    small_create(&s);
    int32_t empty = fixture_program(s.graph, PROGRAM_EVALUATE);
    graph_ranges(s.graph, empty, s.ranges);
    struct plan_item items[ITEMS];
    ck_assert_int_eq(plan_items_collect(&s.plan, empty, s.ranges, items), 0);
    uint64_t live[1];
    struct plan_program out;
    plan_live_measure(&s.plan, empty, items, 0, live, &out);
    ck_assert_uint_eq(out.bytes_bound, 0);
    ck_assert_int_eq(out.peak_op, 0);
    small_destroy(&s);
}
