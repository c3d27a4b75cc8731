/* Shared by the files of plan/ and their tests: items with a lifetime, and the placer that gives them addresses.
 *
 * Within plan/ an address is one number, the virtual byte: segment k contains the virtual bytes [k S, (k + 1) S), where
 * S is the largest segment, and no item crosses a multiple of S.  S = 0 means a single segment without a bound.  The
 * footprint of an item is its bytes rounded up to the alignment, plus its guard.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_INTERNAL_H
#define GPT_TRAIN_PLAN_PLAN_INTERNAL_H

#include "backend/backend.h"
#include "model/graph.h"
#include "plan/plan.h"

/* Sums of footprints stay below this, so that no sum of virtual addresses can wrap. */
#define PLAN_BYTES_MAX (UINT64_C(1) << 58)
#define PLAN_UNPLACED UINT64_MAX

/* Something that lives from op `first` to op `last`, both included: a storage, or an op's workspace. */
struct plan_item {
    int32_t first, last;
    uint64_t bytes;        /* footprint, > 0 */
    uint64_t offset_bytes; /* virtual; set by the placement */
    int32_t tensor;        /* the storage, or TENSOR_NONE */
    int32_t op;            /* the workspace's op, if the item is not a storage */
};

/* Virtual bytes that are occupied during some ops. */
struct plan_slot {
    uint64_t start, end;
    int32_t first, last;
};

/* Slots sorted by start.  Touching slots of one lifetime are joined, so persistent tensors take few. */
struct plan_placer {
    struct plan_slot *slots;
    int32_t count, capacity;
    uint64_t segment_bytes;              /* S, or 0 */
    uint64_t high[BACKEND_SEGMENTS_MAX]; /* bytes of each segment up to the end of the last slot in it */
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

/* Places the item at the lowest virtual address that no slot with an overlapping life occupies, and adds its slot.
 * Returns false, and adds nothing, when that address lies beyond BACKEND_SEGMENTS_MAX segments. */
bool plan_first_fit(struct plan_placer *placer, struct plan_item *item);

/* Gives the placer the slots and the segments of another one. */
void plan_placer_reset(struct plan_placer *placer, const struct plan_placer *from);

uint64_t plan_high_water_sum(const uint64_t high[static BACKEND_SEGMENTS_MAX]);

/* Places all items on top of `fixed` in several orders and keeps the smallest result, or the first of at most
 * `enough_bytes`, `fixed` included; leaves its slots in scratch->placer.  `live[ops]` is the sum of footprints at each
 * op.  Returns false when no order stays within the segments. */
bool plan_place(const struct plan_placer *fixed, struct plan_item *items, int32_t count, const uint64_t *live,
                int32_t ops, uint64_t enough_bytes, struct plan_scratch *scratch);

/* Returns `bytes` rounded up to the alignment, plus the guard; an empty tensor takes one unit. */
uint64_t plan_footprint(const struct plan_options *options, uint64_t bytes);

/* Collects the items of a program: its program-lifetime storages, with lives from `ranges`, and the workspaces.
 * Returns their number. */
int32_t plan_items_collect(const struct plan *plan, int32_t program, const struct tensor_range *ranges,
                           struct plan_item *items);
/* Fills live[0 .. ops - 1] (live has ops + 1 entries) and the bound, peak op and categories of `out`. */
void plan_live_measure(const struct plan *plan, int32_t program, const struct plan_item *items, int32_t count,
                       uint64_t *live, struct plan_program *out);

/* Returns the name of the tensor that an op writes first, "-" when it writes none. */
const char *plan_op_target(const struct graph *graph, const struct op *op);
/* Returns the bytes of the arena that are unused at the peak. */
uint64_t plan_unused_bytes(const struct plan *plan);
/* Returns the sum of arena, context and headroom, and of the host's memory if the device shares it. */
uint64_t plan_total_bytes(const struct plan *plan, const struct plan_report_facts *facts);

#endif
