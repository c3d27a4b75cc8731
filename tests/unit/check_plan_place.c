/* Tests of plan/plan_place: random items against brute force, segments, and an order that wins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_item.h"
#include "plan/plan_place.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/unit_main.h"

enum { ITEMS_MAX = 512, OPS_MAX = 512 };

struct table {
    struct plan_item items[ITEMS_MAX];
    int32_t count, ops;
    uint64_t live[OPS_MAX + 1];
    struct plan_slot slots[ITEMS_MAX + 1], fixed_slots[8];
    struct plan_sort_key keys[ITEMS_MAX + OPS_MAX];
    uint64_t best[ITEMS_MAX];
    int32_t ranks[2 * OPS_MAX];
    struct plan_placer fixed;
    struct plan_scratch scratch;
};

static struct table *table_create(int32_t ops, uint64_t segment_bytes)
{
    struct table *t = calloc(1, sizeof *t);
    ck_assert_ptr_nonnull(t);
    t->ops = ops;
    t->fixed = (struct plan_placer){
        .slots = t->fixed_slots, .capacity = 8, .segment_bytes = segment_bytes};
    t->scratch = (struct plan_scratch){.placer = {.slots = t->slots, .capacity = ITEMS_MAX + 1},
                                       .keys = t->keys,
                                       .best = t->best,
                                       .live = t->live,
                                       .ranks = t->ranks};
    return t;
}

static void item_add(struct table *t, int32_t first, int32_t last, uint64_t bytes)
{
    ck_assert_int_lt(t->count, ITEMS_MAX);
    t->items[t->count++] =
        (struct plan_item){.first = first, .last = last, .bytes = bytes, .tensor = t->count};
}

/* Fills live[] and returns the largest sum of live bytes. */
static uint64_t table_bound(struct table *t)
{
    uint64_t bound = 0;
    memset(t->live, 0, sizeof t->live);
    for (int32_t o = 0; o < t->ops; o++) {
        for (int32_t i = 0; i < t->count; i++)
            t->live[o] += t->items[i].first <= o && o <= t->items[i].last ? t->items[i].bytes : 0;
        bound = t->live[o] > bound ? t->live[o] : bound;
    }
    return bound;
}

/* Places the items; checks every pair of items and the segments; returns the bytes. */
static uint64_t table_place(struct table *t)
{
    table_bound(t);
    ck_assert(plan_place(&t->fixed, t->items, t->count, t->live, t->ops, 0, &t->scratch));
    uint64_t highest = 0, segment = t->fixed.segment_bytes;
    for (int32_t i = 0; i < t->count; i++) {
        const struct plan_item *a = &t->items[i];
        uint64_t end = a->offset_bytes + a->bytes;
        highest = end > highest ? end : highest;
        if (segment)
            ck_assert_uint_eq(a->offset_bytes / segment, (end - 1) / segment);
        for (int32_t j = 0; j < i; j++) {
            const struct plan_item *b = &t->items[j];
            bool meet = a->first <= b->last && b->first <= a->last;
            ck_assert(!meet || end <= b->offset_bytes ||
                      b->offset_bytes + b->bytes <= a->offset_bytes);
        }
    }
    if (!segment)
        ck_assert_uint_eq(plan_high_water_sum(t->scratch.placer.high), highest);
    return plan_high_water_sum(t->scratch.placer.high);
}

/* Longest first needs 8 for these (worked out by hand: 0, 2, 4, 5), breadth first 6. */
TEST(breadth_wins_where_it_is_smaller)
{
    struct table *t = table_create(5, 0);
    item_add(t, 0, 2, 2);
    item_add(t, 3, 4, 3);
    item_add(t, 1, 4, 2);
    item_add(t, 2, 4, 1);
    ck_assert_uint_eq(table_bound(t), 6);
    ck_assert_uint_eq(table_place(t), 6);
    free(t);
}

/* Returns the bytes of first fit in the best of all orders, which is optimal for intervals. */
static uint64_t brute_force(struct table *t)
{
    int32_t order[6];
    uint64_t best = UINT64_MAX;
    int32_t all = 1;
    for (int32_t i = 2; i <= t->count; i++)
        all *= i;
    for (int32_t n = 0; n < all; n++) {
        int32_t rest = n, left[6];
        for (int32_t i = 0; i < t->count; i++)
            left[i] = i;
        for (int32_t i = 0; i < t->count; i++) {
            int32_t size = t->count - i, pick = rest % size;
            rest /= size;
            order[i] = left[pick];
            memmove(&left[pick], &left[pick + 1], (size_t)(size - pick - 1) * sizeof left[0]);
        }
        struct plan_slot slots[8];
        struct plan_placer placer = {.slots = slots, .capacity = 8};
        for (int32_t i = 0; i < t->count; i++) {
            struct plan_item copy = t->items[order[i]];
            ck_assert(plan_first_fit(&placer, &copy));
        }
        best = placer.high[0] < best ? placer.high[0] : best;
    }
    return best;
}

TEST(random_items_stay_between_optimum_and_twice_it)
{
    struct fixture_random random = {.seed = unit_seed()};
    int32_t optimal = 0, cases = 200;
    for (int32_t n = 0; n < cases; n++) {
        struct table *t = table_create(6, 0);
        for (int32_t i = 2 + fixture_below(&random, 5); i > 0; i--) {
            int32_t first = fixture_below(&random, 6);
            item_add(t, first, first + fixture_below(&random, 6 - first),
                     1 + (uint64_t)fixture_below(&random, 9));
        }
        uint64_t bound = table_bound(t), optimum = brute_force(t), placed = table_place(t);
        ck_assert_uint_ge(optimum, bound);
        ck_assert_uint_ge(placed, optimum);
        ck_assert_uint_le(placed, 2 * optimum);
        optimal += placed == optimum;
        free(t);
    }
    printf("random items: %d of %d at the optimum\n", (int)optimal, (int)cases);
    ck_assert_int_ge(optimal, cases * 8 / 10);
}

TEST(random_nested_lives_meet_the_bound)
{
    struct fixture_random random = {.seed = unit_seed() + 1};
    for (int32_t n = 0; n < 50; n++) {
        struct table *t = table_create(400, 0);
        for (int32_t i = 0; i < 150; i++) {
            int32_t depth = fixture_below(&random, 200);
            item_add(t, depth, 399 - depth, 1 + (uint64_t)fixture_below(&random, 1000));
        }
        uint64_t bound = table_bound(t);
        ck_assert_uint_eq(table_place(t), bound);
        free(t);
    }
}

TEST(random_items_respect_segments)
{
    struct fixture_random random = {.seed = unit_seed() + 2};
    for (int32_t n = 0; n < 50; n++) {
        struct table *t = table_create(100, 1500);
        for (int32_t i = 0; i < 120; i++) {
            int32_t first = fixture_below(&random, 100), more = fixture_below(&random, 100 - first);
            item_add(t, first, first + more % 12, 1 + (uint64_t)fixture_below(&random, 400));
        }
        uint64_t bound = table_bound(t);
        ck_assert_uint_ge(table_place(t), bound);
        free(t);
    }
}
