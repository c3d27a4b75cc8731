/* Items with a lifetime, which the placement gives addresses.
 *
 * Within plan/ an address is one number, the virtual byte: segment k contains the virtual bytes [k
 * S, (k + 1) S), where S is the largest segment, and no item crosses a multiple of S.  S = 0 means
 * a single segment without a bound.  The footprint of an item is its bytes rounded up to the
 * alignment, plus its guard.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_ITEM_H
#define GPT_TRAIN_PLAN_PLAN_ITEM_H

#include "backend/backend.h"
#include "model/graph.h"
#include "plan/plan.h"

/* Sums of footprints stay below this, so that no sum of virtual addresses can wrap. */
#define PLAN_BYTES_MAX (UINT64_C(1) << 58)
#define PLAN_UNPLACED UINT64_MAX

/* Something that lives from op `first` to op `last`, both included: a storage, or an op's
 * workspace. */
struct plan_item {
    int32_t first, last;
    uint64_t bytes;        /* footprint, > 0 */
    uint64_t offset_bytes; /* virtual; set by the placement */
    int32_t tensor;        /* the storage, or TENSOR_NONE */
    int32_t op;            /* the workspace's op, if the item is not a storage */
};

#endif
