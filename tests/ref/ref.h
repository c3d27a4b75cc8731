/* The oracle: what every op must compute, in double, in plain loops.
 *
 * It shares no code with any backend: only the declarations of model/op.h and Philox (base/rng.h).  Operands are arrays
 * of double holding the values that the backend sees; ids, targets and the words of the scalars block are numbers too.
 * Beside each output it computes `term`, the condition of that element: a correct fp32 implementation stays within
 *     u |y*| (1 + 2^-8) + 8 2^-24 term + floor
 * with u the unit round-off of the output's dtype.  For one sum of K products term = sqrt(K) sum |a||b|; for chains it is
 * the sum over the stages, each multiplied with the derivative of the output by that stage (tests/opcheck/bounds.md).
 */
#ifndef GPT_TRAIN_REF_REF_H
#define GPT_TRAIN_REF_REF_H

#include "model/op.h"

#define REF_EXACT (-1.0)          /* the stored value must be y* rounded to the dtype, bit for bit */
#define REF_UNSPECIFIED (1.0e300) /* nothing is promised */

struct ref_tensors {
    double *value[OP_OPERANDS_MAX]; /* NULL for absent operands; OUT and INOUT are written in place */
    double *term[OP_OPERANDS_MAX];  /* for OUT and INOUT; written */
};

/* Runs the op of `call` (shapes and attributes; addresses are not looked at).  Memory: a few rows on the heap; aborts
 * when there is none. */
void ref_run(const struct op_call *call, const struct ref_tensors *tensors);

/* 0 where the element is dropped, else the factor; from op.h's text. */
double ref_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample, int64_t element);

/* Used by ref.c; one per op. */
#define OP_BEGIN(KIND, name, text) void ref_##name(const struct op_call *call, const struct ref_tensors *t);
#define OPERAND(KIND, SLOT, name, direction, flags)
#define OP_END(KIND, name)
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END

#endif
