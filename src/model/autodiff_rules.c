/* Backward rules: for each differentiable op, which ops compute the gradients of its inputs.
 *
 * A rule reads the gradient of the op's output, asks where each input's gradient goes (autodiff_contribute) and emits the
 * backward op of op.h.  It knows nothing of micro-steps, loss chunks, sharing or memory.
 */
#include <assert.h>

#include "model/autodiff.h"

/* Asks for the target of a contribution and sets the accumulate bit of its operand. */
static enum gt_status target(struct autodiff *ad, int32_t tensor, int32_t slot, int32_t *operands,
                             struct op_attrs *attrs)
{
    bool accumulate;
    TRY(autodiff_contribute(ad, tensor, &operands[slot], &accumulate));
    if (accumulate)
        attrs->accumulate |= 1u << slot;
    return GT_OK;
}

/* The same for an op that may write where it reads the gradient of `from`. */
static enum gt_status target_in_place(struct autodiff *ad, int32_t from, int32_t tensor, int32_t slot,
                                      int32_t *operands, struct op_attrs *attrs)
{
    bool accumulate;
    TRY(autodiff_contribute_in_place(ad, from, tensor, &operands[slot], &accumulate));
    if (accumulate)
        attrs->accumulate |= 1u << slot;
    return GT_OK;
}

static enum gt_status op_embed_forward_backward(struct autodiff *ad, const struct op *op)
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
    TRY(target(ad, op->operand[EMBED_FORWARD_WTE], EMBED_BACKWARD_DWTE, operands, &attrs));
    if (!(attrs.accumulate & 1u << EMBED_BACKWARD_DWTE)) {
        /* The op adds to the rows that occur and leaves the others: without a head before it, they must be zero. */
        struct op_attrs zero = {.value = 0.0f};
        TRY(autodiff_emit(ad, op, OP_FILL, &zero, &operands[EMBED_BACKWARD_DWTE]));
    }
    attrs.accumulate &= ~(1u << EMBED_BACKWARD_DWTE);
    TRY(target(ad, op->operand[EMBED_FORWARD_WPE], EMBED_BACKWARD_DWPE, operands, &attrs));
    return autodiff_emit(ad, op, OP_EMBED_BACKWARD, &attrs, operands);
}

static enum gt_status op_layernorm_forward_backward(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[LAYERNORM_FORWARD_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[LAYERNORM_BACKWARD_OPERANDS] = {
        [LAYERNORM_BACKWARD_DY] = dy,
        [LAYERNORM_BACKWARD_X] = autodiff_saved(ad, op->operand[LAYERNORM_FORWARD_X]),
        [LAYERNORM_BACKWARD_GAIN] = autodiff_saved(ad, op->operand[LAYERNORM_FORWARD_GAIN]),
        [LAYERNORM_BACKWARD_MEAN] = autodiff_saved(ad, op->operand[LAYERNORM_FORWARD_MEAN]),
        [LAYERNORM_BACKWARD_RSTD] = autodiff_saved(ad, op->operand[LAYERNORM_FORWARD_RSTD]),
        [LAYERNORM_BACKWARD_DBIAS] = TENSOR_NONE,
    };
    TRY(target(ad, op->operand[LAYERNORM_FORWARD_X], LAYERNORM_BACKWARD_DX, operands, &attrs));
    TRY(target(ad, op->operand[LAYERNORM_FORWARD_GAIN], LAYERNORM_BACKWARD_DGAIN, operands, &attrs));
    if (op->operand[LAYERNORM_FORWARD_BIAS] != TENSOR_NONE)
        TRY(target(ad, op->operand[LAYERNORM_FORWARD_BIAS], LAYERNORM_BACKWARD_DBIAS, operands, &attrs));
    return autodiff_emit(ad, op, OP_LAYERNORM_BACKWARD, &attrs, operands);
}

/* d = a b: da = dd b', db = a' dd.  d = a b': da = dd b, db = dd' a. */
static enum gt_status op_gemm_backward(struct autodiff *ad, const struct op *op)
{
    int32_t a = op->operand[GEMM_A], b = op->operand[GEMM_B], bias = op->operand[GEMM_BIAS];
    int32_t dd = autodiff_gradient(ad, op->operand[GEMM_D]);
    if (dd == TENSOR_NONE)
        return GT_OK;
    assert(!op->attrs.transpose_a && !op->attrs.accumulate);
    if (bias != TENSOR_NONE) {
        struct op_attrs attrs = {0};
        int32_t operands[BIAS_BACKWARD_OPERANDS] = {[BIAS_BACKWARD_DY] = dd};
        TRY(target(ad, bias, BIAS_BACKWARD_DBIAS, operands, &attrs));
        TRY(autodiff_emit(ad, op, OP_BIAS_BACKWARD, &attrs, operands));
    }
    int32_t a_value = autodiff_saved(ad, a), b_value = autodiff_saved(ad, b);
    struct op_attrs weight = {.transpose_a = true};
    int32_t weight_operands[GEMM_OPERANDS] = {[GEMM_A] = op->attrs.transpose_b ? dd : a_value,
                                              [GEMM_B] = op->attrs.transpose_b ? a_value : dd,
                                              [GEMM_BIAS] = TENSOR_NONE};
    TRY(target(ad, b, GEMM_D, weight_operands, &weight));
    TRY(autodiff_emit(ad, op, OP_GEMM, &weight, weight_operands));
    struct op_attrs input = {.transpose_b = !op->attrs.transpose_b};
    int32_t input_operands[GEMM_OPERANDS] = {[GEMM_A] = dd, [GEMM_B] = b_value, [GEMM_BIAS] = TENSOR_NONE};
    TRY(target(ad, a, GEMM_D, input_operands, &input));
    return autodiff_emit(ad, op, OP_GEMM, &input, input_operands);
}

static enum gt_status op_gelu_forward_backward(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[GELU_FORWARD_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[GELU_BACKWARD_OPERANDS] = {[GELU_BACKWARD_DY] = dy,
                                                [GELU_BACKWARD_X] = autodiff_saved(ad, op->operand[GELU_FORWARD_X]),
                                                [GELU_BACKWARD_DX] = TENSOR_NONE};
    TRY(target_in_place(ad, op->operand[GELU_FORWARD_Y], op->operand[GELU_FORWARD_X], GELU_BACKWARD_DX, operands,
                        &attrs));
    return autodiff_emit(ad, op, OP_GELU_BACKWARD, &attrs, operands);
}

static enum gt_status op_attention_forward_backward(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[ATTENTION_FORWARD_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[ATTENTION_BACKWARD_OPERANDS] = {
        [ATTENTION_BACKWARD_DY] = dy,
        [ATTENTION_BACKWARD_QKV] = autodiff_saved(ad, op->operand[ATTENTION_FORWARD_QKV]),
        [ATTENTION_BACKWARD_Y] = autodiff_saved(ad, op->operand[ATTENTION_FORWARD_Y]),
        [ATTENTION_BACKWARD_LSE] = autodiff_saved(ad, op->operand[ATTENTION_FORWARD_LSE]),
        [ATTENTION_BACKWARD_SCALARS] = op->operand[ATTENTION_FORWARD_SCALARS],
    };
    TRY(target(ad, op->operand[ATTENTION_FORWARD_QKV], ATTENTION_BACKWARD_DQKV, operands, &attrs));
    return autodiff_emit(ad, op, OP_ATTENTION_BACKWARD, &attrs, operands);
}

static enum gt_status op_dropout_backward(struct autodiff *ad, const struct op *op)
{
    int32_t dy = autodiff_gradient(ad, op->operand[DROPOUT_Y]);
    if (dy == TENSOR_NONE)
        return GT_OK;
    struct op_attrs attrs = op->attrs;
    int32_t operands[DROPOUT_OPERANDS] = {
        [DROPOUT_X] = dy, [DROPOUT_SCALARS] = op->operand[DROPOUT_SCALARS], [DROPOUT_Y] = TENSOR_NONE};
    TRY(target_in_place(ad, op->operand[DROPOUT_Y], op->operand[DROPOUT_X], DROPOUT_Y, operands, &attrs));
    return autodiff_emit(ad, op, OP_DROPOUT, &attrs, operands);
}

static enum gt_status op_residual_backward(struct autodiff *ad, const struct op *op)
{
    int32_t dr = autodiff_gradient(ad, op->operand[RESIDUAL_R]);
    if (dr == TENSOR_NONE)
        return GT_OK;
    TRY(autodiff_share(ad, op->operand[RESIDUAL_Y], dr));
    return autodiff_share(ad, op->operand[RESIDUAL_X], dr);
}

/* The forward op has left the gradient in the logits' own bytes. */
static enum gt_status op_cross_entropy_backward(struct autodiff *ad, const struct op *op)
{
    assert(op->attrs.gradient);
    return autodiff_share(ad, op->operand[CROSS_ENTROPY_LOGITS], op->operand[CROSS_ENTROPY_LOGITS]);
}

/* The sum is what is differentiated; its unit cotangent is in SCALAR_LOSS_GRADIENT. */
static enum gt_status op_loss_sum_backward(struct autodiff *ad, const struct op *op)
{
    (void)ad;
    (void)op;
    return GT_OK;
}

autodiff_rule_fn *autodiff_rule(enum op_kind kind)
{
    static autodiff_rule_fn *const rules[OP_KIND_COUNT] = {
        [OP_EMBED_FORWARD] = op_embed_forward_backward,
        [OP_LAYERNORM_FORWARD] = op_layernorm_forward_backward,
        [OP_GEMM] = op_gemm_backward,
        [OP_GELU_FORWARD] = op_gelu_forward_backward,
        [OP_ATTENTION_FORWARD] = op_attention_forward_backward,
        [OP_DROPOUT] = op_dropout_backward,
        [OP_RESIDUAL] = op_residual_backward,
        [OP_CROSS_ENTROPY] = op_cross_entropy_backward,
        [OP_LOSS_SUM] = op_loss_sum_backward,
    };
    assert(kind >= 0 && kind < OP_KIND_COUNT);
    return rules[kind];
}
