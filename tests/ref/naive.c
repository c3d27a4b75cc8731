/* The naive reference of everything but attention and the row functions: one float accumulator, rising index order.
 *
 * Defects are branches in the place where a programmer would make the mistake.  Nothing is vectorised or blocked.
 */
#include "tests/ref/naive.h"

#include <assert.h>
#include <math.h>

void naive_run(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    static void (*const table[])(const struct op_call *, double *const *, enum naive_defect) = {
#define OP(KIND, name, ...) [OP_##KIND] = naive_##name,
#include "ops/ops.def"
#undef OP
    };
    _Static_assert(sizeof table / sizeof table[0] == OP_KIND_COUNT, "every op has a naive version");
    assert((unsigned)call->kind < OP_KIND_COUNT);
    table[call->kind](call, value, defect);
}

float naive_rounded(enum dtype dtype, float value)
{
    if (dtype == DTYPE_BF16)
        return bf16_to_f32(bf16_from_f32(value));
    return dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(value)) : value;
}

float naive_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample, int64_t element,
                           enum naive_defect defect)
{
    if (dropout_threshold(p) == 0 && defect != DEFECT_MASK_INVERTED)
        return 1.0f;
    uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI] << 32 | (uint64_t)scalars[SCALAR_SEED_LO];
    int32_t first = (int32_t)scalars[SCALAR_SAMPLE_BASE];
    if (defect == DEFECT_WRONG_SAMPLE)
        first = 0;
    if (defect == DEFECT_WRONG_SITE)
        site = 0;
    struct philox_block block =
        philox4x32_10(philox_key_make(seed, RNG_DROPOUT),
                      dropout_counter(element, site, first + (int32_t)sample, (int32_t)scalars[SCALAR_STEP]));
    bool kept = dropout_bits(block, element) >= dropout_threshold(p);
    if (defect == DEFECT_MASK_INVERTED)
        kept = !kept;
    if (!kept)
        return 0.0f;
    return defect == DEFECT_FORGET_SCALE ? 1.0f : dropout_scale(p);
}

static bool adds_to(const struct op_call *call, int32_t slot)
{
    return op_direction(call->kind, &call->attrs, slot) == OPERAND_INOUT;
}

float naive_before(const struct op_call *call, double *const *value, int32_t slot, int64_t i, enum naive_defect defect)
{
    bool starts_with_old =
        adds_to(call, slot) && defect != DEFECT_IGNORE_ACCUMULATE && defect != DEFECT_DOUBLE_ROUNDING;
    return starts_with_old ? naive_at(value[slot], i) : 0.0f;
}

void naive_store(const struct op_call *call, double *const *value, int32_t slot, int64_t i, float sum,
                 enum naive_defect defect)
{
    if (defect == DEFECT_DOUBLE_ROUNDING && adds_to(call, slot))
        sum = naive_at(value[slot], i) + naive_rounded(call->operand[slot].dtype, sum);
    value[slot][i] = (double)sum;
}

void naive_embed_forward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0], channels = call->operand[EMBED_FORWARD_Y].dims[1];
    int64_t position = (int64_t)value[EMBED_FORWARD_SCALARS][SCALAR_POSITION], time = call->attrs.time;
    if (defect == DEFECT_FORGET_POSITION)
        position = 0;
    for (int64_t n = 0; n < rows; n++) {
        int64_t id = (int64_t)value[EMBED_FORWARD_IDS][n];
        int64_t place = position + (defect == DEFECT_WRONG_ROW ? n / (rows / time) : n % time);
        for (int64_t c = 0; c < channels; c++) {
            float b = naive_at(value[EMBED_FORWARD_WPE], place * channels + c);
            int64_t from = defect == DEFECT_SHIFTED ? (c + 1) % channels : c;
            value[EMBED_FORWARD_Y][n * channels + c] =
                (double)(naive_at(value[EMBED_FORWARD_WTE], id * channels + from) +
                         (defect == DEFECT_FORGET_BIAS ? 0.0f : b));
        }
    }
}

static void embed_backward_positions(const struct op_call *call, double *const *value, enum naive_defect defect)
{
    int64_t channels = call->operand[EMBED_BACKWARD_DY].dims[1], time = call->attrs.time;
    int64_t samples = call->operand[EMBED_BACKWARD_DY].dims[0] / time;
    for (int64_t i = 0; i < call->operand[EMBED_BACKWARD_DWPE].dims[0] * channels; i++) {
        float sum = naive_before(call, value, EMBED_BACKWARD_DWPE, i, defect);
        if (i >= time * channels) {
            if (defect != DEFECT_PADDING)
                naive_store(call, value, EMBED_BACKWARD_DWPE, i, sum, defect);
            continue;
        }
        for (int64_t b = 0; b < samples; b++)
            sum = naive_add(sum, naive_at(value[EMBED_BACKWARD_DY], b * time * channels + i), defect);
        naive_store(call, value, EMBED_BACKWARD_DWPE, i, sum, defect);
    }
}

void naive_embed_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    int64_t groups = (int64_t)value[EMBED_BACKWARD_STARTS][0];
    const double *order = value[EMBED_BACKWARD_ORDER], *starts = value[EMBED_BACKWARD_STARTS] + 1;
    for (int64_t g = 0; g < groups; g++) {
        int64_t first = (int64_t)starts[g], last = (int64_t)starts[g + 1];
        int64_t row = (int64_t)value[EMBED_BACKWARD_IDS][(int64_t)order[first]] * channels;
        if (defect == DEFECT_LAST_TERM && last > first + 1)
            last--;
        for (int64_t c = 0; c < channels; c++) {
            float sum = naive_before(call, value, EMBED_BACKWARD_DWTE, row + c, defect);
            for (int64_t k = first; k < last; k++) {
                int64_t n = defect == DEFECT_WRONG_ROW ? k : (int64_t)order[k];
                sum = naive_add(sum, naive_at(value[EMBED_BACKWARD_DY], n * channels + c), defect);
            }
            naive_store(call, value, EMBED_BACKWARD_DWTE, row + c, sum, defect);
        }
    }
    embed_backward_positions(call, value, defect);
}

struct product {
    const double *a, *b;
    int64_t a_step, b_step, used;
};

/* Sums of four exact products and the accumulator, cut off after 24 significant bits: the least that matrix units do. */
static float truncated_sum(const struct product *product, float sum)
{
    for (int64_t k = 0; k < product->used; k += 4) {
        double exact = (double)sum;
        for (int64_t j = k; j < k + 4 && j < product->used; j++)
            exact += product->a[j * product->a_step] * product->b[j * product->b_step];
        sum = (float)exact;
        if (fabs((double)sum) > fabs(exact))
            sum = nextafterf(sum, 0.0f);
    }
    return sum;
}

static float product_sum(const struct product *product, float sum, enum naive_defect defect)
{
    if (defect == PERMITTED_TRUNCATED_SUM)
        return truncated_sum(product, sum);
    for (int64_t k = 0; k < product->used; k++)
        sum = naive_add(sum, naive_at(product->a, k * product->a_step) * naive_at(product->b, k * product->b_step),
                        defect);
    return sum;
}

void naive_gemm(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    bool flip = defect == DEFECT_SWAPPED && call->operand[GEMM_B].dims[0] == call->operand[GEMM_B].dims[1];
    bool transpose_a = call->attrs.transpose_a, transpose_b = call->attrs.transpose_b != flip;
    int64_t rows = call->operand[GEMM_D].dims[0], columns = call->operand[GEMM_D].dims[1];
    int64_t inner = call->operand[GEMM_A].dims[transpose_a ? 0 : 1];
    bool has_bias = value[GEMM_BIAS] != NULL && defect != DEFECT_FORGET_BIAS;
    struct product product = {.used = defect == DEFECT_LAST_TERM ? inner - 1 : inner,
                              .a_step = transpose_a ? rows : 1,
                              .b_step = transpose_b ? 1 : columns};
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            float bias = has_bias ? naive_at(value[GEMM_BIAS], j) : 0.0f;
            float sum = has_bias ? bias : naive_before(call, value, GEMM_D, i * columns + j, defect);
            product.a = value[GEMM_A] + (transpose_a ? i : i * inner);
            product.b = value[GEMM_B] + (transpose_b ? j * inner : j);
            if (has_bias && defect == DEFECT_DOUBLE_ROUNDING)
                sum = bias + naive_rounded(call->operand[GEMM_D].dtype, product_sum(&product, 0.0f, defect));
            else
                sum = product_sum(&product, sum, defect);
            naive_store(call, value, GEMM_D, i * columns + j, sum, defect);
        }
    }
}

void naive_bias_backward(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t rows = call->operand[BIAS_BACKWARD_DY].dims[0], columns = call->operand[BIAS_BACKWARD_DY].dims[1];
    int64_t used = defect == DEFECT_LAST_TERM ? rows - 1 : rows;
    for (int64_t j = 0; j < columns; j++) {
        float sum = naive_before(call, value, BIAS_BACKWARD_DBIAS, j, defect);
        for (int64_t i = 0; i < used; i++)
            sum = naive_add(sum, naive_at(value[BIAS_BACKWARD_DY], i * columns + j), defect);
        naive_store(call, value, BIAS_BACKWARD_DBIAS, j, sum, defect);
    }
}

void naive_dropout(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t sample_elements = call->attrs.time * call->operand[DROPOUT_X].dims[1];
    for (int64_t i = 0; i < operand_elements(&call->operand[DROPOUT_X]); i++) {
        int64_t element = i % sample_elements + (defect == DEFECT_SHIFTED ? 1 : 0);
        value[DROPOUT_Y][i] = (double)(naive_at(value[DROPOUT_X], i) *
                                       naive_dropout_factor(value[DROPOUT_SCALARS], call->attrs.dropout,
                                                            call->attrs.site, i / sample_elements, element, defect));
    }
}

void naive_residual(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t count = operand_elements(&call->operand[RESIDUAL_R]);
    for (int64_t i = 0; i < count; i++) {
        float x = naive_at(value[RESIDUAL_X], i), y = naive_at(value[RESIDUAL_Y], i);
        if (defect == DEFECT_FORGET_BIAS)
            y = 0.0f;
        if (defect == DEFECT_SWAPPED)
            x = y;
        if (defect == DEFECT_SHIFTED)
            y = naive_at(value[RESIDUAL_Y], (i + 1) % count);
        value[RESIDUAL_R][i] = (double)(x + y);
    }
}

void naive_loss_sum(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t rows = call->operand[LOSS_SUM_LOSSES].dims[0];
    double *slot = &value[LOSS_SUM_SCALARS][SCALAR_LOSS_SUM];
    float sum = defect == DEFECT_IGNORE_ACCUMULATE ? 0.0f : (float)*slot;
    for (int64_t n = 0; n < (defect == DEFECT_LAST_TERM ? rows - 1 : rows); n++)
        sum = naive_add(sum, naive_at(value[LOSS_SUM_LOSSES], n), defect);
    if (defect == DEFECT_SHIFTED)
        slot = &value[LOSS_SUM_SCALARS][SCALAR_LOSS_SUM - 1];
    *slot = (double)sum;
}

void naive_sum_of_squares(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t count = operand_elements(&call->operand[SUM_OF_SQUARES_X]);
    float sum = 0.0f;
    for (int64_t i = 0; i < (defect == DEFECT_LAST_TERM ? count - 1 : count); i++) {
        float x = naive_at(value[SUM_OF_SQUARES_X], i);
        sum = naive_add(sum, defect == DEFECT_WRONG_KIND ? fabsf(x) : x * x, defect);
    }
    value[SUM_OF_SQUARES_PARTIAL][0] = (double)(defect == DEFECT_SWAPPED ? sqrtf(sum) : sum);
}

void naive_clip_factor(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    double *scalars = value[CLIP_FACTOR_SCALARS];
    int64_t count = call->operand[CLIP_FACTOR_PARTIALS].dims[0];
    float sum = 0.0f, unscale = (float)scalars[SCALAR_UNSCALE], limit = call->attrs.clip_max;
    for (int64_t i = 0; i < (defect == DEFECT_LAST_TERM ? count - 1 : count); i++)
        sum = naive_add(sum, naive_at(value[CLIP_FACTOR_PARTIALS], i), defect);
    float norm = (defect == DEFECT_WRONG_KIND ? sum : sqrtf(sum)) * (defect == DEFECT_FORGET_SCALE ? 1.0f : unscale);
    float ratio = limit / (norm + (defect == DEFECT_EPSILON ? 0.0f : 1e-6f));
    if (limit == 0.0f || (ratio > 1.0f && defect != DEFECT_FORGET_LIMIT))
        ratio = 1.0f;
    scalars[SCALAR_GRAD_NORM] = (double)norm;
    scalars[SCALAR_CLIP] = (double)(unscale * ratio);
    scalars[SCALAR_FOUND_INF] = isfinite(norm) || defect == DEFECT_FORGET_SKIP ? 0.0 : 1.0;
    if (isfinite(norm) && defect != DEFECT_FORGET_STEP)
        scalars[SCALAR_ADAM_STEP] += 1.0;
}

/* The updated weight goes to the master where there is one, and from it to param. */
static void adamw_store(double *const *value, int64_t i, float p, enum naive_defect defect)
{
    bool has_master = value[ADAMW_MASTER] != NULL;
    if (has_master && defect != DEFECT_MASTER_STALE)
        value[ADAMW_MASTER][i] = (double)p;
    if (!has_master || defect != DEFECT_PARAM_STALE)
        value[ADAMW_PARAM][i] = (double)p;
}

static void adamw_element(const struct op_call *call, double *const *value, const double *correction, int64_t i,
                          enum naive_defect defect)
{
    const double *scalars = value[ADAMW_SCALARS];
    bool from_master = value[ADAMW_MASTER] != NULL && defect != DEFECT_FROM_PARAM;
    float b1 = call->attrs.beta1, b2 = call->attrs.beta2, decay = call->attrs.weight_decay,
          epsilon = call->attrs.epsilon;
    float rate = (float)scalars[SCALAR_LEARNING_RATE], clip = (float)scalars[SCALAR_CLIP],
          p = naive_at(value[from_master ? ADAMW_MASTER : ADAMW_PARAM], i);
    float bc1 = (float)correction[0], bc2 = (float)correction[1];
    float g = naive_at(value[ADAMW_GRAD], i) * (defect == DEFECT_FORGET_SCALE ? 1.0f : clip);
    if (defect == DEFECT_SWAPPED) {
        b1 = call->attrs.beta2;
        b2 = call->attrs.beta1;
    }
    if (defect == DEFECT_COUPLED_DECAY) {
        g += decay * p;
        decay = 0.0f;
    }
    if (defect == DEFECT_FORGET_CORRECTION)
        bc1 = bc2 = 1.0f;
    float m = b1 * naive_at(value[ADAMW_M], i) + (1.0f - b1) * g;
    float v = b2 * naive_at(value[ADAMW_V], i) + (1.0f - b2) * g * g;
    float denominator = defect == DEFECT_EPSILON ? sqrtf(v / bc2 + epsilon) : sqrtf(v / bc2) + epsilon;
    value[ADAMW_M][i] = (double)m;
    value[ADAMW_V][i] = (double)v;
    adamw_store(value, i, p - rate * (m / bc1 / denominator + decay * p), defect);
}

void naive_adamw(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    const double *scalars = value[ADAMW_SCALARS];
    int64_t rows = call->operand[ADAMW_CORRECTIONS].dims[0], row = (int64_t)scalars[SCALAR_ADAM_STEP] - 1;
    row = row < rows ? row : rows - 1;
    if (defect == DEFECT_FORGET_STEP)
        row = row < rows - 1 ? row + 1 : row;
    if (scalars[SCALAR_FOUND_INF] != 0.0 && defect != DEFECT_FORGET_SKIP)
        return;
    for (int64_t i = 0; i < operand_elements(&call->operand[ADAMW_PARAM]); i++)
        adamw_element(call, value, value[ADAMW_CORRECTIONS] + 2 * row, i, defect);
}

void naive_fill(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    float y = defect == DEFECT_WRONG_KIND ? 0.0f : call->attrs.value;
    for (int64_t i = defect == DEFECT_SHIFTED ? 1 : 0; i < operand_elements(&call->operand[FILL_Y]); i++)
        value[FILL_Y][i] = (double)y;
}

void naive_copy(const struct op_call *call, double *const value[OP_OPERANDS_MAX], enum naive_defect defect)
{
    int64_t count = operand_elements(&call->operand[COPY_Y]);
    bool adds = adds_to(call, COPY_Y);
    for (int64_t i = 0; i < count; i++) {
        int64_t from = defect == DEFECT_SHIFTED ? (i + 1) % count : i;
        float x = naive_at(value[COPY_X], from);
        if (defect == DEFECT_ZERO_SIGN)
            x += 0.0f; /* 0 + -0 is 0: a plain copy adds nothing */
        naive_store(call, value, COPY_Y, i, adds ? naive_before(call, value, COPY_Y, i, defect) + x : x, defect);
    }
}
