/* The values that a case starts from, rounded to the dtype of each operand so that every implementation sees the same.
 *
 * Everything is standard normal unless an op needs otherwise: ids and their sorted rows, statistics that belong to x,
 * probabilities that belong to q and k, moments that are not negative.
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
    for (int64_t i = 0; i < operand_elements(operand_of(check, slot)); i++)
        values[i] = image_rounded(image_dtype(check, slot, i), values[i]);
}

static void fill_floats(const struct check_case *check, int32_t slot, double *values, struct random *random)
{
    for (int64_t i = 0; i < operand_elements(operand_of(check, slot)); i++)
        values[i] = check->inputs == INPUTS_INTEGER ? (double)(random_below(random, 9) - 4) : random_normal(random);
}

static void scale_all(const struct check_case *check, int32_t slot, double *values, double factor, double offset)
{
    for (int64_t i = 0; i < operand_elements(operand_of(check, slot)); i++)
        values[i] = values[i] * factor + offset;
}

static void fill_scalars(const struct check_case *check, double *word, struct random *random)
{
    bool integer = check->inputs == INPUTS_INTEGER;
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        word[i] = (double)(1 + random_below(random, 1000));
    word[SCALAR_LEARNING_RATE] = 1e-2;
    word[SCALAR_LOSS_GRADIENT] = check->inputs == INPUTS_LARGE ? 65536.0 / 3.0 : 1.0 / 48.0;
    word[SCALAR_UNSCALE] = check->inputs == INPUTS_LARGE ? 1.0 / 1024.0 : 0.75;
    word[SCALAR_CLIP] = 0.1 + 0.8 * (double)random_word(random) * 0x1p-32;
    word[SCALAR_LOSS_SUM] = integer ? 17.0 : 3.0 * random_normal(random);
    word[SCALAR_FOUND_INF] = 0.0;
    word[SCALAR_SEED_LO] = (double)random_word(random);
    word[SCALAR_SEED_HI] = (double)(random_word(random) >> 8);
    word[SCALAR_POSITION] = 0.0;
}

static void inputs_embed_forward(const struct check_case *check, double *const *value, struct random *random)
{
    const struct operand *wpe = operand_of(check, EMBED_FORWARD_WPE);
    for (int64_t n = 0; n < operand_of(check, EMBED_FORWARD_IDS)->dims[0]; n++)
        value[EMBED_FORWARD_IDS][n] = (double)random_below(random, operand_of(check, EMBED_FORWARD_WTE)->dims[0]);
    value[EMBED_FORWARD_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, wpe->dims[0] - check->call.attrs.time + 1);
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
}

static void inputs_layernorm_backward(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t channels = operand_of(check, LAYERNORM_BACKWARD_X)->dims[1];
    (void)random;
    inputs_layernorm_x(check, LAYERNORM_BACKWARD_X, value[LAYERNORM_BACKWARD_X]);
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
    if (check->inputs != INPUTS_SPECIAL)
        return;
    value[GEMM_A][random_below(random, operand_elements(operand_of(check, GEMM_A)))] = (double)INFINITY;
    value[GEMM_B][random_below(random, operand_elements(operand_of(check, GEMM_B)))] = (double)NAN;
}

static void inputs_bias_backward(const struct check_case *check, double *const *value, struct random *random)
{
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
}

static void inputs_gelu_backward(const struct check_case *check, double *const *value, struct random *random)
{
    inputs_gelu(check, GELU_BACKWARD_X, value[GELU_BACKWARD_X], random);
}

static void inputs_attention_forward(const struct check_case *check, double *const *value, struct random *random)
{
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 4.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    scale_all(check, ATTENTION_FORWARD_QKV, value[ATTENTION_FORWARD_QKV], factor, 0.0);
}

/* lse and y come from the oracle's forward, rounded as they would be stored. */
static void inputs_attention_backward(const struct check_case *check, double *const *value, struct random *random)
{
    struct check_case forward = {.call = {.kind = OP_ATTENTION_FORWARD, .attrs = check->call.attrs}};
    struct ref_tensors tensors = {{NULL}, {NULL}};
    (void)random;
    double factor = check->inputs == INPUTS_LARGE ? 3.0 : check->inputs == INPUTS_SMALL ? 0.1 : 1.0;
    scale_all(check, ATTENTION_BACKWARD_QKV, value[ATTENTION_BACKWARD_QKV], factor, 0.0);
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
    value[ADAMW_SCALARS][SCALAR_ADAM_STEP] = (double)(1 + random_below(random, rows + 3));
    value[ADAMW_SCALARS][SCALAR_FOUND_INF] = check->inputs == INPUTS_SPECIAL ? 1.0 : 0.0;
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
    default:
        break;
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
        } else if (operand_of(check, slot)->dtype != DTYPE_I32)
            fill_floats(check, slot, value[slot], &random);
    }
    inputs_specific(check, value, &random);
    for (int32_t slot = 0; slot < declaration->operands; slot++) {
        if (value[slot] != NULL)
            rounded(check, slot, value[slot]);
    }
}
