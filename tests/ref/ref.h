/* The oracle: what every op must compute, in double, in plain loops.
 *
 * It shares no code with any backend: only the declarations of ops/op.h and Philox (base/rng.h).  Operands are arrays
 * of double holding the values that the backend sees; ids, targets and the words of the scalars block are numbers too.
 * Beside each output it computes `term`, the condition of that element: what is computed in fp32 stays within
 *     8 2^-24 term
 * before it is rounded to the output's dtype.  For one sum of K products term = sqrt(K) sum |a||b|; for chains it is the
 * sum over the stages, each multiplied with the derivative of the output by that stage (tests/opcheck/bounds.md).  Where
 * operands have 16 bits, matrix units may round more than that, in ways that are named there and computed here: `half_*`
 * for factors that go into a product in 16 bits, `drift` for sums that are truncated.
 */
#ifndef GPT_TRAIN_REF_REF_H
#define GPT_TRAIN_REF_REF_H

#include "ops/op.h"

#define REF_EXACT (-1.0)          /* the stored value must be y* rounded to the dtype, bit for bit */
#define REF_UNSPECIFIED (1.0e300) /* nothing is promised */

struct ref_tensors {
    double *value[OP_OPERANDS_MAX]; /* NULL for absent operands; OUT and INOUT are written in place */
    double *term[OP_OPERANDS_MAX];  /* for OUT and INOUT; written */
    /* For OUT and INOUT, or NULL where they are not wanted; written only where the rule permits such an error. */
    double *half_bound[OP_OPERANDS_MAX];  /* 8 standard deviations of it, and never more than all roundings together */
    double *half_square[OP_OPERANDS_MAX]; /* its mean square */
    double *drift[OP_OPERANDS_MAX];       /* mean error of an accumulator that truncates */
};

/* Runs the op of `call` (shapes and attributes; addresses are not looked at).  Memory: a few rows on the heap; aborts
 * when there is none. */
void ref_run(const struct op_call *call, const struct ref_tensors *tensors);

/* 0 where the element is dropped, else the factor; from op.h's text. */
double ref_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample, int64_t element);

/* `value` as the dtype stores it: to nearest, ties to even, once.  Float dtypes only. */
double ref_rounded(enum dtype dtype, double value);
/* Half the distance between zero and the smallest value of a 16-bit dtype, 0 for fp32. */
double ref_half_floor(enum dtype dtype);

/* Used by ref.c; one per op. */
#define OP(KIND, name, ...) void ref_##name(const struct op_call *call, const struct ref_tensors *t);
#include "ops/ops.def"
#undef OP

#endif
