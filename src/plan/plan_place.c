/* Placement: finds an address for each item of known lifetime.
 *
 *   address
 *      ^             +---+
 *      |             | w |            w: the workspace of one op
 *      |       +-----+---+---+
 *      |       | b           |        a, b: saved activations of blocks 1 and 2; an item keeps
 *      |   +---+-------------+---+          its addresses from its first op to its last
 *      |   | a                   |
 *      +---+---------------------+--
 *      | fixed: weights, moments ... |    placed before, under all programs
 *      +-----------------------------+--> ops
 *          forward   |  backward
 *
 * First fit runs in several orders, and the smallest result is kept.  The first result that meets
 * the lower bound ends the search.  The first order, by lifetime, begins with the longest.  It is
 * optimal if lifetimes nest, as those of saved activations do: every earlier item whose life
 * overlaps an item's then contains it, so that first fit stacks without gaps.  The order by breadth
 * begins with the items of the op that has the most live bytes, sorted by size.  Two more orders
 * are by size and by size times lifetime.  Repairs of each order then move the item that reached
 * highest forward.  Slots are an array sorted by address, scanned once per item: 5,000 items take
 * 10 ms.  So many items are not repaired.  They begin with the order by breadth, which nearly
 * always meets the bound, and a result near the bound is enough for them.  This file knows neither
 * tensors nor programs.
 */
#include "plan/plan_place.h"

#include "base/size.h"
#include "plan/plan_item.h"

/* Limits for the repairs of one order: the number of placements, and of pairs of items in all of
 * them together. */
#define REPAIR_ROUNDS_MAX 64
#define REPAIR_SCANS_MAX ((int64_t)4 << 20)
/* A gap below this fraction of the bound (16 KiB of a GiB) is worth few placements.  Its cause is a
 * tensor of a few KiB that either fits next to its neighbours in no order, or does so after few
 * attempts. */
#define GAP_DIVISOR 65536
#define REPAIR_ROUNDS_FEW 2
/* In an arena of several pieces the ends of all but the last stay empty, so that hardly any plan
 * meets the bound, which would end the repairs. */
#define REPAIR_PIECES_PART 8

/* Returns `from`, or the start of the next segment if the item would cross into it. */
static uint64_t segment_fit(const struct plan_placer *placer, uint64_t from, uint64_t bytes)
{
    uint64_t segment = placer->segment_bytes;
    if (segment == 0 || from % segment + bytes <= segment)
        return from;
    return from + (segment - from % segment);
}

/* Returns the index of the first slot that starts at or after `start`. */
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

static void slot_occupy(struct plan_placer *placer, const struct plan_item *item)
{
    const uint64_t segment = placer->segment_bytes,
                   k = segment == 0 ? 0 : item->offset_bytes / segment;
    const uint64_t end = item->offset_bytes + item->bytes - k * segment;
    placer->high[k] = end > placer->high[k] ? end : placer->high[k];
    int32_t at = slot_position(placer, item->offset_bytes);
    struct plan_slot *before = at > 0 ? &placer->slots[at - 1] : NULL;
    if (before && before->end == item->offset_bytes && before->first == item->first &&
        before->last == item->last) {
        before->end += item->bytes;
        return;
    }
    assert(placer->count < placer->capacity);
    memmove(&placer->slots[at + 1], &placer->slots[at],
            (size_t)(placer->count - at) * sizeof placer->slots[0]);
    placer->slots[at] = (struct plan_slot){
        .start = item->offset_bytes,
        .end = item->offset_bytes + item->bytes,
        .first = item->first,
        .last = item->last,
    };
    placer->count++;
}

/* Slots are sorted by start, so the first one that starts beyond the item ends the loop.  Whether a
 * slot's life overlaps the item's is as good as random, so the loop does not branch on it. */
static uint64_t fit_unbounded(const struct plan_placer *placer, const struct plan_item *item)
{
    const struct plan_slot *slot = placer->slots, *end = slot + placer->count;
    int32_t first = item->first, last = item->last;
    uint64_t found = 0, bytes = item->bytes;
    for (; slot < end && slot->start < found + bytes; slot++) {
        bool meets = (slot->first <= last) & (slot->last >= first);
        uint64_t after = meets ? slot->end : 0;
        found = after > found ? after : found;
    }
    return found;
}

static uint64_t fit_in_segments(const struct plan_placer *placer, const struct plan_item *item)
{
    const struct plan_slot *slot = placer->slots, *end = slot + placer->count;
    uint64_t found = segment_fit(placer, 0, item->bytes);
    for (; slot < end && slot->start < found + item->bytes; slot++)
        if (slot->first <= item->last && slot->last >= item->first && slot->end > found)
            found = segment_fit(placer, slot->end, item->bytes);
    return found;
}

bool plan_first_fit(struct plan_placer *placer, struct plan_item *item)
{
    assert(item->bytes > 0 && item->first <= item->last);
    assert(placer->segment_bytes == 0 || item->bytes <= placer->segment_bytes);
    uint64_t found = fit_unbounded(placer, item);
    if (placer->segment_bytes != 0 && found + item->bytes > placer->segment_bytes)
        found = fit_in_segments(placer, item); /* within the first segment both return the same */
    if (placer->segment_bytes != 0 && found / placer->segment_bytes >= BACKEND_SEGMENTS_MAX)
        return false;
    item->offset_bytes = found;
    slot_occupy(placer, item);
    return true;
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

/* Orders the ops by their live bytes, most first: ranks[r] is the op of rank r, and ranks[ops + i]
 * the rank of op i. */
static void ranks_build(const uint64_t *live, int32_t ops, struct plan_sort_key *keys,
                        int32_t *ranks)
{
    for (int32_t i = 0; i < ops; i++)
        keys[i] = (struct plan_sort_key){.major = UINT64_MAX - live[i], .index = i};
    qsort(keys, (size_t)ops, sizeof keys[0], sort_key_compare);
    for (int32_t r = 0; r < ops; r++) {
        ranks[r] = keys[r].index;
        ranks[ops + keys[r].index] = r;
    }
}

/* Returns the lowest rank of the ops of a life.  The loop is short: a long life soon has an op of
 * low rank, and a short life has few ops. */
static int32_t rank_lowest(const int32_t *ranks, int32_t ops, int32_t first, int32_t last)
{
    int32_t lowest = INT32_MAX, k = 0;
    for (; first + k <= last && (ranks[k] < first || ranks[k] > last); k++)
        lowest = ranks[ops + first + k] < lowest ? ranks[ops + first + k] : lowest;
    return first + k <= last ? k : lowest;
}

void plan_placer_reset(struct plan_placer *placer, const struct plan_placer *from)
{
    assert(from->count <= placer->capacity);
    if (from->count > 0)
        memcpy(placer->slots, from->slots, (size_t)from->count * sizeof from->slots[0]);
    placer->count = from->count;
    placer->segment_bytes = from->segment_bytes;
    memcpy(placer->high, from->high, sizeof placer->high);
}

/* Runs first fit in the order of the keys, on top of `fixed`.  Returns the bytes needed.  Returns
 * UINT64_MAX when the items do not fit, or as soon as an arena of one piece would take `limit`
 * bytes or more. */
static uint64_t place_in_order(const struct plan_placer *fixed, struct plan_item *items,
                               int32_t count, uint64_t limit, struct plan_scratch *scratch)
{
    plan_placer_reset(&scratch->placer, fixed);
    for (int32_t i = 0; i < count; i++) {
        struct plan_item *item = &items[scratch->keys[i].index];
        if (!plan_first_fit(&scratch->placer, item) ||
            (fixed->segment_bytes == 0 && item->offset_bytes + item->bytes >= limit))
            return UINT64_MAX;
    }
    return plan_high_water_sum(scratch->placer.high);
}

/* Equal lifetimes are ordered by size, equal sizes by lifetime. */
enum place_order { ORDER_LIFETIME, ORDER_BREADTH, ORDER_SIZE, ORDER_AREA, ORDER_COUNT };

static void order_make(enum place_order order, const struct plan_item *items, int32_t count,
                       const uint64_t *live, int32_t ops, struct plan_scratch *scratch)
{
    if (order == ORDER_BREADTH)
        ranks_build(live, ops, scratch->keys, scratch->ranks);
    for (int32_t i = 0; i < count; i++) {
        const struct plan_item *item = &items[i];
        const uint64_t life = (uint64_t)(item->last - item->first) + 1;
        struct plan_sort_key key = {.minor = UINT64_MAX - item->bytes, .index = i};
        assert(item->first >= 0 && item->last < ops);
        if (order == ORDER_LIFETIME) {
            key.major = UINT64_MAX - life;
        } else if (order == ORDER_BREADTH) {
            key.major = (uint64_t)rank_lowest(scratch->ranks, ops, item->first, item->last);
        } else {
            double size = (double)item->bytes * (order == ORDER_AREA ? (double)life : 1.0);
            key.major = UINT64_MAX - (uint64_t)size;
            key.minor = UINT64_MAX - life;
        }
        scratch->keys[i] = key;
    }
    qsort(scratch->keys, (size_t)count, sizeof scratch->keys[0], sort_key_compare);
}

/* Stores the offsets if this is the best placement so far. */
static void best_keep(const struct plan_item *items, int32_t count, uint64_t bytes,
                      struct plan_scratch *scratch, uint64_t *least)
{
    if (bytes >= *least)
        return;
    *least = bytes;
    for (int32_t i = 0; i < count; i++)
        scratch->best[i] = items[i].offset_bytes;
}

/* Moves the item that reaches highest to the front of the order, or, if `half`, halfway there.
 * Returns false when it is already first. */
static bool highest_raise(const struct plan_item *items, int32_t count, bool half,
                          struct plan_sort_key *keys)
{
    int32_t highest = 0;
    for (int32_t i = 1; i < count; i++) {
        const struct plan_item *item = &items[keys[i].index], *top = &items[keys[highest].index];
        if (item->offset_bytes + item->bytes > top->offset_bytes + top->bytes)
            highest = i;
    }
    struct plan_sort_key key = keys[highest];
    int32_t place = half ? highest / 2 : 0;
    memmove(keys + place + 1, keys + place, (size_t)(highest - place) * sizeof keys[0]);
    keys[place] = key;
    return highest > 0;
}

/* Places repeatedly, each time with the item that reached highest moved forward, for at most
 * `rounds` rounds. */
static void repair(const struct plan_placer *fixed, struct plan_item *items, int32_t count,
                   uint64_t bound, bool half, int64_t rounds, struct plan_scratch *scratch,
                   uint64_t *least)
{
    const int64_t few = min_i64(rounds, REPAIR_ROUNDS_FEW);
    bool one_piece = fixed->segment_bytes == 0 || *least <= fixed->segment_bytes;
    if (!one_piece)
        rounds = rounds / REPAIR_PIECES_PART + few;
    else if (*least - bound <= bound / GAP_DIVISOR)
        rounds = few;
    for (; rounds > 0 && bound < *least; rounds--) {
        uint64_t bytes = place_in_order(fixed, items, count, UINT64_MAX, scratch);
        best_keep(items, count, bytes, scratch, least);
        if (bytes == UINT64_MAX || !highest_raise(items, count, half, scratch->keys))
            return;
    }
}

/* Restores the best offsets in the items and the placer's slots. */
static void best_restore(const struct plan_placer *fixed, struct plan_item *items, int32_t count,
                         struct plan_scratch *scratch)
{
    plan_placer_reset(&scratch->placer, fixed);
    for (int32_t i = 0; i < count; i++) {
        items[i].offset_bytes = scratch->best[i];
        slot_occupy(&scratch->placer, &items[i]);
    }
}

bool plan_place(const struct plan_placer *fixed, struct plan_item *items, int32_t count,
                const uint64_t *live, int32_t ops, uint64_t enough_bytes,
                struct plan_scratch *scratch)
{
    uint64_t bound = plan_high_water_sum(fixed->high), most_live = 0, least = UINT64_MAX;
    for (int32_t i = 0; i < ops; i++)
        most_live = live[i] > most_live ? live[i] : most_live;
    bound += most_live;
    bound = bound > enough_bytes ? bound : enough_bytes;
    const int64_t rounds =
        count > 0 ? min_i64(REPAIR_SCANS_MAX / ((int64_t)count * count), REPAIR_ROUNDS_MAX) : 0;
    const bool many = count > 0 && rounds == 0;
    const uint64_t enough = bound + (many ? bound / GAP_DIVISOR : 0);
    int order = many ? ORDER_BREADTH : ORDER_LIFETIME;
    for (int tried = 0; tried < ORDER_COUNT && least > enough;
         tried++, order = (order + 1) % ORDER_COUNT) {
        order_make((enum place_order)order, items, count, live, ops, scratch);
        best_keep(items, count, place_in_order(fixed, items, count, least, scratch), scratch,
                  &least);
    }
    for (int k = 0; k < 2 * ORDER_COUNT && rounds > 0 && least > bound && least != UINT64_MAX;
         k++) {
        order_make((enum place_order)(k / 2), items, count, live, ops, scratch);
        repair(fixed, items, count, bound, k % 2 != 0, rounds, scratch, &least);
    }
    if (least == UINT64_MAX)
        return false;
    best_restore(fixed, items, count, scratch);
    assert(plan_high_water_sum(scratch->placer.high) == least);
    return true;
}
