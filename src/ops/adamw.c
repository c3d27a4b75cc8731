/* adamw                                                              Loshchilov & Hutter 2019, algorithm 2
 *
 *   g = grad CLIP;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g
 *   p -= lr alpha ((m/bc1) / (sqrt(v/bc2) + epsilon) + weight_decay p)
 *   lr = LEARNING_RATE, bc1, bc2 = corrections[min(ADAM_STEP, rows) - 1]
 *
 * With an fp32 master, p is the master, and param becomes p rounded to nearest, ties to even.  If FOUND_INF is set,
 * nothing changes.
 */
#include "ops/infer.h"

const struct op_declaration op_adamw = {
    OP_NAMED(adamw, ADAMW),
    .text = "AdamW update of master (or param), m, v; param = rounded master; nothing where found_inf",
    .operand = {[ADAMW_GRAD] = {"grad", OPERAND_IN, "*"},
                [ADAMW_SCALARS] = SCALARS(OPERAND_IN),
                [ADAMW_CORRECTIONS] = {"corrections", OPERAND_IN, "?2", DTYPES_F32},
                [ADAMW_PARAM] = {"param", OPERAND_INOUT, "*"},
                [ADAMW_MASTER] = {"master", OPERAND_INOUT | OPERAND_OPTIONAL, "*", DTYPES_F32},
                [ADAMW_M] = {"m", OPERAND_INOUT, "*"},
                [ADAMW_V] = {"v", OPERAND_INOUT, "*"}},
    .cost = {17.0, ADAMW_PARAM}, /* g 1, m 3, v 4, two corrections, root, epsilon, quotient, decay 2, step 2 */
};
