/* Cross entropy and the sum of its losses.  The terms are derived in tests/opcheck/bounds.md. */
#include <math.h>

#include "tests/ops/op_test.h"

/* Sets loss and gradient of an ignored row to 0. */
static void cross_entropy_ignored(const struct op_call *call, const struct ref_tensors *t,
                                  int64_t n)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1];
    t->value[CROSS_ENTROPY_LOSSES][n] = 0.0;
    t->term[CROSS_ENTROPY_LOSSES][n] = REF_EXACT;
    for (int64_t v = 0; v < width; v++) {
        if (call->attrs.gradient)
            t->value[CROSS_ENTROPY_LOGITS][n * width + v] = 0.0;
        t->term[CROSS_ENTROPY_LOGITS][n * width + v] = REF_EXACT;
    }
}

static void cross_entropy_gradient(const struct op_call *call, const struct ref_tensors *t,
                                   int64_t n, double peak, double lse, double sum_term)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1],
            target = (int64_t)t->value[CROSS_ENTROPY_TARGETS][n];
    double *z = t->value[CROSS_ENTROPY_LOGITS] + n * width,
           *term = t->term[CROSS_ENTROPY_LOGITS] + n * width;
    double scale = t->value[CROSS_ENTROPY_SCALARS][SCALAR_LOSS_GRADIENT];
    for (int64_t v = 0; v < width; v++) {
        bool counts = v < call->attrs.vocab;
        double p = counts ? exp(z[v] - lse) : 0.0, hot = v == target ? 1.0 : 0.0;
        double exponent = fabs(z[v] - peak) + fabs(lse) + 3.0;
        z[v] = (p - hot) * scale;
        term[v] = counts ? fabs(scale) * (p * (sum_term + exponent) + hot) : REF_EXACT;
    }
}

static void cross_entropy_row(const struct op_call *call, const struct ref_tensors *t, int64_t n)
{
    int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1],
            target = (int64_t)t->value[CROSS_ENTROPY_TARGETS][n];
    const double *z = t->value[CROSS_ENTROPY_LOGITS] + n * width;
    double peak = z[0], sum = 0.0, sum_size = 0.0;
    for (int64_t v = 1; v < call->attrs.vocab; v++)
        peak = z[v] > peak ? z[v] : peak;
    for (int64_t v = 0; v < call->attrs.vocab; v++) {
        sum += exp(z[v] - peak);
        sum_size += exp(z[v] - peak) * (fabs(z[v] - peak) + 1.0);
    }
    double lse = peak + log(sum), sum_term = sqrt((double)call->attrs.vocab) + sum_size / sum;
    t->value[CROSS_ENTROPY_LOSSES][n] = lse - z[target];
    t->term[CROSS_ENTROPY_LOSSES][n] = sum_term + fabs(peak) + log(sum) + fabs(z[target]);
    if (call->attrs.gradient) {
        cross_entropy_gradient(call, t, n, peak, lse, sum_term);
        return;
    }
    for (int64_t v = 0; v < width; v++)
        t->term[CROSS_ENTROPY_LOGITS][n * width + v] = REF_EXACT;
}

static void ref_cross_entropy(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t n = 0; n < call->operand[CROSS_ENTROPY_LOGITS].dims[0]; n++) {
        if (t->value[CROSS_ENTROPY_TARGETS][n] < 0.0)
            cross_entropy_ignored(call, t, n);
        else
            cross_entropy_row(call, t, n);
    }
}

static void ref_loss_sum(const struct op_call *call, const struct ref_tensors *t)
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

static void make_cross_entropy(struct maker *maker)
{
    static const int64_t wide[] = {50257, 50304, 65, 50257, 50304, 50257};
    int64_t rows = case_any_size(maker, 65), vocab = case_size(maker, 129),
            padding = maker->index % 3 == 0 ? 0 : 1 + maker->index % 31;
    if (vocab == 1 && maker->index > 0)
        vocab = 2; /* one column has loss 0 and gradient 0 for any input: one such case is enough */
    if (maker->index >= 77 && maker->index < 77 + COUNT(wide)) {
        vocab = wide[maker->index - 77];
        rows = vocab > 65 ? 3 : 64;
        padding = vocab > 65 ? 50304 - vocab : 63;
    }
    case_attrs(maker)->vocab = (int32_t)vocab;
    case_attrs(maker)->gradient = maker->index % 4 != 0;
    case_tensor(maker, CROSS_ENTROPY_TARGETS, DTYPE_I32, rows, 0);
    case_scalars(maker, CROSS_ENTROPY_SCALARS);
    case_tensor(maker, CROSS_ENTROPY_LOGITS, maker->dtype, rows, vocab + padding);
}

static void make_loss_sum(struct maker *maker)
{
    case_tensor(maker, LOSS_SUM_LOSSES, DTYPE_F32,
                case_size(maker, 129) * (maker->index % 5 == 4 ? 33 : 1), 0);
    case_scalars(maker, LOSS_SUM_SCALARS);
}

#define BENCH_VOCAB 50304
#define BENCH_CHUNK 256 /* rows of the LM head in one chunk */

static void bench_cross_entropy(struct maker *maker)
{
    case_attrs(maker)->vocab = BENCH_VOCAB;
    case_attrs(maker)->gradient = true;
    case_tensor(maker, CROSS_ENTROPY_TARGETS, DTYPE_I32, BENCH_CHUNK, 0);
    case_tensor(maker, CROSS_ENTROPY_LOGITS, maker->dtype, BENCH_CHUNK, BENCH_VOCAB);
}

static void inputs_cross_entropy(const struct check_case *check, double *const *value,
                                 struct random *random)
{
    int64_t rows = case_operand(check, CROSS_ENTROPY_TARGETS)->dims[0];
    bool ignores = check->inputs == INPUTS_SPECIAL;
    inputs_scale(check, CROSS_ENTROPY_LOGITS, value[CROSS_ENTROPY_LOGITS],
                 check->inputs == INPUTS_LARGE ? 8.0 : 2.0,
                 check->inputs == INPUTS_LARGE ? 50.0 : 0.0);
    for (int64_t n = 0; n < rows; n++)
        value[CROSS_ENTROPY_TARGETS][n] =
            ignores && n % 3 == 0 ? -1.0 : (double)random_below(random, check->call.attrs.vocab);
}

static double cross_entropy_shared_by(const struct op_call *call, int32_t slot)
{
    return slot == CROSS_ENTROPY_LOGITS ? judge_row(call, slot) : 1.0;
}

const struct op_test test_cross_entropy = {
    .shape = make_cross_entropy,
    .bench = bench_cross_entropy,
    .inputs = inputs_cross_entropy,
    .ref = ref_cross_entropy,
    .has_many_variants = true,
    .shared_by = cross_entropy_shared_by,
};

const struct op_test test_loss_sum = {
    .shape = make_loss_sum,
    .bench = bench_plain,
    .ref = ref_loss_sum,
    .dtypes = 1u << DTYPE_F32,
    .is_sum_of_products = true,
    .scalar = SCALAR_LOSS_SUM,
};
