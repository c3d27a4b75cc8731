/* Matrix products and the gradient of a bias. */
#include <math.h>

#include "tests/ops/op_test.h"

/* Matrix units take at least GEMM_DEPTH 16-bit factors at a time, add their products almost
 * exactly, and truncate the sum to fp32.  The mean error is half a unit of 2^-23, at every
 * GEMM_DEPTH-th of the partial sums and of the products next to them. */
#define GEMM_DEPTH 4
#define HALF_MAX 65504.0
#define HALF_GROUP 32 /* products whose sum may be fp16 */

bool half_sums_allowed, gemm_tiled;

bool gemm_may_halve(const struct op_call *call)
{
    return half_sums_allowed && call->operand[GEMM_A].dtype == DTYPE_F16 &&
           !(call->attrs.transpose_a && call->attrs.transpose_b);
}

static void gemm_drift(const struct op_call *call, const struct ref_tensors *t, int64_t i,
                       double path)
{
    if (t->drift[GEMM_D] == NULL || dtype_size_bytes(call->operand[GEMM_A].dtype) != 2)
        return;
    t->drift[GEMM_D][i] = 0.5 * 0x1p-23 * path / GEMM_DEPTH;
    t->half_bound[GEMM_D][i] = 2.0 * t->drift[GEMM_D][i];
}

/* The sums that one element passes through: of |sum| + |product|; of the group's products; and,
 * where fp16 sums are rounded, of the squares of the distance of fp16's numbers, and of the
 * distances in the direction of the sum. */
struct gemm_path {
    double length, group, largest, roundings, squares, outward;
};

static double half_distance(double size)
{
    int exponent = 0;
    (void)frexp(fmax(size, 0x1p-14), &exponent);
    return ldexp(1.0, exponent - 11);
}

static void gemm_path_add(struct gemm_path *path, int64_t k, int64_t inner, double sum,
                          double product)
{
    const double before = k % HALF_GROUP == 0 ? 0.0 : path->group;
    const double size = fabs(before) + fabs(product), distance = half_distance(size);
    path->length += fabs(sum) + fabs(product);
    path->group = before + product;
    path->largest = fmax(path->largest, size);
    if ((k + 1) % GEMM_DEPTH != 0 && k + 1 < inner)
        return;
    path->roundings += 1.0;
    path->squares += distance * distance;
    path->outward += copysign(distance, path->group);
}

/* The fp16 sum of a group is rounded, or cut off, after at least GEMM_DEPTH products; groups are
 * added in fp32.  Partial sums of another order are at most twice as large; beyond fp16's range
 * they are infinite, and then nothing is known of the result. */
static void gemm_halves(const struct ref_tensors *t, int64_t i, const struct gemm_path *path)
{
    const double square = path->squares / 12.0;
    if (t->half_bound[GEMM_D] != NULL) {
        t->half_square[GEMM_D][i] = square;
        t->drift[GEMM_D][i] = 0.5 * fabs(path->outward);
        t->half_bound[GEMM_D][i] = fmin(8.0 * sqrt(square) + 2.0 * t->drift[GEMM_D][i],
                                        path->roundings * half_distance(path->largest));
    }
    if (2.0 * path->largest > HALF_MAX)
        t->term[GEMM_D][i] = REF_UNSPECIFIED;
}

static void ref_gemm(const struct op_call *call, const struct ref_tensors *t)
{
    const struct op_attrs *attrs = &call->attrs;
    int64_t rows = call->operand[GEMM_D].dims[0], columns = call->operand[GEMM_D].dims[1];
    int64_t inner = call->operand[GEMM_A].dims[attrs->transpose_a ? 0 : 1];
    int64_t a_row = attrs->transpose_a ? 1 : inner, a_inner = attrs->transpose_a ? rows : 1;
    int64_t b_inner = attrs->transpose_b ? 1 : columns, b_column = attrs->transpose_b ? inner : 1;
    const double *a = t->value[GEMM_A], *b = t->value[GEMM_B], *bias = t->value[GEMM_BIAS];
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = ref_before(call, t, GEMM_D, i * columns + j);
            if (bias != NULL)
                sum += bias[j];
            double m = fabs(sum);
            struct gemm_path path = {.length = 0.0};
            for (int64_t k = 0; k < inner; k++) {
                double product = a[i * a_row + k * a_inner] * b[k * b_inner + j * b_column];
                sum += product;
                m += fabs(product);
                gemm_path_add(&path, k, inner, sum, product);
            }
            t->value[GEMM_D][i * columns + j] = sum;
            t->term[GEMM_D][i * columns + j] = sqrt((double)inner) * m;
            if (gemm_may_halve(call))
                gemm_halves(t, i * columns + j, &path);
            else
                gemm_drift(call, t, i * columns + j, path.length);
        }
    }
}

static void ref_bias_backward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[BIAS_BACKWARD_DY].dims[0],
            columns = call->operand[BIAS_BACKWARD_DY].dims[1];
    for (int64_t j = 0; j < columns; j++) {
        double sum = ref_before(call, t, BIAS_BACKWARD_DBIAS, j), m = fabs(sum);
        for (int64_t i = 0; i < rows; i++) {
            sum += t->value[BIAS_BACKWARD_DY][i * columns + j];
            m += fabs(t->value[BIAS_BACKWARD_DY][i * columns + j]);
        }
        t->value[BIAS_BACKWARD_DBIAS][j] = sum;
        t->term[BIAS_BACKWARD_DBIAS][j] = sqrt((double)rows) * m;
    }
}

/* Sets the sizes of a real product (LM head, qkv, MLP) with few rows; returns false when the case
 * has none. */
static bool gemm_real(int32_t index, int64_t *m, int64_t *n, int64_t *k)
{
    static const int64_t real[][3] = {{2, 50257, 64},  {3, 50304, 64}, {4, 2304, 768},
                                      {3, 768, 3072},  {768, 65, 64},  {1, 768, 768},
                                      {192, 192, 192}, {16, 50257, 5}, {2304, 4, 768},
                                      {5, 768, 2304},  {3072, 3, 768}};
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
    int64_t m = case_size(maker, 129), n = case_any_size(maker, 129), k = case_any_size(maker, 129);
    bool square = maker->index % 7 == 3;
    if (square)
        n = k;
    bool is_real = gemm_real(maker->index, &m, &n, &k);
    if (gemm_tiled && !is_real &&
        maker->index % 5 != 4) { /* sizes that our own products take; some with split sums */
        m = (m + 71) / 8 * 8;
        n = (n + 7) / 8 * 8;
        k = maker->index % 7 == 5 ? 4104 : (k + 7) / 8 * 8;
        if (maker->index % 5 == 3) { /* whole tiles, some of 256 rows */
            m = maker->index % 10 == 3 ? (m + 127) / 128 * 128 : 256;
            n = (n + 127) / 128 * 128;
            k = (k + 31) / 32 * 32;
        }
    }
    struct op_attrs *a = case_attrs(maker);
    a->transpose_a = (maker->index / 2 & 1) != 0;
    a->transpose_b = (maker->index & 1) != 0 || n > 50000;
    case_tensor(maker, GEMM_A, maker->dtype, a->transpose_a ? k : m, a->transpose_a ? m : k);
    case_tensor(maker, GEMM_B, maker->dtype, a->transpose_b ? n : k, a->transpose_b ? k : n);
    if (maker->index % 3 == 0)
        case_tensor(maker, GEMM_BIAS, maker->index / 6 % 2 != 0 ? DTYPE_F32 : maker->dtype, n,
                    0);            /* fp32 or d's */
    if (maker->index / 3 % 2 != 0) /* weight gradients; other outputs have the dtype of a and b */
        case_tensor(maker, GEMM_D, DTYPE_F32, m, n);
    case_accumulate(maker, maker->index % 3 == 1 ? 1u << GEMM_D : 0u);
}

static void make_bias_backward(struct maker *maker)
{
    int64_t rows = case_size(maker, 129) * (maker->index % 20 == 19 ? 9 : 1);
    int64_t columns = maker->index % 20 == 18 ? 3072 : case_any_size(maker, 129);
    case_tensor(maker, BIAS_BACKWARD_DY, maker->dtype, rows, columns);
    case_tensor(maker, BIAS_BACKWARD_DBIAS, maker->kept, columns, 0);
    case_accumulate(maker, maker->index % 2 != 0 ? 1u << BIAS_BACKWARD_DBIAS : 0u);
}

/* The products of a step on 256 and on 1,024 rows; of the output layer a third.  For a weight [p,q]
 * they are x[rows,p] times the weight, y[rows,q] times its transpose, and the transpose of x times
 * y. */
static bool bench_product(struct maker *maker)
{
    static const int64_t weights[][2] = {
        {768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {16768, 768}};
    static const int64_t rows_of[] = {256, 1024};
    enum { FORWARD, BACKWARD, GRADIENT, WAYS };
    const int32_t i = maker->product - 1, way = i % WAYS, weight = i / WAYS % COUNT(weights);
    if (i < 0 || i >= WAYS * COUNT(weights) * COUNT(rows_of))
        return false;
    const int64_t rows = rows_of[i / (WAYS * COUNT(weights))], p = weights[weight][0],
                  q = weights[weight][1];
    case_attrs(maker)->transpose_a = way == GRADIENT;
    case_attrs(maker)->transpose_b = way == BACKWARD;
    case_tensor(maker, GEMM_A, maker->dtype, rows, way == BACKWARD ? q : p);
    case_tensor(maker, GEMM_B, maker->dtype, way == GRADIENT ? rows : p, q);
    case_tensor(maker, GEMM_D, way == GRADIENT ? DTYPE_F32 : maker->dtype,
                way == GRADIENT ? p : rows, way == BACKWARD ? p : q);
    return true;
}

static void bench_gemm(struct maker *maker)
{
    if (bench_product(maker))
        return;
    bench_plain(maker);
    case_tensor(maker, GEMM_B, maker->dtype, BENCH_CHANNELS, 3 * BENCH_CHANNELS);
}

static void inputs_gemm(const struct check_case *check, double *const *value, struct random *random)
{
    double inner = (double)case_operand(check, GEMM_A)->dims[check->call.attrs.transpose_a ? 0 : 1];
    inputs_huge(check, GEMM_A, value, HUGE_SCALE / sqrt(inner));
    if (check->inputs != INPUTS_SPECIAL)
        return;
    value[GEMM_A][random_below(random, operand_elements(case_operand(check, GEMM_A)))] =
        (double)INFINITY;
    value[GEMM_B][random_below(random, operand_elements(case_operand(check, GEMM_B)))] =
        (double)NAN;
}

static void inputs_bias_backward(const struct check_case *check, double *const *value,
                                 struct random *random)
{
    inputs_huge(check, BIAS_BACKWARD_DY, value, HUGE_SCALE);
    if (check->inputs == INPUTS_SPECIAL)
        value[BIAS_BACKWARD_DY]
             [random_below(random, operand_elements(case_operand(check, BIAS_BACKWARD_DY)))] =
                 -(double)INFINITY;
}

const struct op_test test_gemm = {
    .shape = make_gemm,
    .bench = bench_gemm,
    .inputs = inputs_gemm,
    .ref = ref_gemm,
    .has_many_variants = true,
    .is_sum_of_products = true,
};

const struct op_test test_bias_backward = {
    .shape = make_bias_backward,
    .bench = bench_plain,
    .inputs = inputs_bias_backward,
    .ref = ref_bias_backward,
    .is_sum_of_products = true,
};
