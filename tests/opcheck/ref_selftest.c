/* The oracle's own check: its backward ops against central differences of its forward ops, in double.
 *
 * The objective is sum(dy * y) with random dy, so that no gradient vanishes by symmetry (the sum of a softmax would).  With
 * step h the difference is off by h^2 times the third derivative, and by 2^-53/h times the size of the objective.  h = 2^-17
 * is near the cube root of 2^-53, where both are small; agreement is demanded to SIZE times their sum, relative to the
 * gradient's largest element: third derivatives and objectives of these few random numbers are smaller than that.  Each
 * comparison is repeated with one element of the gradient spoiled by 0.2 %, and must then fail.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define U64 0x1p-53
#define STEP 0x1p-17
#define SIZE 1024.0
#define AGREEMENT (SIZE * (STEP * STEP + U64 / STEP))
#define ROUNDINGS (128.0 * U64) /* of a handful of operations on values of order 1 */
#define SPACE 65536

struct totals {
    int64_t passed, failed;
};

/* Operands of one call, in a fixed pool. */
struct set {
    struct op_call call;
    struct ref_tensors tensors;
};

struct pool {
    double *memory;
    size_t used;
    struct random random;
};

static double *pool_take(struct pool *pool, int64_t count)
{
    double *taken = pool->memory + pool->used;
    pool->used += (size_t)count;
    if (pool->used > SPACE)
        abort();
    return taken;
}

static struct operand shape(int32_t rank, int64_t a, int64_t b)
{
    struct operand operand = {.present = true, .dtype = DTYPE_F32, .rank = rank, .dims = {a, b}};
    return operand;
}

static struct operand integers(int64_t count)
{
    struct operand operand = {.present = true, .dtype = DTYPE_I32, .rank = 1, .dims = {count}};
    return operand;
}

/* Infers the outputs and gives every operand random values. */
static void set_make(struct set *set, struct pool *pool)
{
    if (!op_infer(&set->call))
        abort();
    for (int32_t slot = 0; slot < op_declaration(set->call.kind)->operands; slot++) {
        int64_t count = operand_elements(&set->call.operand[slot]);
        if (!set->call.operand[slot].present)
            continue;
        set->tensors.value[slot] = pool_take(pool, count);
        set->tensors.term[slot] = pool_take(pool, count);
        for (int64_t i = 0; i < count; i++)
            set->tensors.value[slot][i] = set->call.operand[slot].dtype == DTYPE_I32
                                              ? (double)random_below(&pool->random, 5)
                                              : random_normal(&pool->random);
    }
}

/* sum(dy * y) of a forward set. */
static double objective(const struct set *forward, int32_t y, const double *dy)
{
    double sum = 0.0;
    ref_run(&forward->call, &forward->tensors);
    for (int64_t i = 0; i < operand_elements(&forward->call.operand[y]); i++)
        sum += dy[i] * forward->tensors.value[y][i];
    return sum;
}

/* Largest difference between `gradient` and central differences by operand `x`, relative to the largest gradient. */
static double disagreement(const struct set *forward, int32_t x, int32_t y, const double *dy, const double *gradient)
{
    double worst = 0.0, largest = 0.0, *value = forward->tensors.value[x];
    for (int64_t i = 0; i < operand_elements(&forward->call.operand[x]); i++) {
        double kept = value[i];
        value[i] = kept + STEP;
        double above = objective(forward, y, dy);
        value[i] = kept - STEP;
        double difference = (above - objective(forward, y, dy)) / (2.0 * STEP);
        value[i] = kept;
        worst = fmax(worst, fabs(difference - gradient[i]));
        largest = fmax(largest, fabs(gradient[i]));
    }
    objective(forward, y, dy); /* outputs of the unmoved inputs again */
    return largest > 0.0 ? worst / largest : (double)INFINITY;
}

static void check(struct totals *totals, const char *name, const struct set *forward, int32_t x, int32_t y,
                  const double *dy, double *gradient)
{
    int64_t count = operand_elements(&forward->call.operand[x]), peak = 0;
    double honest = disagreement(forward, x, y, dy, gradient);
    for (int64_t i = 0; i < count; i++)
        peak = fabs(gradient[i]) > fabs(gradient[peak]) ? i : peak;
    gradient[peak] *= 1.002;
    double spoiled = disagreement(forward, x, y, dy, gradient);
    gradient[peak] /= 1.002;
    bool passed = honest <= AGREEMENT && !(spoiled <= AGREEMENT);
    printf("%-28s %6" PRId64 " elements, differs by %.2e, spoiled by %.2e%s\n", name, count, honest, spoiled,
           passed ? "" : "  FAILED");
    totals->passed += passed;
    totals->failed += !passed;
}

static void check_gelu(struct totals *totals, struct pool *pool, enum gelu_kind kind)
{
    struct set forward = {.call = {.kind = OP_GELU_FORWARD, .attrs = {.gelu = kind}}}, backward = forward;
    forward.call.operand[GELU_FORWARD_X] = shape(2, 7, 9);
    set_make(&forward, pool);
    backward.call.kind = OP_GELU_BACKWARD;
    backward.call.operand[GELU_BACKWARD_X] = backward.call.operand[GELU_BACKWARD_DY] = shape(2, 7, 9);
    set_make(&backward, pool);
    backward.tensors.value[GELU_BACKWARD_X] = forward.tensors.value[GELU_FORWARD_X];
    ref_run(&backward.call, &backward.tensors);
    check(totals, kind == GELU_ERF ? "gelu erf dx" : "gelu tanh dx", &forward, GELU_FORWARD_X, GELU_FORWARD_Y,
          backward.tensors.value[GELU_BACKWARD_DY], backward.tensors.value[GELU_BACKWARD_DX]);
}

static void check_layernorm(struct totals *totals, struct pool *pool)
{
    struct set forward = {.call = {.kind = OP_LAYERNORM_FORWARD, .attrs = {.epsilon = 1e-5f}}};
    struct set backward = {.call = {.kind = OP_LAYERNORM_BACKWARD}};
    forward.call.operand[LAYERNORM_FORWARD_X] = shape(2, 5, 11);
    forward.call.operand[LAYERNORM_FORWARD_GAIN] = forward.call.operand[LAYERNORM_FORWARD_BIAS] = shape(1, 11, 0);
    set_make(&forward, pool);
    backward.call.operand[LAYERNORM_BACKWARD_DY] = backward.call.operand[LAYERNORM_BACKWARD_X] = shape(2, 5, 11);
    backward.call.operand[LAYERNORM_BACKWARD_GAIN] = backward.call.operand[LAYERNORM_BACKWARD_DBIAS] = shape(1, 11, 0);
    backward.call.operand[LAYERNORM_BACKWARD_MEAN] = backward.call.operand[LAYERNORM_BACKWARD_RSTD] = shape(1, 5, 0);
    set_make(&backward, pool);
    const double *dy = backward.tensors.value[LAYERNORM_BACKWARD_DY];
    ref_run(&forward.call, &forward.tensors);
    backward.tensors.value[LAYERNORM_BACKWARD_X] = forward.tensors.value[LAYERNORM_FORWARD_X];
    backward.tensors.value[LAYERNORM_BACKWARD_GAIN] = forward.tensors.value[LAYERNORM_FORWARD_GAIN];
    memcpy(backward.tensors.value[LAYERNORM_BACKWARD_MEAN], forward.tensors.value[LAYERNORM_FORWARD_MEAN],
           5 * sizeof(double));
    memcpy(backward.tensors.value[LAYERNORM_BACKWARD_RSTD], forward.tensors.value[LAYERNORM_FORWARD_RSTD],
           5 * sizeof(double));
    ref_run(&backward.call, &backward.tensors);
    check(totals, "layernorm dx", &forward, LAYERNORM_FORWARD_X, LAYERNORM_FORWARD_Y, dy,
          backward.tensors.value[LAYERNORM_BACKWARD_DX]);
    check(totals, "layernorm dgain", &forward, LAYERNORM_FORWARD_GAIN, LAYERNORM_FORWARD_Y, dy,
          backward.tensors.value[LAYERNORM_BACKWARD_DGAIN]);
    check(totals, "layernorm dbias", &forward, LAYERNORM_FORWARD_BIAS, LAYERNORM_FORWARD_Y, dy,
          backward.tensors.value[LAYERNORM_BACKWARD_DBIAS]);
}

static void check_attention(struct totals *totals, struct pool *pool, int32_t kv_heads, float dropout, const char *name)
{
    struct op_attrs attrs = {
        .time = 6, .heads = 4, .kv_heads = kv_heads, .dropout = dropout, .softmax_scale = 0.6f, .site = 3};
    struct set forward = {.call = {.kind = OP_ATTENTION_FORWARD, .attrs = attrs}};
    struct set backward = {.call = {.kind = OP_ATTENTION_BACKWARD, .attrs = attrs}};
    int64_t size = 3, width = (4 + 2 * kv_heads) * size;
    forward.call.operand[ATTENTION_FORWARD_QKV] = backward.call.operand[ATTENTION_BACKWARD_QKV] = shape(2, 12, width);
    forward.call.operand[ATTENTION_FORWARD_SCALARS] = backward.call.operand[ATTENTION_BACKWARD_SCALARS] =
        integers(SCALAR_WORDS);
    set_make(&forward, pool);
    backward.call.operand[ATTENTION_BACKWARD_DY] = backward.call.operand[ATTENTION_BACKWARD_Y] = shape(2, 12, 4 * size);
    backward.call.operand[ATTENTION_BACKWARD_LSE] = forward.call.operand[ATTENTION_FORWARD_LSE];
    set_make(&backward, pool);
    ref_run(&forward.call, &forward.tensors);
    backward.tensors.value[ATTENTION_BACKWARD_QKV] = forward.tensors.value[ATTENTION_FORWARD_QKV];
    backward.tensors.value[ATTENTION_BACKWARD_SCALARS] = forward.tensors.value[ATTENTION_FORWARD_SCALARS];
    backward.tensors.value[ATTENTION_BACKWARD_Y] = forward.tensors.value[ATTENTION_FORWARD_Y];
    backward.tensors.value[ATTENTION_BACKWARD_LSE] = forward.tensors.value[ATTENTION_FORWARD_LSE];
    ref_run(&backward.call, &backward.tensors);
    check(totals, name, &forward, ATTENTION_FORWARD_QKV, ATTENTION_FORWARD_Y,
          backward.tensors.value[ATTENTION_BACKWARD_DY], backward.tensors.value[ATTENTION_BACKWARD_DQKV]);
}

/* The gradient of the sum of losses, with an ignored row and padding columns. */
static void check_cross_entropy(struct totals *totals, struct pool *pool)
{
    struct set forward = {.call = {.kind = OP_CROSS_ENTROPY, .attrs = {.vocab = 7}}}, backward;
    double ones[6] = {1.5, 1.5, 1.5, 1.5, 1.5, 1.5};
    forward.call.operand[CROSS_ENTROPY_TARGETS] = integers(6);
    forward.call.operand[CROSS_ENTROPY_SCALARS] = integers(SCALAR_WORDS);
    forward.call.operand[CROSS_ENTROPY_LOGITS] = shape(2, 6, 9);
    set_make(&forward, pool);
    forward.tensors.value[CROSS_ENTROPY_TARGETS][2] = -1.0;
    forward.tensors.value[CROSS_ENTROPY_SCALARS][SCALAR_LOSS_GRADIENT] = 1.5;
    backward = forward;
    backward.call.attrs.gradient = true;
    backward.tensors.value[CROSS_ENTROPY_LOGITS] = pool_take(pool, 54);
    memcpy(backward.tensors.value[CROSS_ENTROPY_LOGITS], forward.tensors.value[CROSS_ENTROPY_LOGITS],
           54 * sizeof(double));
    ref_run(&backward.call, &backward.tensors);
    check(totals, "cross_entropy dlogits", &forward, CROSS_ENTROPY_LOGITS, CROSS_ENTROPY_LOSSES, ones,
          backward.tensors.value[CROSS_ENTROPY_LOGITS]);
}

static void check_embed(struct totals *totals, struct pool *pool)
{
    struct set forward = {.call = {.kind = OP_EMBED_FORWARD, .attrs = {.time = 4}}};
    struct set backward = {.call = {.kind = OP_EMBED_BACKWARD, .attrs = {.time = 4}}};
    forward.call.operand[EMBED_FORWARD_IDS] = integers(12);
    forward.call.operand[EMBED_FORWARD_WTE] = forward.call.operand[EMBED_FORWARD_WPE] = shape(2, 5, 3);
    forward.call.operand[EMBED_FORWARD_SCALARS] = integers(SCALAR_WORDS);
    set_make(&forward, pool);
    forward.tensors.value[EMBED_FORWARD_SCALARS][SCALAR_POSITION] = 0.0;
    backward.call.operand[EMBED_BACKWARD_DY] = shape(2, 12, 3);
    backward.call.operand[EMBED_BACKWARD_IDS] = backward.call.operand[EMBED_BACKWARD_ORDER] = integers(12);
    backward.call.operand[EMBED_BACKWARD_STARTS] = integers(14);
    backward.call.operand[EMBED_BACKWARD_DWTE] = backward.call.operand[EMBED_BACKWARD_DWPE] = shape(2, 5, 3);
    set_make(&backward, pool);
    backward.tensors.value[EMBED_BACKWARD_IDS] = forward.tensors.value[EMBED_FORWARD_IDS];
    memset(backward.tensors.value[EMBED_BACKWARD_DWTE], 0, 15 * sizeof(double));
    ref_run(&backward.call, &backward.tensors);
    check(totals, "embed dwte", &forward, EMBED_FORWARD_WTE, EMBED_FORWARD_Y, backward.tensors.value[EMBED_BACKWARD_DY],
          backward.tensors.value[EMBED_BACKWARD_DWTE]);
    check(totals, "embed dwpe", &forward, EMBED_FORWARD_WPE, EMBED_FORWARD_Y, backward.tensors.value[EMBED_BACKWARD_DY],
          backward.tensors.value[EMBED_BACKWARD_DWPE]);
}

/* da = dd b', db = a' dd: the products that autodiff writes down, through the transposes of the same op. */
static void check_gemm(struct totals *totals, struct pool *pool)
{
    struct set forward = {.call = {.kind = OP_GEMM}}, da = forward, db = forward,
               bias = {.call = {.kind = OP_BIAS_BACKWARD}};
    forward.call.operand[GEMM_A] = shape(2, 4, 6);
    forward.call.operand[GEMM_B] = shape(2, 6, 5);
    forward.call.operand[GEMM_BIAS] = shape(1, 5, 0);
    set_make(&forward, pool);
    da.call.attrs.transpose_b = true;
    da.call.operand[GEMM_A] = shape(2, 4, 5);
    da.call.operand[GEMM_B] = shape(2, 6, 5);
    set_make(&da, pool);
    db.call.attrs.transpose_a = true;
    db.call.operand[GEMM_A] = shape(2, 4, 6);
    db.call.operand[GEMM_B] = shape(2, 4, 5);
    set_make(&db, pool);
    bias.call.operand[BIAS_BACKWARD_DY] = shape(2, 4, 5);
    set_make(&bias, pool);
    const double *dd = da.tensors.value[GEMM_A];
    da.tensors.value[GEMM_B] = forward.tensors.value[GEMM_B];
    db.tensors.value[GEMM_A] = forward.tensors.value[GEMM_A];
    db.tensors.value[GEMM_B] = bias.tensors.value[BIAS_BACKWARD_DY] = da.tensors.value[GEMM_A];
    ref_run(&da.call, &da.tensors);
    ref_run(&db.call, &db.tensors);
    ref_run(&bias.call, &bias.tensors);
    check(totals, "gemm da", &forward, GEMM_A, GEMM_D, dd, da.tensors.value[GEMM_D]);
    check(totals, "gemm db", &forward, GEMM_B, GEMM_D, dd, db.tensors.value[GEMM_D]);
    check(totals, "gemm dbias", &forward, GEMM_BIAS, GEMM_D, dd, bias.tensors.value[BIAS_BACKWARD_DBIAS]);
}

/* A cache that is filled row by row gives the rows of the plain forward. */
static void check_cached(struct totals *totals, struct pool *pool)
{
    struct op_attrs attrs = {.time = 5, .heads = 4, .kv_heads = 2, .softmax_scale = 0.5f};
    struct set whole = {.call = {.kind = OP_ATTENTION_FORWARD, .attrs = attrs}}, step = whole;
    double worst = 0.0;
    whole.call.operand[ATTENTION_FORWARD_QKV] = shape(2, 5, 24);
    whole.call.operand[ATTENTION_FORWARD_SCALARS] = integers(SCALAR_WORDS);
    set_make(&whole, pool);
    ref_run(&whole.call, &whole.tensors);
    step.call.kind = OP_ATTENTION_CACHED;
    step.call.attrs.time = 1;
    step.call.operand[ATTENTION_CACHED_QKV] = shape(2, 1, 24);
    step.call.operand[ATTENTION_CACHED_SCALARS] = integers(SCALAR_WORDS);
    step.call.operand[ATTENTION_CACHED_CACHE] = (struct operand){.present = true, .rank = 4, .dims = {2, 1, 6, 6}};
    set_make(&step, pool);
    for (int64_t i = 0; i < 5; i++) {
        memcpy(step.tensors.value[ATTENTION_CACHED_QKV], whole.tensors.value[ATTENTION_FORWARD_QKV] + i * 24,
               24 * sizeof(double));
        step.tensors.value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION] = (double)i;
        ref_run(&step.call, &step.tensors);
        for (int64_t c = 0; c < 12; c++)
            worst = fmax(worst, fabs(step.tensors.value[ATTENTION_CACHED_Y][c] -
                                     whole.tensors.value[ATTENTION_FORWARD_Y][i * 12 + c]));
    }
    printf("%-28s differs by %.2e\n", "attention_cached by rows", worst);
    totals->passed += worst <= ROUNDINGS;
    totals->failed += !(worst <= ROUNDINGS);
}

/* One parameter by hand: gradient 0.5, first step.  m = 0.25, v = 0.0625, corrected 0.5 and 0.25; the move is
 * 0.1 (0.5 / (0.5 + 0.5) + 0.25 * 2) = 0.1.  With a master the weight is there, and param follows. */
static void check_adamw(struct totals *totals, struct pool *pool, int32_t weight)
{
    struct op_attrs attrs = {.beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 0.5f, .weight_decay = 0.25f};
    struct set set = {.call = {.kind = OP_ADAMW, .attrs = attrs}};
    for (int32_t slot = 0; slot < ADAMW_OPERANDS; slot++)
        set.call.operand[slot] = shape(1, 1, 0);
    set.call.operand[ADAMW_MASTER].present = weight == ADAMW_MASTER;
    set.call.operand[ADAMW_SCALARS] = integers(SCALAR_WORDS);
    set.call.operand[ADAMW_CORRECTIONS] = shape(2, 1, 2);
    set_make(&set, pool);
    double *scalars = set.tensors.value[ADAMW_SCALARS];
    scalars[SCALAR_LEARNING_RATE] = 0.1;
    scalars[SCALAR_CLIP] = 0.5;
    scalars[SCALAR_FOUND_INF] = 0.0;
    scalars[SCALAR_ADAM_STEP] = 1.0;
    set.tensors.value[ADAMW_CORRECTIONS][0] = 0.5;
    set.tensors.value[ADAMW_CORRECTIONS][1] = 0.25;
    set.tensors.value[ADAMW_GRAD][0] = 1.0;
    set.tensors.value[weight][0] = 2.0;
    set.tensors.value[ADAMW_M][0] = set.tensors.value[ADAMW_V][0] = 0.0;
    ref_run(&set.call, &set.tensors);
    double worst = fabs(set.tensors.value[ADAMW_PARAM][0] - 1.9) + fabs(set.tensors.value[weight][0] - 1.9) +
                   fabs(set.tensors.value[ADAMW_M][0] - 0.25) + fabs(set.tensors.value[ADAMW_V][0] - 0.0625);
    printf("%-28s differs by %.2e\n", weight == ADAMW_MASTER ? "adamw by hand, master" : "adamw by hand", worst);
    totals->passed += worst <= ROUNDINGS;
    totals->failed += !(worst <= ROUNDINGS);
}

int main(int argc, char **argv)
{
    struct totals totals = {.passed = 0};
    struct pool pool = {.memory = calloc(SPACE, sizeof(double))};
    pool.random.seed = argc > 1 && strncmp(argv[1], "--seed=", 7) == 0 ? strtoull(argv[1] + 7, NULL, 0) : 1337;
    if (pool.memory == NULL)
        abort();
    printf("ref_selftest: seed %" PRIu64 "\n", pool.random.seed);
    check_gelu(&totals, &pool, GELU_ERF);
    check_gelu(&totals, &pool, GELU_TANH);
    check_layernorm(&totals, &pool);
    check_attention(&totals, &pool, 4, 0.0f, "attention dqkv");
    check_attention(&totals, &pool, 2, 0.3f, "attention dqkv, grouped, p");
    check_cross_entropy(&totals, &pool);
    check_embed(&totals, &pool);
    check_gemm(&totals, &pool);
    check_cached(&totals, &pool);
    check_adamw(&totals, &pool, ADAMW_PARAM);
    check_adamw(&totals, &pool, ADAMW_MASTER);
    free(pool.memory);
    printf("checks: %" PRId64 " passed, %" PRId64 " failed, 0 skipped\n", totals.passed, totals.failed);
    return totals.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
