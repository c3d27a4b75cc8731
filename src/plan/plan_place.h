/* Placement: finds an address for each item of known lifetime. */
#ifndef GPT_TRAIN_PLAN_PLAN_PLACE_H
#define GPT_TRAIN_PLAN_PLAN_PLACE_H

#include "plan/plan_item.h"

/* Virtual bytes that are occupied during some ops. */
struct plan_slot {
    uint64_t start, end;
    int32_t first, last;
};

/* Slots sorted by start.  Touching slots of one lifetime are joined, so persistent tensors take
 * few. */
struct plan_placer {
    struct plan_slot *slots;
    int32_t count, capacity;
    uint64_t segment_bytes; /* S, or 0 */
    /* Bytes of each segment up to the end of the last slot in it. */
    uint64_t high[BACKEND_SEGMENTS_MAX];
};

struct plan_sort_key {
    uint64_t major, minor; /* ascending */
    int32_t index;         /* of the item; also the last tie-break */
};

/* Memory for placing up to `items` items over up to `ops` ops.  The caller owns it. */
struct plan_scratch {
    struct plan_placer placer;  /* room for every item and the persistent slots */
    struct plan_sort_key *keys; /* [max(items, ops)] */
    uint64_t *best;             /* [items] */
    uint64_t *live;             /* [ops + 1] */
    int32_t *ranks;             /* [2 * ops] */
};

/* Places the item at the lowest virtual address that no slot with an overlapping life occupies, and
 * adds its slot. Returns false, and adds nothing, when that address lies beyond
 * BACKEND_SEGMENTS_MAX segments. */
bool plan_first_fit(struct plan_placer *placer, struct plan_item *item);

/* Gives the placer the slots and the segments of another one. */
void plan_placer_reset(struct plan_placer *placer, const struct plan_placer *from);

uint64_t plan_high_water_sum(const uint64_t high[static BACKEND_SEGMENTS_MAX]);

/* Places all items on top of `fixed` in several orders and keeps the smallest result, or the first
 * of at most `enough_bytes`, `fixed` included; leaves its slots in scratch->placer.  `live[ops]` is
 * the sum of footprints at each op.  Returns false when no order stays within the segments. */
bool plan_place(const struct plan_placer *fixed, struct plan_item *items, int32_t count,
                const uint64_t *live, int32_t ops, uint64_t enough_bytes,
                struct plan_scratch *scratch);

#endif
