/* The short convolution.  The terms are derived in tests/opcheck/bounds.md. */
#include <math.h>
#include <stdlib.h>

#include "tests/ops/op_test.h"

/* x of operand `x`, or of the cache before the first row. */
struct conv {
    const double *x, *weight, *first, *cache;
    int64_t taps, columns, width, time;
    bool continues; /* the cache counts */
};

static struct conv conv_of(const struct op_call *call, double *const *value)
{
    const bool cached = call->kind == OP_SHORT_CONV_CACHED;
    struct conv conv = {
        .x = value[call->kind == OP_SHORT_CONV_BACKWARD ? (int32_t)SHORT_CONV_BACKWARD_X : 0],
        .weight = value[SHORT_CONV_FORWARD_WEIGHT],
        .first = cached ? NULL : value[SHORT_CONV_FORWARD_FIRST],
        .cache = cached ? value[SHORT_CONV_CACHED_CACHE] : NULL,
        .taps = call->attrs.taps,
        .columns = op_columns(call, 0),
        .width = op_elements(call, SHORT_CONV_FORWARD_WEIGHT) / call->attrs.taps,
        .time = call->attrs.time};
    conv.continues = cached && value[SHORT_CONV_CACHED_SCALARS][SCALAR_POSITION] > 0.0;
    return conv;
}

/* Returns x of column c, `back` rows before row n; 0 where that is of no row that counts. */
static double ref_x(const struct conv *conv, int64_t n, int64_t c, int64_t back)
{
    int64_t t = n % conv->time, begin = conv->first != NULL ? (int64_t)conv->first[n] : 0;
    if (t - back >= begin)
        return conv->x[(n - back) * conv->columns + c];
    int64_t row = conv->taps - 1 + t - back; /* of the cache */
    return conv->continues
               ? conv->cache[(n / conv->time * (conv->taps - 1) + row) * conv->width + c]
               : 0.0;
}

static double ref_u(const struct conv *conv, int64_t n, int64_t c, double *out_term)
{
    double sum = 0.0, size = 0.0;
    for (int64_t j = 0; j < conv->taps; j++) {
        double product = conv->weight[c * conv->taps + j] * ref_x(conv, n, c, conv->taps - 1 - j);
        sum += product;
        size += fabs(product);
    }
    *out_term = sqrt((double)conv->taps) * size;
    return sum;
}

/* The slope of u s(u) is at most 1.1, and its own at most 0.5. */
static void ref_rows(const struct op_call *call, const struct ref_tensors *t, int32_t y)
{
    const struct conv conv = conv_of(call, t->value);
    for (int64_t i = 0; i < op_elements(call, y); i++) {
        int64_t n = i / conv.columns, c = i % conv.columns;
        t->value[y][i] = conv.x[i];
        t->term[y][i] = REF_EXACT;
        if (c >= conv.width)
            continue;
        double term, u = ref_u(&conv, n, c, &term);
        t->value[y][i] = u / (1.0 + exp(-u));
        t->term[y][i] = 4.0 * fabs(t->value[y][i]) + 1.1 * term + 0x1p-104 * fabs(u);
    }
}

static void ref_short_conv_forward(const struct op_call *call, const struct ref_tensors *t)
{
    ref_rows(call, t, SHORT_CONV_FORWARD_Y);
}

static void ref_short_conv_cached(const struct op_call *call, const struct ref_tensors *t)
{
    struct conv conv = conv_of(call, t->value);
    const int64_t rows = conv.taps - 1, count = op_elements(call, SHORT_CONV_CACHED_CACHE);
    double *cache = t->value[SHORT_CONV_CACHED_CACHE], *old = malloc((size_t)count * sizeof *old);
    if (old == NULL)
        abort();
    ref_rows(call, t, SHORT_CONV_CACHED_Y);
    for (int64_t i = 0; i < count; i++)
        old[i] = cache[i];
    conv.cache = old;
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = i / (rows * conv.width), row = i / conv.width % rows;
        cache[i] = ref_x(&conv, (sample + 1) * conv.time - 1, i % conv.width, rows - 1 - row);
        t->term[SHORT_CONV_CACHED_CACHE][i] = REF_EXACT;
    }
    free(old);
}

/* Returns du of column c of row n. */
static double ref_du(const struct conv *conv, const double *dy, int64_t n, int64_t c,
                     double *out_term)
{
    double u_term, u = ref_u(conv, n, c, &u_term), s = 1.0 / (1.0 + exp(-u)),
                   rest = 1.0 / (1.0 + exp(u)), of_dy = dy[n * conv->columns + c];
    *out_term = fabs(of_dy) * (sqrt(5.0) * s * (1.0 + sqrt(5.0) * fabs(u) * rest) + 0.5 * u_term +
                               0x1p-104 * (1.0 + fabs(u)));
    return of_dy * s * (1.0 + u * rest);
}

static void ref_short_conv_backward(const struct op_call *call, const struct ref_tensors *t)
{
    const struct conv conv = conv_of(call, t->value);
    const double *dy = t->value[SHORT_CONV_BACKWARD_DY];
    double *dx = t->value[SHORT_CONV_BACKWARD_DX], *dx_term = t->term[SHORT_CONV_BACKWARD_DX],
           *dw = t->value[SHORT_CONV_BACKWARD_DWEIGHT],
           *dw_term = t->term[SHORT_CONV_BACKWARD_DWEIGHT], root = sqrt((double)op_rows(call, 0)),
           taps_root = sqrt((double)conv.taps);
    for (int64_t i = 0; i < op_elements(call, SHORT_CONV_BACKWARD_DX); i++) {
        dx[i] = i % conv.columns < conv.width ? 0.0 : dy[i];
        dx_term[i] = i % conv.columns < conv.width ? 0.0 : REF_EXACT;
    }
    for (int64_t i = 0; i < op_elements(call, SHORT_CONV_BACKWARD_DWEIGHT); i++) {
        dw[i] = ref_before(call, t, SHORT_CONV_BACKWARD_DWEIGHT, i);
        dw_term[i] = root * fabs(dw[i]);
    }
    for (int64_t i = 0; i < op_rows(call, 0) * conv.width; i++) {
        int64_t n = i / conv.width, c = i % conv.width, at = n * conv.columns + c;
        double term, du = ref_du(&conv, dy, n, c, &term);
        int64_t begin = conv.first != NULL ? (int64_t)conv.first[n] : 0;
        for (int64_t j = 0; j < conv.taps; j++) {
            int64_t back = conv.taps - 1 - j, weight = c * conv.taps + j;
            double x = ref_x(&conv, n, c, back), w = conv.weight[weight];
            dw[weight] += du * x;
            dw_term[weight] += root * fabs(du * x) + term * fabs(x);
            if (n % conv.time - back < begin)
                continue;
            dx[at - back * conv.columns] += w * du;
            dx_term[at - back * conv.columns] += taps_root * fabs(w * du) + fabs(w) * term;
        }
    }
}

static void conv_shape(struct maker *maker, int64_t most)
{
    struct op_attrs *attrs = case_attrs(maker);
    int64_t time = case_size(maker, most), samples = 1 + random_below(&maker->random, 3),
            width = case_any_size(maker, 129), rest = random_below(&maker->random, 5);
    attrs->time = (int32_t)time;
    attrs->taps = maker->index % 4 != 3 ? 4 : 2 + (int32_t)random_below(&maker->random, 7);
    case_tensor(maker, 0, maker->dtype, samples * time, width + rest);
    case_tensor(maker, SHORT_CONV_FORWARD_WEIGHT, maker->kept, width * attrs->taps, 0);
}

static void make_short_conv_forward(struct maker *maker)
{
    conv_shape(maker, 65);
    case_documents(maker, SHORT_CONV_FORWARD_FIRST, case_operand(maker->check, 0)->dims[0]);
}

static void make_short_conv_backward(struct maker *maker)
{
    make_short_conv_forward(maker);
    const struct operand *dy = case_operand(maker->check, 0),
                         *weight = case_operand(maker->check, SHORT_CONV_BACKWARD_WEIGHT);
    case_tensor(maker, SHORT_CONV_BACKWARD_X, maker->dtype, dy->dims[0], dy->dims[1]);
    case_tensor(maker, SHORT_CONV_BACKWARD_DWEIGHT, maker->kept, weight->dims[0], 0);
    case_accumulate(maker, maker->index % 4 < 2 ? 1u << SHORT_CONV_BACKWARD_DWEIGHT : 0u);
}

static void make_short_conv_cached(struct maker *maker)
{
    conv_shape(maker, maker->index % 2 != 0 ? 1 : 33);
    const struct op_attrs *attrs = case_attrs(maker);
    struct operand *cache = &maker->check->call.operand[SHORT_CONV_CACHED_CACHE];
    case_scalars(maker, SHORT_CONV_CACHED_SCALARS);
    case_tensor(maker, SHORT_CONV_CACHED_CACHE, maker->dtype,
                case_operand(maker->check, 0)->dims[0] / attrs->time, attrs->taps - 1);
    cache->rank = 3;
    cache->dims[2] = case_operand(maker->check, SHORT_CONV_CACHED_WEIGHT)->dims[0] / attrs->taps;
}

static void bench_conv(struct maker *maker)
{
    case_attrs(maker)->time = maker->check->call.kind == OP_SHORT_CONV_CACHED ? 1 : BENCH_TIME;
    case_attrs(maker)->taps = 4;
}

static void inputs_conv(const struct check_case *check, double *const *value, struct random *random)
{
    if (check->call.kind == OP_SHORT_CONV_CACHED)
        value[SHORT_CONV_CACHED_SCALARS][SCALAR_POSITION] = (double)random_below(random, 3);
    else
        inputs_documents(check, value[SHORT_CONV_FORWARD_FIRST], random);
    inputs_huge(check, 0, value, HUGE_SCALE);
}

const struct op_test test_short_conv_forward = {
    .shape = make_short_conv_forward,
    .bench = bench_conv,
    .bench_dims = {{SHORT_CONV_FORWARD_X, {BENCH_ROWS, BENCH_CHANNELS}},
                   {SHORT_CONV_FORWARD_WEIGHT, {4 * BENCH_CHANNELS}}},
    .inputs = inputs_conv,
    .ref = ref_short_conv_forward,
};

const struct op_test test_short_conv_backward = {
    .shape = make_short_conv_backward,
    .bench = bench_conv,
    .bench_dims = {{SHORT_CONV_BACKWARD_DY, {BENCH_ROWS, BENCH_CHANNELS}},
                   {SHORT_CONV_BACKWARD_X, {BENCH_ROWS, BENCH_CHANNELS}},
                   {SHORT_CONV_BACKWARD_WEIGHT, {4 * BENCH_CHANNELS}},
                   {SHORT_CONV_BACKWARD_DWEIGHT, {4 * BENCH_CHANNELS}}},
    .inputs = inputs_conv,
    .ref = ref_short_conv_backward,
};

const struct op_test test_short_conv_cached = {
    .shape = make_short_conv_cached,
    .bench = bench_conv,
    .bench_dims = {{SHORT_CONV_CACHED_X, {BENCH_SAMPLES, BENCH_CHANNELS}},
                   {SHORT_CONV_CACHED_WEIGHT, {4 * BENCH_CHANNELS}},
                   {SHORT_CONV_CACHED_CACHE, {BENCH_SAMPLES, 3, BENCH_CHANNELS}}},
    .inputs = inputs_conv,
    .ref = ref_short_conv_cached,
};
