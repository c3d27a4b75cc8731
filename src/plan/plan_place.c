/* Placement: an address for items with known lifetimes.
 *
 * First fit in two orders.  Longest lifetime first is optimal where lifetimes nest, as saved activations do: everything
 * that meets an item then contains it, so that first fit stacks without gaps.  By breadth: the op with most live bytes
 * first, its items by size.  The smaller result is kept.  Slots are an array sorted by address, scanned once per item;
 * a few thousand items take milliseconds.  This file knows neither tensors nor programs.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_internal.h"

/* `from`, or the start of the next segment when the item would cross into it. */
static uint64_t segment_fit(const struct plan_placer *placer, uint64_t from, uint64_t bytes)
{
    uint64_t segment = placer->segment_bytes;
    if (segment == 0 || from % segment + bytes <= segment)
        return from;
    return from + (segment - from % segment);
}

/* Index of the first slot that starts at or after `start`. */
static int32_t slot_position(const struct plan_placer *placer, uint64_t start)
{
    int32_t low = 0, high = placer->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (placer->slots[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void slot_take(struct plan_placer *placer, const struct plan_item *item)
{
    int32_t at = slot_position(placer, item->offset_bytes);
    struct plan_slot *before = at > 0 ? &placer->slots[at - 1] : NULL;
    if (before && before->end == item->offset_bytes && before->first == item->first && before->last == item->last) {
        before->end += item->bytes;
        return;
    }
    assert(placer->count < placer->capacity);
    memmove(&placer->slots[at + 1], &placer->slots[at], (size_t)(placer->count - at) * sizeof placer->slots[0]);
    placer->slots[at] = (struct plan_slot){
        .start = item->offset_bytes,
        .end = item->offset_bytes + item->bytes,
        .first = item->first,
        .last = item->last,
    };
    placer->count++;
}

bool plan_first_fit(struct plan_placer *placer, struct plan_item *item)
{
    assert(item->bytes > 0 && item->first <= item->last);
    assert(placer->segment_bytes == 0 || item->bytes <= placer->segment_bytes);
    uint64_t low = 0;
    uint64_t found = segment_fit(placer, low, item->bytes);
    for (int32_t i = 0; i < placer->count; i++) {
        const struct plan_slot *slot = &placer->slots[i];
        if (slot->first > item->last || slot->last < item->first || slot->end <= low)
            continue;
        if (found + item->bytes <= slot->start)
            break;
        low = slot->end;
        found = segment_fit(placer, low, item->bytes);
    }
    if (placer->segment_bytes != 0 && found / placer->segment_bytes >= BACKEND_SEGMENTS_MAX)
        return false;
    item->offset_bytes = found;
    slot_take(placer, item);
    return true;
}

void plan_high_water(const struct plan_placer *placer, uint64_t high[static BACKEND_SEGMENTS_MAX])
{
    memset(high, 0, BACKEND_SEGMENTS_MAX * sizeof high[0]);
    uint64_t segment = placer->segment_bytes;
    for (int32_t i = 0; i < placer->count; i++) {
        const struct plan_slot *slot = &placer->slots[i];
        if (segment == 0) {
            high[0] = slot->end > high[0] ? slot->end : high[0];
            continue;
        }
        /* A joined slot may cover several segments; all but the last to their end. */
        for (uint64_t k = slot->start / segment; k * segment < slot->end; k++) {
            uint64_t end = slot->end < (k + 1) * segment ? slot->end - k * segment : segment;
            high[k] = end > high[k] ? end : high[k];
        }
    }
}

uint64_t plan_high_water_sum(const uint64_t high[static BACKEND_SEGMENTS_MAX])
{
    uint64_t sum = 0;
    for (int32_t k = 0; k < BACKEND_SEGMENTS_MAX; k++)
        sum += high[k];
    return sum;
}

static int sort_key_compare(const void *a, const void *b)
{
    const struct plan_sort_key *x = a, *y = b;
    if (x->major != y->major)
        return x->major < y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor < y->minor ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void keys_sort(struct plan_sort_key *keys, int32_t count)
{
    qsort(keys, (size_t)count, sizeof keys[0], sort_key_compare);
}

/* Longest lifetime first; of equals the larger. */
static void order_by_lifetime(const struct plan_item *items, int32_t count, struct plan_sort_key *keys)
{
    for (int32_t i = 0; i < count; i++) {
        keys[i] = (struct plan_sort_key){
            .major = UINT64_MAX - (uint64_t)(items[i].last - items[i].first),
            .minor = UINT64_MAX - items[i].bytes,
            .index = i,
        };
    }
    keys_sort(keys, count);
}

int32_t plan_rank_levels(int32_t ops)
{
    int32_t levels = 1;
    while (levels < 31 && (int32_t)(1u << levels) <= ops)
        levels++;
    return levels;
}

/* Level k of the table holds, for each op i, the smallest rank among ops i .. i + 2^k - 1; rank 0 is the op with most
 * live bytes. */
static void ranks_build(const uint64_t *live, int32_t ops, struct plan_sort_key *keys, int32_t *rank_min)
{
    for (int32_t i = 0; i < ops; i++)
        keys[i] = (struct plan_sort_key){.major = UINT64_MAX - live[i], .index = i};
    keys_sort(keys, ops);
    for (int32_t r = 0; r < ops; r++)
        rank_min[keys[r].index] = r;
    for (int32_t k = 1; k < plan_rank_levels(ops); k++) {
        const int32_t *below = rank_min + (size_t)(k - 1) * (size_t)ops;
        int32_t *row = rank_min + (size_t)k * (size_t)ops, half = (int32_t)(1u << (k - 1));
        for (int32_t i = 0; i + 2 * half <= ops; i++)
            row[i] = below[i] < below[i + half] ? below[i] : below[i + half];
    }
}

static int32_t rank_lowest(const int32_t *rank_min, int32_t ops, int32_t first, int32_t last)
{
    int32_t k = plan_rank_levels(last - first + 1) - 1;
    const int32_t *row = rank_min + (size_t)k * (size_t)ops;
    int32_t left = row[first], right = row[last + 1 - (int32_t)(1u << k)];
    return left < right ? left : right;
}

/* Items of the op with most live bytes first, by size; then those of the next op that are left. */
static void order_by_breadth(const struct plan_item *items, int32_t count, const uint64_t *live, int32_t ops,
                             struct plan_scratch *scratch)
{
    ranks_build(live, ops, scratch->keys, scratch->rank_min);
    for (int32_t i = 0; i < count; i++) {
        assert(items[i].first >= 0 && items[i].last < ops);
        scratch->keys[i] = (struct plan_sort_key){
            .major = (uint64_t)rank_lowest(scratch->rank_min, ops, items[i].first, items[i].last),
            .minor = UINT64_MAX - items[i].bytes,
            .index = i,
        };
    }
    keys_sort(scratch->keys, count);
}

/* First fit in the order of the keys, on top of `fixed`.  Returns the bytes needed, UINT64_MAX when it does not fit. */
static uint64_t place_in_order(const struct plan_placer *fixed, struct plan_item *items, int32_t count,
                               struct plan_scratch *scratch)
{
    struct plan_placer *placer = &scratch->placer;
    assert(fixed->count <= placer->capacity);
    if (fixed->count > 0)
        memcpy(placer->slots, fixed->slots, (size_t)fixed->count * sizeof fixed->slots[0]);
    placer->count = fixed->count;
    placer->segment_bytes = fixed->segment_bytes;
    for (int32_t i = 0; i < count; i++) {
        if (!plan_first_fit(placer, &items[scratch->keys[i].index]))
            return UINT64_MAX;
    }
    uint64_t high[BACKEND_SEGMENTS_MAX];
    plan_high_water(placer, high);
    return plan_high_water_sum(high);
}

bool plan_place(const struct plan_placer *fixed, struct plan_item *items, int32_t count, const uint64_t *live,
                int32_t ops, struct plan_scratch *scratch)
{
    order_by_lifetime(items, count, scratch->keys);
    uint64_t by_lifetime = place_in_order(fixed, items, count, scratch);
    for (int32_t i = 0; i < count; i++)
        scratch->best[i] = items[i].offset_bytes;
    uint64_t high[BACKEND_SEGMENTS_MAX], most_live = 0;
    plan_high_water(fixed, high);
    for (int32_t i = 0; i < ops; i++)
        most_live = live[i] > most_live ? live[i] : most_live;
    if (by_lifetime == plan_high_water_sum(high) + most_live)
        return true; /* at the lower bound: no order does better */

    order_by_breadth(items, count, live, ops, scratch);
    uint64_t by_breadth = place_in_order(fixed, items, count, scratch);
    if (by_breadth < by_lifetime)
        return true;
    for (int32_t i = 0; i < count; i++)
        items[i].offset_bytes = scratch->best[i];
    if (by_lifetime == UINT64_MAX)
        return false;
    /* The slots of the kept placement, for the caller's high water. */
    order_by_lifetime(items, count, scratch->keys);
    return place_in_order(fixed, items, count, scratch) == by_lifetime;
}
