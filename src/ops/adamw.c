/* adamw                                                              Loshchilov & Hutter 2019, algorithm 2
 *
 *   g = grad CLIP;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g
 *   p -= lr ((m/bc1) / (sqrt(v/bc2) + epsilon) + weight_decay p);  bc1, bc2 = corrections[min(ADAM_STEP, rows) - 1]
 *
 * With an fp32 master, p is the master, and param becomes p rounded to nearest, ties to even.  If FOUND_INF is set,
 * nothing changes.
 */
#include "ops/op.h"

#include "ops/infer.h"

static bool adamw_infer(struct op_call *call)
{
    if (!infer_float(call, ADAMW_GRAD) || !infer_scalars(call, ADAMW_SCALARS) ||
        !infer_check(call, ADAMW_CORRECTIONS, DTYPES_F32, SHAPE2(ANY, 2)))
        return false;
    struct infer_shape shape = infer_shape_of(&call->operand[ADAMW_GRAD]);
    return infer_check(call, ADAMW_PARAM, DTYPES_FLOAT, shape) && infer_check(call, ADAMW_MASTER, DTYPES_F32, shape) &&
           infer_check(call, ADAMW_M, DTYPES_FLOAT, shape) && infer_check(call, ADAMW_V, DTYPES_FLOAT, shape);
}

/* g 1, m 3, v 4, two corrections, root, epsilon, quotient, decay 2, step 2. */
static double adamw_flops(const struct op_call *call)
{
    return 17.0 * cost_elements(call, ADAMW_PARAM);
}

const struct op_declaration op_adamw = {
    .name = "adamw",
    .text = "AdamW update of master (or param), m, v; param = rounded master; nothing where found_inf",
    .operands = ADAMW_OPERANDS,
    .operand = {[ADAMW_GRAD] = {"grad", OPERAND_IN},
                [ADAMW_SCALARS] = {"scalars", OPERAND_IN},
                [ADAMW_CORRECTIONS] = {"corrections", OPERAND_IN},
                [ADAMW_PARAM] = {"param", OPERAND_INOUT},
                [ADAMW_MASTER] = {"master", OPERAND_INOUT | OPERAND_OPTIONAL},
                [ADAMW_M] = {"m", OPERAND_INOUT},
                [ADAMW_V] = {"v", OPERAND_INOUT}},
    .infer = adamw_infer,
    .flops = adamw_flops,
};
