/* The test of an op: one `const struct op_test` per op, in the file of its family.
 *
 * A test contains the op's oracle, written from the formulas in src/ops, which shares no code with
 * any backend.
 *   The oracle (ref_NAME) computes in double, in plain loops.  For each output element it also
 *     computes `term`, the condition of that element: a result computed in fp32 stays within 8
 *     2^-24 term before it is rounded to the output's dtype.  For one sum of K products, term =
 *     sqrt(K) sum |a||b|; for a chain of stages it is the sum over the stages, each multiplied by
 *     the derivative of the output with respect to that stage (tests/opcheck/bounds.md).  Where
 *     operands have 16 bits, matrix units may round more than that, in ways that bounds.md names
 *     and the oracle computes: `half_*` for factors that enter a product in 16 bits, `drift` for
 *     sums that are truncated.
 *   Ops that are defined bit for bit have exact_NAME instead, which computes in fp32: every backend
 *     must have its bits.  The same holds for fill's oracle, and for copy's where it does not
 *     accumulate.  Signs of zeros count; any NaN equals any other, because processors produce
 *     different payloads.
 * The operands are arrays of double that contain the values that the backend sees; ids, targets and
 * the words of the scalars block are numbers too.  The code is compiled with -ffp-contract=off, so
 * that no bits depend on the compiler.
 */
#ifndef GPT_TRAIN_TESTS_OPS_OP_TEST_H
#define GPT_TRAIN_TESTS_OPS_OP_TEST_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/op.h"

/* The unit round-off of a dtype; 0 for integers. */
static inline double dtype_unit_roundoff(enum dtype dtype)
{
    static const double units[DTYPE_COUNT] = {
        [DTYPE_F32] = 0x1p-24, [DTYPE_BF16] = 0x1p-8, [DTYPE_F16] = 0x1p-11, [DTYPE_F64] = 0x1p-53};
    return units[dtype];
}

/* ---- cases ---- */

enum case_inputs {
    INPUTS_NORMAL,
    INPUTS_INTEGER, /* small integers: sums of products must come out exactly */
    INPUTS_LARGE,   /* large offsets, scores or norms */
    INPUTS_SMALL,   /* small values, where epsilons matter */
    INPUTS_HUGE,    /* values near the end of fp16's range, results beyond it */
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

/* The random numbers of a case: Philox with the case's seed. */
struct random {
    uint64_t seed;
    uint32_t draws;
};

uint32_t random_word(struct random *random);
int64_t random_below(struct random *random, int64_t bound);
double random_normal(struct random *random);

/* The context for making a case.  `dtype` is that of activations, `kept` that of tensors that a
 * model keeps in fp32. */
struct maker {
    struct check_case *check;
    struct random random;
    enum dtype dtype, kept;
    int32_t index;
    int32_t product; /* which product of a step --bench times; 0: the usual one */
};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

/* case_size() returns entry `index` of a list of sizes, or a random entry when the index is beyond
 * the list; case_any_size() returns a random entry.  A size above `max` is replaced by a random one
 * up to `max`. */
int64_t case_size(struct maker *maker, int64_t max);
int64_t case_any_size(struct maker *maker, int64_t max);
/* Returns the number of elements of an op that rounds stochastically: whole blocks, short ones, and
 * blocks of one element.  Sets index_base. */
int64_t case_lean_elements(struct maker *maker);
/* Makes operand `slot` present: a matrix, or a vector where `columns` is 0. */
void case_tensor(struct maker *maker, int32_t slot, enum dtype dtype, int64_t rows,
                 int64_t columns);
void case_scalars(struct maker *maker, int32_t slot);
struct op_attrs *case_attrs(struct maker *maker);
/* Makes operand `slot`, the starts of documents, present in two cases of five. */
void case_documents(struct maker *maker, int32_t slot, int64_t rows);
/* Makes the op accumulate into the outputs in `mask`, after op_infer() has made all outputs from
 * the complete shapes. */
void case_accumulate(struct maker *maker, uint32_t mask);

static inline const struct operand *case_operand(const struct check_case *check, int32_t slot)
{
    return &check->call.operand[slot];
}

/* The sizes of --bench: one step of a 124M model. */
#define BENCH_SAMPLES 4
#define BENCH_TIME 256
#define BENCH_ROWS (BENCH_SAMPLES * BENCH_TIME)
#define BENCH_CHANNELS 768
#define BENCH_WIDE 3072
/* Gives every matrix the size of the residual stream, and every vector of floats its number of
 * channels. */
void bench_plain(struct maker *maker);
/* Gives every operand of floats or codes the size of the MLP. */
void bench_wide(struct maker *maker);

/* ---- inputs ---- */

#define HUGE_SCALE 3e4 /* the sum of two of these is beyond the largest fp16 value, 65504 */

/* Rounds each value to the dtype of its operand. */
void inputs_rounded(const struct check_case *check, int32_t slot, double *values);
void inputs_scale(const struct check_case *check, int32_t slot, double *values, double factor,
                  double offset);
/* Multiplies an operand of a "huge" case by `factor`. */
void inputs_huge(const struct check_case *check, int32_t slot, double *const *value, double factor);

/* Sets first[rows of operand 0], unless it is NULL: a document begins at one row of a period that
 * is drawn for each sample, 1, few or many rows. */
void inputs_documents(const struct check_case *check, double *first, struct random *random);

/* ---- the oracle ---- */

#define REF_EXACT (-1.0) /* the stored value must be y* rounded to the dtype, bit for bit */
#define REF_UNSPECIFIED (1.0e300) /* no requirement */

struct ref_tensors {
    /* NULL for absent operands; OUT and INOUT are written in place. */
    double *value[OP_OPERANDS_MAX];
    double *term[OP_OPERANDS_MAX]; /* for OUT and INOUT; write-only */
    /* For OUT and INOUT, NULL where the caller does not need them; written only where the rule
     * permits such an error. */
    double *half_bound[OP_OPERANDS_MAX];  /* 8 standard deviations of the error, at most the sum of
                                             all roundings */
    double *half_square[OP_OPERANDS_MAX]; /* mean square of the error */
    double *drift[OP_OPERANDS_MAX];       /* mean error of a truncating accumulator */
};

/* Runs the op of `call` (shapes and attributes; addresses are ignored).  Memory: a few rows on the
 * heap; aborts when the allocation fails. */
void ref_run(const struct op_call *call, const struct ref_tensors *tensors);

/* Returns 0 when the element is dropped, else the scale factor.  Written from op.h's text. */
double ref_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample,
                          int64_t element);
/* Returns `value` as the dtype stores it: rounded once, to nearest, ties to even.  Float dtypes
 * only. */
double ref_rounded(enum dtype dtype, double value);
/* Returns half the smallest positive value of a 16-bit dtype, 0 for fp32. */
double ref_half_floor(enum dtype dtype);
/* Returns the old value of output `slot` when the op accumulates into it, else 0. */
double ref_before(const struct op_call *call, const struct ref_tensors *t, int32_t slot, int64_t i);

/* ---- the bits ---- */

/* Returns true when that word of the block of scalars is a float; the others are integers. */
bool scalar_is_float(int64_t slot);
/* Returns true when every backend must have the bits of ref_run()'s results, rounded to the dtype.
 */
bool exact_defined(const struct op_call *call);
uint32_t exact_bits_of(float x);
float exact_float_of(uint32_t bits);
/* Returns the 16 random bits of element i of a stream. */
uint32_t exact_random_of(const struct op_call *call, const double *scalars, int64_t i,
                         uint32_t stream);
/* Returns `value` converted to the dtype and back. */
float exact_rounded(enum dtype dtype, float value);
float exact_bf16(float x, uint32_t random);

/* Set by --half_sums: products, attention's too, may have fp16 sums.  Set by it and by --variant:
 * products have sizes that kernels of tiles take. */
extern bool half_sums_allowed, gemm_tiled;
/* Returns true if those of this call may. */
bool gemm_may_halve(const struct op_call *call);

/* ---- the table ---- */

struct verdict;

struct op_test {
    void (*shape)(struct maker *maker); /* shapes, dtypes and attributes of a case */
    void (*bench)(struct maker *maker); /* changes a case to the sizes of --bench */
    struct {
        int32_t slot;
        int64_t dims[OP_RANK_MAX];
    } bench_dims[4]; /* what bench() left to do: sizes of single operands */
    /* Changes the values, which are standard normal before the call; NULL leaves them. */
    void (*inputs)(const struct check_case *check, double *const *value, struct random *random);
    void (*ref)(const struct op_call *call,
                const struct ref_tensors *t); /* NULL: the op is exact */
    void (*exact)(const struct op_call *call,
                  double *const *value); /* of an op without an oracle */
    bool is_exact_copy;     /* exact in calls that do not accumulate, also with an oracle */
    bool has_many_variants; /* transposes, heads or padding need more cases */
    uint32_t dtypes;        /* one bit per dtype that has cases; 0: the three float dtypes */
    /* Properties that judge.c needs.  Sums of products without rounded constants are exact on
     * integers, and have no systematic error.  An op with one input and one output value rounds
     * equal significands equally. */
    bool is_sum_of_products, has_few_inputs;
    double (*shared_by)(const struct op_call *call,
                        int32_t slot); /* elements with one shared error; NULL: 1 */
    bool (*judge)(const struct check_case *check, const uint8_t *after,
                  struct verdict *out); /* or NULL */
    int32_t scalar; /* the word that the op writes when an output is the scalars block */
};

#define OP(KIND, name, operands) extern const struct op_test test_##name;
#include "ops/ops.def"
#undef OP
const struct op_test *op_test(enum op_kind kind);

/* judge.c: for the members `judge` and `shared_by`. */
bool judge_fail(const struct check_case *check, int32_t slot, int64_t i, const char *what,
                double found, double expected, struct verdict *out);
/* Returns the number of elements of a row, or 1 where rounding to 16 bits hides the error that they
 * share. */
double judge_row(const struct op_call *call, int32_t slot);

/* image.c: image_rounded() returns `value` as the dtype stores it, image_decode() element i of an
 * operand in an image. */
double image_rounded(enum dtype dtype, double value);
double image_decode(const struct check_case *check, int32_t slot, int64_t i, const uint8_t *image);

#endif
