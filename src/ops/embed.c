/* embed: token and position embeddings.
 *
 *   y[n] = wte[ids[n]] + wpe[scalars.POSITION + n % time]                          nanoGPT model.py, GPT.forward
 *   dwte[id] += sum of dy[n] with ids[n] == id, in rising n
 *   dwpe[t] (+)= sum over the samples of dy[b,t]; without accumulation, rows from `time` on become 0
 *
 * The host sorts the rows by id into `order` and `starts`: starts[0] is the number of groups, and group k is
 * order[starts[1+k] .. starts[2+k]-1].
 */
#include "ops/op.h"

#include <inttypes.h>
#include <math.h>

#include "base/log.h"
#include "model/autodiff.h"
#include "ops/infer.h"

static bool embed_forward_infer(struct op_call *call)
{
    if (!infer_check(call, EMBED_FORWARD_IDS, DTYPES_I32, SHAPE1(ANY)) ||
        !infer_check(call, EMBED_FORWARD_WTE, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = infer_rows(call, EMBED_FORWARD_IDS), channels = infer_columns(call, EMBED_FORWARD_WTE);
    if (!infer_check(call, EMBED_FORWARD_WPE, DTYPES_FLOAT, SHAPE2(ANY, channels)) || !infer_time(call, rows) ||
        !infer_scalars(call, EMBED_FORWARD_SCALARS))
        return false;
    if (infer_rows(call, EMBED_FORWARD_WPE) < call->attrs.time) {
        log_error("%s: operand wpe has %" PRId64 " positions, expected at least time = %" PRId32,
                  op_declaration(call->kind)->name, infer_rows(call, EMBED_FORWARD_WPE), call->attrs.time);
        return false;
    }
    enum dtype dtype = call->operand[EMBED_FORWARD_WTE].dtype;
    return infer_fill(call, EMBED_FORWARD_Y, dtype, DTYPES_FLOAT, SHAPE2(rows, channels));
}

static double embed_forward_flops(const struct op_call *call)
{
    return cost_elements(call, EMBED_FORWARD_Y);
}

static enum gt_status embed_forward_differentiate(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[EMBED_FORWARD_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[EMBED_BACKWARD_OPERANDS] = {
        [EMBED_BACKWARD_DY] = dy,
        [EMBED_BACKWARD_IDS] = autodiff_saved(ad, op->operand[EMBED_FORWARD_IDS]),
        [EMBED_BACKWARD_ORDER] = autodiff_options_get(ad)->order,
        [EMBED_BACKWARD_STARTS] = autodiff_options_get(ad)->starts,
    };
    TRY(autodiff_target(ad, op->operand[EMBED_FORWARD_WTE], EMBED_BACKWARD_DWTE, operands, &attrs));
    if (!(attrs.accumulate & 1u << EMBED_BACKWARD_DWTE)) {
        /* The op only adds to the rows of ids that occur, so a dwte without an earlier contribution starts at zero. */
        struct op_attrs zero = {.value = 0.0f};
        TRY(autodiff_emit(ad, op, OP_FILL, &zero, &operands[EMBED_BACKWARD_DWTE]));
    }
    attrs.accumulate &= ~(1u << EMBED_BACKWARD_DWTE);
    TRY(autodiff_target(ad, op->operand[EMBED_FORWARD_WPE], EMBED_BACKWARD_DWPE, operands, &attrs));
    return autodiff_emit(ad, op, OP_EMBED_BACKWARD, &attrs, operands);
}

static double embed_forward_rows(const struct op_call *call, int32_t slot)
{
    if (slot == EMBED_FORWARD_WTE)
        return cost_elements(call, EMBED_FORWARD_IDS);
    return slot == EMBED_FORWARD_WPE ? (double)call->attrs.time : INFINITY;
}

const struct op_declaration op_embed_forward = {
    .name = "embed_forward",
    .text = "y[N,C] = wte[ids] + wpe[position + t]",
    .operands = EMBED_FORWARD_OPERANDS,
    .operand = {[EMBED_FORWARD_IDS] = {"ids", OPERAND_IN | OPERAND_SAVED},
                [EMBED_FORWARD_WTE] = {"wte", OPERAND_IN},
                [EMBED_FORWARD_WPE] = {"wpe", OPERAND_IN},
                [EMBED_FORWARD_SCALARS] = {"scalars", OPERAND_IN},
                [EMBED_FORWARD_Y] = {"y", OPERAND_OUT}},
    .infer = embed_forward_infer,
    .flops = embed_forward_flops,
    .rows = embed_forward_rows,
    .differentiate = embed_forward_differentiate,
};

/* `starts` holds the number of groups and, for each of at most min(N, V) groups, a boundary, plus the last one. */
static bool embed_backward_starts_check(const struct op_call *call)
{
    int64_t rows = infer_rows(call, EMBED_BACKWARD_DY), ids = infer_rows(call, EMBED_BACKWARD_DWTE);
    int64_t needed = (rows < ids ? rows : ids) + 2;
    if (!infer_check(call, EMBED_BACKWARD_STARTS, DTYPES_I32, SHAPE1(ANY)))
        return false;
    if (infer_rows(call, EMBED_BACKWARD_STARTS) >= needed)
        return true;
    log_error("%s: operand starts is [%" PRId64 "], expected at least [%" PRId64 "]", op_declaration(call->kind)->name,
              infer_rows(call, EMBED_BACKWARD_STARTS), needed);
    return false;
}

static bool embed_backward_infer(struct op_call *call)
{
    if (!infer_check(call, EMBED_BACKWARD_DY, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = infer_rows(call, EMBED_BACKWARD_DY), channels = infer_columns(call, EMBED_BACKWARD_DY);
    if (!infer_check(call, EMBED_BACKWARD_IDS, DTYPES_I32, SHAPE1(rows)) ||
        !infer_check(call, EMBED_BACKWARD_ORDER, DTYPES_I32, SHAPE1(rows)) ||
        !infer_check(call, EMBED_BACKWARD_DWTE, DTYPES_FLOAT, SHAPE2(ANY, channels)) ||
        !embed_backward_starts_check(call) || !infer_time(call, rows))
        return false;
    const struct operand *dwpe = &call->operand[EMBED_BACKWARD_DWPE];
    int64_t positions = dwpe->present && dwpe->rank == 2 ? dwpe->dims[0] : call->attrs.time;
    if (positions < call->attrs.time) {
        log_error("%s: operand dwpe has %" PRId64 " positions, expected at least time = %" PRId32,
                  op_declaration(call->kind)->name, positions, call->attrs.time);
        return false;
    }
    enum dtype dtype = call->operand[EMBED_BACKWARD_DWTE].dtype;
    return infer_fill(call, EMBED_BACKWARD_DWPE, dtype, DTYPES_FLOAT, SHAPE2(positions, channels));
}

/* Each row of dy is added once to dwte and once to dwpe. */
static double embed_backward_flops(const struct op_call *call)
{
    return 2.0 * cost_elements(call, EMBED_BACKWARD_DY);
}

static double embed_backward_rows(const struct op_call *call, int32_t slot)
{
    return slot == EMBED_BACKWARD_DWTE ? cost_elements(call, EMBED_BACKWARD_IDS) : INFINITY;
}

const struct op_declaration op_embed_backward = {
    .name = "embed_backward",
    .text = "dwte[id] += sum of dy rows of id; dwpe[t] (+)= sum over b of dy[b,t]",
    .operands = EMBED_BACKWARD_OPERANDS,
    .operand = {[EMBED_BACKWARD_DY] = {"dy", OPERAND_IN},
                [EMBED_BACKWARD_IDS] = {"ids", OPERAND_IN},
                [EMBED_BACKWARD_ORDER] = {"order", OPERAND_IN},
                [EMBED_BACKWARD_STARTS] = {"starts", OPERAND_IN},
                [EMBED_BACKWARD_DWTE] = {"dwte", OPERAND_INOUT},
                [EMBED_BACKWARD_DWPE] = {"dwpe", OPERAND_OUT | OPERAND_ACCUMULATES}},
    .infer = embed_backward_infer,
    .flops = embed_backward_flops,
    .rows = embed_backward_rows,
};
