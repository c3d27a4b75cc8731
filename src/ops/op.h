/* Ops: what a step is made of, and the only thing of the model that a backend sees.
 *
 * ops.def lists the ops; the file of an op's family says everything else in a struct op_declaration: operands, shape rule,
 * cost and backward rule.  An op_call is an op with its operands' shapes and addresses filled in: what `exec` hands to a
 * backend.  Kernels check nothing at run time; op_infer() has checked shapes and dtypes when the program was built.
 *
 * Letters in the families' formulas: B batch, T time, N = B*T, C channels, H heads, KV key-value heads, D head size, V
 * vocabulary, Vp padded vocabulary.  All matrices are row-major and contiguous.  Formulas are in exact arithmetic;
 * accumulation is in fp32 or better, and sums have an order that shapes fix.
 *
 * Exact ops: every operation is rounded to fp32 (to nearest, ties to even, with subnormals) in the order that the formula
 * writes, a product and a sum are never fused, division and square root are correctly rounded.  So the bits of the results
 * follow from the bits of the operands, on every backend.  SR(x, stream) is rounding_bf16() with the random bits of the
 * element and stream; see rounding_* below.
 */
#ifndef GPT_TRAIN_OPS_OP_H
#define GPT_TRAIN_OPS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/recompute.h"
#include "base/rng.h"
#include "base/status.h"

#define OP_OPERANDS_MAX 8
#define OP_RANK_MAX 4

/* What the caps of workspaces are made of: a library, or a kernel of ours that splits K, takes what it wants of gemm's bytes;
 * sums over rows leave OP_PARTIAL_ROWS partial results; fewer than OP_CACHE_ROWS new rows share a key-value cache out in
 * parts of OP_CACHE_KEYS cached rows, at most OP_CACHE_PARTS. */
#define OP_GEMM_WORKSPACE_BYTES ((size_t)32 << 20)
#define OP_PARTIAL_ROWS 256
#define OP_CACHE_ROWS 16
#define OP_CACHE_KEYS 128
#define OP_CACHE_PARTS 32

#define OP(KIND, name, ...) OP_##KIND,
enum op_kind {
#include "ops/ops.def"
    OP_KIND_COUNT
};
#undef OP

/* Operand indices: GEMM_A, GEMM_B, GEMM_BIAS, GEMM_D, GEMM_OPERANDS, ... */
#define OP(KIND, name, ...) enum op_##name##_operand{__VA_ARGS__, KIND##_OPERANDS};
#include "ops/ops.def"
#undef OP

/* How an op uses an operand: one of the first three, and what else holds. */
enum operand_use {
    OPERAND_IN = 1,
    OPERAND_OUT = 2,
    OPERAND_INOUT = OPERAND_IN | OPERAND_OUT,
    OPERAND_OPTIONAL = 4,
    OPERAND_ACCUMULATES = 8,          /* OUT, and may be added to; then it counts as INOUT */
    OPERAND_SAVED = 16,               /* backward reads it: it survives the forward pass or is computed again */
    OPERAND_WRITTEN_FOR_GRADIENT = 32 /* INOUT, but only read without attrs.gradient */
};
enum gelu_kind { GELU_ERF, GELU_TANH };

/* The device block of 32-bit words that change from step to step; a captured graph replays with new values in it. */
enum scalar_slot {
    SCALAR_LEARNING_RATE, /* float */
    SCALAR_LOSS_GRADIENT, /* float: loss_scale / tokens per update */
    SCALAR_UNSCALE,       /* float: 1 / loss_scale */
    SCALAR_CLIP,          /* float, written by clip_factor: what gradients are multiplied with */
    SCALAR_GRAD_NORM,     /* float, written by clip_factor: the norm of the unscaled gradient before clipping */
    SCALAR_LOSS_SUM,      /* float, added to by loss_sum */
    SCALAR_FOUND_INF,     /* int32, written by clip_factor: 1 where the update is skipped */
    SCALAR_ADAM_STEP,     /* int32, advanced by clip_factor: updates done, this one included */
    SCALAR_STEP,          /* int32: iter, for dropout and stochastic rounding */
    SCALAR_SEED_LO,       /* uint32 */
    SCALAR_SEED_HI,       /* uint32 */
    SCALAR_SAMPLE_BASE,   /* int32: index within the step of the micro-batch's first sample */
    SCALAR_POSITION,      /* int32: position of the first row of each sample (0 except with a key-value cache) */
    SCALAR_MICRO_STEP,    /* int32: number of the micro-step within the update, for the rounding of gradients */
    SCALAR_COUNT,
    SCALAR_WORDS = 16 /* the size of the tensor */
};

union scalar_word {
    float f;
    int32_t i;
    uint32_t u;
};

/* Everything about an op that is not an operand.  Ops read the fields that concern them; the others are zero. */
struct op_attrs {
    uint32_t accumulate; /* bit i: OUT operand i is added to */
    bool transpose_a, transpose_b;
    bool gradient; /* cross_entropy: overwrite the logits with their gradient */
    enum gelu_kind gelu;
    int32_t time; /* rows per sample: embed, attention, dropout */
    int32_t heads, kv_heads;
    int32_t vocab;       /* cross_entropy: V, the columns that count */
    int32_t site;        /* dropout: which place of the model */
    float dropout;       /* probability of dropping */
    float softmax_scale; /* attention: usually 1/sqrt(D) */
    float epsilon;       /* layernorm, adamw */
    float beta1, beta2, weight_decay;
    float clip_max;     /* clip_factor: 0 = no clipping */
    float value;        /* fill; muon_step: the scale of o */
    float alpha, beta;  /* blend; muon_step: alpha is Muon's learning rate over the schedule's */
    int64_t index_base; /* where SR is: elements of all parameters before this one */
};

enum memory_space { SPACE_DEVICE, SPACE_PINNED, SPACE_HOST, SPACE_COUNT };

/* Where something lies: never a pointer, so that a program can be planned without a device. */
struct address {
    uint8_t space;
    uint8_t segment;
    uint64_t offset_bytes;
};

struct operand {
    bool present;
    enum dtype dtype;
    int32_t rank;
    int64_t dims[OP_RANK_MAX];
    struct address at;
};

struct op_call {
    enum op_kind kind;
    struct op_attrs attrs;
    struct operand operand[OP_OPERANDS_MAX];
    struct address workspace;
    size_t workspace_bytes; /* granted by the plan: at least what the backend asked for */
};

struct operand_declaration {
    const char *name;
    unsigned use; /* of enum operand_use */
};

struct autodiff;
struct op;

struct op_declaration {
    const char *name; /* "layernorm_forward" */
    const char *text; /* what it computes, in one line */
    int32_t operands;
    struct operand_declaration operand[OP_OPERANDS_MAX];
    enum recompute_class recompute; /* which levels of recompute run it again */
    bool (*infer)(struct op_call *call);
    double (*flops)(const struct op_call *call);
    /* The most workspace that any backend may ask for, in bytes, never more than the shapes can use; NULL for none. */
    size_t (*workspace_cap)(const struct op_call *call);
    /* NULL, or how many rows of an operand a run touches at most. */
    double (*rows)(const struct op_call *call, int32_t slot);
    /* Emits the ops that compute the gradients of the inputs; NULL where there is none.  See model/autodiff.h. */
    enum gt_status (*differentiate)(struct autodiff *ad, const struct op *op);
};

/* The declaration of `kind`; never NULL for a valid kind. */
const struct op_declaration *op_declaration(enum op_kind kind);
/* Whether the declaration gives operand `slot` the property `use`. */
static inline bool op_operand_is(enum op_kind kind, int32_t slot, enum operand_use use)
{
    return (op_declaration(kind)->operand[slot].use & (unsigned)use) != 0;
}
/* IN, OUT or INOUT with attrs.accumulate taken into account. */
enum operand_use op_direction(enum op_kind kind, const struct op_attrs *attrs, int32_t slot);

/* Checks the present inputs of `call` against the op's rule and fills shape and dtype of its OUT operands (of INOUT ones
 * too where they follow from the inputs).  On a mismatch logs one line naming op and operand and returns false.
 * attrs.time must divide N where it is used.  Operands marked OPTIONAL may be absent; an absent optional OUT stays so. */
bool op_infer(struct op_call *call);

/* Floating-point operations of one run, by the usual counting (a multiply-add is 2; causal attention counts half). */
double op_flops(const struct op_call *call);
/* Bytes that must move at least: each IN and OUT operand once, INOUT twice; gathers count the rows they touch. */
double op_bytes(const struct op_call *call);

/* Elements and bytes of an operand; 0 where it is absent. */
int64_t operand_elements(const struct operand *operand);
size_t operand_bytes(const struct operand *operand);

static inline int64_t op_elements(const struct op_call *call, int32_t slot)
{
    return operand_elements(&call->operand[slot]);
}

/* The size of the operand's last dimension, and how many rows of that size it has. */
static inline int64_t op_columns(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].dims[call->operand[slot].rank - 1];
}

static inline int64_t op_rows(const struct op_call *call, int32_t slot)
{
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < call->operand[slot].rank; i++)
        rows *= call->operand[slot].dims[i];
    return rows;
}

/* Whether the op adds to OUT operand `slot` instead of writing it. */
static inline bool op_accumulates(const struct op_call *call, int32_t slot)
{
    return (call->attrs.accumulate >> slot & 1u) != 0;
}

/* Dropout masks.  Elements come in groups of eight consecutive indices, which share one Philox block keyed by (seed,
 * RNG_DROPOUT) with counter (element / 8, site, sample, step); element e of a group uses the 16 bits
 * word[e / 2] >> 16 * (e & 1).  Kept when those bits >= dropout_threshold(p).
 *   dropout op:   element = t * C + c within the sample; site = attrs.site
 *   attention:    element = i * T8 + j of query row i and key row j, T8 = time rounded up to 8;
 *                 site = attrs.site + (head << 16)
 * The kept values are multiplied with dropout_scale(p), which makes the mean exact for the rounded threshold. */
static inline uint32_t dropout_threshold(float p)
{
    return (uint32_t)(p * 65536.0f + 0.5f);
}

static inline float dropout_scale(float p)
{
    return 65536.0f / (float)(65536u - dropout_threshold(p));
}

static inline struct philox_block dropout_counter(int64_t element, int32_t site, int32_t sample, int32_t step)
{
    struct philox_block counter = {{(uint32_t)(element / 8), (uint32_t)site, (uint32_t)sample, (uint32_t)step}};
    return counter;
}

/* Stochastic rounding.  Eight consecutive elements, counted over all parameters in the checkpoint's order (index_base and
 * the element's place), share one Philox block keyed by (seed, RNG_STATES) with counter (index / 8 low, high, STEP, stream);
 * an element's 16 bits are taken as dropout's are.  Gradients add 4 MICRO_STEP to the stream. */
enum rounding_stream { ROUNDING_PARAM, ROUNDING_M, ROUNDING_V, ROUNDING_GRADIENT, ROUNDING_STREAMS };

static inline struct philox_block rounding_counter(uint64_t index, uint32_t step, uint32_t stream)
{
    struct philox_block counter = {{(uint32_t)(index / 8), (uint32_t)(index / 8 >> 32), step, stream}};
    return counter;
}

/* fp32 bits to bf16, up where `random` (16 bits) carries: unbiased.  Infinity stays, NaN stays and becomes quiet; what is
 * larger than the largest bf16 may become infinity. */
static inline uint16_t rounding_bf16(uint32_t bits, uint32_t random)
{
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return (uint16_t)(bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u));
    return (uint16_t)((bits + random) >> 16);
}

/* 8-bit moments.  A block is STATE_BLOCK consecutive elements of a tensor (the last one may be short) and has an exponent e
 * for m and one for v: that of the largest |m|, or of the largest s = sqrt(v), as
 *     e = ((bits + ADD) >> 23) - 127, at least STATE_EXPONENT_MIN and at most STATE_EXPONENT_MAX,
 * so that x = |m| 2^-e, or s 2^-e, is less than 1.875, or 1.9375.  A code is x as a float with an exponent bias of 15 and k
 * bits of fraction, below 2^-14 a multiple of 2^-(14 + k), rounded stochastically with the stream of m or v:
 *     x < 2^-14:  ((integer part of x 2^(30 + k)) + random) >> 16
 *     else        ((bits(x) + (random << (7 - k))) >> (23 - k)) - (112 << k)
 * m: k = 3, at most 127, and bit 7 is the sign bit of m.  v: k = 4, at most 255, and 1 where the code is 0 and s is not, so
 * that no step ever divides by a second moment that rounding has lost.  Back: c < 2^k: c 2^-(14 + k); else the float with
 * bits (c + (112 << k)) << (23 - k); times 2^e; v is the square of that. */
enum {
    STATE_BLOCK = 256,
    STATE_EXPONENT_MIN = -100,
    STATE_EXPONENT_MAX = 126,
    STATE_M_FRACTION = 3,
    STATE_V_FRACTION = 4,
    STATE_M_ADD = 0x100000, /* what rounding x up to 2 would take off the last code */
    STATE_V_ADD = 0x080000,
    STATE_M_CODE_MAX = 127,
    STATE_V_CODE_MAX = 255,
};

/* Muon's, so that a gradient of zeros stays one. */
#define MUON_NORM_EPSILON 1e-7f

static inline int64_t state_blocks(int64_t elements)
{
    return (elements + STATE_BLOCK - 1) / STATE_BLOCK;
}

static inline uint32_t dropout_bits(struct philox_block block, int64_t element)
{
    int64_t lane = element % 8;
    return block.word[lane / 2] >> (16 * (lane & 1)) & 0xffffu;
}

#endif
