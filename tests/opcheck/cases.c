/* The shapes that ops are checked with: 1, odd ones, ones off every tile, and those of a 124M model kept cheap.
 *
 * A case is a pure function of (op, dtype, index, seed).  Low indices walk through the listed sizes, the others draw from
 * them; optional operands, transposes, accumulation and kinds change with the index, so that every combination occurs.
 * The dtype is that of activations.  What a model keeps in fp32 beside them (gains, biases, gradients of parameters,
 * masters, moments) is fp32 in two cases of three, and of the same dtype in the third.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define CASES_DEFAULT 100
#define CASES_WIDE 150 /* ops with transposes, heads or padding */

static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129};
static const int64_t head_sizes[] = {16, 32, 48, 64, 128, 1, 5, 24, 42, 56, 80, 96};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

/* The maker's view of a case: where to draw from, the dtype of activations, and that of what a model keeps in fp32. */
struct maker {
    struct check_case *check;
    struct random random;
    enum dtype dtype, kept;
    int32_t index;
};

uint32_t random_word(struct random *random)
{
    struct philox_key key = {{(uint32_t)random->seed, (uint32_t)(random->seed >> 32)}};
    struct philox_block counter = {{random->draws++, 0x6f706368u, 0u, 0u}};
    return philox4x32_10(key, counter).word[0];
}

int64_t random_below(struct random *random, int64_t bound)
{
    return (int64_t)((uint64_t)random_word(random) * (uint64_t)bound >> 32);
}

/* The sum of eight uniform numbers of 16 bits, scaled to variance 1: all of one block, and no function of libm, so that a
 * seed means the same values everywhere. */
double random_normal(struct random *random)
{
    struct philox_key key = {{(uint32_t)random->seed, (uint32_t)(random->seed >> 32)}};
    struct philox_block block = philox4x32_10(key, (struct philox_block){{random->draws++, 0x6e6f726du, 0u, 0u}});
    int64_t sum = -8 * 0x7fff - 4; /* the mean */
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(block.word[i] >> 16) + (int64_t)(block.word[i] & 0xffffu);
    return (double)sum * (1.2247448713915890 * 0x1p-16); /* sqrt(12 / 8) */
}

static int64_t size_of(struct maker *maker, int64_t max)
{
    int64_t size =
        maker->index < COUNT(sizes) ? sizes[maker->index] : sizes[random_below(&maker->random, COUNT(sizes))];
    return size <= max ? size : 1 + random_below(&maker->random, max);
}

static int64_t any_size(struct maker *maker, int64_t max)
{
    int64_t size = sizes[random_below(&maker->random, COUNT(sizes))];
    return size <= max ? size : 1 + random_below(&maker->random, max);
}

static void tensor(struct maker *maker, int32_t slot, enum dtype dtype, int64_t rows, int64_t columns)
{
    struct operand *operand = &maker->check->call.operand[slot];
    operand->present = true;
    operand->dtype = dtype;
    operand->rank = columns > 0 ? 2 : 1;
    operand->dims[0] = rows;
    operand->dims[1] = columns;
}

static void scalars(struct maker *maker, int32_t slot)
{
    tensor(maker, slot, DTYPE_I32, SCALAR_WORDS, 0);
}

static struct op_attrs *attrs(struct maker *maker)
{
    return &maker->check->call.attrs;
}

/* Outputs are made by op_infer() when the shapes are complete; then those in `mask` are switched to accumulation. */
static void accumulate_later(struct maker *maker, uint32_t mask)
{
    attrs(maker)->accumulate = mask;
}

static void make_embed_forward(struct maker *maker)
{
    int64_t time = size_of(maker, 65), channels = any_size(maker, 129), samples = 1 + random_below(&maker->random, 3);
    int64_t vocab = maker->index == 30 ? 50257 : maker->index == 31 ? 50304 : 65;
    channels = vocab > 65 ? 17 : maker->index % 50 == 49 ? 768 : channels;
    attrs(maker)->time = (int32_t)time;
    tensor(maker, EMBED_FORWARD_IDS, DTYPE_I32, samples * time, 0);
    tensor(maker, EMBED_FORWARD_WTE, maker->dtype, vocab, channels);
    tensor(maker, EMBED_FORWARD_WPE, maker->index % 5 == 4 ? DTYPE_F32 : maker->dtype,
           time + random_below(&maker->random, 9), channels);
    scalars(maker, EMBED_FORWARD_SCALARS);
}

static void make_embed_backward(struct maker *maker)
{
    int64_t time = size_of(maker, 65), channels = any_size(maker, 65), samples = 1 + random_below(&maker->random, 4);
    int64_t vocab = maker->index == 30 ? 50257 : 33, rows = samples * time;
    channels = vocab > 65 ? 7 : maker->index % 50 == 49 ? 768 : channels;
    attrs(maker)->time = (int32_t)time;
    tensor(maker, EMBED_BACKWARD_DY, maker->dtype, rows, channels);
    tensor(maker, EMBED_BACKWARD_IDS, DTYPE_I32, rows, 0);
    tensor(maker, EMBED_BACKWARD_ORDER, DTYPE_I32, rows, 0);
    tensor(maker, EMBED_BACKWARD_STARTS, DTYPE_I32, (rows < vocab ? rows : vocab) + 2, 0);
    tensor(maker, EMBED_BACKWARD_DWTE, maker->kept, vocab, channels);
    tensor(maker, EMBED_BACKWARD_DWPE, maker->kept, time + random_below(&maker->random, 4), channels);
    accumulate_later(maker, maker->index % 2 != 0 ? 1u << EMBED_BACKWARD_DWPE : 0u);
}

static void make_layernorm_forward(struct maker *maker)
{
    bool real = maker->index % 40 == 39;
    int64_t rows = any_size(maker, 65), channels = real ? 768 : size_of(maker, 129);
    attrs(maker)->epsilon = 1e-5f;
    tensor(maker, LAYERNORM_FORWARD_X, maker->dtype, rows, channels);
    tensor(maker, LAYERNORM_FORWARD_GAIN, maker->kept, channels, 0);
    if (maker->index % 3 != 0)
        tensor(maker, LAYERNORM_FORWARD_BIAS, maker->kept, channels, 0);
}

static void make_layernorm_backward(struct maker *maker)
{
    bool real = maker->index % 40 == 39;
    int64_t rows = any_size(maker, 129), channels = real ? 768 : size_of(maker, 129);
    tensor(maker, LAYERNORM_BACKWARD_DY, maker->dtype, rows, channels);
    tensor(maker, LAYERNORM_BACKWARD_X, maker->dtype, rows, channels);
    tensor(maker, LAYERNORM_BACKWARD_GAIN, maker->kept, channels, 0);
    tensor(maker, LAYERNORM_BACKWARD_MEAN, DTYPE_F32, rows, 0);
    tensor(maker, LAYERNORM_BACKWARD_RSTD, DTYPE_F32, rows, 0);
    if (maker->index % 3 != 0)
        tensor(maker, LAYERNORM_BACKWARD_DBIAS, maker->kept, channels, 0);
    uint32_t mask = (uint32_t)(maker->index / 2 % 8) << LAYERNORM_BACKWARD_DX;
    accumulate_later(maker, maker->index % 3 != 0 ? mask : mask & ~(1u << LAYERNORM_BACKWARD_DBIAS));
}

/* Rows, columns and inner size of the real products: LM head, qkv, MLP, kept to few rows. */
static bool gemm_real(int32_t index, int64_t *m, int64_t *n, int64_t *k)
{
    static const int64_t real[][3] = {{2, 50257, 64}, {3, 50304, 64}, {4, 2304, 768},  {3, 768, 3072},
                                      {768, 65, 64},  {1, 768, 768},  {192, 192, 192}, {16, 50257, 5},
                                      {2304, 4, 768}, {5, 768, 2304}, {3072, 3, 768}};
    int32_t row = (index - 100) / 4;
    if (index < 100 || index % 4 != 0 || row >= COUNT(real))
        return false;
    *m = real[row][0];
    *n = real[row][1];
    *k = real[row][2];
    return true;
}

static void make_gemm(struct maker *maker)
{
    int64_t m = size_of(maker, 129), n = any_size(maker, 129), k = any_size(maker, 129);
    bool square = maker->index % 7 == 3;
    if (square)
        n = k;
    gemm_real(maker->index, &m, &n, &k);
    struct op_attrs *a = attrs(maker);
    a->transpose_a = (maker->index / 2 & 1) != 0;
    a->transpose_b = (maker->index & 1) != 0 || n > 50000;
    tensor(maker, GEMM_A, maker->dtype, a->transpose_a ? k : m, a->transpose_a ? m : k);
    tensor(maker, GEMM_B, maker->dtype, a->transpose_b ? n : k, a->transpose_b ? k : n);
    if (maker->index % 3 == 0)
        tensor(maker, GEMM_BIAS, maker->index / 6 % 2 != 0 ? DTYPE_F32 : maker->dtype, n, 0); /* d has either */
    if (maker->index / 3 % 2 != 0) /* weight gradients; the others take the dtype of a and b */
        tensor(maker, GEMM_D, DTYPE_F32, m, n);
    accumulate_later(maker, maker->index % 3 == 1 ? 1u << GEMM_D : 0u);
}

static void make_bias_backward(struct maker *maker)
{
    int64_t rows = size_of(maker, 129) * (maker->index % 20 == 19 ? 9 : 1);
    int64_t columns = maker->index % 20 == 18 ? 3072 : any_size(maker, 129);
    tensor(maker, BIAS_BACKWARD_DY, maker->dtype, rows, columns);
    tensor(maker, BIAS_BACKWARD_DBIAS, maker->kept, columns, 0);
    accumulate_later(maker, maker->index % 2 != 0 ? 1u << BIAS_BACKWARD_DBIAS : 0u);
}

static void make_gelu_forward(struct maker *maker)
{
    attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    tensor(maker, GELU_FORWARD_X, maker->dtype, size_of(maker, 129),
           maker->index % 40 > 37 ? 3072 : any_size(maker, 129));
}

static void make_gelu_backward(struct maker *maker)
{
    int64_t rows = size_of(maker, 129), columns = maker->index % 40 > 37 ? 3072 : any_size(maker, 129);
    attrs(maker)->gelu = maker->index % 2 != 0 ? GELU_TANH : GELU_ERF;
    tensor(maker, GELU_BACKWARD_DY, maker->dtype, rows, columns);
    tensor(maker, GELU_BACKWARD_X, maker->dtype, rows, columns);
}

/* Heads, key-value heads, head size, dropout; returns rows, and the row's width through *out_width. */
static int64_t attention_shape(struct maker *maker, int64_t time, int64_t *out_width, int64_t *out_size)
{
    static const int32_t heads[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 1}, {6, 3}};
    static const float rates[] = {0.0f, 0.1f, 0.5f, 0.0f};
    struct op_attrs *a = attrs(maker);
    int64_t pair = maker->index % COUNT(heads), samples = time > 65 ? 1 : 1 + random_below(&maker->random, 2);
    *out_size = head_sizes[maker->index / 2 % COUNT(head_sizes)];
    a->time = (int32_t)time;
    a->heads = heads[pair][0];
    a->kv_heads = heads[pair][1];
    if (maker->index / 2 == 39 || maker->index / 2 == 59) { /* one layer of the 124M model, short */
        a->heads = a->kv_heads = 12;
        *out_size = 64;
    }
    a->softmax_scale = (float)(1.0 / sqrt((double)*out_size));
    a->dropout = maker->check->call.kind == OP_ATTENTION_CACHED ? 0.0f : rates[maker->index / 3 % 4];
    if (time == 1)
        a->dropout = 0.0f; /* a row of one key, dropped, shows nothing */
    a->site = (int32_t)(1 + random_below(&maker->random, 40));
    *out_width = (a->heads + 2 * a->kv_heads) * *out_size;
    return samples * time;
}

static void make_attention_forward(struct maker *maker)
{
    int64_t width = 0, size = 0, rows = attention_shape(maker, size_of(maker, 129), &width, &size);
    tensor(maker, ATTENTION_FORWARD_QKV, maker->dtype, rows, width);
    scalars(maker, ATTENTION_FORWARD_SCALARS);
}

static void make_attention_backward(struct maker *maker)
{
    int64_t width = 0, size = 0, rows = attention_shape(maker, size_of(maker, 129), &width, &size);
    const struct op_attrs *a = attrs(maker);
    tensor(maker, ATTENTION_BACKWARD_DY, maker->dtype, rows, a->heads * size);
    tensor(maker, ATTENTION_BACKWARD_QKV, maker->dtype, rows, width);
    tensor(maker, ATTENTION_BACKWARD_Y, maker->dtype, rows, a->heads * size);
    tensor(maker, ATTENTION_BACKWARD_LSE, DTYPE_F32, rows / a->time, a->heads);
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].rank = 3;
    maker->check->call.operand[ATTENTION_BACKWARD_LSE].dims[2] = a->time;
    scalars(maker, ATTENTION_BACKWARD_SCALARS);
}

static void make_attention_cached(struct maker *maker)
{
    int64_t time = maker->index % 2 != 0 ? 1 : maker->index == 78 ? 33 : size_of(maker, 33), width = 0, size = 0;
    int64_t rows = attention_shape(maker, time, &width, &size);
    struct operand *cache = &maker->check->call.operand[ATTENTION_CACHED_CACHE];
    tensor(maker, ATTENTION_CACHED_QKV, maker->dtype, rows, width);
    scalars(maker, ATTENTION_CACHED_SCALARS);
    tensor(maker, ATTENTION_CACHED_CACHE, maker->dtype, 2, rows / time);
    cache->rank = 4;
    cache->dims[2] = time + (maker->index % 4 == 0 ? 0 : random_below(&maker->random, 70)); /* or: full */
    cache->dims[3] = attrs(maker)->kv_heads * size;
}

static void make_dropout(struct maker *maker)
{
    static const float rates[] = {0.1f, 0.5f, 0.0f, 0.2f, 0.333f};
    int64_t time = size_of(maker, 129), samples = 1 + random_below(&maker->random, 3);
    attrs(maker)->time = (int32_t)time;
    attrs(maker)->dropout = rates[maker->index % COUNT(rates)];
    attrs(maker)->site = (int32_t)(1 + random_below(&maker->random, 60));
    tensor(maker, DROPOUT_X, maker->dtype, samples * time, any_size(maker, 129));
    scalars(maker, DROPOUT_SCALARS);
}

static void make_residual(struct maker *maker)
{
    int64_t rows = size_of(maker, 129), columns = any_size(maker, 129);
    tensor(maker, RESIDUAL_X, maker->dtype, rows, columns);
    tensor(maker, RESIDUAL_Y, maker->dtype, rows, columns);
}

static void make_cross_entropy(struct maker *maker)
{
    static const int64_t wide[] = {50257, 50304, 65, 50257, 50304, 50257};
    int64_t rows = any_size(maker, 65), vocab = size_of(maker, 129),
            padding = maker->index % 3 == 0 ? 0 : 1 + maker->index % 31;
    if (vocab == 1 && maker->index > 0)
        vocab = 2; /* one column has loss 0 and gradient 0, whatever it holds: once is enough */
    if (maker->index >= 77 && maker->index < 77 + COUNT(wide)) {
        vocab = wide[maker->index - 77];
        rows = vocab > 65 ? 3 : 64;
        padding = vocab > 65 ? 50304 - vocab : 63;
    }
    attrs(maker)->vocab = (int32_t)vocab;
    attrs(maker)->gradient = maker->index % 4 != 0;
    tensor(maker, CROSS_ENTROPY_TARGETS, DTYPE_I32, rows, 0);
    scalars(maker, CROSS_ENTROPY_SCALARS);
    tensor(maker, CROSS_ENTROPY_LOGITS, maker->dtype, rows, vocab + padding);
}

static void make_loss_sum(struct maker *maker)
{
    tensor(maker, LOSS_SUM_LOSSES, DTYPE_F32, size_of(maker, 129) * (maker->index % 5 == 4 ? 33 : 1), 0);
    scalars(maker, LOSS_SUM_SCALARS);
}

static void make_sum_of_squares(struct maker *maker)
{
    int64_t columns = maker->index % 10 == 9 ? 3072 : any_size(maker, 129);
    tensor(maker, SUM_OF_SQUARES_X, maker->dtype, size_of(maker, 129), columns);
}

static void make_clip_factor(struct maker *maker)
{
    static const float limits[] = {1.0f, 0.0f, 1e-5f, 1e6f, 0.5f};
    attrs(maker)->clip_max = limits[maker->index % COUNT(limits)];
    tensor(maker, CLIP_FACTOR_PARTIALS, DTYPE_F32, maker->index % 20 == 19 ? 148 : size_of(maker, 129), 0);
    scalars(maker, CLIP_FACTOR_SCALARS);
}

static void make_adamw(struct maker *maker)
{
    int64_t rows = size_of(maker, 129), columns = maker->index % 4 == 0 ? 0 : any_size(maker, 129);
    attrs(maker)->beta1 = 0.9f;
    attrs(maker)->beta2 = maker->index % 2 != 0 ? 0.95f : 0.999f;
    attrs(maker)->epsilon = maker->index % 3 == 0 ? 1e-3f : 1e-8f;
    attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    /* Of three: a 16-bit param with its fp32 master (two), and a param on its own; moments are fp32 or 16-bit. */
    bool master = maker->index % 3 != 0;
    enum dtype moments = maker->index % 8 < 5 ? DTYPE_F32 : maker->index % 8 == 5 ? maker->dtype : DTYPE_BF16;
    tensor(maker, ADAMW_GRAD, maker->index % 4 < 2 ? DTYPE_F32 : maker->dtype, rows, columns);
    tensor(maker, ADAMW_PARAM, master || maker->index % 6 == 0 ? maker->dtype : DTYPE_F32, rows, columns);
    if (master)
        tensor(maker, ADAMW_MASTER, DTYPE_F32, rows, columns);
    tensor(maker, ADAMW_M, moments, rows, columns);
    tensor(maker, ADAMW_V, moments, rows, columns);
    scalars(maker, ADAMW_SCALARS);
    tensor(maker, ADAMW_CORRECTIONS, DTYPE_F32, 1 + random_below(&maker->random, 40), 2);
}

static void make_fill(struct maker *maker)
{
    attrs(maker)->value = (float)random_normal(&maker->random) * (maker->check->inputs == INPUTS_HUGE ? 1e5f : 1.0f);
    if (maker->check->inputs == INPUTS_SPECIAL)
        attrs(maker)->value = -0x1.8p-24f; /* halfway between two values of fp16 */
    tensor(maker, FILL_Y, maker->dtype, size_of(maker, 129), any_size(maker, 129));
}

/* From the dtype to itself and to the others, and from those to it. */
static void make_copy(struct maker *maker)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    int64_t rows = size_of(maker, 129), columns = maker->index % 4 == 0 ? 0 : any_size(maker, 129);
    enum dtype other = dtypes[maker->index / 2 % COUNT(dtypes)];
    bool to_other = maker->index / 6 % 2 != 0;
    tensor(maker, COPY_X, to_other ? maker->dtype : other, rows, columns);
    tensor(maker, COPY_Y, to_other ? other : maker->dtype, rows, columns);
    accumulate_later(maker, maker->index % 2 != 0 ? 1u << COPY_Y : 0u);
}

/* Blocks that are whole, short, and one element long; bases that are no multiple of eight and beyond 32 bits. */
static int64_t lean_elements(struct maker *maker)
{
    static const int64_t counts[] = {1, 7, 255, 256, 257, 511, 512, 513, 1000, 4099, 100};
    static const int64_t bases[] = {0, 3, 8, 1000000005, INT64_C(34359738367), 38597376};
    attrs(maker)->index_base = bases[maker->index / 2 % COUNT(bases)];
    return counts[maker->index % COUNT(counts)];
}

static void make_adamw_lean(struct maker *maker)
{
    static const enum dtype moments[] = {DTYPE_U8, DTYPE_BF16, DTYPE_U8, DTYPE_F32};
    int64_t count = lean_elements(maker);
    enum dtype moment = moments[maker->index / 3 % COUNT(moments)];
    attrs(maker)->beta1 = 0.9f;
    attrs(maker)->beta2 = maker->index % 2 != 0 ? 0.95f : 0.999f;
    attrs(maker)->epsilon = maker->index % 3 == 0 ? 1e-3f : 1e-8f;
    attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    tensor(maker, ADAMW_LEAN_GRAD, maker->index / 12 % 2 != 0 ? DTYPE_F32 : DTYPE_BF16, count, 0);
    tensor(maker, ADAMW_LEAN_PARAM, DTYPE_BF16, count, 0);
    tensor(maker, ADAMW_LEAN_M, moment, count, 0);
    tensor(maker, ADAMW_LEAN_V, moment, count, 0);
    if (moment == DTYPE_U8)
        tensor(maker, ADAMW_LEAN_SCALES, DTYPE_U8, 2, state_blocks(count));
    scalars(maker, ADAMW_LEAN_SCALARS);
    tensor(maker, ADAMW_LEAN_CORRECTIONS, DTYPE_F32, 1 + random_below(&maker->random, 40), 2);
}

static void make_gradient_round(struct maker *maker)
{
    int64_t count = lean_elements(maker);
    tensor(maker, GRADIENT_ROUND_X, DTYPE_F32, count, 0);
    tensor(maker, GRADIENT_ROUND_Y, DTYPE_BF16, count, 0);
    scalars(maker, GRADIENT_ROUND_SCALARS);
    accumulate_later(maker, maker->index % 3 != 0 ? 1u << GRADIENT_ROUND_Y : 0u);
}

static void make_blend(struct maker *maker)
{
    int64_t rows = size_of(maker, 129), columns = any_size(maker, 129);
    attrs(maker)->alpha = maker->index % 2 != 0 ? 3.4445f : -4.775f;
    attrs(maker)->beta = maker->index % 3 != 0 ? 2.0315f : 1.0f;
    tensor(maker, BLEND_X, maker->dtype, rows, columns);
    tensor(maker, BLEND_Z, maker->dtype, rows, columns);
}

static void make_muon_momentum(struct maker *maker)
{
    int64_t count = lean_elements(maker);
    attrs(maker)->beta1 = 0.95f;
    tensor(maker, MUON_MOMENTUM_GRAD, maker->index % 2 != 0 ? DTYPE_F32 : DTYPE_BF16, count, 0);
    tensor(maker, MUON_MOMENTUM_M, maker->index % 3 != 0 ? DTYPE_BF16 : DTYPE_F32, count, 0);
    scalars(maker, MUON_MOMENTUM_SCALARS);
}

static void make_muon_normalize(struct maker *maker)
{
    int64_t rows = size_of(maker, 129), columns = any_size(maker, 129);
    tensor(maker, MUON_NORMALIZE_X, DTYPE_F32, rows, columns);
    tensor(maker, MUON_NORMALIZE_SUM, DTYPE_F32, 1, 0);
    tensor(maker, MUON_NORMALIZE_Y, maker->dtype, rows, columns);
}

/* Of three: a 16-bit param with its master, fp32 alone, bf16 alone. */
static void make_muon_step(struct maker *maker)
{
    int64_t count = lean_elements(maker);
    bool master = maker->index % 3 == 0;
    attrs(maker)->alpha = 33.3f;
    attrs(maker)->value = maker->index % 2 != 0 ? 1.0f : 1.7320508f;
    attrs(maker)->weight_decay = maker->index % 5 == 0 ? 0.0f : 0.1f;
    tensor(maker, MUON_STEP_O, maker->dtype, count, 0);
    tensor(maker, MUON_STEP_PARAM, master ? maker->dtype : maker->index % 3 == 1 ? DTYPE_F32 : DTYPE_BF16, count, 0);
    if (master)
        tensor(maker, MUON_STEP_MASTER, DTYPE_F32, count, 0);
    scalars(maker, MUON_STEP_SCALARS);
}

int32_t cases_count(enum op_kind kind, enum dtype dtype)
{
    switch (kind) {
    case OP_GEMM:
    case OP_ATTENTION_FORWARD:
    case OP_ATTENTION_BACKWARD:
    case OP_CROSS_ENTROPY:
    case OP_LAYERNORM_BACKWARD:
    case OP_ADAMW:
    case OP_COPY:
        return CASES_WIDE;
    case OP_LOSS_SUM:
    case OP_CLIP_FACTOR:
        return dtype == DTYPE_F32 ? CASES_DEFAULT : 0;
    case OP_ADAMW_LEAN:
    case OP_GRADIENT_ROUND:
    case OP_MUON_MOMENTUM:
        return dtype == DTYPE_BF16 ? CASES_WIDE : 0; /* their dtypes are their own */
    default:
        return CASES_DEFAULT;
    }
}

static void case_shape_make(enum op_kind kind, struct maker *maker)
{
    static void (*const makers[])(struct maker *) = {
#define OP(KIND, name, ...) [OP_##KIND] = make_##name,
#include "ops/ops.def"
#undef OP
    };
    _Static_assert(sizeof makers / sizeof makers[0] == OP_KIND_COUNT, "every op has cases");
    makers[kind](maker);
}

/* Twice: the first pass makes the outputs, the second sees those that are added to as bound. */
static bool case_infer(struct check_case *check)
{
    uint32_t accumulate = check->call.attrs.accumulate;
    check->call.attrs.accumulate = 0;
    if (!op_infer(&check->call))
        return false;
    check->call.attrs.accumulate = accumulate;
    return op_infer(&check->call);
}

bool case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed, struct check_case *out)
{
    static const enum case_inputs flavours[] = {INPUTS_NORMAL, INPUTS_INTEGER, INPUTS_NORMAL, INPUTS_LARGE,
                                                INPUTS_SMALL,  INPUTS_NORMAL,  INPUTS_HUGE,   INPUTS_SPECIAL};
    struct maker maker = {.check = out, .dtype = dtype, .index = index};
    maker.kept = index / 2 % 3 != 0 ? DTYPE_F32 : dtype;
    *out = (struct check_case){.call = {.kind = kind}, .index = index};
    out->seed = seed ^ ((uint64_t)kind << 40) ^ ((uint64_t)(uint32_t)index << 20) ^ (uint64_t)dtype;
    out->inputs =
        flavours[(index + index / 8) % COUNT(flavours)]; /* shifted, to meet every combination of attributes */
    maker.random.seed = out->seed;
    case_shape_make(kind, &maker);
    return case_infer(out);
}

#define BENCH_SAMPLES 4
#define BENCH_TIME 256
#define BENCH_ROWS (BENCH_SAMPLES * BENCH_TIME)
#define BENCH_CHANNELS 768
#define BENCH_WIDE 3072
#define BENCH_VOCAB 50304
#define BENCH_CHUNK 256 /* rows of the LM head at a time */

static void bench_attention(struct maker *maker)
{
    enum op_kind kind = maker->check->call.kind;
    struct operand *operand = maker->check->call.operand;
    bool cached = kind == OP_ATTENTION_CACHED;
    attrs(maker)->heads = attrs(maker)->kv_heads = 12;
    attrs(maker)->dropout = 0.0f;
    attrs(maker)->softmax_scale = 0.125f;
    attrs(maker)->time = cached ? 1 : BENCH_TIME;
    if (kind == OP_ATTENTION_FORWARD)
        tensor(maker, ATTENTION_FORWARD_QKV, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
    if (cached) {
        tensor(maker, ATTENTION_CACHED_QKV, maker->dtype, BENCH_SAMPLES, 3 * BENCH_CHANNELS);
        operand[ATTENTION_CACHED_CACHE].dims[1] = BENCH_SAMPLES;
        operand[ATTENTION_CACHED_CACHE].dims[2] = BENCH_TIME;
        operand[ATTENTION_CACHED_CACHE].dims[3] = BENCH_CHANNELS;
    }
    if (kind != OP_ATTENTION_BACKWARD)
        return;
    tensor(maker, ATTENTION_BACKWARD_DY, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    tensor(maker, ATTENTION_BACKWARD_QKV, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
    tensor(maker, ATTENTION_BACKWARD_Y, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    operand[ATTENTION_BACKWARD_LSE].dims[0] = BENCH_SAMPLES;
    operand[ATTENTION_BACKWARD_LSE].dims[1] = 12;
    operand[ATTENTION_BACKWARD_LSE].dims[2] = BENCH_TIME;
}

static void bench_embed(struct maker *maker)
{
    attrs(maker)->time = BENCH_TIME;
    if (maker->check->call.kind == OP_EMBED_FORWARD) {
        tensor(maker, EMBED_FORWARD_IDS, DTYPE_I32, BENCH_ROWS, 0);
        tensor(maker, EMBED_FORWARD_WTE, maker->dtype, BENCH_ROWS, BENCH_CHANNELS); /* the rows that are touched */
        tensor(maker, EMBED_FORWARD_WPE, maker->dtype, BENCH_TIME, BENCH_CHANNELS);
        return;
    }
    tensor(maker, EMBED_BACKWARD_DY, maker->dtype, BENCH_ROWS, BENCH_CHANNELS);
    tensor(maker, EMBED_BACKWARD_IDS, DTYPE_I32, BENCH_ROWS, 0);
    tensor(maker, EMBED_BACKWARD_ORDER, DTYPE_I32, BENCH_ROWS, 0);
    tensor(maker, EMBED_BACKWARD_STARTS, DTYPE_I32, BENCH_ROWS + 2, 0);
    tensor(maker, EMBED_BACKWARD_DWTE, maker->kept, BENCH_ROWS, BENCH_CHANNELS);
    tensor(maker, EMBED_BACKWARD_DWPE, maker->kept, BENCH_TIME, BENCH_CHANNELS);
}

static void bench_cross_entropy(struct maker *maker)
{
    attrs(maker)->vocab = BENCH_VOCAB;
    attrs(maker)->gradient = true;
    tensor(maker, CROSS_ENTROPY_TARGETS, DTYPE_I32, BENCH_CHUNK, 0);
    tensor(maker, CROSS_ENTROPY_LOGITS, maker->dtype, BENCH_CHUNK, BENCH_VOCAB);
}

/* Every matrix of the op at the size of the residual stream (gelu: of the MLP), every vector of floats at its rows or channels. */
static void bench_plain(struct maker *maker)
{
    enum op_kind kind = maker->check->call.kind;
    bool wide = kind == OP_GELU_FORWARD || kind == OP_GELU_BACKWARD || kind == OP_ADAMW || kind == OP_SUM_OF_SQUARES;
    attrs(maker)->time = BENCH_TIME;
    for (int32_t slot = 0; slot < op_declaration(kind)->operands; slot++) {
        const struct operand *operand = &maker->check->call.operand[slot];
        bool statistic =
            kind == OP_LAYERNORM_BACKWARD && (slot == LAYERNORM_BACKWARD_MEAN || slot == LAYERNORM_BACKWARD_RSTD);
        bool corrections = kind == OP_ADAMW && slot == ADAMW_CORRECTIONS;
        if (!operand->present || operand->dtype == DTYPE_I32 || corrections)
            continue;
        if (operand->rank == 2 || kind == OP_COPY)
            tensor(maker, slot, kind == OP_COPY ? maker->dtype : operand->dtype, BENCH_ROWS,
                   wide ? BENCH_WIDE : BENCH_CHANNELS);
        else
            tensor(maker, slot, operand->dtype, statistic ? BENCH_ROWS : BENCH_CHANNELS, 0);
    }
    if (kind == OP_GEMM)
        tensor(maker, GEMM_B, maker->dtype, BENCH_CHANNELS, 3 * BENCH_CHANNELS);
}

/* A matrix of the MLP, with 8-bit moments. */
static void bench_lean(struct maker *maker)
{
    enum op_kind kind = maker->check->call.kind;
    for (int32_t slot = 0; slot < op_declaration(kind)->operands; slot++) {
        const struct operand *operand = &maker->check->call.operand[slot];
        bool fixed = kind == OP_ADAMW_LEAN && (slot == ADAMW_LEAN_CORRECTIONS || slot == ADAMW_LEAN_SCALES);
        fixed = fixed || (kind == OP_MUON_NORMALIZE && slot == MUON_NORMALIZE_SUM);
        if (operand->present && !fixed && operand->dtype != DTYPE_I32)
            tensor(maker, slot, operand->dtype, BENCH_ROWS, BENCH_WIDE);
    }
    if (kind == OP_ADAMW_LEAN)
        tensor(maker, ADAMW_LEAN_SCALES, DTYPE_U8, 2, state_blocks(BENCH_ROWS * BENCH_WIDE));
}

bool case_make_bench(enum op_kind kind, enum dtype dtype, struct check_case *out)
{
    struct maker maker = {.check = out, .dtype = dtype, .kept = DTYPE_F32, .index = 1, .random = {.seed = 1}};
    *out = (struct check_case){.call = {.kind = kind}, .index = 1, .seed = 1};
    case_shape_make(kind, &maker);
    out->call.attrs.accumulate = 0;
    out->call.attrs.transpose_a = out->call.attrs.transpose_b = false;
    if (kind == OP_EMBED_FORWARD || kind == OP_EMBED_BACKWARD)
        bench_embed(&maker);
    else if (kind == OP_ATTENTION_FORWARD || kind == OP_ATTENTION_BACKWARD || kind == OP_ATTENTION_CACHED)
        bench_attention(&maker);
    else if (kind == OP_CROSS_ENTROPY)
        bench_cross_entropy(&maker);
    else if (kind >= OP_ADAMW_LEAN)
        bench_lean(&maker);
    else
        bench_plain(&maker);
    return op_infer(&out->call);
}

void case_text(const struct check_case *check, char text[static OPCHECK_TEXT_MAX])
{
    static const char *const names[] = {"normal", "integer", "large", "small", "huge", "special"};
    static const char *const dtypes[DTYPE_COUNT] = {"f32", "bf16", "f16", "i32", "u8", "f64"};
    const struct op_declaration *declaration = op_declaration(check->call.kind);
    int used = snprintf(text, OPCHECK_TEXT_MAX, "%s case %" PRId32 " (%s)", declaration->name, check->index,
                        names[check->inputs]);
    for (int32_t slot = 0; slot < declaration->operands && used > 0 && used < OPCHECK_TEXT_MAX - 64; slot++) {
        const struct operand *operand = &check->call.operand[slot];
        if (!operand->present || strcmp(declaration->operand[slot].name, "scalars") == 0)
            continue;
        used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), " %s %s", declaration->operand[slot].name,
                         dtypes[operand->dtype]);
        for (int32_t i = 0; i < operand->rank; i++)
            used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), "%c%" PRId64, i == 0 ? '[' : ',',
                             operand->dims[i]);
        used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), "]");
    }
    if (used > 0 && used < OPCHECK_TEXT_MAX && check->call.attrs.accumulate != 0)
        snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), " acc 0x%" PRIx32, check->call.attrs.accumulate);
}
