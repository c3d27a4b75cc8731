/* norm: the global gradient norm and the clip factor.                torch.nn.utils.clip_grad_norm_
 *
 * sum_of_squares writes one partial sum per gradient.  clip_factor computes
 *   norm = sqrt(sum partials) UNSCALE;  CLIP = UNSCALE min(1, clip_max / (norm + 1e-6)), or UNSCALE
 *   if clip_max is 0
 * If the norm is not finite, FOUND_INF becomes 1; otherwise it becomes 0 and ADAM_STEP advances by
 * 1.
 */
#include "ops/infer.h"

static size_t sum_of_squares_workspace_cap(const struct op_call *call)
{
    (void)call;
    return OP_SQUARES_WORDS * sizeof(float);
}

const struct op_declaration op_sum_of_squares = {
    OP_NAMED(sum_of_squares, SUM_OF_SQUARES),
    .operand = {[SUM_OF_SQUARES_X] = {OPERAND_IN, "*"},
                [SUM_OF_SQUARES_PARTIAL] = {OPERAND_OUT, "1", DTYPES_F32}},
    .cost = {2.0, SUM_OF_SQUARES_X},
    .workspace_cap = sum_of_squares_workspace_cap,
};

const struct op_declaration op_clip_factor = {
    OP_NAMED(clip_factor, CLIP_FACTOR),
    .operand = {[CLIP_FACTOR_PARTIALS] = {OPERAND_IN, "?", DTYPES_F32},
                [CLIP_FACTOR_SCALARS] = SCALARS(OPERAND_INOUT)},
    .cost = {1.0, CLIP_FACTOR_PARTIALS},
};
