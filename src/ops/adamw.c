/* adamw                                                       Loshchilov & Hutter 2019, algorithm 2
 *
 *   g = grad CLIP;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g
 *   p -= lr alpha ((m/bc1) / (sqrt(v/bc2) + epsilon) + weight_decay p)
 *   lr = LEARNING_RATE, bc1, bc2 = corrections[min(ADAM_STEP, rows) - 1]
 *
 * With an fp32 master, p is the master, and param becomes p rounded to nearest, ties to even.
 *
 * adamw_lean: the same for a bf16 parameter without a master.
 *                                                    doc/states.md; Dettmers 2021 for 8-bit moments
 *
 *   g = grad CLIP;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) (g g)
 *   p = p - (lr alpha) ((m/bc1) / (sqrt(v/bc2) + epsilon) + weight_decay p)
 *
 * param becomes SR(p, ROUNDING_PARAM).  m and v are stored unrounded in fp32, as SR(m, ROUNDING_M)
 * and SR(v, ROUNDING_V) in bf16, or as uint8 codes with a power of two for each block of
 * STATE_BLOCK elements (state_* in ops/op.h).  `scales` [2, blocks] holds the int8 exponents of
 * those powers, row 0 of m and row 1 of v; it is present exactly when m and v are uint8.  The op is
 * exact (ops/op.h).  Its operands have the indices of adamw's, with the exponents instead of the
 * master.
 *
 * If FOUND_INF is set, both change nothing; otherwise grad CLIP is finite, because the norm is.
 */
#include "ops/infer.h"

_Static_assert((int)ADAMW_LEAN_V == (int)ADAMW_V, "the operands are the same");
_Static_assert((int)ADAMW_LEAN_SCALES == (int)ADAMW_MASTER, "the operands are the same");

const struct op_declaration op_adamw = {
    OP_NAMED(adamw, ADAMW),
    .operand = {[ADAMW_GRAD] = {OPERAND_IN, "*"},
                [ADAMW_SCALARS] = SCALARS(OPERAND_IN),
                [ADAMW_CORRECTIONS] = {OPERAND_IN, "?2", DTYPES_F32},
                [ADAMW_PARAM] = {OPERAND_INOUT, "*"},
                [ADAMW_M] = {OPERAND_INOUT, "*"},
                [ADAMW_V] = {OPERAND_INOUT, "*"},
                [ADAMW_MASTER] = {OPERAND_INOUT | OPERAND_OPTIONAL, "*", DTYPES_F32}},
    .cost = {17.0, ADAMW_PARAM}, /* g 1, m 3, v 4, two corrections, root, epsilon, quotient, decay
                                    2, step 2 */
};

/* Checks that exponents of blocks are present only with 8-bit codes. */
static bool adamw_lean_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const struct operand *m = &call->operand[ADAMW_LEAN_M];
    const bool codes = m->dtype == DTYPE_U8, present = call->operand[ADAMW_LEAN_SCALES].present;
    return infer_expect(
               codes == present, call, "operand scales is %s, expected %s with moments of %s",
               present ? "present" : "absent", codes ? "them" : "none", dtype_name(m->dtype)) &&
           infer_check(call, ADAMW_LEAN_SCALES, DTYPES_U8,
                       SHAPE2(2, state_blocks(operand_elements(m)))) &&
           infer_index_base(call, sizes);
}

const struct op_declaration op_adamw_lean = {
    OP_NAMED(adamw_lean, ADAMW_LEAN),
    .operand = {[ADAMW_LEAN_GRAD] = {OPERAND_IN, "*", DTYPES_LEAN},
                [ADAMW_LEAN_SCALARS] = SCALARS(OPERAND_IN),
                [ADAMW_LEAN_CORRECTIONS] = {OPERAND_IN, "?2", DTYPES_F32},
                [ADAMW_LEAN_PARAM] = {OPERAND_INOUT, "*", DTYPES_BF16},
                [ADAMW_LEAN_M] = {OPERAND_INOUT, "*", DTYPES_MOMENT},
                [ADAMW_LEAN_V] = {OPERAND_INOUT | OPERAND_SAME_DTYPE, "*", DTYPES_MOMENT,
                                  ADAMW_LEAN_M},
                [ADAMW_LEAN_SCALES] = {OPERAND_INOUT | OPERAND_OPTIONAL, "2?", DTYPES_U8}},
    .check = adamw_lean_check,
    .cost =
        {17.0,
         ADAMW_LEAN_PARAM}, /* as adamw; random bits and codes are integer work and do not count */
};
