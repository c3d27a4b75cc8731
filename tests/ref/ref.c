/* The oracle's table, its dropout masks, and the ops that are one loop: embeddings, products, sums, the optimizer.
 *
 * Everything is stored and summed in double, in rising index order.  Nothing here is meant to be fast.
 */
#include "tests/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void ref_run(const struct op_call *call, const struct ref_tensors *tensors)
{
    static void (*const table[])(const struct op_call *, const struct ref_tensors *) = {
#define OP(KIND, name, ...) [OP_##KIND] = ref_##name,
#include "ops/ops.def"
#undef OP
    };
    _Static_assert(sizeof table / sizeof table[0] == OP_KIND_COUNT, "every op has an oracle");
    assert((unsigned)call->kind < OP_KIND_COUNT);
    table[call->kind](call, tensors);
}

double ref_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample, int64_t element)
{
    uint32_t threshold = (uint32_t)floor((double)p * 65536.0 + 0.5);
    if (threshold == 0)
        return 1.0; /* every pattern is kept */
    uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI] << 32 | (uint64_t)scalars[SCALAR_SEED_LO];
    struct philox_block counter;
    counter.word[0] = (uint32_t)(element / 8);
    counter.word[1] = (uint32_t)site;
    counter.word[2] = (uint32_t)((int64_t)scalars[SCALAR_SAMPLE_BASE] + sample);
    counter.word[3] = (uint32_t)(int32_t)scalars[SCALAR_STEP];
    struct philox_block block = philox4x32_10(philox_key_make(seed, RNG_DROPOUT), counter);
    uint32_t within = (uint32_t)(element & 7);
    uint32_t word = block.word[within >> 1];
    uint32_t bits = (within & 1) != 0 ? word >> 16 : word & 0xffffu;
    return bits >= threshold ? 65536.0 / (65536.0 - (double)threshold) : 0.0;
}

double ref_rounded(enum dtype dtype, double value)
{
    float single = (float)value;
    if (dtype == DTYPE_BF16)
        return (double)bf16_to_f32(bf16_from_f32(single));
    return (double)(dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(single)) : single);
}

double ref_half_floor(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 0x1p-25 : dtype == DTYPE_BF16 ? 0x1p-134 : 0.0;
}

/* What output `slot` held before where it is added to, else 0. */
static double before(const struct op_call *call, const struct ref_tensors *t, int32_t slot, int64_t i)
{
    return (call->attrs.accumulate >> slot & 1u) != 0 ? t->value[slot][i] : 0.0;
}

void ref_embed_forward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0], channels = call->operand[EMBED_FORWARD_Y].dims[1];
    int64_t position = (int64_t)t->value[EMBED_FORWARD_SCALARS][SCALAR_POSITION];
    for (int64_t n = 0; n < rows; n++) {
        const double *token = t->value[EMBED_FORWARD_WTE] + (int64_t)t->value[EMBED_FORWARD_IDS][n] * channels;
        const double *place = t->value[EMBED_FORWARD_WPE] + (position + n % call->attrs.time) * channels;
        for (int64_t c = 0; c < channels; c++) {
            t->value[EMBED_FORWARD_Y][n * channels + c] = token[c] + place[c];
            t->term[EMBED_FORWARD_Y][n * channels + c] = 0.0;
        }
    }
}

/* Independent of order and starts, which only list what ids says. */
static void embed_backward_tokens(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0], channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    int64_t ids = call->operand[EMBED_BACKWARD_DWTE].dims[0];
    for (int64_t id = 0; id < ids; id++) {
        int64_t count = 0;
        for (int64_t n = 0; n < rows; n++)
            count += (int64_t)t->value[EMBED_BACKWARD_IDS][n] == id;
        for (int64_t c = 0; c < channels; c++) {
            double *sum = &t->value[EMBED_BACKWARD_DWTE][id * channels + c], m = fabs(*sum);
            for (int64_t n = 0; n < rows && count > 0; n++) {
                if ((int64_t)t->value[EMBED_BACKWARD_IDS][n] != id)
                    continue;
                *sum += t->value[EMBED_BACKWARD_DY][n * channels + c];
                m += fabs(t->value[EMBED_BACKWARD_DY][n * channels + c]);
            }
            t->term[EMBED_BACKWARD_DWTE][id * channels + c] = count > 0 ? sqrt((double)count) * m : REF_EXACT;
        }
    }
}

void ref_embed_backward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0], channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    int64_t time = call->attrs.time, samples = rows / time;
    embed_backward_tokens(call, t);
    for (int64_t i = 0; i < call->operand[EMBED_BACKWARD_DWPE].dims[0] * channels; i++) {
        double sum = before(call, t, EMBED_BACKWARD_DWPE, i), m = fabs(sum);
        bool used = i < time * channels;
        for (int64_t b = 0; b < samples && used; b++) {
            sum += t->value[EMBED_BACKWARD_DY][b * time * channels + i];
            m += fabs(t->value[EMBED_BACKWARD_DY][b * time * channels + i]);
        }
        t->value[EMBED_BACKWARD_DWPE][i] = sum;
        t->term[EMBED_BACKWARD_DWPE][i] = used ? sqrt((double)samples) * m : REF_EXACT;
    }
}

/* Matrix units take 16-bit factors at least GEMM_DEPTH at a time, add them up exactly enough, and truncate the sum to
 * fp32: half a unit of 2^-23 on average, at every GEMM_DEPTH-th of the partial sums and of the products next to them. */
#define GEMM_DEPTH 4.0
static void gemm_drift(const struct op_call *call, const struct ref_tensors *t, int64_t i, double path)
{
    if (t->drift[GEMM_D] == NULL || dtype_size_bytes(call->operand[GEMM_A].dtype) != 2)
        return;
    t->drift[GEMM_D][i] = 0.5 * 0x1p-23 * path / GEMM_DEPTH;
    t->half_bound[GEMM_D][i] = 2.0 * t->drift[GEMM_D][i];
}

void ref_gemm(const struct op_call *call, const struct ref_tensors *t)
{
    const struct op_attrs *attrs = &call->attrs;
    int64_t rows = call->operand[GEMM_D].dims[0], columns = call->operand[GEMM_D].dims[1];
    int64_t inner = call->operand[GEMM_A].dims[attrs->transpose_a ? 0 : 1];
    int64_t a_row = attrs->transpose_a ? 1 : inner, a_inner = attrs->transpose_a ? rows : 1;
    int64_t b_inner = attrs->transpose_b ? 1 : columns, b_column = attrs->transpose_b ? inner : 1;
    const double *a = t->value[GEMM_A], *b = t->value[GEMM_B], *bias = t->value[GEMM_BIAS];
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = before(call, t, GEMM_D, i * columns + j);
            if (bias != NULL)
                sum += bias[j];
            double m = fabs(sum), path = 0.0;
            for (int64_t k = 0; k < inner; k++) {
                double product = a[i * a_row + k * a_inner] * b[k * b_inner + j * b_column];
                sum += product;
                m += fabs(product);
                path += fabs(sum) + fabs(product);
            }
            gemm_drift(call, t, i * columns + j, path);
            t->value[GEMM_D][i * columns + j] = sum;
            t->term[GEMM_D][i * columns + j] = sqrt((double)inner) * m;
        }
    }
}

void ref_bias_backward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[BIAS_BACKWARD_DY].dims[0], columns = call->operand[BIAS_BACKWARD_DY].dims[1];
    for (int64_t j = 0; j < columns; j++) {
        double sum = before(call, t, BIAS_BACKWARD_DBIAS, j), m = fabs(sum);
        for (int64_t i = 0; i < rows; i++) {
            sum += t->value[BIAS_BACKWARD_DY][i * columns + j];
            m += fabs(t->value[BIAS_BACKWARD_DY][i * columns + j]);
        }
        t->value[BIAS_BACKWARD_DBIAS][j] = sum;
        t->term[BIAS_BACKWARD_DBIAS][j] = sqrt((double)rows) * m;
    }
}

void ref_dropout(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t columns = call->operand[DROPOUT_X].dims[1];
    int64_t sample_elements = call->attrs.time * columns;
    for (int64_t i = 0; i < operand_elements(&call->operand[DROPOUT_X]); i++) {
        double factor = ref_dropout_factor(t->value[DROPOUT_SCALARS], call->attrs.dropout, call->attrs.site,
                                           i / sample_elements, i % sample_elements);
        double y = t->value[DROPOUT_X][i] * factor;
        t->value[DROPOUT_Y][i] = y;
        t->term[DROPOUT_Y][i] = factor == 0.0 || factor == 1.0 ? REF_EXACT : fabs(y);
    }
}

void ref_residual(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[RESIDUAL_R]); i++) {
        t->value[RESIDUAL_R][i] = t->value[RESIDUAL_X][i] + t->value[RESIDUAL_Y][i];
        t->term[RESIDUAL_R][i] = 0.0;
    }
}

void ref_loss_sum(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[LOSS_SUM_LOSSES].dims[0];
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        t->term[LOSS_SUM_SCALARS][i] = REF_EXACT;
    double *sum = &t->value[LOSS_SUM_SCALARS][SCALAR_LOSS_SUM], m = fabs(*sum);
    for (int64_t n = 0; n < rows; n++) {
        *sum += t->value[LOSS_SUM_LOSSES][n];
        m += fabs(t->value[LOSS_SUM_LOSSES][n]);
    }
    t->term[LOSS_SUM_SCALARS][SCALAR_LOSS_SUM] = sqrt((double)rows) * m;
}

void ref_sum_of_squares(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t count = operand_elements(&call->operand[SUM_OF_SQUARES_X]);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += t->value[SUM_OF_SQUARES_X][i] * t->value[SUM_OF_SQUARES_X][i];
    t->value[SUM_OF_SQUARES_PARTIAL][0] = sum;
    t->term[SUM_OF_SQUARES_PARTIAL][0] = sqrt((double)count) * sum;
}

void ref_clip_factor(const struct op_call *call, const struct ref_tensors *t)
{
    double *scalars = t->value[CLIP_FACTOR_SCALARS], *term = t->term[CLIP_FACTOR_SCALARS];
    int64_t count = call->operand[CLIP_FACTOR_PARTIALS].dims[0];
    double sum = 0.0;
    for (int64_t i = 0; i < SCALAR_WORDS; i++)
        term[i] = REF_EXACT;
    for (int64_t i = 0; i < count; i++)
        sum += t->value[CLIP_FACTOR_PARTIALS][i];
    double unscale = scalars[SCALAR_UNSCALE], limit = (double)call->attrs.clip_max;
    double norm = sqrt(sum) * unscale;
    double ratio = limit / (norm + 1e-6);
    bool clips = limit != 0.0 && ratio < 1.0;
    scalars[SCALAR_GRAD_NORM] = norm;
    scalars[SCALAR_CLIP] = clips ? unscale * ratio : unscale;
    scalars[SCALAR_FOUND_INF] = isfinite(norm) ? 0.0 : 1.0;
    if (isfinite(norm))
        scalars[SCALAR_ADAM_STEP] += 1.0;
    /* The square root halves the relative error of the sum; then root, product, sum, quotient, product. */
    term[SCALAR_GRAD_NORM] = isfinite(norm) ? norm * (0.5 * sqrt((double)count) + 2.0) : REF_EXACT;
    term[SCALAR_CLIP] = isfinite(norm) ? scalars[SCALAR_CLIP] * (0.5 * sqrt((double)count) + 5.0) : REF_UNSPECIFIED;
    if (limit == 0.0 && isfinite(norm))
        term[SCALAR_CLIP] = REF_EXACT;
}

static void adamw_element(const struct op_call *call, const struct ref_tensors *t, const double *correction, int64_t i)
{
    const double *scalars = t->value[ADAMW_SCALARS];
    double b1 = (double)call->attrs.beta1, b2 = (double)call->attrs.beta2, rate = scalars[SCALAR_LEARNING_RATE];
    const int32_t weight = call->operand[ADAMW_MASTER].present ? ADAMW_MASTER : ADAMW_PARAM;
    double g = t->value[ADAMW_GRAD][i] * scalars[SCALAR_CLIP], p = t->value[weight][i];
    double m_old = t->value[ADAMW_M][i], v_old = t->value[ADAMW_V][i];
    double m = b1 * m_old + (1.0 - b1) * g, v = b2 * v_old + (1.0 - b2) * g * g;
    double denominator = sqrt(v / correction[1]) + (double)call->attrs.epsilon;
    double move = m / correction[0] / denominator, decay = (double)call->attrs.weight_decay * p;
    double m_term = sqrt(3.0) * (fabs(b1 * m_old) + fabs((1.0 - b1) * g));
    double root_share = (denominator - (double)call->attrs.epsilon) / denominator;
    t->value[ADAMW_M][i] = m;
    t->value[ADAMW_V][i] = v;
    t->value[weight][i] = p - rate * (move + decay);
    t->term[ADAMW_M][i] = m_term;
    t->term[ADAMW_V][i] = sqrt(4.0) * v;
    t->term[weight][i] = fabs(p) + rate * (2.0 * fabs(decay) + m_term / correction[0] / denominator +
                                           fabs(move) * (0.5 * sqrt(4.0) * root_share + 4.0));
    t->value[ADAMW_PARAM][i] = t->value[weight][i];
    t->term[ADAMW_PARAM][i] = t->term[weight][i];
}

void ref_adamw(const struct op_call *call, const struct ref_tensors *t)
{
    const double *scalars = t->value[ADAMW_SCALARS];
    int64_t rows = call->operand[ADAMW_CORRECTIONS].dims[0], step = (int64_t)scalars[SCALAR_ADAM_STEP];
    const double *correction = t->value[ADAMW_CORRECTIONS] + 2 * ((step < rows ? step : rows) - 1);
    for (int64_t i = 0; i < operand_elements(&call->operand[ADAMW_PARAM]); i++) {
        if (scalars[SCALAR_FOUND_INF] == 0.0) {
            adamw_element(call, t, correction, i);
            continue;
        }
        t->term[ADAMW_PARAM][i] = t->term[ADAMW_M][i] = t->term[ADAMW_V][i] = REF_EXACT;
        if (call->operand[ADAMW_MASTER].present)
            t->term[ADAMW_MASTER][i] = REF_EXACT;
    }
}

void ref_fill(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[FILL_Y]); i++) {
        t->value[FILL_Y][i] = (double)call->attrs.value;
        t->term[FILL_Y][i] = REF_EXACT;
    }
}

void ref_copy(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < operand_elements(&call->operand[COPY_Y]); i++) {
        t->value[COPY_Y][i] = before(call, t, COPY_Y, i) + t->value[COPY_X][i];
        t->term[COPY_Y][i] = call->attrs.accumulate != 0 ? 0.0 : REF_EXACT;
    }
}
