/* muon: the parts of Muon that are not matrix products.
 *                                                    Jordan et al. 2024, KellerJordan/Muon: muon.py
 *
 *   muon_momentum   g = grad CLIP; m = mu m + (1-mu) g; u = mu m + (1-mu) g, mu = MUON_MOMENTUM.  m
 *                   is stored unrounded in fp32, or as SR(m, ROUNDING_M) in bf16; u uses the
 *                   unrounded m.  If FOUND_INF is set, m stays and u is 0.
 *   muon_normalize  y = x / (sqrt(sum) + MUON_NORM_EPSILON), rounded to nearest
 *   muon_step       p = p - (LEARNING_RATE alpha) (value o + weight_decay p).  With an fp32 master,
 *                   p is the master, and param becomes p rounded to nearest; else param becomes p,
 *                   or SR(p, ROUNDING_PARAM) in bf16.  If FOUND_INF is set, nothing changes.
 *
 * The ops are exact (ops/op.h).
 */
#include "ops/infer.h"

const struct op_declaration op_muon_momentum = {
    OP_NAMED(muon_momentum, MUON_MOMENTUM),
    .operand = {[MUON_MOMENTUM_GRAD] = {OPERAND_IN, "*", DTYPES_LEAN},
                [MUON_MOMENTUM_SCALARS] = SCALARS(OPERAND_IN),
                [MUON_MOMENTUM_M] = {OPERAND_INOUT, "*", DTYPES_LEAN},
                [MUON_MOMENTUM_U] = {OPERAND_OUT, "*", DTYPES_F32}},
    .check = infer_index_base, .cost = {7.0, MUON_MOMENTUM_U}, /* g 1, m 3, u 3 */
};

const struct op_declaration op_muon_normalize = {
    OP_NAMED(muon_normalize, MUON_NORMALIZE),
    .operand = {[MUON_NORMALIZE_X] = {OPERAND_IN, "*", DTYPES_F32},
                [MUON_NORMALIZE_SUM] = {OPERAND_IN, "1", DTYPES_F32},
                [MUON_NORMALIZE_Y] = {OPERAND_OUT, "*"}},
    .cost = {1.0, MUON_NORMALIZE_Y},
};

/* Without a master, fp16 is excluded: there is no unbiased rounding to it. */
static bool muon_step_check(const struct op_call *call, struct infer_sizes *sizes)
{
    return (call->operand[MUON_STEP_MASTER].present ||
            infer_check(call, MUON_STEP_PARAM, DTYPES_LEAN, sizes->whole)) &&
           infer_index_base(call, sizes);
}

const struct op_declaration op_muon_step = {
    OP_NAMED(muon_step, MUON_STEP),
    .operand = {[MUON_STEP_O] = {OPERAND_IN, "*"},
                [MUON_STEP_SCALARS] = SCALARS(OPERAND_IN),
                [MUON_STEP_PARAM] = {OPERAND_INOUT, "*"},
                [MUON_STEP_MASTER] = {OPERAND_INOUT | OPERAND_OPTIONAL, "*", DTYPES_F32}},
    .check = muon_step_check, .cost = {5.0, MUON_STEP_PARAM}, /* direction 1, decay 2, step 2 */
};
