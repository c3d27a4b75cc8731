/* The naive reference: every op in fp32, accumulated in order in one variable, as a first C version would be written.
 *
 * It is not the oracle.  It says how large the error of a correct, plain fp32 implementation is (a backend may not be
 * worse), it is the control that the judge must accept, and with a defect it is a mutant that the judge must reject.
 * Operands are as in ref.h; results are fp32 values, not yet rounded to a 16-bit dtype.  Masks come from op.h's own
 * functions, so that the oracle's reading of the text and the header's code are compared.
 */
#ifndef GPT_TRAIN_REF_NAIVE_H
#define GPT_TRAIN_REF_NAIVE_H

#include "ops/op.h"

/* What can be wrong on purpose.  The first group works on the finished output of any op (mutants.c applies it). */
enum naive_defect {
    DEFECT_NONE,
    DEFECT_SCALE,           /* the output is 0.2 % too large */
    DEFECT_ONE_ELEMENT,     /* one element is 0.2 % too large */
    DEFECT_TAIL,            /* the last element is not written */
    DEFECT_LOW_PRECISION,   /* the result passes through bf16 (fp32 outputs) */
    DEFECT_TRUNCATE,        /* the conversion to a 16-bit dtype truncates */
    DEFECT_SATURATE,        /* what overflows fp16 becomes its largest value instead of infinity */
    DEFECT_OVERRUN,         /* one element is written beyond the end */
    DEFECT_WRITES_INPUT,    /* an input is changed */
    DEFECT_LAST_TERM,       /* the last row, key or product of a sum is dropped */
    DEFECT_BF16_SUM,        /* the accumulator is bf16 */
    DEFECT_F16_SUM,         /* the accumulator is fp16 */
    DEFECT_DOUBLE_ROUNDING, /* a sum is rounded to the output's dtype, then added to the old value and rounded again */
    DEFECT_HALF_SCORES,     /* attention's scores pass through 16 bits */
    DEFECT_PARAM_STALE,     /* adamw: param is not written from master */
    DEFECT_MASTER_STALE,    /* adamw: master is not written */
    DEFECT_FROM_PARAM,      /* adamw: starts from param instead of master */
    DEFECT_ZERO_SIGN,       /* -0 becomes 0 */
    DEFECT_IGNORE_ACCUMULATE,
    DEFECT_FORGET_BIAS,
    DEFECT_FORGET_GAIN,
    DEFECT_FORGET_FIRST,  /* the first mean of layernorm's backward, delta of attention's */
    DEFECT_FORGET_SECOND, /* its second mean; dropout within dp */
    DEFECT_FORGET_POSITION,
    DEFECT_FORGET_SCALE,
    DEFECT_FORGET_SKIP, /* found_inf, or targets < 0, have no effect */
    DEFECT_FORGET_STEP,
    DEFECT_FORGET_LIMIT,
    DEFECT_FORGET_CORRECTION,
    DEFECT_FORGET_ONE_HOT,
    DEFECT_WRONG_ROW,
    DEFECT_WRONG_HEAD, /* key-value head h mod KV */
    DEFECT_WRONG_SITE,
    DEFECT_WRONG_SAMPLE,
    DEFECT_WRONG_KIND,
    DEFECT_SWAPPED,
    DEFECT_APPROXIMATE, /* a cheaper formula */
    DEFECT_UNBIASED_VARIANCE,
    DEFECT_EPSILON,
    DEFECT_ONE_PASS,    /* E[x^2] - E[x]^2 */
    DEFECT_MASK_NARROW, /* a row does not see itself */
    DEFECT_MASK_WIDE,   /* a row sees the next one */
    DEFECT_MASK_BEFORE, /* dropout before the normalisation */
    DEFECT_MASK_INVERTED,
    DEFECT_PADDING, /* columns beyond vocab count, or rows beyond time are left */
    DEFECT_COUPLED_DECAY,
    DEFECT_SHIFTED,
    DEFECT_WRONG_STREAM, /* of stochastic rounding */
    DEFECT_NEAREST,      /* to nearest instead of stochastically */
    DEFECT_CONTRACTED,   /* a product and a sum are one instruction */
    DEFECT_EXPONENT,     /* of a block of codes, off by one */
    DEFECT_ZERO_CODE,    /* a second moment that is not zero falls to zero */
    DEFECT_BLOCK_EDGE,   /* a block without its last element */
    DEFECT_COUNT,
    /* Not defects: what bounds.md permits beside fp32 arithmetic where operands have 16 bits.  The judge must accept it. */
    PERMITTED_HALF_FACTORS = DEFECT_COUNT, /* attention's p and ds are rounded before they go into a product */
    PERMITTED_TRUNCATED_SUM,               /* gemm adds four products at a time and truncates the sum to fp32 */
    PERMITTED_END
};

/* `value` as in ref_tensors; OUT and INOUT are written in place.  Aborts when there is no memory for a row. */
void naive_run(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect);

/* Used by the naive files. */
static inline float naive_at(const double *values, int64_t i)
{
    return (float)values[i];
}

/* `value` through the dtype and back. */
float naive_rounded(enum dtype dtype, float value);

static inline float naive_add(float sum, float x, enum naive_defect defect)
{
    float result = sum + x;
    if (defect == DEFECT_F16_SUM)
        return naive_rounded(DTYPE_F16, result);
    return defect == DEFECT_BF16_SUM ? naive_rounded(DTYPE_BF16, result) : result;
}

/* What a sum into output `slot` starts from: the old value where it is added to, else 0. */
float naive_before(const struct op_call *call, double *const *value, int32_t slot, int64_t i, enum naive_defect defect);
/* Stores a sum that started from naive_before(). */
void naive_store(const struct op_call *call, double *const *value, int32_t slot, int64_t i, float sum,
                 enum naive_defect defect);
float naive_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample, int64_t element,
                           enum naive_defect defect);

#define OP(KIND, name, ...) \
    void naive_##name(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect);
#include "ops/ops.def"
#undef OP

#endif
