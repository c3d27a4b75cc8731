/* What one run of an op costs: floating-point operations, and bytes that must move at least.
 *
 * Counting follows usage: a multiply-add is 2, a causal product counts half of the full square, and exp, tanh, a
 * division or a square root is 1.  Counts are for forecasts and for rates in reports; a backend may do more (recomputed
 * scores) or less (skipped tiles).  Everything is a double, because products of sizes exceed 2^53 only as rates do.
 */
#include <assert.h>

#include "model/op.h"

static double elements(const struct op_call *call, int32_t slot)
{
    return (double)operand_elements(&call->operand[slot]);
}

static double op_embed_forward_flops(const struct op_call *call)
{
    return elements(call, EMBED_FORWARD_Y);
}

/* Each row of dy is added once to dwte and once to dwpe. */
static double op_embed_backward_flops(const struct op_call *call)
{
    return 2.0 * elements(call, EMBED_BACKWARD_DY);
}

/* Mean 1, variance 3, normalise 2, gain 1, bias 1. */
static double op_layernorm_forward_flops(const struct op_call *call)
{
    double affine = call->operand[LAYERNORM_FORWARD_BIAS].present ? 2.0 : 1.0;
    return (6.0 + affine) * elements(call, LAYERNORM_FORWARD_X);
}

/* xh 2, dy g 1, two means 3, dx 4, dgain 2, dbias 1. */
static double op_layernorm_backward_flops(const struct op_call *call)
{
    double affine = call->operand[LAYERNORM_BACKWARD_DBIAS].present ? 3.0 : 2.0;
    return (10.0 + affine) * elements(call, LAYERNORM_BACKWARD_X);
}

static double op_gemm_flops(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A];
    double k = (double)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    double bias = call->operand[GEMM_BIAS].present ? 1.0 : 0.0;
    return (2.0 * k + bias) * elements(call, GEMM_D);
}

static double op_bias_backward_flops(const struct op_call *call)
{
    return elements(call, BIAS_BACKWARD_DY);
}

/* erf: scale, erf, add, halve, multiply; tanh: four more for its polynomial. */
static double op_gelu_forward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 5.0 : 9.0) * elements(call, GELU_FORWARD_X);
}

static double op_gelu_backward_flops(const struct op_call *call)
{
    return (call->attrs.gelu == GELU_ERF ? 10.0 : 17.0) * elements(call, GELU_BACKWARD_X);
}

/* B H T T D, from y[B T, H D]. */
static double attention_volume(const struct op_call *call, int32_t y)
{
    return elements(call, y) * (double)call->attrs.time;
}

/* Two products (scores, values), 4 D per pair of rows, half of the pairs. */
static double op_attention_forward_flops(const struct op_call *call)
{
    return 2.0 * attention_volume(call, ATTENTION_FORWARD_Y);
}

/* Five products: scores again, dp, dv, dk, dq. */
static double op_attention_backward_flops(const struct op_call *call)
{
    return 5.0 * attention_volume(call, ATTENTION_BACKWARD_Y);
}

/* At a full cache: the position is a device scalar, unknown when this is asked. */
static double op_attention_cached_flops(const struct op_call *call)
{
    return 4.0 * elements(call, ATTENTION_CACHED_Y) * (double)call->operand[ATTENTION_CACHED_CACHE].dims[2];
}

static double op_dropout_flops(const struct op_call *call)
{
    return elements(call, DROPOUT_X);
}

static double op_residual_flops(const struct op_call *call)
{
    return elements(call, RESIDUAL_R);
}

/* Maximum, subtraction, exp, sum; with the gradient an exp or product, and a scale. */
static double op_cross_entropy_flops(const struct op_call *call)
{
    double rows = elements(call, CROSS_ENTROPY_TARGETS);
    return (call->attrs.gradient ? 7.0 : 4.0) * rows * (double)call->attrs.vocab;
}

static double op_loss_sum_flops(const struct op_call *call)
{
    return elements(call, LOSS_SUM_LOSSES);
}

static double op_sum_of_squares_flops(const struct op_call *call)
{
    return 2.0 * elements(call, SUM_OF_SQUARES_X);
}

static double op_clip_factor_flops(const struct op_call *call)
{
    return elements(call, CLIP_FACTOR_PARTIALS);
}

/* g 1, m 3, v 4, two corrections, root, epsilon, quotient, decay 2, step 2. */
static double op_adamw_flops(const struct op_call *call)
{
    return 17.0 * elements(call, ADAMW_PARAM);
}

/* As adamw's; the integer work of random bits and codes is no floating-point operation. */
static double op_adamw_lean_flops(const struct op_call *call)
{
    return 17.0 * elements(call, ADAMW_LEAN_PARAM);
}

static double op_gradient_round_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? elements(call, GRADIENT_ROUND_Y) : 0.0;
}

static double op_blend_flops(const struct op_call *call)
{
    return 3.0 * elements(call, BLEND_Y);
}

/* g 1, m 3, u 3. */
static double op_muon_momentum_flops(const struct op_call *call)
{
    return 7.0 * elements(call, MUON_MOMENTUM_U);
}

static double op_muon_normalize_flops(const struct op_call *call)
{
    return elements(call, MUON_NORMALIZE_Y);
}

/* Direction 1, decay 2, step 2. */
static double op_muon_step_flops(const struct op_call *call)
{
    return 5.0 * elements(call, MUON_STEP_PARAM);
}

static double op_fill_flops(const struct op_call *call)
{
    (void)call;
    return 0.0;
}

static double op_copy_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? elements(call, COPY_Y) : 0.0;
}

double op_flops(const struct op_call *call)
{
    static double (*const costs[])(const struct op_call *) = {
#define OP_BEGIN(KIND, name, text) [OP_##KIND] = op_##name##_flops,
#define OPERAND(KIND, SLOT, name, direction, flags)
#define OP_END(KIND, name)
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END
    };
    _Static_assert(sizeof costs / sizeof costs[0] == OP_KIND_COUNT, "every op has a cost");
    assert((unsigned)call->kind < OP_KIND_COUNT);
    return costs[call->kind](call);
}

/* How much of an operand a run touches; whole unless rows are gathered, or the operand is only partly used. */
static double operand_bytes_touched(const struct op_call *call, int32_t slot)
{
    double whole = (double)operand_bytes(&call->operand[slot]);
    double rows = (double)call->operand[slot].dims[0], touched = rows;
    if (call->kind == OP_EMBED_FORWARD && slot == EMBED_FORWARD_WTE)
        touched = elements(call, EMBED_FORWARD_IDS);
    else if (call->kind == OP_EMBED_FORWARD && slot == EMBED_FORWARD_WPE)
        touched = (double)call->attrs.time;
    else if (call->kind == OP_EMBED_BACKWARD && slot == EMBED_BACKWARD_DWTE)
        touched = elements(call, EMBED_BACKWARD_IDS);
    return touched < rows ? whole * touched / rows : whole;
}

double op_bytes(const struct op_call *call)
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    double bytes = 0.0;
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (!call->operand[slot].present)
            continue;
        bool twice = op_direction(call->kind, &call->attrs, slot) == OPERAND_INOUT;
        if (call->kind == OP_CROSS_ENTROPY && slot == CROSS_ENTROPY_LOGITS)
            twice = call->attrs.gradient; /* read only, where no gradient is written */
        bytes += (twice ? 2.0 : 1.0) * operand_bytes_touched(call, slot);
    }
    return bytes;
}
