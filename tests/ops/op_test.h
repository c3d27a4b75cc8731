/* What opcheck knows of an op: one `const struct op_test` an op, in the file of its family.
 *
 * Four versions of an op are written down here, from the formulas in src/ops, and share no code with any backend:
 *   the oracle (ref_NAME): in double, in plain loops.  Beside each output it computes `term`, the condition of that element:
 *     what is computed in fp32 stays within
 *         8 2^-24 term
 *     before it is rounded to the output's dtype.  For one sum of K products term = sqrt(K) sum |a||b|; for chains it is the
 *     sum over the stages, each multiplied with the derivative of the output by that stage (tests/opcheck/bounds.md).
 *     Where operands have 16 bits, matrix units may round more than that, in ways that are named there and computed here:
 *     `half_*` for factors that go into a product in 16 bits, `drift` for sums that are truncated.
 *   the naive reference (naive_NAME): in fp32, accumulated in order in one variable, as a first C version would be written.
 *     It shows how large the error of a correct, plain implementation is (a backend may not be worse).  It is the control
 *     that the judge must accept, and with a defect it is a mutant that the judge must reject.  Masks come from op.h's
 *     functions, so that the oracle's reading of the text and the header's code are compared.
 *   the bits (exact_NAME), of ops or uses of an op whose outputs must be the same bits on every backend.  Of the ops that
 *     have no oracle, the naive reference is all three.  Signs of zeros count; any NaN equals any other, because
 *     processors differ in the payloads that they produce.
 * Operands of the first two are arrays of double that hold the values that the backend sees; ids, targets and the words of
 * the scalars block are numbers too.  Compiled with -ffp-contract=off, so that no bits depend on the compiler.
 */
#ifndef GPT_TRAIN_TESTS_OPS_OP_TEST_H
#define GPT_TRAIN_TESTS_OPS_OP_TEST_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/op.h"

/* ---- cases ---- */

enum case_inputs {
    INPUTS_NORMAL,
    INPUTS_INTEGER, /* small integers: sums of products must come out exactly */
    INPUTS_LARGE,   /* large offsets, scores or norms */
    INPUTS_SMALL,   /* small values, where epsilons matter */
    INPUTS_HUGE,    /* values near the end of fp16, results beyond it */
    INPUTS_SPECIAL, /* NaN, infinity, found_inf, ignored targets */
    INPUTS_COUNT
};

struct check_case {
    struct op_call call; /* shapes, dtypes, attributes; addresses are offsets in the image */
    enum case_inputs inputs;
    uint64_t seed;
    int32_t index;
    size_t image_bytes;
};

/* Random numbers of a case: Philox under its seed. */
struct random {
    uint64_t seed;
    uint32_t draws;
};

uint32_t random_word(struct random *random);
int64_t random_below(struct random *random, int64_t bound);
double random_normal(struct random *random);

/* The maker's view of a case: where to draw from, the dtype of activations, and that of what a model keeps in fp32. */
struct maker {
    struct check_case *check;
    struct random random;
    enum dtype dtype, kept;
    int32_t index;
};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

/* The size number `index` of a list, drawn from it beyond its end; any size of the list.  Sizes above `max` are drawn anew. */
int64_t case_size(struct maker *maker, int64_t max);
int64_t case_any_size(struct maker *maker, int64_t max);
/* Elements of an op that rounds stochastically: blocks that are whole, short, and one element long.  Sets index_base. */
int64_t case_lean_elements(struct maker *maker);
/* Makes operand `slot` present: a matrix, or a vector where `columns` is 0. */
void case_tensor(struct maker *maker, int32_t slot, enum dtype dtype, int64_t rows, int64_t columns);
void case_scalars(struct maker *maker, int32_t slot);
struct op_attrs *case_attrs(struct maker *maker);
/* Outputs are made by op_infer() when the shapes are complete; then those in `mask` are switched to accumulation. */
void case_accumulate(struct maker *maker, uint32_t mask);

static inline const struct operand *case_operand(const struct check_case *check, int32_t slot)
{
    return &check->call.operand[slot];
}

/* The sizes of --bench: a 124M model's step. */
#define BENCH_SAMPLES 4
#define BENCH_TIME 256
#define BENCH_ROWS (BENCH_SAMPLES * BENCH_TIME)
#define BENCH_CHANNELS 768
#define BENCH_WIDE 3072
/* Every matrix at the size of the residual stream, every vector of floats at its channels. */
void bench_plain(struct maker *maker);
/* Every operand of floats or codes at the size of the MLP. */
void bench_wide(struct maker *maker);

/* ---- inputs ---- */

#define HUGE_SCALE 3e4 /* two of these on top of each other pass the largest fp16 value, 65504 */

/* Each value as its operand stores it. */
void inputs_rounded(const struct check_case *check, int32_t slot, double *values);
void inputs_scale(const struct check_case *check, int32_t slot, double *values, double factor, double offset);
/* Multiplies an operand of a "huge" case with `factor`. */
void inputs_huge(const struct check_case *check, int32_t slot, double *const *value, double factor);

/* ---- the oracle ---- */

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
/* What output `slot` held before where it is added to, else 0. */
double ref_before(const struct op_call *call, const struct ref_tensors *t, int32_t slot, int64_t i);

/* ---- the naive reference ---- */

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

/* ---- the bits ---- */

/* Whether `call` has a bit-exact reference. */
bool exact_defined(const struct op_call *call);
/* Writes the outputs of `call`, which must be defined, into `memory`: operands' addresses are offsets in it. */
void exact_run(const struct op_call *call, uint8_t *memory);
uint32_t exact_bits_of(float x);
float exact_float_of(uint32_t bits);
/* The 16 bits of element i of a stream; half of the range where the defect is to round to nearest. */
uint32_t exact_random_of(const struct op_call *call, const double *scalars, int64_t i, uint32_t stream,
                         enum naive_defect defect);
float exact_bf16(float x, uint32_t random);

/* ---- the table ---- */

struct verdict;
struct selftest;
#define DEFECTS_MAX 16

struct op_test {
    void (*shape)(struct maker *maker); /* shapes, dtypes and attributes of a case */
    void (*bench)(struct maker *maker); /* those of --bench, on top of a case's */
    /* Changes values that are standard normal; NULL: they stay. */
    void (*inputs)(const struct check_case *check, double *const *value, struct random *random);
    void (*ref)(const struct op_call *call, const struct ref_tensors *t); /* NULL: the op is exact */
    void (*naive)(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect);
    void (*bits)(const struct op_call *call, uint8_t *memory); /* of calls that do not accumulate; NULL: none */
    bool has_many_variants;                                    /* transposes, heads or padding: more cases */
    uint32_t dtypes; /* bit per dtype that has cases; 0: the three of floats */
    /* What judge.c has to know.  Sums of products without rounded constants are exact on integers, and have no systematic
     * error.  An op of one value in and one out rounds equal significands equally. */
    bool is_sum_of_products, has_few_inputs;
    double (*shared_by)(const struct op_call *call, int32_t slot); /* elements that share one error; NULL: 1 */
    bool (*judge)(const struct check_case *check, const uint8_t *after, struct verdict *out); /* or NULL */
    enum naive_defect permits; /* what bounds.md lets a backend round where operands have 16 bits; 0: nothing */
    int32_t scalar;            /* the word that the op writes, where an output is the scalars block */
    bool never_overflows;      /* results cannot leave the range of the inputs */
    uint32_t unrounded;        /* bit per output that only takes up what it is given */
    void (*selftest)(struct selftest *test); /* of a backward op, or one with known answers; NULL */
    enum naive_defect defects[DEFECTS_MAX];  /* beside the common ones; ends at DEFECT_NONE */
};

#define OP(KIND, name, ...) extern const struct op_test test_##name;
#include "ops/ops.def"
#undef OP
const struct op_test *op_test(enum op_kind kind);

/* judge.c: for `judge` and `shared_by`. */
bool judge_fail(const struct check_case *check, int32_t slot, int64_t i, const char *what, double found,
                double expected, struct verdict *out);
/* The elements of a row, or 1 where 16 bits hide what they share. */
double judge_row(const struct op_call *call, int32_t slot);

/* image.c: `value` as the dtype stores it; element i of an operand in an image. */
double image_rounded(enum dtype dtype, double value);
double image_decode(const struct check_case *check, int32_t slot, int64_t i, const uint8_t *image);

#endif
