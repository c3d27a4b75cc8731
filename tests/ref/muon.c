/* The exact ops of Muon: blend, muon_momentum, muon_normalize, muon_step, element by element from the text of op.h.
 *
 * As lean.c: oracle, control and mutants at once, compiled without contraction.
 */
#include <math.h>

#include "base/dtype.h"
#include "tests/ref/lean.h"
#include "tests/ref/naive.h"
#include "tests/ref/ref.h"

/* To nearest, ties to even. */
static double stored(enum dtype dtype, float x)
{
    if (dtype == DTYPE_BF16)
        return (double)bf16_to_f32(bf16_from_f32(x));
    return dtype == DTYPE_F16 ? (double)f16_to_f32(f16_from_f32(x)) : (double)x;
}

void naive_blend(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    float alpha = call->attrs.alpha, beta = call->attrs.beta;
    if (defect == DEFECT_SWAPPED) {
        alpha = call->attrs.beta;
        beta = call->attrs.alpha;
    }
    for (int64_t i = 0; i < operand_elements(&call->operand[BLEND_Y]); i++) {
        float x = (float)value[BLEND_X][i], z = (float)value[BLEND_Z][i];
        float y = alpha * x + beta * z;
        if (defect == DEFECT_CONTRACTED)
            y = fmaf(alpha, x, beta * z);
        if (defect == DEFECT_FORGET_SCALE)
            y = x + beta * z;
        if (defect == DEFECT_LAST_TERM)
            y = alpha * x;
        value[BLEND_Y][i] = stored(call->operand[BLEND_Y].dtype, y);
    }
}

void naive_muon_momentum(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    const double *scalars = value[MUON_MOMENTUM_SCALARS];
    float clip = defect == DEFECT_FORGET_SCALE ? 1.0f : (float)scalars[SCALAR_CLIP];
    float mu = call->attrs.beta1, rest = 1.0f - mu;
    bool skips = scalars[SCALAR_FOUND_INF] != 0.0 && defect != DEFECT_FORGET_SKIP;
    for (int64_t i = 0; i < operand_elements(&call->operand[MUON_MOMENTUM_U]); i++) {
        float g = (float)value[MUON_MOMENTUM_GRAD][i] * clip, old = (float)value[MUON_MOMENTUM_M][i];
        float m = mu * old + rest * g;
        if (defect == DEFECT_CONTRACTED)
            m = fmaf(mu, old, rest * g);
        float u = defect == DEFECT_FORGET_FIRST ? m : mu * m + rest * g;
        value[MUON_MOMENTUM_U][i] = skips ? 0.0 : (double)u;
        if (skips)
            continue;
        value[MUON_MOMENTUM_M][i] = (double)m;
        if (call->operand[MUON_MOMENTUM_M].dtype == DTYPE_BF16)
            value[MUON_MOMENTUM_M][i] = (double)lean_rounded_bf16(call, scalars, i, ROUNDING_M, m, defect);
    }
}

void naive_muon_normalize(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    float sum = (float)value[MUON_NORMALIZE_SUM][0];
    float below = defect == DEFECT_EPSILON ? sqrtf(sum) : sqrtf(sum) + MUON_NORM_EPSILON;
    if (defect == DEFECT_WRONG_KIND)
        below = sum;
    for (int64_t i = 0; i < operand_elements(&call->operand[MUON_NORMALIZE_Y]); i++) {
        float x = (float)value[MUON_NORMALIZE_X][i];
        float y = defect == DEFECT_FORGET_SCALE ? x : x / below;
        value[MUON_NORMALIZE_Y][i] = stored(call->operand[MUON_NORMALIZE_Y].dtype, y);
    }
}

void naive_muon_step(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    const double *scalars = value[MUON_STEP_SCALARS];
    const struct operand *param = &call->operand[MUON_STEP_PARAM];
    bool mastered = call->operand[MUON_STEP_MASTER].present;
    double *weights = value[mastered ? MUON_STEP_MASTER : MUON_STEP_PARAM];
    float rate = (float)scalars[SCALAR_LEARNING_RATE], scale = call->attrs.value, decay = call->attrs.weight_decay;
    if (defect != DEFECT_FORGET_LIMIT)
        rate = rate * call->attrs.alpha;
    if (defect == DEFECT_FORGET_SCALE)
        scale = 1.0f;
    if (scalars[SCALAR_FOUND_INF] != 0.0 && defect != DEFECT_FORGET_SKIP)
        return;
    for (int64_t i = 0; i < operand_elements(param); i++) {
        float p = (float)weights[i], o = (float)value[MUON_STEP_O][i];
        float next = p - rate * (scale * o + (defect == DEFECT_COUPLED_DECAY ? 0.0f : decay * p));
        if (defect == DEFECT_CONTRACTED)
            next = fmaf(-rate, fmaf(scale, o, decay * p), p);
        if (mastered)
            value[MUON_STEP_MASTER][i] = (double)next;
        if (mastered || param->dtype != DTYPE_BF16)
            value[MUON_STEP_PARAM][i] = stored(param->dtype, next);
        else
            value[MUON_STEP_PARAM][i] = (double)lean_rounded_bf16(call, scalars, i, ROUNDING_PARAM, next, defect);
    }
}

void ref_blend(const struct op_call *call, const struct ref_tensors *t)
{
    naive_blend(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}

void ref_muon_momentum(const struct op_call *call, const struct ref_tensors *t)
{
    naive_muon_momentum(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}

void ref_muon_normalize(const struct op_call *call, const struct ref_tensors *t)
{
    naive_muon_normalize(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}

void ref_muon_step(const struct op_call *call, const struct ref_tensors *t)
{
    naive_muon_step(call, t->value, DEFECT_NONE);
    lean_unspecified(call, t);
}
