/* muon: the parts of Muon that are not matrix products.                 Jordan et al. 2024, KellerJordan/Muon: muon.py
 *
 *   muon_momentum   g = grad CLIP; m = b1 m + (1-b1) g; u = b1 m + (1-b1) g.  m is stored unrounded in fp32, or as
 *                   SR(m, ROUNDING_M) in bf16; u uses the unrounded m.  If FOUND_INF is set, m stays and u is 0.
 *   muon_normalize  y = x / (sqrt(sum) + MUON_NORM_EPSILON), rounded to nearest
 *   muon_step       p = p - (LEARNING_RATE alpha) (value o + weight_decay p).  With an fp32 master, p is the master,
 *                   and param becomes p rounded to nearest; else param becomes p, or SR(p, ROUNDING_PARAM) in bf16.
 *                   If FOUND_INF is set, nothing changes.
 *
 * The ops are exact (ops/op.h).
 */
#include "ops/op.h"

#include "ops/infer.h"

static bool muon_momentum_infer(struct op_call *call)
{
    if (!infer_float(call, MUON_MOMENTUM_GRAD) || !infer_scalars(call, MUON_MOMENTUM_SCALARS) ||
        !infer_index_base(call))
        return false;
    struct infer_shape shape = infer_shape_of(&call->operand[MUON_MOMENTUM_GRAD]);
    return infer_check(call, MUON_MOMENTUM_GRAD, DTYPES_LEAN, shape) &&
           infer_check(call, MUON_MOMENTUM_M, DTYPES_LEAN, shape) &&
           infer_fill(call, MUON_MOMENTUM_U, DTYPE_F32, DTYPES_F32, shape);
}

/* g 1, m 3, u 3. */
static double muon_momentum_flops(const struct op_call *call)
{
    return 7.0 * cost_elements(call, MUON_MOMENTUM_U);
}

const struct op_declaration op_muon_momentum = {
    .name = "muon_momentum",
    .text = "m = mu m + (1 - mu) grad; u = mu m + (1 - mu) grad, Nesterov's look ahead",
    .operands = MUON_MOMENTUM_OPERANDS,
    .operand = {[MUON_MOMENTUM_GRAD] = {"grad", OPERAND_IN},
                [MUON_MOMENTUM_SCALARS] = {"scalars", OPERAND_IN},
                [MUON_MOMENTUM_M] = {"m", OPERAND_INOUT},
                [MUON_MOMENTUM_U] = {"u", OPERAND_OUT}},
    .infer = muon_momentum_infer,
    .flops = muon_momentum_flops,
};

static bool muon_normalize_infer(struct op_call *call)
{
    if (!infer_float(call, MUON_NORMALIZE_X))
        return false;
    struct infer_shape shape = infer_shape_of(&call->operand[MUON_NORMALIZE_X]);
    return infer_check(call, MUON_NORMALIZE_X, DTYPES_F32, shape) &&
           infer_check(call, MUON_NORMALIZE_SUM, DTYPES_F32, SHAPE1(1)) &&
           infer_fill(call, MUON_NORMALIZE_Y, DTYPE_BF16, DTYPES_FLOAT, shape);
}

static double muon_normalize_flops(const struct op_call *call)
{
    return cost_elements(call, MUON_NORMALIZE_Y);
}

const struct op_declaration op_muon_normalize = {
    .name = "muon_normalize",
    .text = "y = x / (sqrt(sum) + 1e-7)",
    .operands = MUON_NORMALIZE_OPERANDS,
    .operand = {[MUON_NORMALIZE_X] = {"x", OPERAND_IN},
                [MUON_NORMALIZE_SUM] = {"sum", OPERAND_IN},
                [MUON_NORMALIZE_Y] = {"y", OPERAND_OUT}},
    .infer = muon_normalize_infer,
    .flops = muon_normalize_flops,
};

/* Without a master, fp16 is excluded: there is no unbiased rounding to it. */
static bool muon_step_infer(struct op_call *call)
{
    if (!infer_float(call, MUON_STEP_O) || !infer_scalars(call, MUON_STEP_SCALARS) || !infer_index_base(call))
        return false;
    struct infer_shape shape = infer_shape_of(&call->operand[MUON_STEP_O]);
    bool mastered = call->operand[MUON_STEP_MASTER].present;
    return infer_check(call, MUON_STEP_PARAM, mastered ? DTYPES_FLOAT : DTYPES_LEAN, shape) &&
           infer_check(call, MUON_STEP_MASTER, DTYPES_F32, shape);
}

/* Direction 1, decay 2, step 2. */
static double muon_step_flops(const struct op_call *call)
{
    return 5.0 * cost_elements(call, MUON_STEP_PARAM);
}

const struct op_declaration op_muon_step = {
    .name = "muon_step",
    .text = "param or master -= rate (scale o + decay param); nothing where found_inf",
    .operands = MUON_STEP_OPERANDS,
    .operand = {[MUON_STEP_O] = {"o", OPERAND_IN},
                [MUON_STEP_SCALARS] = {"scalars", OPERAND_IN},
                [MUON_STEP_PARAM] = {"param", OPERAND_INOUT},
                [MUON_STEP_MASTER] = {"master", OPERAND_INOUT | OPERAND_OPTIONAL}},
    .infer = muon_step_infer,
    .flops = muon_step_flops,
};
