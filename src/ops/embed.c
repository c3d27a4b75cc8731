/* embed: token and position embeddings.  A model with rotary positions (rope.c) has no table wpe.
 *
 *   y[n] = wte[ids[n]] + wpe[scalars.POSITION + n % time]     nanoGPT model.py, GPT.forward
 *   dwte[id] += sum of dy[n] with ids[n] == id, in rising n
 *   dwpe[t] (+)= sum over the samples of dy[b,t]; without accumulation, rows from `time` on
 *                become 0
 *
 * first[N], if present, is where the document of a row begins within its sample (attention.c): its
 * position is then n % time - first[n].
 *
 * The host sorts the rows by id into `order` and `starts`: starts[0] is the number of groups, and
 * group k is order[starts[1+k] .. starts[2+k]-1].
 */
#include <math.h>

#include "base/size.h"
#include "model/autodiff.h"
#include "ops/infer.h"

/* Checks that wpe, or dwpe, has a row for each position, if it is present. */
static bool positions_check(const struct op_call *call, int32_t slot)
{
    const struct operand *table = &call->operand[slot];
    return infer_expect(!table->present || table->dims[0] >= call->attrs.time, call,
                        "operand %s has %" PRId64 " positions, expected at least time = %" PRId32,
                        op_operand_name(call->kind, slot), table->dims[0], call->attrs.time);
}

static bool embed_forward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_time(call, EMBED_FORWARD_IDS) && positions_check(call, EMBED_FORWARD_WPE);
}

static enum gt_status embed_forward_differentiate(struct autodiff *ad, const struct op *op,
                                                  int32_t dy)
{
    union op_arguments backward = {.EMBED_BACKWARD = {
                                       .dy = dy,
                                       .ids = autodiff_saved(ad, op->operand[EMBED_FORWARD_IDS]),
                                       .order = autodiff_options_get(ad)->order,
                                       .starts = autodiff_options_get(ad)->starts,
                                       .first = op->operand[EMBED_FORWARD_FIRST],
                                       .attrs = op->attrs,
                                   }};
    TRY(autodiff_target(ad, op->operand[EMBED_FORWARD_WTE], EMBED_BACKWARD_DWTE, &backward));
    /* The op only adds to the rows of ids that occur, so a dwte without an earlier contribution
     * starts at zero. */
    if (!(backward.attrs.accumulate & 1u << EMBED_BACKWARD_DWTE))
        TRY(autodiff_emit(ad, op, OP_FILL, OP_ARGUMENTS(FILL, .y = backward.EMBED_BACKWARD.dwte)));
    backward.attrs.accumulate &= ~(1u << EMBED_BACKWARD_DWTE);
    if (op->operand[EMBED_FORWARD_WPE] != TENSOR_NONE)
        TRY(autodiff_target(ad, op->operand[EMBED_FORWARD_WPE], EMBED_BACKWARD_DWPE, &backward));
    return autodiff_emit(ad, op, OP_EMBED_BACKWARD, &backward);
}

static double embed_forward_rows(const struct op_call *call, int32_t slot)
{
    if (slot == EMBED_FORWARD_WTE)
        return cost_elements(call, EMBED_FORWARD_IDS);
    return slot == EMBED_FORWARD_WPE ? (double)call->attrs.time : INFINITY;
}

const struct op_declaration op_embed_forward = {
    OP_NAMED(embed_forward, EMBED_FORWARD),
    .operand = {[EMBED_FORWARD_IDS] = {OPERAND_IN | OPERAND_SAVED, "N", DTYPES_I32},
                [EMBED_FORWARD_WTE] = {OPERAND_IN, "VC"},
                [EMBED_FORWARD_WPE] = {OPERAND_IN | OPERAND_OPTIONAL, "PC"},
                [EMBED_FORWARD_SCALARS] = SCALARS(OPERAND_IN),
                [EMBED_FORWARD_Y] = {OPERAND_OUT, "NC", .like = EMBED_FORWARD_WTE},
                [EMBED_FORWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .check = embed_forward_check,
    .cost = {1.0, EMBED_FORWARD_Y},
    .rows = embed_forward_rows,
    .differentiate = embed_forward_differentiate,
};

/* `starts` holds the number of groups and, for each of at most min(N, V) groups, a boundary, plus
 * the last one. */
static bool embed_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t rows = op_rows(call, EMBED_BACKWARD_DY), ids = op_rows(call, EMBED_BACKWARD_DWTE);
    const int64_t starts = call->operand[EMBED_BACKWARD_STARTS].dims[0],
                  needed = min_i64(rows, ids) + 2;
    (void)sizes;
    return infer_expect(starts >= needed, call,
                        "operand starts is [%" PRId64 "], expected at least [%" PRId64 "]", starts,
                        needed) &&
           infer_time(call, EMBED_BACKWARD_DY) && positions_check(call, EMBED_BACKWARD_DWPE);
}

static double embed_backward_rows(const struct op_call *call, int32_t slot)
{
    return slot == EMBED_BACKWARD_DWTE ? cost_elements(call, EMBED_BACKWARD_IDS) : INFINITY;
}

const struct op_declaration op_embed_backward = {
    OP_NAMED(embed_backward, EMBED_BACKWARD),
    .operand = {[EMBED_BACKWARD_DY] = {OPERAND_IN, "NC"},
                [EMBED_BACKWARD_IDS] = {OPERAND_IN, "N", DTYPES_I32},
                [EMBED_BACKWARD_ORDER] = {OPERAND_IN, "N", DTYPES_I32},
                [EMBED_BACKWARD_STARTS] = {OPERAND_IN, "?", DTYPES_I32},
                [EMBED_BACKWARD_DWTE] = {OPERAND_INOUT, "VC"},
                [EMBED_BACKWARD_DWPE] = {OPERAND_OUT | OPERAND_OPTIONAL | OPERAND_ACCUMULATES, "PC",
                                         .like = EMBED_BACKWARD_DWTE},
                [EMBED_BACKWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .check = embed_backward_check,
    .cost = {2.0, EMBED_BACKWARD_DY}, /* each row of dy is added once to dwte and once to dwpe */
    .rows = embed_backward_rows,
};
