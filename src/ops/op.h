/* Ops: the operations that a step consists of, and the only part of the model that a backend sees.
 *
 * ops.def lists the ops.  The file of an op's family defines the rest in a struct op_declaration:
 * operands, shape rule, cost and backward rule.  An op_call is an op with its operands' shapes and
 * addresses; `exec` passes it to a backend. Kernels check nothing at run time, because op_infer()
 * checked shapes and dtypes when the program was built.
 *
 * Letters in the families' formulas: B batch, T time, N = B*T, C channels, H heads, KV key-value
 * heads, D head size, V vocabulary, Vp padded vocabulary.  All matrices are row-major and
 * contiguous.  Formulas are in exact arithmetic; accumulation is in fp32 or better, and the order
 * of a sum depends only on shapes.
 *
 * Exact ops: every operation is rounded to fp32 (to nearest, ties to even, with subnormals) in the
 * order of the formula; products and sums are never fused; division and square root are correctly
 * rounded.  Equal operands therefore give equal bits on every backend.  SR(x, stream) is stochastic
 * rounding with the random bits of the element and stream (base/bits.h).
 */
#ifndef GPT_TRAIN_OPS_OP_H
#define GPT_TRAIN_OPS_OP_H

#include "base/bits.h"
#include "base/dtype.h"
#include "base/recompute.h"
#include "base/rng.h"
#include "base/status.h"

#define OP_OPERANDS_MAX 8
#define OP_RANK_MAX 4

/* Constants of the workspace caps.  A library, or one of our kernels that splits K, may use up to
 * gemm's bytes.  Sums over rows produce OP_PARTIAL_ROWS partial results, and the norm of several
 * gradients at once at most OP_SQUARES_WORDS.  With fewer than OP_CACHE_ROWS new rows, a kernel
 * splits the keys that a row sees into parts of OP_CACHE_KEYS, at most OP_CACHE_RANGES.  Tiles of
 * keys begin at multiples of their size, which divides OP_CACHE_TILE. */
#define OP_GEMM_WORKSPACE_BYTES ((size_t)32 << 20)
#define OP_PARTIAL_ROWS 256
#define OP_SQUARES_WORDS (24 * OP_PARTIAL_ROWS)
#define OP_CACHE_ROWS 16
#define OP_CACHE_KEYS 128
#define OP_CACHE_RANGES 32
#define OP_CACHE_TILE 64
/* The rows of gated_delta that kernels compute at once, and the most taps of short_conv. */
#define OP_DELTA_CHUNK 64
#define OP_CONV_TAPS 8

#define OP(KIND, name, operands) OP_##KIND,
enum op_kind {
#include "ops/ops.def"
    OP_KIND_COUNT
};
#undef OP

/* Operand indices: GEMM_A, GEMM_B, GEMM_BIAS, GEMM_D, GEMM_OPERANDS, ... */
#define OPERAND(INDEX, name) INDEX,
#define OP(KIND, name, operands) enum op_##name##_operand{operands KIND##_OPERANDS};
#include "ops/ops.def"
#undef OP
#undef OPERAND

/* How an op uses an operand: one of the first three, combined with any of the others. */
enum operand_use {
    OPERAND_IN = 1,
    OPERAND_OUT = 2,
    OPERAND_INOUT = OPERAND_IN | OPERAND_OUT,
    OPERAND_OPTIONAL = 4,
    OPERAND_ACCUMULATES = 8,           /* OUT, or INOUT when attrs.accumulate selects it */
    OPERAND_SAVED = 16,                /* backward reads it: it is kept or recomputed */
    OPERAND_WRITTEN_FOR_GRADIENT = 32, /* INOUT, but read-only without attrs.gradient */
    OPERAND_SAME_DTYPE = 64,           /* it must have the dtype of operand `like` */
    OPERAND_IN_PLACE = 128, /* of a backward op: it may be the gradient that the op reads */
};
/* Attributes of an op.  An op reads only the fields that apply to it; the others are zero. */
struct op_attrs {
    uint32_t accumulate; /* bit i: OUT operand i is added to; rope: rotates in place */
    bool transpose_a, transpose_b;
    bool gradient; /* cross_entropy: overwrite the logits with their gradient */
    enum gelu_kind gelu;
    enum gate_kind gate; /* swiglu, gate */
    int32_t time;        /* rows per sample: embed, rope, attention, dropout, delta */
    int32_t heads, kv_heads;
    int32_t taps;   /* short_conv */
    bool gated;     /* rope: rows of x have a gate after each head of the queries */
    int32_t window; /* attention: number of keys that a query attends to, its own last; 0: all up to
                       its own */
    int32_t vocab;  /* cross_entropy: V, the columns that count */
    int32_t site;   /* dropout: identifies the place in the model */
    float dropout;  /* probability of dropping */
    float softmax_scale; /* attention: usually 1/sqrt(D) */
    float epsilon;       /* layernorm, rmsnorm, rope, adamw */
    float gain_offset;   /* rmsnorm, rope: added to each element of the gain */
    float beta1, beta2, weight_decay;
    float clip_max;     /* clip_factor: 0 = no clipping */
    float value;        /* fill; muon_step: the scale of o */
    float alpha, beta;  /* blend; adamw, adamw_lean, muon_step: alpha is the op's learning rate over
                           the schedule's */
    int64_t index_base; /* ops with SR: elements of all earlier parameters */
    int32_t to, from;   /* exchange, and its wait: ranks; sum_parts: `from` is the index of x among
                           the parts */
    bool exchanged;     /* wait: for an exchange */
};

/* Where a tensor lives.  Only fetch reads, and only store writes, what lives in the host's memory;
 * wait names both. */
enum memory_space { SPACE_DEVICE, SPACE_HOST };

/* A location in the arena; not a pointer, so that a program can be planned without a device. */
struct address {
    uint8_t space;
    uint8_t segment;
    uint64_t offset_bytes;
};

struct operand {
    bool present;
    bool last; /* nothing reads its bytes after this op; false where that is not known */
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
    size_t workspace_bytes; /* from the plan: at least the backend's workspace_bytes() */
};

struct operand_declaration {
    unsigned use; /* of enum operand_use */
    /* A character per dimension: a capital is a size that the op's operands share, a digit is
     * itself, 's' is SCALAR_WORDS, '?' any size.  "*" is a shape that the operands share, "." any
     * shape. */
    const char *shape;
    unsigned dtypes; /* bit per enum dtype; 0: the floats */
    /* A result that is not bound takes the dtype of this operand, if `dtypes` has it. */
    int32_t like;
};

/* Where an op runs in a backend with asynchronous copies.  Elsewhere, and in meaning, ops run in
 * the order of the list.  A copy begins after the ops before it and ends before its wait, which
 * names its operands. */
enum op_queue { QUEUE_COMPUTE, QUEUE_IN, QUEUE_OUT, QUEUE_RANKS, QUEUE_COUNT };

struct autodiff;
struct infer_sizes;
struct op;

struct op_declaration {
    const char *name; /* "layernorm_forward" */
    int32_t operands;
    struct operand_declaration operand[OP_OPERANDS_MAX];
    enum op_queue queue;
    enum recompute_class recompute; /* decides which recompute levels run it again */
    bool multiplies; /* it multiplies matrices: its time follows from its FLOPs, that of other ops
                        from their bytes */
    /* Runs after the check of the operands that are read.  Checks what shapes and dtypes do not
     * express, and sets the sizes of results that follow from attributes (ops/infer.h).  NULL:
     * nothing. */
    bool (*check)(const struct op_call *call, struct infer_sizes *sizes);
    /* FLOPs for each element of an operand; flops(), unless NULL, replaces this. */
    struct {
        double each;
        int32_t slot;
    } cost;
    double (*flops)(const struct op_call *call);
    /* The maximum workspace of any backend, in bytes, never more than the shapes can use.  NULL:
     * `partials` floats for each column of the op's first operand. */
    size_t (*workspace_cap)(const struct op_call *call);
    size_t partials;
    /* The maximum number of rows of an operand that a run touches; NULL: all. */
    double (*rows)(const struct op_call *call, int32_t slot);
    bool makes_gradient; /* it writes the gradient of its own operand: the backward pass begins with
                            it, without the gradient of a result */
    /* The op that computes the gradients of the inputs from that of the result.  Its operands are
     * named after this op's: "x" is x, "dy" the gradient of the result y, and "dx" receives the
     * gradient of x. */
    enum op_kind backward;
    /* Instead of `backward`: a rule that emits such ops (model/autodiff.h).  If both are 0, there
     * is no backward rule. */
    enum gt_status (*differentiate)(struct autodiff *ad, const struct op *op, int32_t gradient);
};

/* The fields of a declaration that follow from the op's line in ops.def. */
#define OP_NAMED(name_, KIND) .name = #name_, .operands = KIND##_OPERANDS

const struct op_declaration *op_declaration(enum op_kind kind);
static inline bool op_is_async_copy(enum op_kind kind)
{
    return op_declaration(kind)->queue != QUEUE_COMPUTE;
}
/* Returns true if `wait` names the operands of `copy`, which fetch, store or exchange begins, and
 * the same ranks. */
bool op_waits_for(const struct op_call *wait, const struct op_call *copy);
/* Returns true if operand `slot` is declared with `use`. */
static inline bool op_operand_is(enum op_kind kind, int32_t slot, enum operand_use use)
{
    return (op_declaration(kind)->operand[slot].use & (unsigned)use) != 0;
}
/* Returns the name of an operand: "dy". */
const char *op_operand_name(enum op_kind kind, int32_t slot);
/* Returns the index of the op's result: the first operand that is an OUT, else -1. */
int32_t op_result(enum op_kind kind);
/* Returns IN, OUT or INOUT, taking attrs.accumulate into account. */
enum operand_use op_direction(enum op_kind kind, const struct op_attrs *attrs, int32_t slot);

/* Returns the FLOPs of one run, with the usual conventions (a multiply-add is 2; causal attention
 * counts half). */
double op_flops(const struct op_call *call);
/* Returns the minimum bytes moved: IN and OUT operands once, INOUT twice; gathers count the rows
 * that they touch. */
double op_bytes(const struct op_call *call);

/* Returns the maximum workspace of any backend, in bytes. */
size_t op_workspace_cap(const struct op_call *call);

/* Return the elements and bytes of an operand, or 0 if it is absent. */
int64_t operand_elements(const struct operand *operand);
size_t operand_bytes(const struct operand *operand);

static inline int64_t op_elements(const struct op_call *call, int32_t slot)
{
    return operand_elements(&call->operand[slot]);
}

/* Return the size of the operand's last dimension, and the number of rows of that size. */
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

/* Returns the rows of a cache for up to `block` positions, of which `time` are appended at once:
 * with a window, as many as a row attends to and a call appends, in whole tiles. */
static inline int64_t op_cache_rows(int64_t window, int64_t time, int64_t block)
{
    const int64_t ring = (window + time - 1 + OP_CACHE_TILE - 1) / OP_CACHE_TILE * OP_CACHE_TILE;
    return window > 0 && ring < block ? ring : block;
}

/* Returns true if positions of attention_cached may exceed the cache's rows: key j is in row j %
 * rows, and no key is overwritten that a later row of the call attends to. */
static inline bool op_cache_is_ring(const struct op_call *call)
{
    const int64_t rows = call->operand[ATTENTION_CACHED_CACHE].dims[2];
    return op_cache_rows(call->attrs.window, call->attrs.time, INT64_MAX) <= rows &&
           rows % OP_CACHE_TILE == 0;
}

/* Returns the most keys that a row of attention_cached attends to. */
static inline int64_t op_cache_keys(const struct op_call *call)
{
    const int64_t rows = call->operand[ATTENTION_CACHED_CACHE].dims[2], window = call->attrs.window;
    return window > 0 && window < rows ? window : rows;
}

/* Returns the number of parts of `keys` keys in which these lie; a window may begin anywhere. */
static inline int64_t op_cache_parts(const struct op_call *call, int64_t keys)
{
    const int64_t seen = op_cache_keys(call), before = call->attrs.window > 0 ? seen - 1 : seen;
    return (before + keys - 1) / keys + (call->attrs.window > 0);
}

/* Returns true if the op adds to OUT operand `slot` instead of overwriting it. */
static inline bool op_accumulates(const struct op_call *call, int32_t slot)
{
    return (call->attrs.accumulate >> slot & 1u) != 0;
}

/* Returns true if rope rotates y, or dx, in place: it has neither gains nor gates. */
static inline bool op_rope_in_place(const struct op_call *call)
{
    return !call->operand[ROPE_FORWARD_GAIN].present && !call->attrs.gated;
}

/* Returns the operand of rope that is read: x or dy, or the one that is rotated in place. */
static inline int32_t op_rope_rows(const struct op_call *call)
{
    return op_rope_in_place(call) ? (int32_t)ROPE_FORWARD_Y : (int32_t)ROPE_FORWARD_X;
}

/* Returns the size of a head of rope.  Rope rotates its first elements, as many as the table has
 * columns. */
static inline int64_t op_rope_size(const struct op_call *call)
{
    const int64_t gates =
        call->attrs.gated && call->kind == OP_ROPE_FORWARD ? call->attrs.heads : 0;
    return op_columns(call, op_rope_rows(call)) /
           (call->attrs.heads + 2 * call->attrs.kv_heads + gates);
}

/* Returns the place of a head among those of a row of rope's x. */
static inline int64_t op_rope_place(const struct op_attrs *attrs, int64_t head)
{
    const int64_t before = head < attrs->heads ? head : attrs->heads;
    return attrs->gated ? head + before : head;
}

/* Returns the number of means of a row of rope: 2, over all heads of the queries and of the keys;
 * one for each head; or none. */
static inline int32_t op_rope_means(const struct op_call *call)
{
    const int64_t gains = op_elements(call, ROPE_FORWARD_GAIN), size = op_rope_size(call);
    return gains == 0 ? 0 : gains == 2 * size ? call->attrs.heads + call->attrs.kv_heads : 2;
}

/* Return the size of a head of gated_delta, whose x is operand `slot`, and the chunks of a sample.
 */
static inline int64_t op_delta_size(const struct op_call *call, int32_t slot)
{
    return (op_columns(call, slot) - 2 * call->attrs.heads) /
           (call->attrs.heads + 2 * call->attrs.kv_heads);
}

static inline int64_t op_delta_chunks(const struct op_call *call)
{
    return (call->attrs.time + OP_DELTA_CHUNK - 1) / OP_DELTA_CHUNK;
}

/* Dropout masks.  Elements come in groups of eight consecutive indices, which share one Philox
 * block keyed by (seed, RNG_DROPOUT) with counter (element / 8, site, sample, step); element e of a
 * group uses the 16 bits word[e / 2] >> 16 * (e & 1).  An element is kept if those bits >=
 * dropout_threshold(p).
 *   dropout op:   element = t * C + c within the sample; site = attrs.site
 *   attention:    element = i * T8 + j of query row i and key row j, T8 = time rounded up to 8;
 *                 site = attrs.site + (head << 16)
 * Kept values are multiplied by dropout_scale(p), which makes the mean exact for the rounded
 * threshold. */
static inline uint32_t dropout_threshold(float p)
{
    return (uint32_t)(p * 65536.0f + 0.5f);
}

static inline float dropout_scale(float p)
{
    return 65536.0f / (float)(65536u - dropout_threshold(p));
}

static inline int64_t state_blocks(int64_t elements)
{
    return (elements + STATE_BLOCK - 1) / STATE_BLOCK;
}

#endif
