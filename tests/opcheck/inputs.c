/* The values that a case starts from, rounded to the dtype of each operand so that every implementation sees the same.
 *
 * Everything is standard normal unless an op needs otherwise: ids and their sorted rows, statistics that belong to x,
 * probabilities that belong to q and k, moments that are not negative.  "huge" scales what makes results pass the end of
 * fp16, where infinity is the right answer; inputs themselves stay finite.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

static const struct operand *operand_of(const struct check_case *check, int32_t slot)
{
    return &check->call.operand[slot];
}

static void rounded(const struct check_case *check, int32_t slot, double *values)
{
    for (int64_t i = 0, count = operand_elements(operand_of(check, slot)); i < count; i++)
        values[i] = image_rounded(image_dtype(check, slot, i), values[i]);
}

static void fill_floats(const struct check_case *check, int32_t slot, double *values, struct random *random)
{
    for (int64_t i = 0, count = operand_elements(operand_of(check, slot)); i < count; i++)
        values[i] = check->inputs == INPUTS_INTEGER ? (double)(random_below(random, 9) - 4) : random_normal(random);
}

static void scale_all(const struct check_case *check, int32_t slot, double *values, double factor, double offset)
{
    for (int64_t i = 0, count = operand_elements(operand_of(check, slot)); i < count; i++)
        values[i] = values[i] * factor + offset;
}

static void fill_scalars(const struct check_case *check, double *word, struct random *random)
{
    bool integer = check->inputs == INPUTS_INTEGER;
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        word[i] = (double)(1 + random_below(random, 1000));
    word[SCALAR_LEARNING_RATE] = 1e-2;
    word[SCALAR_LOSS_GRADIENT] = check->inputs == INPUTS_LARGE  ? 65536.0 / 3.0
                                 : check->inputs == INPUTS_HUGE ? 131072.0
                                                                : 1.0 / 48.0;
    word[SCALAR_UNSCALE] = check->inputs == INPUTS_LARGE ? 1.0 / 1024.0 : 0.75;
    word[SCALAR_CLIP] = 0.1 + 0.8 * (double)random_word(random) * 0x1p-32;
    word[SCALAR_LOSS_SUM] = integer ? 17.0 : 3.0 * random_normal(random);
    word[SCALAR_FOUND_INF] = 0.0;
    word[SCALAR_SEED_LO] = (double)random_word(random);
    word[SCALAR_SEED_HI] = (double)(random_word(random) >> 8);
    word[SCALAR_POSITION] = 0.0;
}

#define HUGE_SCALE 3e4 /* two of these on top of each other pass the largest fp16 value, 65504 */
#define HUGE_MAX 6e4

/* Multiplies an operand of a "huge" case with `factor`. */
static void huge(const struct check_case *check, int32_t slot, double *const *value, double factor)
{
    if (check->inputs == INPUTS_HUGE && value[slot] != NULL)
        scale_all(check, slot, value[slot], factor, 0.0);
}

/* Inputs stored in fp16 stay finite: what overflows must be a result. */
static void keep_finite(const struct check_case *check, int32_t slot, double *values)
{
    for (int64_t i = 0, count = operand_elements(operand_of(check, slot)); i < count; i++)
        values[i] = fmax(-HUGE_MAX, fmin(HUGE_MAX, values[i]));
}

static void inputs_embed_forward(const struct check_case *check, double *const *value, struct random *random)
{
    const struct operand *wpe = operand_of(check, EMBED_FORWARD_WPE);
    for (int64_t n = 0; n < operand_of(check, EMBED_FORWARD_IDS)->dims[0]; n++)
        value[EMBED_FORWARD_IDS][n] = (double)random_below(random, operand_of(check, EMBED_FORWARD_WTE)->dims[0]);
    value[EMBED_FORWARD_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, wpe->dims[0] - check->call.attrs.time + 1);
    huge(check, EMBED_FORWARD_WTE, value, HUGE_SCALE);
    huge(check, EMBED_FORWARD_WPE, value, HUGE_SCALE);
}

/* Few distinct ids, so that groups are long; rows listed by rising id and, within it, rising row. */
static void inputs_embed_backward(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t rows = operand_of(check, EMBED_BACKWARD_IDS)->dims[0],
            vocab = operand_of(check, EMBED_BACKWARD_DWTE)->dims[0];
    int64_t groups = 0, listed = 0, capacity = operand_of(check, EMBED_BACKWARD_STARTS)->dims[0];
    for (int64_t n = 0; n < rows; n++)
        value[EMBED_BACKWARD_IDS][n] = (double)(n % 3 == 0 ? vocab - 1 : random_below(random, vocab));
    for (int64_t i = 0; i < capacity; i++)
        value[EMBED_BACKWARD_STARTS][i] = 0.0;
    for (int64_t id = 0; id < vocab && listed < rows; id++) {
        int64_t first = listed;
        for (int64_t n = 0; n < rows; n++) {
            if ((int64_t)value[EMBED_BACKWARD_IDS][n] == id)
                value[EMBED_BACKWARD_ORDER][listed++] = (double)n;
        }
        if (listed > first)
            value[EMBED_BACKWARD_STARTS][1 + ++groups] = (double)listed;
    }
    value[EMBED_BACKWARD_STARTS][0] = (double)groups;
    huge(check, EMBED_BACKWARD_DY, value, HUGE_SCALE);
}

static void inputs_layernorm_x(const struct check_case *check, int32_t slot, double *x)
{
    if (check->inputs == INPUTS_LARGE)
        scale_all(check, slot, x, 1.0, 30.0);
    if (check->inputs == INPUTS_SMALL)
        scale_all(check, slot, x, 1e-2, 0.0);
    rounded(check, slot, x);
}

static void inputs_layernorm_forward(const struct check_case *check, double *const *value, struct random *random)
{
    (void)random;
    inputs_layernorm_x(check, LAYERNORM_FORWARD_X, value[LAYERNORM_FORWARD_X]);
    huge(check, LAYERNORM_FORWARD_GAIN, value, HUGE_SCALE);
}

static void inputs_layernorm_backward(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t channels = operand_of(check, LAYERNORM_BACKWARD_X)->dims[1];
    (void)random;
    inputs_layernorm_x(check, LAYERNORM_BACKWARD_X, value[LAYERNORM_BACKWARD_X]);
    huge(check, LAYERNORM_BACKWARD_DY, value, HUGE_SCALE);
    for (int64_t n = 0; n < operand_of(check, LAYERNORM_BACKWARD_X)->dims[0]; n++) {
        const double *x = value[LAYERNORM_BACKWARD_X] + n * channels;
        double mean = 0.0, variance = 0.0;
        for (int64_t c = 0; c < channels; c++)
            mean += x[c] / (double)channels;
        for (int64_t c = 0; c < channels; c++)
            variance += (x[c] - mean) * (x[c] - mean) / (double)channels;
        value[LAYERNORM_BACKWARD_MEAN][n] = mean;
        value[LAYERNORM_BACKWARD_RSTD][n] = 1.0 / sqrt(variance + 1e-5);
    }
}

static void inputs_gemm(const struct check_case *check, double *const *value, struct random *random)
{
    double inner = (double)operand_of(check, GEMM_A)->dims[check->call.attrs.transpose_a ? 0 : 1];
    huge(check, GEMM_A, value, HUGE_SCALE / sqrt(inner));
    if (check->inputs != INPUTS_SPECIAL)
        return;
    value[GEMM_A][random_below(random, operand_elements(operand_of(check, GEMM_A)))] = (double)INFINITY;
    value[GEMM_B][random_below(random, operand_elements(operand_of(check, GEMM_B)))] = (double)NAN;
}

static void inputs_bias_backward(const struct check_case *check, double *const *value, struct random *random)
{
    huge(check, BIAS_BACKWARD_DY, value, HUGE_SCALE);
    if (check->inputs == INPUTS_SPECIAL)
        value[BIAS_BACKWARD_DY][random_below(random, operand_elements(operand_of(check, BIAS_BACKWARD_DY)))] =
            -(double)INFINITY;
}

static void inputs_gelu(const struct check_case *check, int32_t slot, double *x, struct random *random)
{
    scale_all(check, slot, x, check->inputs == INPUTS_LARGE ? 6.0 : check->inputs == INPUTS_SMALL ? 1e-3 : 2.0, 0.0);
    if (check->inputs == INPUTS_SPECIAL)
        x[random_below(random, operand_elements(operand_of(check, slot)))] = (double)NAN;
}

static void inputs_gelu_forward(const struct check_case *check, double *const *value, struct random *random)
{
    inputs_gelu(check, GELU_FORWARD_X, value[GELU_FORWARD_X], random);
    huge(check, GELU_FORWARD_X, value, HUGE_SCALE / 2.0);
}

static void inputs_gelu_backward(const struct check_case *check, double *const *value, struct random *random)
{
    inputs_gelu(check, GELU_BACKWARD_X, value[GELU_BACKWARD_X], random);
    huge(check, GELU_BACKWARD_DY, value, 2.0 * HUGE_SCALE); /* the slope is at most 1.13 */
}

/* Multiplies the values, the last part of every row of qkv. */
static void scale_values(const struct check_case *check, int32_t slot, double *qkv, double factor)
{
    const struct op_attrs *attrs = &check->call.attrs;
    int64_t width = operand_of(check, slot)->dims[1], size = width / (attrs->heads + 2 * attrs->kv_heads);
    for (int64_t i = 0, count = operand_elements(operand_of(check, slot)); i < count; i++)
        qkv[i] *= i % width >= (attrs->heads + attrs->kv_heads) * size ? factor : 1.0;
}

static void inputs_attention_forward(const struct check_case *check, double *const *value, struct random *random)
{
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 4.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    scale_all(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], HUGE_SCALE);
}

/* lse and y come from the oracle's forward, rounded as they would be stored.  "huge": dv adds up large dy of one sign, while
 * small values keep ds, which a backend may round to 16 bits, far from overflow. */
static void inputs_attention_backward(const struct check_case *check, double *const *value, struct random *random)
{
    struct check_case forward = {.call = {.kind = OP_ATTENTION_FORWARD, .attrs = check->call.attrs}};
    struct ref_tensors tensors = {.value = {NULL}};
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 3.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    scale_all(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], factor, 0.0);
    if (check->inputs == INPUTS_HUGE) {
        scale_values(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], 1e-3);
        scale_all(check, ATTENTION_BACKWARD_DY, value[ATTENTION_BACKWARD_DY], HUGE_SCALE / 4.0, HUGE_SCALE);
    }
    rounded(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV]);
    forward.call.operand[ATTENTION_FORWARD_QKV] = *operand_of(check, ATTENTION_BACKWARD_QKV);
    tensors.value[ATTENTION_FORWARD_QKV] = value[ATTENTION_BACKWARD_QKV];
    tensors.value[ATTENTION_FORWARD_SCALARS] = value[ATTENTION_BACKWARD_SCALARS];
    tensors.value[ATTENTION_FORWARD_Y] = value[ATTENTION_BACKWARD_Y];
    tensors.value[ATTENTION_FORWARD_LSE] = value[ATTENTION_BACKWARD_LSE];
    size_t count = (size_t)operand_elements(operand_of(check, ATTENTION_BACKWARD_Y));
    double *terms = calloc(2 * count, sizeof *terms); /* lse is never larger than y */
    if (terms == NULL)
        abort();
    tensors.term[ATTENTION_FORWARD_Y] = terms;
    tensors.term[ATTENTION_FORWARD_LSE] = terms + count;
    ref_run(&forward.call, &tensors);
    free(terms);
}

static void inputs_attention_cached(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t capacity = operand_of(check, ATTENTION_CACHED_CACHE)->dims[2];
    if (check->inputs == INPUTS_HUGE)
        scale_values(check, ATTENTION_CACHED_QKV, value[ATTENTION_CACHED_QKV], HUGE_SCALE);
    value[ATTENTION_CACHED_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, capacity - check->call.attrs.time + 1);
}

static void inputs_cross_entropy(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t rows = operand_of(check, CROSS_ENTROPY_TARGETS)->dims[0];
    bool ignores = check->inputs == INPUTS_SPECIAL;
    scale_all(check, CROSS_ENTROPY_LOGITS, value[CROSS_ENTROPY_LOGITS], check->inputs == INPUTS_LARGE ? 8.0 : 2.0,
              check->inputs == INPUTS_LARGE ? 50.0 : 0.0);
    for (int64_t n = 0; n < rows; n++)
        value[CROSS_ENTROPY_TARGETS][n] =
            ignores && n % 3 == 0 ? -1.0 : (double)random_below(random, check->call.attrs.vocab);
}

static void inputs_clip_factor(const struct check_case *check, double *const *value, struct random *random)
{
    double *partial = value[CLIP_FACTOR_PARTIALS];
    int64_t count = operand_of(check, CLIP_FACTOR_PARTIALS)->dims[0];
    for (int64_t i = 0; i < count; i++)
        partial[i] = partial[i] * partial[i] * (check->inputs == INPUTS_SMALL ? 1e-9 / (double)count : 1.0);
    if (check->inputs == INPUTS_SPECIAL)
        partial[random_below(random, count)] = check->index % 2 != 0 ? (double)INFINITY : (double)NAN;
}

static void inputs_adamw(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t rows = operand_of(check, ADAMW_CORRECTIONS)->dims[0],
            count = operand_elements(operand_of(check, ADAMW_PARAM));
    double small = check->inputs == INPUTS_SMALL ? 1e-5 : 0.1;
    for (int64_t i = 0; i < count; i++) {
        value[ADAMW_GRAD][i] *= small;
        value[ADAMW_M][i] *= small;
        value[ADAMW_V][i] *= value[ADAMW_V][i] * small * small;
    }
    for (int64_t k = 0; k < rows; k++) {
        value[ADAMW_CORRECTIONS][2 * k] = 1.0 - pow((double)check->call.attrs.beta1, (double)(k + 1));
        value[ADAMW_CORRECTIONS][2 * k + 1] = 1.0 - pow((double)check->call.attrs.beta2, (double)(k + 1));
    }
    huge(check, ADAMW_PARAM, value, 2.0 * HUGE_SCALE);
    huge(check, ADAMW_GRAD, value, HUGE_SCALE * HUGE_SCALE);
    huge(check, ADAMW_M, value, HUGE_SCALE * HUGE_SCALE);
    huge(check, ADAMW_MASTER, value, 2.0 * HUGE_SCALE);
    for (int64_t i = 0; i < count && value[ADAMW_MASTER] != NULL; i++) /* what the update before left */
        value[ADAMW_PARAM][i] = image_rounded(DTYPE_F32, value[ADAMW_MASTER][i]);
    value[ADAMW_SCALARS][SCALAR_ADAM_STEP] = (double)(1 + random_below(random, rows + 3));
    value[ADAMW_SCALARS][SCALAR_FOUND_INF] = check->inputs == INPUTS_SPECIAL ? 1.0 : 0.0;
}

/* What gradients are next to each other: some blocks span seven powers of ten, some are zero as a whole. */
static double lean_size(const struct check_case *check, int64_t i)
{
    if (check->inputs == INPUTS_SMALL && i / STATE_BLOCK % 2 == 0)
        return i / STATE_BLOCK % 4 == 0 ? 0.0 : 1e-30;
    return check->inputs == INPUTS_LARGE ? pow(10.0, (double)(-(i % 8))) : 0.1;
}

static void inputs_lean_codes(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t blocks = operand_of(check, ADAMW_LEAN_SCALES)->dims[1];
    for (int64_t i = 0; i < operand_elements(operand_of(check, ADAMW_LEAN_M)); i++) {
        bool zero = lean_size(check, i) == 0.0;
        value[ADAMW_LEAN_M][i] = zero ? 0.0 : (double)random_below(random, 256);
        value[ADAMW_LEAN_V][i] = zero ? 0.0 : (double)random_below(random, 256);
    }
    for (int64_t k = 0; k < 2 * blocks; k++) {
        int64_t e = check->inputs == INPUTS_HUGE ? random_below(random, 227) - 100 : random_below(random, 12) - 10;
        value[ADAMW_LEAN_SCALES][k] = (double)(uint8_t)(int8_t)(k >= blocks && e > 63 ? 63 : e); /* s has a square */
    }
}

static void inputs_adamw_lean(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t rows = operand_of(check, ADAMW_LEAN_CORRECTIONS)->dims[0];
    for (int64_t i = 0; i < operand_elements(operand_of(check, ADAMW_LEAN_PARAM)); i++) {
        double size = lean_size(check, i);
        value[ADAMW_LEAN_GRAD][i] *= size;
        value[ADAMW_LEAN_M][i] *= size;
        value[ADAMW_LEAN_V][i] *= value[ADAMW_LEAN_V][i] * size * size;
    }
    if (operand_of(check, ADAMW_LEAN_M)->dtype == DTYPE_U8)
        inputs_lean_codes(check, value, random);
    for (int64_t k = 0; k < rows; k++) {
        value[ADAMW_LEAN_CORRECTIONS][2 * k] = 1.0 - pow((double)check->call.attrs.beta1, (double)(k + 1));
        value[ADAMW_LEAN_CORRECTIONS][2 * k + 1] = 1.0 - pow((double)check->call.attrs.beta2, (double)(k + 1));
    }
    value[ADAMW_LEAN_SCALARS][SCALAR_ADAM_STEP] = (double)(1 + random_below(random, rows + 3));
    if (check->inputs != INPUTS_SPECIAL)
        return;
    value[ADAMW_LEAN_SCALARS][SCALAR_FOUND_INF] = 1.0;
    value[ADAMW_LEAN_GRAD][random_below(random, operand_elements(operand_of(check, ADAMW_LEAN_GRAD)))] = (double)NAN;
}

/* Beside NaN and infinity, what only rounding up takes to infinity. */
static void inputs_gradient_round(const struct check_case *check, double *const *value, struct random *random)
{
    static const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, -0.0, 0x1p-149, 0x1.fffffep127};
    int64_t count = operand_elements(operand_of(check, GRADIENT_ROUND_X));
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL; i++)
        value[GRADIENT_ROUND_X][random_below(random, count)] = special[i];
}

/* NaN, infinity, a signed zero, the smallest values. */
static void inputs_copy(const struct check_case *check, double *const *value, struct random *random)
{
    static const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, -0.0, 0x1p-24, 0x1p-25, 65519.0};
    int64_t count = operand_elements(operand_of(check, COPY_X));
    huge(check, COPY_X, value, 2.0 * HUGE_SCALE);
    for (size_t i = 0; i < sizeof special / sizeof special[0] && check->inputs == INPUTS_SPECIAL; i++)
        value[COPY_X][random_below(random, count)] = special[i];
}

static void inputs_elementwise(const struct check_case *check, double *const *value)
{
    if (check->call.kind == OP_DROPOUT)
        huge(check, DROPOUT_X, value, 2.0 * HUGE_SCALE);
    if (check->call.kind == OP_SUM_OF_SQUARES)
        huge(check, SUM_OF_SQUARES_X, value, HUGE_SCALE);
    if (check->call.kind == OP_RESIDUAL) {
        huge(check, RESIDUAL_X, value, HUGE_SCALE);
        huge(check, RESIDUAL_Y, value, HUGE_SCALE);
    }
}

static void inputs_specific(const struct check_case *check, double *const *value, struct random *random)
{
    switch (check->call.kind) {
    case OP_EMBED_FORWARD:
        inputs_embed_forward(check, value, random);
        break;
    case OP_EMBED_BACKWARD:
        inputs_embed_backward(check, value, random);
        break;
    case OP_LAYERNORM_FORWARD:
        inputs_layernorm_forward(check, value, random);
        break;
    case OP_LAYERNORM_BACKWARD:
        inputs_layernorm_backward(check, value, random);
        break;
    case OP_GEMM:
        inputs_gemm(check, value, random);
        break;
    case OP_BIAS_BACKWARD:
        inputs_bias_backward(check, value, random);
        break;
    case OP_GELU_FORWARD:
        inputs_gelu_forward(check, value, random);
        break;
    case OP_GELU_BACKWARD:
        inputs_gelu_backward(check, value, random);
        break;
    case OP_ATTENTION_FORWARD:
        inputs_attention_forward(check, value, random);
        break;
    case OP_ATTENTION_BACKWARD:
        inputs_attention_backward(check, value, random);
        break;
    case OP_ATTENTION_CACHED:
        inputs_attention_cached(check, value, random);
        break;
    case OP_CROSS_ENTROPY:
        inputs_cross_entropy(check, value, random);
        break;
    case OP_CLIP_FACTOR:
        inputs_clip_factor(check, value, random);
        break;
    case OP_ADAMW:
        inputs_adamw(check, value, random);
        break;
    case OP_COPY:
        inputs_copy(check, value, random);
        break;
    case OP_ADAMW_LEAN:
        inputs_adamw_lean(check, value, random);
        break;
    case OP_GRADIENT_ROUND:
        inputs_gradient_round(check, value, random);
        break;
    case OP_MUON_MOMENTUM:
    case OP_MUON_STEP:
        value[check->call.kind == OP_MUON_STEP ? MUON_STEP_SCALARS : MUON_MOMENTUM_SCALARS][SCALAR_FOUND_INF] =
            check->inputs == INPUTS_SPECIAL ? 1.0 : 0.0;
        break;
    case OP_MUON_NORMALIZE:
        value[MUON_NORMALIZE_SUM][0] = check->inputs == INPUTS_SMALL ? 1e-16 : 4.0 + random_normal(random);
        break;
    default:
        inputs_elementwise(check, value);
    }
}

void inputs_fill(const struct check_case *check, double *const value[OP_OPERANDS_MAX])
{
    const struct op_declaration *declaration = op_declaration(check->call.kind);
    struct random random = {.seed = ~check->seed};
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (value[slot] == NULL)
            continue;
        if (strcmp(declaration->operand[slot].name, "scalars") == 0) {
            fill_scalars(check, value[slot], &random);
            rounded(check, slot, value[slot]);
        } else if (operand_of(check, slot)->dtype != DTYPE_I32 &&
                   op_direction(check->call.kind, &check->call.attrs, slot) != OPERAND_OUT) {
            fill_floats(check, slot, value[slot], &random);
        } else if (operand_of(check, slot)->dtype != DTYPE_I32) {
            scale_all(check, slot, value[slot], 0.0, (double)NAN); /* an output holds nothing yet */
        }
    }
    inputs_specific(check, value, &random);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (value[slot] == NULL)
            continue;
        if (check->inputs == INPUTS_HUGE && operand_of(check, slot)->dtype == DTYPE_F16)
            keep_finite(check, slot, value[slot]);
        rounded(check, slot, value[slot]);
    }
}
