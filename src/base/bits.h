/* What the host and every kernel agree on to the bit: words of the device, random bits, roundings,
 * 8-bit moments and the step of AdamW.
 *
 * It is written in what C11, CUDA C++ and OpenCL C 1.2 have in common.  CUDA's kernels include it;
 * the opencl backend puts its text in front of each program.  Exact ops (ops/op.h) use the macros
 * EXACT_...: each macro rounds its result once, and no compiler fuses two of them.  The cpu
 * backend's files that use them are compiled without contraction.
 */
#ifndef GPT_TRAIN_BASE_BITS_H
#define GPT_TRAIN_BASE_BITS_H

#if defined(__OPENCL_C_VERSION__)
#pragma OPENCL FP_CONTRACT OFF
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define BITS_FUNCTION static
#define BITS_GLOBAL __global
#define fabsf(x) fabs(x)
#define bits_of_float(x) as_uint(x)
#define float_of_bits(x) as_float(x)
#define BITS_TURNED(x) rotate(x, 8u) /* Oclgrind 21.10 cannot run what clang makes of shifts */
#ifdef GT_EXACT_DIVISION
#define EXACT_DIV(a, b) ((a) / (b))
#define EXACT_ROOT(x) sqrt(x)
#else /* kernels/common.clh has them */
#define EXACT_DIV(a, b) gt_divide(a, b)
#define EXACT_ROOT(x) gt_sqrt(x)
static float gt_divide(float a, float b);
static float gt_sqrt(float value);
#endif
#else
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#define BITS_GLOBAL
#define BITS_TURNED(x) ((x) << 8 | (x) >> 24)
#if defined(__CUDACC__)
#define BITS_FUNCTION static __device__ __forceinline__
#define BITS_MULTIPLY(name, a, b) \
    const uint32_t name##_high = __umulhi(a, b), name##_low = (a) * (b)
#define EXACT_ADD(a, b) __fadd_rn(a, b)
#define EXACT_SUB(a, b) __fsub_rn(a, b)
#define EXACT_MUL(a, b) __fmul_rn(a, b)
#define EXACT_DIV(a, b) __fdiv_rn(a, b)
#define EXACT_ROOT(x) __fsqrt_rn(x)
#else
#define BITS_FUNCTION static inline
#define EXACT_DIV(a, b) ((a) / (b))
#define EXACT_ROOT(x) sqrtf(x)
#endif

BITS_FUNCTION uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BITS_FUNCTION float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
#endif
#ifndef EXACT_ADD
/* Both halves of a product of two words. */
#define BITS_MULTIPLY(name, a, b)                 \
    const uint64_t name##_ = (uint64_t)(a) * (b); \
    const uint32_t name##_high = (uint32_t)(name##_ >> 32), name##_low = (uint32_t)name##_
#define EXACT_ADD(a, b) ((a) + (b))
#define EXACT_SUB(a, b) ((a) - (b))
#define EXACT_MUL(a, b) ((a) * (b))
#endif

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_U8, DTYPE_F64, DTYPE_COUNT };

enum gelu_kind { GELU_ERF, GELU_TANH };
/* The activation of a gated MLP: a s(a) with the logistic function s, or gelu's tanh form. */
enum gate_kind { GATE_SILU, GATE_GELU, GATE_SIGMOID };

/* 32-bit words on the device that change from step to step, so that a captured graph replays with
 * new values.  The host writes the first part before every micro-step, the device the second. */
enum scalar_slot {
    SCALAR_LEARNING_RATE, /* float */
    SCALAR_LOSS_GRADIENT, /* float: loss_scale / tokens per update */
    SCALAR_UNSCALE,       /* float: 1 / loss_scale */
    SCALAR_STEP,          /* int32: iter, for dropout and stochastic rounding */
    SCALAR_SEED_LO,       /* uint32 */
    SCALAR_SEED_HI,       /* uint32 */
    SCALAR_SAMPLE_BASE,   /* int32: index within the step of the micro-batch's first sample */
    SCALAR_POSITION,   /* int32: position of the first row of each sample (0 except with a key-value
                          cache) */
    SCALAR_MICRO_STEP, /* int32: index of the micro-step within the update, for the rounding of
                          gradients */
    SCALAR_LOSS_SUM,   /* float: 0, to which loss_sum adds */
    SCALAR_MUON_MOMENTUM, /* float: decay rate of Muon's momentum */
    SCALAR_HOST_COUNT,
    SCALAR_CLIP = SCALAR_HOST_COUNT, /* float, by clip_factor: the factor for gradients */
    SCALAR_GRAD_NORM, /* float, by clip_factor: the norm of the unscaled gradient before clipping */
    SCALAR_FOUND_INF, /* int32, by clip_factor: 1 when the update is skipped */
    SCALAR_ADAM_STEP, /* int32, advanced by clip_factor: updates done, including this one */
    SCALAR_COUNT,
    SCALAR_WORDS = 16 /* the size of the tensor */
};

union scalar_word {
    float f;
    int32_t i;
    uint32_t u;
};

/* Returns the word of probe number `i` of a memory, which differs from its neighbours'. */
BITS_FUNCTION uint32_t probe_hash(uint64_t i, uint32_t seed)
{
    uint32_t x = ((uint32_t)i * 2654435761u) ^ (uint32_t)(i >> 32) ^ seed;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    return x;
}

/* ---- random bits: see base/rng.h, which has the host's functions ---- */

/* The purpose of a number: the second half of the key, so that no two uses share a stream.  The
 * values are part of the checkpoint format: never renumber. */
enum rng_purpose {
    RNG_INIT = 1, /* initial weights: counter (element/4 lo, hi, tensor, 0) */
    RNG_SAMPLE =
        2, /* the block that a sample of a step reads: counter (sample, 0, step lo, step hi) */
    RNG_EPOCH =
        3, /* the keyed permutation of sampler=epoch: counter (round, value, epoch lo, epoch hi) */
    RNG_EVAL = 4,     /* evaluation batches: counter (sample, split, evaluation, 0) */
    RNG_DROPOUT = 5,  /* masks: counter (element/8, site, sample, step); see ops/op.h */
    RNG_GENERATE = 6, /* text generation: counter (token, sequence, 0, 0) */
    RNG_STATES = 7,   /* stochastic rounding of parameters and optimizer states */
};

struct philox_key {
    uint32_t word[2];
};
struct philox_block {
    uint32_t word[4];
};

/* Writes the block of four 32-bit words of a counter.  Inlined: compilers turn a loop around it
 * into vectors. */
BITS_FUNCTION void philox_words(struct philox_key key, uint32_t x0, uint32_t x1, uint32_t x2,
                                uint32_t x3, uint32_t *word)
{
    const uint32_t key0 = key.word[0], key1 = key.word[1];
    for (uint32_t round = 0; round < 10; round++) {
        BITS_MULTIPLY(even, 0xd2511f53u, x0);
        BITS_MULTIPLY(odd, 0xcd9e8d57u, x2);
        x0 = odd_high ^ x1 ^ (key0 + round * 0x9e3779b9u);
        x2 = even_high ^ x3 ^ (key1 + round * 0xbb67ae85u);
        x1 = odd_low;
        x3 = even_low;
    }
    word[0] = x0;
    word[1] = x1;
    word[2] = x2;
    word[3] = x3;
}

/* The key for (seed, purpose): the low half of the seed, and its high half rotated by 8 bits and
 * XORed with the purpose.  For every seed below 2^56 the key determines the pair. */
BITS_FUNCTION struct philox_key philox_key_of(uint32_t seed_low, uint32_t seed_high,
                                              uint32_t purpose)
{
    struct philox_key key;
    key.word[0] = seed_low;
    key.word[1] = BITS_TURNED(seed_high) ^ purpose;
    return key;
}

BITS_FUNCTION struct philox_key philox_key_of_scalars(BITS_GLOBAL const union scalar_word *scalars,
                                                      uint32_t purpose)
{
    return philox_key_of(scalars[SCALAR_SEED_LO].u, scalars[SCALAR_SEED_HI].u, purpose);
}

/* The 16 bits of element 0 .. 7 of a group, which shares a block; a constant element costs a GPU
 * one instruction. */
BITS_FUNCTION uint32_t philox_bits(const uint32_t *word, int element)
{
    return element % 2 != 0 ? word[element / 2] >> 16 : word[element / 2] & 0xffffu;
}

/* Everything that identifies a dropout mask except the element: one site of one sample in one step.
 * ops/op.h has the definition, and the threshold. */
struct dropout_mask {
    struct philox_key key;
    uint32_t site, sample, step, threshold;
};

/* `sample` counts within the micro-batch. */
BITS_FUNCTION struct dropout_mask dropout_mask_of(BITS_GLOBAL const union scalar_word *scalars,
                                                  uint32_t site, uint32_t sample,
                                                  uint32_t threshold)
{
    struct dropout_mask mask;
    mask.key = philox_key_of_scalars(scalars, RNG_DROPOUT);
    mask.site = site;
    mask.sample = scalars[SCALAR_SAMPLE_BASE].u + sample;
    mask.step = scalars[SCALAR_STEP].u;
    mask.threshold = threshold;
    return mask;
}

/* Returns a word whose bit k is set if element 8 group + k is kept. */
BITS_FUNCTION uint32_t dropout_kept(const struct dropout_mask *mask, uint32_t group)
{
    uint32_t word[4], kept = 0;
    philox_words(mask->key, group, mask->site, mask->sample, mask->step, word);
    for (int k = 0; k < 8; k++)
        kept |= (philox_bits(word, k) >= mask->threshold ? 1u : 0u) << k;
    return kept;
}

/* Stochastic rounding.  The index of an element counts over all parameters in checkpoint order:
 * index_base plus its position in the tensor.  Eight consecutive elements share one Philox block
 * keyed by (seed, RNG_STATES) with counter (index / 8 low, high, STEP, stream); an element selects
 * its 16 bits as in dropout.  Gradients add 4 MICRO_STEP to the stream.  The 16 bits are added to
 * the bits of the fp32 value, whose upper half is then the bf16, so that rounding is unbiased.
 * Infinity stays infinity; NaN becomes a quiet NaN; a value above the largest bf16 may become
 * infinity. */
enum rounding_stream {
    ROUNDING_PARAM,
    ROUNDING_M,
    ROUNDING_V,
    ROUNDING_GRADIENT,
    ROUNDING_STREAMS
};

struct rounding {
    struct philox_key key;
    uint32_t step;
    uint64_t index_base;
};

BITS_FUNCTION struct rounding rounding_of(BITS_GLOBAL const union scalar_word *scalars,
                                          int64_t index_base)
{
    struct rounding rounding;
    rounding.key = philox_key_of_scalars(scalars, RNG_STATES);
    rounding.step = scalars[SCALAR_STEP].u;
    rounding.index_base = (uint64_t)index_base;
    return rounding;
}

/* Writes the block of the elements whose index / 8 is `group`. */
BITS_FUNCTION void rounding_words(const struct rounding *rounding, uint64_t group, uint32_t stream,
                                  uint32_t *word)
{
    philox_words(rounding->key, (uint32_t)group, (uint32_t)(group >> 32), rounding->step, stream,
                 word);
}

BITS_FUNCTION uint16_t bf16_stochastic(float value, uint32_t random)
{
    const uint32_t bits = bits_of_float(value);
    const uint32_t special = bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u);
    return (uint16_t)((bits & 0x7f800000u) == 0x7f800000u ? special : (bits + random) >> 16);
}

BITS_FUNCTION float bf16_to_f32(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* Rounds to nearest, ties to even: adds half of the last kept bit, less one if that bit is even.
 * NaN keeps its top bits and becomes quiet. */
BITS_FUNCTION uint16_t bf16_from_f32(float value)
{
    const uint32_t x = bits_of_float(value);
    const uint32_t to_nearest = 0x7fffu + (x >> 16 & 1u), to_quiet = ~x & 0x400000u;
    return (uint16_t)((x + (value != value ? to_quiet : to_nearest)) >> 16);
}

/* ---- 8-bit moments ----
 *
 * A block is STATE_BLOCK consecutive elements of a tensor (the last one may be short).  It has an
 * exponent e for m and one for v, computed from the bits of the largest |m|, or of the largest s =
 * sqrt(v):
 *     e = ((bits + ADD) >> 23) - 127, clamped to STATE_EXPONENT_MIN .. STATE_EXPONENT_MAX.
 * Hence x = |m| 2^-e is less than 1.875, and x = s 2^-e less than 1.9375.  A code is x as a float
 * with an exponent bias of 15 and k fraction bits (below 2^-14 a multiple of 2^-(14 + k)), rounded
 * stochastically with the stream of m or v:
 *     x < 2^-14:  ((integer part of x 2^(30 + k)) + random) >> 16
 *     else        ((bits(x) + (random << (7 - k))) >> (23 - k)) - (112 << k)
 * m: k = 3, at most 127; bit 7 is the sign of m.  v: k = 4, at most 255; if s > 0, a code of 0
 * becomes 1, so that no step divides by a second moment that rounding has lost.  Decoding: c 2^-(14
 * + k) if c < 2^k, else the float with bits (c + (112 << k)) << (23 - k); both times 2^e.  v is the
 * square of the result.
 */
enum {
    STATE_BLOCK = 256,
    STATE_EXPONENT_MIN = -100,
    STATE_EXPONENT_MAX = 126,
    STATE_M_FRACTION = 3,
    STATE_V_FRACTION = 4,
    STATE_M_ADD = 0x100000, /* one unit in the last place: rounding x up never reaches 2 */
    STATE_V_ADD = 0x080000,
    STATE_M_CODE_MAX = 127,
    STATE_V_CODE_MAX = 255,
};

/* 2^e; |e| must be at most 126. */
BITS_FUNCTION float state_scale(int32_t e)
{
    return float_of_bits((uint32_t)(127 + e) << 23);
}

/* Returns what is encoded: |m|, or the root of v. */
BITS_FUNCTION float state_magnitude(bool is_v, float value)
{
    return is_v ? EXACT_ROOT(value) : fabsf(value);
}

/* Returns the exponent of a block whose largest magnitude is `largest`. */
BITS_FUNCTION int32_t state_exponent(bool is_v, float largest)
{
    const int32_t e =
        (int32_t)((bits_of_float(largest) + (is_v ? STATE_V_ADD : STATE_M_ADD)) >> 23) - 127;
    return e < STATE_EXPONENT_MIN   ? STATE_EXPONENT_MIN
           : e > STATE_EXPONENT_MAX ? STATE_EXPONENT_MAX
                                    : e;
}

/* Decodes m or v, in a block whose scale is 2^e. */
BITS_FUNCTION float state_decode(bool is_v, uint32_t code, float scale)
{
    const int32_t k = is_v ? STATE_V_FRACTION : STATE_M_FRACTION;
    const uint32_t c = is_v ? code : code & STATE_M_CODE_MAX;
    const float subnormal = EXACT_MUL((float)(int32_t)c, state_scale(-14 - k));
    const float normal = float_of_bits((c + (112u << k)) << (23 - k));
    const float x = EXACT_MUL(c < 1u << k ? subnormal : normal, scale);
    return is_v ? EXACT_MUL(x, x) : (code & 128u) != 0 ? -x : x;
}

/* Encodes m, or v whose root is `magnitude`, with a scale of 2^-e and 16 random bits. */
BITS_FUNCTION uint32_t state_encode(bool is_v, float value, float magnitude, float scale,
                                    uint32_t random)
{
    const int32_t k = is_v ? STATE_V_FRACTION : STATE_M_FRACTION;
    const uint32_t most = is_v ? STATE_V_CODE_MAX : STATE_M_CODE_MAX,
                   least = is_v && magnitude > 0.0f ? 1u : 0u;
    const uint32_t sign = is_v ? 0u : bits_of_float(value) >> 24 & 128u;
    const float x = EXACT_MUL(magnitude, scale);
    const bool small = x < 0x1p-14f;
    const uint32_t units = (uint32_t)(int32_t)EXACT_MUL(small ? x : 0.0f, state_scale(30 + k));
    const uint32_t normal = ((bits_of_float(x) + (random << (7 - k))) >> (23 - k)) - (112u << k);
    const uint32_t code = small ? (units + random) >> 16 : normal,
                   capped = code < most ? code : most;
    return (capped > least ? capped : least) | sign;
}

/* Muon's epsilon: keeps a zero gradient zero. */
#define MUON_NORM_EPSILON 1e-7f

/* ---- AdamW ---- */

/* Values that are the same for all elements. */
struct adamw_step {
    float clip, learning_rate, beta1, beta2, rest1, rest2, correction1, correction2, epsilon,
        weight_decay;
};

/* corrections: [rows, 2], of the first updates.  alpha: the op's learning rate over the schedule's.
 */
BITS_FUNCTION struct adamw_step adamw_step_of(BITS_GLOBAL const union scalar_word *scalars,
                                              BITS_GLOBAL const float *corrections, int64_t rows,
                                              float alpha, float beta1, float beta2, float epsilon,
                                              float weight_decay)
{
    const int64_t updates = scalars[SCALAR_ADAM_STEP].i;
    const int64_t row = (updates < 1 ? 1 : updates > rows ? rows : updates) - 1;
    struct adamw_step step;
    step.clip = scalars[SCALAR_CLIP].f;
    step.learning_rate = EXACT_MUL(scalars[SCALAR_LEARNING_RATE].f, alpha);
    step.beta1 = beta1;
    step.beta2 = beta2;
    step.rest1 = EXACT_SUB(1.0f, beta1);
    step.rest2 = EXACT_SUB(1.0f, beta2);
    step.correction1 = corrections[2 * row];
    step.correction2 = corrections[2 * row + 1];
    step.epsilon = epsilon;
    step.weight_decay = weight_decay;
    return step;
}

/* The exact update of an element. */
BITS_FUNCTION void adamw_update(const struct adamw_step *step, float grad, float *param,
                                float *first, float *second)
{
    const float g = EXACT_MUL(grad, step->clip);
    const float m = EXACT_ADD(EXACT_MUL(step->beta1, *first), EXACT_MUL(step->rest1, g));
    const float v =
        EXACT_ADD(EXACT_MUL(step->beta2, *second), EXACT_MUL(step->rest2, EXACT_MUL(g, g)));
    const float root = EXACT_ROOT(EXACT_DIV(v, step->correction2));
    const float move = EXACT_DIV(EXACT_DIV(m, step->correction1), EXACT_ADD(root, step->epsilon));
    const float p = *param;
    *first = m;
    *second = v;
    *param = EXACT_SUB(
        p, EXACT_MUL(step->learning_rate, EXACT_ADD(move, EXACT_MUL(step->weight_decay, p))));
}

#endif
