/* Tests of the cpu kernels: bytes that do not depend on the number of threads, in any dtype; agreement of the
 * instruction sets; no byte written outside of outputs and workspace; attention over several bands against plain loops;
 * the borders of gemm's tiles.  opcheck tests that each op computes the right results on small shapes.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cpu_fixture.h"
#include "tests/unit/unit_main.h"

#define ARENA_BYTES ((size_t)24 << 20)

static const char *const sets[] = {"generic", "avx2", "avx512"};

static struct operand f32(int64_t a, int64_t b)
{
    return cpu_fixture_tensor(DTYPE_F32, a, b, 0, 0);
}

static struct operand i32(int64_t a)
{
    return cpu_fixture_tensor(DTYPE_I32, a, 0, 0, 0);
}

static struct operand bf16(int64_t a, int64_t b)
{
    return cpu_fixture_tensor(DTYPE_BF16, a, b, 0, 0);
}

/* The ops of lean states and Muon have separate dtypes. */
static void lean_make(struct op_call *call, int variant, int64_t rows, int64_t channels)
{
    struct operand *o = call->operand;
    struct op_attrs *a = &call->attrs;
    a->beta1 = 0.9f;
    a->beta2 = 0.95f;
    a->weight_decay = 0.1f;
    a->alpha = 3.4445f;
    a->beta = -4.775f;
    a->value = 1.5f;
    switch (call->kind) {
    case OP_ADAMW_LEAN:
        o[ADAMW_LEAN_GRAD] = o[ADAMW_LEAN_PARAM] = bf16(rows, channels);
        o[ADAMW_LEAN_M] = o[ADAMW_LEAN_V] = variant == 0 ? f32(rows, channels) : bf16(rows, channels);
        o[ADAMW_LEAN_SCALARS] = i32(SCALAR_WORDS);
        o[ADAMW_LEAN_CORRECTIONS] = f32(4, 2);
        break;
    case OP_GRADIENT_ROUND:
        o[GRADIENT_ROUND_X] = f32(rows, channels);
        o[GRADIENT_ROUND_Y] = bf16(rows, channels);
        o[GRADIENT_ROUND_SCALARS] = i32(SCALAR_WORDS);
        a->accumulate = variant == 0 ? 0u : 1u << GRADIENT_ROUND_Y;
        break;
    case OP_BLEND:
        o[BLEND_X] = o[BLEND_Z] = variant == 0 ? f32(rows, channels) : bf16(rows, channels);
        break;
    case OP_MUON_MOMENTUM:
        o[MUON_MOMENTUM_GRAD] = variant == 0 ? f32(rows, channels) : bf16(rows, channels);
        o[MUON_MOMENTUM_M] = o[MUON_MOMENTUM_GRAD];
        o[MUON_MOMENTUM_SCALARS] = i32(SCALAR_WORDS);
        break;
    case OP_MUON_NORMALIZE:
        o[MUON_NORMALIZE_X] = f32(rows, channels);
        o[MUON_NORMALIZE_SUM] = f32(1, 0);
        break;
    case OP_MUON_STEP:
        o[MUON_STEP_O] = o[MUON_STEP_PARAM] = variant == 0 ? f32(rows, channels) : bf16(rows, channels);
        o[MUON_STEP_SCALARS] = i32(SCALAR_WORDS);
        break;
    default:
        ck_abort_msg("op %d has no shapes here", (int)call->kind);
    }
}

/* Returns a call with odd shapes, large enough that all threads work and that sums have several parts. */
static struct op_call call_make(enum op_kind kind, int variant)
{
    struct op_call call = {.kind = kind};
    struct operand *o = call.operand;
    struct op_attrs *a = &call.attrs;
    const int64_t rows = 3 * 67, channels = 133;
    a->time = 67;
    a->epsilon = 1e-5f;
    switch (kind) {
    case OP_EMBED_FORWARD:
        o[EMBED_FORWARD_IDS] = i32(rows);
        o[EMBED_FORWARD_WTE] = f32(50, channels);
        o[EMBED_FORWARD_WPE] = f32(80, channels);
        o[EMBED_FORWARD_SCALARS] = i32(SCALAR_WORDS);
        break;
    case OP_EMBED_BACKWARD:
        o[EMBED_BACKWARD_DY] = f32(rows, channels);
        o[EMBED_BACKWARD_IDS] = o[EMBED_BACKWARD_ORDER] = i32(rows);
        o[EMBED_BACKWARD_STARTS] = i32(52);
        o[EMBED_BACKWARD_DWTE] = f32(50, channels);
        o[EMBED_BACKWARD_DWPE] = f32(80, channels);
        break;
    case OP_LAYERNORM_FORWARD:
        o[LAYERNORM_FORWARD_X] = f32(rows, channels);
        o[LAYERNORM_FORWARD_GAIN] = o[LAYERNORM_FORWARD_BIAS] = f32(channels, 0);
        break;
    case OP_LAYERNORM_BACKWARD:
        o[LAYERNORM_BACKWARD_DY] = o[LAYERNORM_BACKWARD_X] = f32(rows, channels);
        o[LAYERNORM_BACKWARD_GAIN] = o[LAYERNORM_BACKWARD_DBIAS] = f32(channels, 0);
        o[LAYERNORM_BACKWARD_MEAN] = o[LAYERNORM_BACKWARD_RSTD] = f32(rows, 0);
        break;
    case OP_GEMM: {
        const int64_t k = variant < 4 ? 77 : 401; /* 401 takes several portions */
        a->transpose_a = (variant & 1) != 0;
        a->transpose_b = (variant & 2) != 0;
        o[GEMM_A] = a->transpose_a ? f32(k, 530) : f32(530, k);
        o[GEMM_B] = a->transpose_b ? f32(1100, k) : f32(k, 1100);
        if ((variant & 4) != 0)
            o[GEMM_BIAS] = f32(1100, 0);
        break;
    }
    case OP_BIAS_BACKWARD:
        o[BIAS_BACKWARD_DY] = f32(rows, 517);
        break;
    case OP_GELU_FORWARD:
        a->gelu = variant == 0 ? GELU_ERF : GELU_TANH;
        o[GELU_FORWARD_X] = f32(rows, channels);
        break;
    case OP_GELU_BACKWARD:
        a->gelu = variant == 0 ? GELU_ERF : GELU_TANH;
        o[GELU_BACKWARD_DY] = o[GELU_BACKWARD_X] = f32(rows, channels);
        break;
    case OP_ATTENTION_FORWARD:
    case OP_ATTENTION_BACKWARD:
    case OP_ATTENTION_CACHED:
        a->heads = 6;
        a->kv_heads = variant == 0 ? 6 : 2;
        a->softmax_scale = 0.3f;
        a->site = 5;
        a->dropout = kind == OP_ATTENTION_CACHED || variant == 0 ? 0.0f : 0.2f;
        a->time = 301;
        o[ATTENTION_FORWARD_QKV] = f32(2 * 301, (6 + 2 * a->kv_heads) * 19);
        o[ATTENTION_FORWARD_SCALARS] = i32(SCALAR_WORDS);
        if (kind == OP_ATTENTION_CACHED)
            o[ATTENTION_CACHED_CACHE] = cpu_fixture_tensor(DTYPE_F32, 2, 2, 320, a->kv_heads * 19);
        if (kind == OP_ATTENTION_BACKWARD) {
            o[ATTENTION_BACKWARD_SCALARS] = i32(SCALAR_WORDS);
            o[ATTENTION_BACKWARD_QKV] = f32(2 * 301, (6 + 2 * a->kv_heads) * 19);
            o[ATTENTION_BACKWARD_DY] = o[ATTENTION_BACKWARD_Y] = f32(2 * 301, 6 * 19);
            o[ATTENTION_BACKWARD_LSE] = cpu_fixture_tensor(DTYPE_F32, 2, 6, 301, 0);
        }
        break;
    case OP_DROPOUT:
        a->dropout = 0.3f;
        o[DROPOUT_X] = f32(rows, channels);
        o[DROPOUT_SCALARS] = i32(SCALAR_WORDS);
        break;
    case OP_RESIDUAL:
        o[RESIDUAL_X] = o[RESIDUAL_Y] = f32(rows, channels);
        break;
    case OP_CROSS_ENTROPY:
        a->vocab = 1001;
        a->gradient = variant == 0;
        o[CROSS_ENTROPY_TARGETS] = i32(rows);
        o[CROSS_ENTROPY_SCALARS] = i32(SCALAR_WORDS);
        o[CROSS_ENTROPY_LOGITS] = f32(rows, 1024);
        break;
    case OP_LOSS_SUM:
        o[LOSS_SUM_LOSSES] = f32(20011, 0);
        o[LOSS_SUM_SCALARS] = i32(SCALAR_WORDS);
        break;
    case OP_SUM_OF_SQUARES:
        o[SUM_OF_SQUARES_X] = f32(3, 40009);
        break;
    case OP_CLIP_FACTOR:
        a->clip_max = 1.0f;
        o[CLIP_FACTOR_PARTIALS] = f32(148, 0);
        o[CLIP_FACTOR_SCALARS] = i32(SCALAR_WORDS);
        break;
    case OP_ADAMW:
        a->beta1 = 0.9f;
        a->beta2 = 0.95f;
        a->weight_decay = 0.1f;
        o[ADAMW_GRAD] = o[ADAMW_PARAM] = o[ADAMW_M] = o[ADAMW_V] = f32(rows, channels);
        o[ADAMW_SCALARS] = i32(SCALAR_WORDS);
        o[ADAMW_CORRECTIONS] = f32(4, 2);
        break;
    case OP_FILL:
        a->value = 1.5f;
        o[FILL_Y] = f32(rows, channels);
        break;
    case OP_COPY:
        o[COPY_X] = o[COPY_Y] = f32(rows, channels);
        a->accumulate = variant == 0 ? 0u : 1u << COPY_Y;
        break;
    default:
        lean_make(&call, variant, rows, channels);
    }
    return call;
}

/* Fills sixteen words with values as in a training step. */
static void scalars_fill(union scalar_word *word)
{
    memset(word, 0, SCALAR_WORDS * sizeof *word);
    word[SCALAR_LEARNING_RATE].f = 1e-3f;
    word[SCALAR_LOSS_GRADIENT].f = 1.0f / 64.0f;
    word[SCALAR_UNSCALE].f = word[SCALAR_CLIP].f = 0.5f;
    word[SCALAR_ADAM_STEP].i = 2;
    word[SCALAR_STEP].i = 9;
    word[SCALAR_SEED_LO].u = 12345u;
    word[SCALAR_SAMPLE_BASE].i = 4;
    word[SCALAR_POSITION].i = 7;
}

/* Fills in ids 0 .. 49 in turn, and the rows sorted by id. */
static void embed_fill(int32_t *ids, int32_t *order, int32_t *starts, int32_t rows)
{
    int32_t listed = 0;
    for (int32_t n = 0; n < rows; n++)
        ids[n] = n * 7 % 50;
    starts[0] = 50;
    for (int32_t id = 0; id < 50; id++) {
        starts[1 + id] = listed;
        for (int32_t n = 0; n < rows; n++) {
            if (ids[n] == id)
                order[listed++] = n;
        }
    }
    starts[51] = listed;
}

/* Returns true for operands that are fp32 for every dtype of the others. */
static bool is_always_f32(enum op_kind kind, int32_t slot)
{
    return (kind == OP_LAYERNORM_BACKWARD && (slot == LAYERNORM_BACKWARD_MEAN || slot == LAYERNORM_BACKWARD_RSTD)) ||
           (kind == OP_ATTENTION_BACKWARD && slot == ATTENTION_BACKWARD_LSE) || kind == OP_LOSS_SUM ||
           kind == OP_CLIP_FACTOR || (kind == OP_ADAMW && slot == ADAMW_CORRECTIONS) || kind >= OP_ADAMW_LEAN;
}

/* Stores all floats of a call_make() in `dtype`. */
static void call_store(struct op_call *call, enum dtype dtype)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        struct operand *operand = &call->operand[slot];
        if (operand->present && operand->dtype == DTYPE_F32 && !is_always_f32(call->kind, slot))
            operand->dtype = dtype;
    }
}

static bool is_positive(enum op_kind kind, int32_t slot)
{
    return (kind == OP_ADAMW && (slot == ADAMW_V || slot == ADAMW_CORRECTIONS)) ||
           (kind == OP_ADAMW_LEAN && (slot == ADAMW_LEAN_V || slot == ADAMW_LEAN_CORRECTIONS)) ||
           (kind == OP_MUON_NORMALIZE && slot == MUON_NORMALIZE_SUM) ||
           (kind == OP_CLIP_FACTOR && slot == CLIP_FACTOR_PARTIALS);
}

static void floats_fill(void *data, const struct operand *operand, uint64_t seed, bool positive)
{
    const int64_t count = operand_elements(operand);
    float *values = malloc((size_t)count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    cpu_fixture_fill(values, count, seed, 1.5f);
    for (int64_t i = 0; positive && i < count; i++)
        values[i] = fabsf(values[i]) + 0.01f;
    dtype_convert(data, operand->dtype, values, DTYPE_F32, (size_t)count);
    free(values);
}

/* Fills every operand that the op reads. */
static void call_fill(struct cpu_fixture *fixture, const struct op_call *call)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        const bool written = operand->present && op_direction(call->kind, &call->attrs, slot) == OPERAND_OUT;
        if (!operand->present || written)
            continue;
        void *data = cpu_fixture_operand(fixture, call, slot);
        if (operand->dtype != DTYPE_I32)
            floats_fill(data, operand, unit_seed() + (uint64_t)slot, is_positive(call->kind, slot));
        else if (operand->dims[0] == SCALAR_WORDS)
            scalars_fill(data);
        for (int64_t i = 0; operand->dtype == DTYPE_I32 && operand->dims[0] != SCALAR_WORDS && i < operand->dims[0];
             i++)
            ((int32_t *)data)[i] = (int32_t)(i * 13 % 50) - (call->kind == OP_CROSS_ENTROPY && i % 9 == 0 ? 60 : 0);
    }
    if (call->kind == OP_EMBED_BACKWARD)
        embed_fill(cpu_fixture_operand(fixture, call, EMBED_BACKWARD_IDS),
                   cpu_fixture_operand(fixture, call, EMBED_BACKWARD_ORDER),
                   cpu_fixture_operand(fixture, call, EMBED_BACKWARD_STARTS), 3 * 67);
}

/* Runs an op and returns a copy of all operands (free() it).  Fails when the op wrote outside of its outputs and
 * workspace. */
static unsigned char *op_bytes_after(struct cpu_fixture *fixture, enum op_kind kind, int variant, enum dtype dtype,
                                     struct op_call *call, size_t *out_bytes)
{
    *call = call_make(kind, variant);
    call_store(call, dtype);
    const size_t bytes = cpu_fixture_layout(fixture, call);
    call_fill(fixture, call);
    unsigned char *before = malloc(fixture->arena_bytes);
    ck_assert_ptr_nonnull(before);
    memcpy(before, fixture->image, fixture->arena_bytes);
    cpu_fixture_run(fixture, call);
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && op_direction(kind, &call->attrs, slot) != OPERAND_IN)
            memcpy(before + operand->at.offset_bytes, fixture->image + operand->at.offset_bytes,
                   operand_bytes(operand));
    }
    ck_assert_msg(memcmp(before, fixture->image, bytes) == 0, "op %s wrote outside of its outputs",
                  op_declaration(kind)->name);
    const size_t end = bytes + call->workspace_bytes;
    ck_assert_msg(memcmp(before + end, fixture->image + end, fixture->arena_bytes - end) == 0,
                  "op %s wrote beyond its workspace", op_declaration(kind)->name);
    memcpy(before, fixture->image, bytes);
    *out_bytes = bytes;
    return before;
}

static int variants_of(enum op_kind kind)
{
    return kind == OP_GEMM ? 8 : 2;
}

/* Expects equal bytes with 1 and 3 threads; does nothing when this processor lacks the set. */
static void threads_check(const char *set, enum op_kind kind, int variant, enum dtype dtype)
{
    unsigned char *first = NULL;
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        struct cpu_fixture fixture;
        struct op_call call;
        size_t bytes = 0;
        if (!cpu_fixture_open(set, threads, ARENA_BYTES / 4, &fixture))
            break;
        unsigned char *result = op_bytes_after(&fixture, kind, variant, dtype, &call, &bytes);
        ck_assert_msg(first == NULL || memcmp(first, result, bytes) == 0, "%s in %s: %d threads, %s: other bytes",
                      op_declaration(kind)->name, dtype_name(dtype), (int)threads, set);
        if (first == NULL)
            first = result;
        else
            free(result);
        cpu_fixture_close(&fixture);
    }
    free(first);
}

TEST_LOOP(threads_do_not_change_a_byte, OP_KIND_COUNT)
{
    const enum op_kind kind = (enum op_kind)_i;
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
        for (int variant = 0; variant < variants_of(kind); variant++) {
            threads_check(sets[set], kind, variant, DTYPE_F32);
            if (set == 0 && variant > 0) /* the slowest set; its conversions do not differ by variant */
                continue;
            threads_check(sets[set], kind, variant, variant % 2 == 0 ? DTYPE_BF16 : DTYPE_F16);
        }
    }
}

/* Returns the largest difference of two images' float outputs, relative to the largest value. */
static double outputs_distance(const struct op_call *call, const unsigned char *a, const unsigned char *b)
{
    double worst = 0.0;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (!operand->present || operand->dtype != DTYPE_F32)
            continue;
        double largest = 0.0, difference = 0.0;
        for (int64_t i = 0; i < operand_elements(operand); i++) {
            float x, y;
            memcpy(&x, a + operand->at.offset_bytes + (size_t)i * sizeof x, sizeof x);
            memcpy(&y, b + operand->at.offset_bytes + (size_t)i * sizeof y, sizeof y);
            const double d = fabs((double)x - (double)y);
            if (!(d <= difference))
                difference = d;
            largest = fmax(largest, fabs((double)x));
        }
        if (!(difference <= worst * fmax(largest, 1e-30)))
            worst = difference / fmax(largest, 1e-30);
    }
    return worst;
}

TEST_LOOP(instruction_sets_agree, OP_KIND_COUNT)
{
    const enum op_kind kind = (enum op_kind)_i;
    for (int variant = 0; variant < variants_of(kind); variant++) {
        unsigned char *result[3] = {NULL, NULL, NULL};
        struct op_call call;
        for (size_t set = 0; set < 3; set++) {
            struct cpu_fixture fixture;
            size_t bytes = 0;
            if (!cpu_fixture_open(sets[set], 2, ARENA_BYTES / 4, &fixture))
                continue;
            result[set] = op_bytes_after(&fixture, kind, variant, DTYPE_F32, &call, &bytes);
            cpu_fixture_close(&fixture);
        }
        for (size_t set = 1; set < 3; set++) {
            const double distance = result[set] != NULL ? outputs_distance(&call, result[0], result[set]) : 0.0;
            /* Sums of up to 301 or 1100 terms in another order: 1100 u = 6.6e-5. */
            ck_assert_msg(distance <= 1100.0 * 0x1p-24, "%s: generic and %s differ by %g", op_declaration(kind)->name,
                          sets[set], distance);
        }
        for (size_t set = 0; set < 3; set++)
            free(result[set]);
    }
}

/* Checks every element of a product that spans several tiles, against fp64. */
TEST(gemm_tiles_meet)
{
    static const int64_t shapes[][3] = {{513, 257, 33}, {64, 1025, 9}, {1, 2049, 65}, {1030, 300, 2}, {200, 700, 70}};
    struct cpu_fixture fixture;
    ck_assert(cpu_fixture_open(NULL, 2, ARENA_BYTES, &fixture));
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        struct op_call call = {.kind = OP_GEMM,
                               .operand = {[GEMM_A] = f32(m, k), [GEMM_B] = f32(k, n), [GEMM_BIAS] = f32(n, 0)}};
        cpu_fixture_layout(&fixture, &call);
        float *a = cpu_fixture_operand(&fixture, &call, GEMM_A), *b = cpu_fixture_operand(&fixture, &call, GEMM_B);
        float *bias = cpu_fixture_operand(&fixture, &call, GEMM_BIAS),
              *d = cpu_fixture_operand(&fixture, &call, GEMM_D);
        cpu_fixture_fill(a, m * k, unit_seed(), 1.0f);
        cpu_fixture_fill(b, k * n, unit_seed() + 1, 1.0f);
        cpu_fixture_fill(bias, n, unit_seed() + 2, 1.0f);
        cpu_fixture_run(&fixture, &call);
        for (int64_t i = 0; i < m * n; i++) {
            double sum = (double)bias[i % n], size = fabs(sum);
            for (int64_t l = 0; l < k; l++) {
                const double product = (double)a[i / n * k + l] * (double)b[l * n + i % n];
                sum += product;
                size += fabs(product);
            }
            ck_assert_msg(fabs((double)d[i] - sum) <= (double)(k + 1) * 0x1p-24 * size, "[%d,%d]: %g, expected %g",
                          (int)(i / n), (int)(i % n), (double)d[i], sum);
        }
    }
    cpu_fixture_close(&fixture);
}

/* Computes attention_forward in fp64, for one row and head of a call without dropout; returns lse. */
static double attention_row(const float *qkv, const struct op_call *call, int64_t sample, int64_t t, int64_t head,
                            int64_t size, double *y)
{
    const int64_t row = call->operand[0].dims[1], heads = call->attrs.heads, kv = call->attrs.kv_heads;
    const float *rows = qkv + sample * call->attrs.time * row, *q = rows + t * row + head * size;
    const int64_t k_column = (heads + head / (heads / kv)) * size, v_column = k_column + kv * size;
    double sum = 0.0;
    memset(y, 0, (size_t)size * sizeof *y);
    for (int64_t j = 0; j <= t; j++) {
        double score = 0.0;
        for (int64_t d = 0; d < size; d++)
            score += (double)q[d] * (double)rows[j * row + k_column + d];
        const double weight = exp(score * (double)call->attrs.softmax_scale);
        sum += weight;
        for (int64_t d = 0; d < size; d++)
            y[d] += weight * (double)rows[j * row + v_column + d];
    }
    for (int64_t d = 0; d < size; d++)
        y[d] /= sum;
    return log(sum);
}

TEST(attention_spans_bands)
{
    struct cpu_fixture fixture;
    ck_assert(cpu_fixture_open(NULL, 2, ARENA_BYTES, &fixture));
    struct op_call call = call_make(OP_ATTENTION_FORWARD, 1);
    call.attrs.dropout = 0.0f;
    cpu_fixture_layout(&fixture, &call);
    call_fill(&fixture, &call);
    cpu_fixture_run(&fixture, &call);
    const float *qkv = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_QKV);
    const float *y = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_Y);
    const float *lse = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_LSE);
    for (int64_t item = 0; item < 2 * 6 * 301; item += 5) {
        const int64_t sample = item / (6 * 301), head = item / 301 % 6, t = item % 301;
        double expected[19];
        const double expected_lse = attention_row(qkv, &call, sample, t, head, 19, expected);
        ck_assert(fabs((double)lse[item] - expected_lse) <= 32.0 * 0x1p-24 * (1.0 + fabs(expected_lse)));
        for (int64_t d = 0; d < 19; d++) /* scores of size up to 13 carry 19 u 13 into the weights; values up to 1.5 */
            ck_assert(fabs((double)y[((sample * 301 + t) * 6 + head) * 19 + d] - expected[d]) <= 400.0 * 0x1p-24);
    }
    cpu_fixture_close(&fixture);
}

/* Prefill in one piece, and the same rows one at a time through the cache, give the results of attention_forward. */
TEST(attention_cached_equals_forward)
{
    enum { TIME = 70, HEADS = 4, SIZE = 24, ROW = 3 * HEADS * SIZE };
    struct cpu_fixture fixture;
    ck_assert(cpu_fixture_open(NULL, 2, ARENA_BYTES / 8, &fixture));
    float *qkv = malloc(TIME * ROW * sizeof *qkv), *whole = malloc(TIME * HEADS * SIZE * sizeof *whole);
    float *cache = calloc(2 * TIME * HEADS * SIZE, sizeof *cache);
    ck_assert(qkv != NULL && whole != NULL && cache != NULL);
    cpu_fixture_fill(qkv, TIME * ROW, unit_seed(), 1.0f);
    struct op_call call = {
        .kind = OP_ATTENTION_FORWARD,
        .attrs = {.time = TIME, .heads = HEADS, .kv_heads = HEADS, .softmax_scale = 0.5f},
        .operand = {[ATTENTION_FORWARD_QKV] = f32(TIME, ROW), [ATTENTION_FORWARD_SCALARS] = i32(SCALAR_WORDS)}};
    cpu_fixture_layout(&fixture, &call);
    memcpy(cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_QKV), qkv, TIME * ROW * sizeof *qkv);
    scalars_fill(cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_SCALARS));
    cpu_fixture_run(&fixture, &call);
    memcpy(whole, cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_Y), TIME * HEADS * SIZE * sizeof *whole);
    for (int32_t t = 0; t < TIME; t++) {
        struct op_call step = {.kind = OP_ATTENTION_CACHED, .attrs = call.attrs};
        step.attrs.time = 1;
        step.operand[ATTENTION_CACHED_QKV] = f32(1, ROW);
        step.operand[ATTENTION_CACHED_SCALARS] = i32(SCALAR_WORDS);
        step.operand[ATTENTION_CACHED_CACHE] = cpu_fixture_tensor(DTYPE_F32, 2, 1, TIME, HEADS * SIZE);
        cpu_fixture_layout(&fixture, &step);
        union scalar_word *scalars = cpu_fixture_operand(&fixture, &step, ATTENTION_CACHED_SCALARS);
        float *device_cache = cpu_fixture_operand(&fixture, &step, ATTENTION_CACHED_CACHE);
        memcpy(cpu_fixture_operand(&fixture, &step, ATTENTION_CACHED_QKV), qkv + t * ROW, ROW * sizeof *qkv);
        scalars_fill(scalars);
        scalars[SCALAR_POSITION].i = t;
        memcpy(device_cache, cache, 2 * TIME * HEADS * SIZE * sizeof *cache);
        cpu_fixture_run(&fixture, &step);
        memcpy(cache, device_cache, 2 * TIME * HEADS * SIZE * sizeof *cache);
        const float *y = cpu_fixture_operand(&fixture, &step, ATTENTION_CACHED_Y);
        for (int64_t d = 0; d < HEADS * SIZE; d++)
            ck_assert_msg(fabs((double)y[d] - (double)whole[t * HEADS * SIZE + d]) <= 64.0 * 0x1p-24, "row %d", (int)t);
    }
    free(qkv);
    free(whole);
    free(cache);
    cpu_fixture_close(&fixture);
}

TEST(found_inf_skips_the_update)
{
    struct cpu_fixture fixture;
    ck_assert(cpu_fixture_open(NULL, 2, ARENA_BYTES / 8, &fixture));
    struct op_call call = call_make(OP_CLIP_FACTOR, 0);
    cpu_fixture_layout(&fixture, &call);
    call_fill(&fixture, &call);
    ((float *)cpu_fixture_operand(&fixture, &call, CLIP_FACTOR_PARTIALS))[147] = INFINITY;
    cpu_fixture_run(&fixture, &call);
    const union scalar_word *scalars = cpu_fixture_operand(&fixture, &call, CLIP_FACTOR_SCALARS);
    ck_assert_int_eq(scalars[SCALAR_FOUND_INF].i, 1);
    ck_assert_int_eq(scalars[SCALAR_ADAM_STEP].i, 2);
    struct op_call update = call_make(OP_ADAMW, 0);
    cpu_fixture_layout(&fixture, &update);
    call_fill(&fixture, &update);
    ((union scalar_word *)cpu_fixture_operand(&fixture, &update, ADAMW_SCALARS))[SCALAR_FOUND_INF].i = 1;
    const size_t bytes = operand_bytes(&update.operand[ADAMW_PARAM]);
    void *before = malloc(bytes);
    ck_assert_ptr_nonnull(before);
    memcpy(before, cpu_fixture_operand(&fixture, &update, ADAMW_PARAM), bytes);
    cpu_fixture_run(&fixture, &update);
    ck_assert_mem_eq(before, cpu_fixture_operand(&fixture, &update, ADAMW_PARAM), bytes);
    free(before);
    cpu_fixture_close(&fixture);
}
