/* Rotary position embedding, with and without a norm of the queries and keys.  The terms are
 * derived in tests/opcheck/bounds.md. */
#include <math.h>

#include "tests/ops/op_test.h"

/* A head of a row: its first element in x and dx, and in y and dy, the row's cosines and sines, its
 * gains, and the span that shares its mean. */
struct head {
    int64_t at, plain, size, half, gain, mean_count, mean_first,
        mean_step; /* half: of the elements that turn */
    const double *cosine, *sine;
};

static int64_t turned_heads(const struct op_call *call)
{
    return (int64_t)call->attrs.heads + call->attrs.kv_heads;
}

static struct head head_of(const struct op_call *call, double *const *value, int64_t n, int64_t h)
{
    int64_t size = op_rope_size(call), turned = op_columns(call, ROPE_FORWARD_TABLE);
    int64_t queries = call->attrs.heads, all = queries + 2 * (int64_t)call->attrs.kv_heads,
            gates = call->attrs.gated ? queries : 0, step = gates > 0 && h < queries ? 2 : 1,
            row = n * (all + gates), gains = op_elements(call, ROPE_FORWARD_GAIN);
    int64_t position = (int64_t)value[ROPE_FORWARD_SCALARS][SCALAR_POSITION];
    struct head head = {.at = (row + (h < queries ? step * h : gates + h)) * size,
                        .plain = (n * all + h) * size,
                        .size = size,
                        .half = turned / 2,
                        .gain = h < queries ? 0 : size,
                        .mean_count = size,
                        .mean_step = step};
    head.mean_first = head.at;
    if (gains != 0 && gains != 2 * size) {
        head.gain = h * size;
        head.mean_first = (row + (h < queries ? 0 : gates + queries)) * size;
        head.mean_count = (h < queries ? queries : call->attrs.kv_heads) * size;
    }
    head.cosine = value[ROPE_FORWARD_TABLE] + (position + n % call->attrs.time) * turned;
    head.sine = head.cosine + head.half;
    return head;
}

/* Returns the place in x of element i of the span that shares a mean. */
static int64_t mean_at(const struct head *head, int64_t i)
{
    return head->mean_first + i / head->size * head->mean_step * head->size + i % head->size;
}

/* Returns r of the span, and its relative term. */
static double ref_r(const struct op_call *call, const double *x, const struct head *head,
                    double *out_term)
{
    double square = 0.0, count = (double)head->mean_count;
    for (int64_t i = 0; i < head->mean_count; i++)
        square += x[mean_at(head, i)] * x[mean_at(head, i)] / count;
    double r = 1.0 / sqrt(square + (double)call->attrs.epsilon);
    *out_term = 0.5 * (sqrt(count) + 1.0) * square * r * r + 2.0;
    return r;
}

static double gain_at(const struct op_call *call, const double *gain, int64_t i)
{
    return gain[i] + (double)call->attrs.gain_offset;
}

/* Writes element i of dx, which with gates is added to; `term` is that of the value, or exact. */
static void ref_dx(const struct op_call *call, const struct ref_tensors *t, int64_t i, double value,
                   double term)
{
    const bool adds = call->attrs.gated;
    const double before = adds ? ref_before(call, t, ROPE_BACKWARD_DX, i) : 0.0;
    t->value[ROPE_BACKWARD_DX][i] = before + value;
    t->term[ROPE_BACKWARD_DX][i] =
        !adds ? term : (term == REF_EXACT ? 0.0 : term) + fabs(before) + fabs(value);
}

/* Returns what is read: x or dy, or what rotates in place. */
static const double *ref_in(const struct op_call *call, const struct ref_tensors *t)
{
    return t->value[op_rope_rows(call)];
}

/* The values, which in place stay, and in dx the gates, which stay. */
static void ref_values(const struct op_call *call, const struct ref_tensors *t)
{
    for (int64_t i = 0; i < op_elements(call, ROPE_FORWARD_Y); i++)
        t->term[ROPE_FORWARD_Y][i] = REF_EXACT;
    if (op_rope_in_place(call))
        return;
    for (int64_t k = 0; k < op_rows(call, ROPE_FORWARD_X) * call->attrs.kv_heads; k++) {
        const struct head head = head_of(call, t->value, k / call->attrs.kv_heads,
                                         turned_heads(call) + k % call->attrs.kv_heads);
        for (int64_t i = 0; i < head.size; i++) {
            if (call->kind == OP_ROPE_BACKWARD)
                ref_dx(call, t, head.at + i, t->value[ROPE_BACKWARD_DY][head.plain + i], REF_EXACT);
            else
                t->value[ROPE_FORWARD_Y][head.plain + i] = t->value[ROPE_FORWARD_X][head.at + i];
        }
    }
}

static void ref_rope_forward(const struct op_call *call, const struct ref_tensors *t)
{
    const double *x = ref_in(call, t), *gain = t->value[ROPE_FORWARD_GAIN];
    ref_values(call, t);
    for (int64_t k = 0; k < op_rows(call, ROPE_FORWARD_Y) * turned_heads(call); k++) {
        struct head head = head_of(call, t->value, k / turned_heads(call), k % turned_heads(call));
        double r_term, r = ref_r(call, x, &head, &r_term);
        for (int64_t i = 0; i < head.half; i++) {
            int64_t first = head.plain + i, second = first + head.half;
            double a = x[head.at + i], b = x[head.at + i + head.half], c = head.cosine[i],
                   s = head.sine[i], term = sqrt(2.0);
            if (gain != NULL) {
                a *= r * gain_at(call, gain, head.gain + i);
                b *= r * gain_at(call, gain, head.gain + head.half + i);
                term += r_term + sqrt(2.0);
            }
            t->value[ROPE_FORWARD_Y][first] = a * c - b * s;
            t->value[ROPE_FORWARD_Y][second] = b * c + a * s;
            t->term[ROPE_FORWARD_Y][first] = term * (fabs(a * c) + fabs(b * s));
            t->term[ROPE_FORWARD_Y][second] = term * (fabs(b * c) + fabs(a * s));
        }
        for (int64_t i = 2 * head.half; i < head.size; i++) {
            double factor = gain != NULL ? r * gain_at(call, gain, head.gain + i) : 1.0,
                   y = x[head.at + i] * factor;
            t->value[ROPE_FORWARD_Y][head.plain + i] = y;
            t->term[ROPE_FORWARD_Y][head.plain + i] =
                gain != NULL ? (r_term + sqrt(2.0)) * fabs(y) : REF_EXACT;
        }
    }
}

/* Returns element i of a head of dy, turned back, and the size of its two products. */
static double ref_back(const double *dy, const struct head *head, int64_t i, double *out_size)
{
    if (i >= 2 * head->half) {
        *out_size = fabs(dy[head->plain + i]);
        return dy[head->plain + i];
    }
    int64_t pair = i % head->half;
    double own = dy[head->plain + i] * head->cosine[pair];
    double other = dy[head->plain + (i + head->half) % (2 * head->half)] * head->sine[pair];
    *out_size = fabs(own) + fabs(other);
    return i < head->half ? own + other : own - other;
}

/* The terms of dgain collect sizes until they are complete. */
static void ref_head_gradient(const struct op_call *call, const struct ref_tensors *t,
                              const struct head *head, double second, double second_size)
{
    const double *dy = t->value[ROPE_BACKWARD_DY], *x = t->value[ROPE_BACKWARD_X],
                 *gain = t->value[ROPE_BACKWARD_GAIN];
    double r_term, r = ref_r(call, x, head, &r_term), count = (double)head->mean_count;
    for (int64_t i = 0; i < head->size; i++) {
        double size, dz = ref_back(dy, head, i, &size), g = gain_at(call, gain, head->gain + i),
                     xh = x[head->at + i] * r;
        ref_dx(call, t, head->at + i, r * (dz * g - xh * second),
               r * ((sqrt(4.0) + r_term) * size * fabs(g) +
                    fabs(xh) * (sqrt(count) + 3.0 * r_term + 3.0) * second_size));
        t->value[ROPE_BACKWARD_DGAIN][head->gain + i] += dz * xh;
        t->term[ROPE_BACKWARD_DGAIN][head->gain + i] += size * fabs(xh) * (2.0 + r_term);
    }
}

static void ref_rope_backward(const struct op_call *call, const struct ref_tensors *t)
{
    const double *dy = ref_in(call, t), *x = t->value[ROPE_BACKWARD_X],
                 *gain = t->value[ROPE_BACKWARD_GAIN];
    int64_t rows = op_rows(call, ROPE_BACKWARD_DX), size = op_rope_size(call),
            turned = turned_heads(call);
    ref_values(call, t);
    for (int64_t i = 0; i < op_elements(call, ROPE_BACKWARD_DGAIN); i++) {
        t->value[ROPE_BACKWARD_DGAIN][i] = ref_before(call, t, ROPE_BACKWARD_DGAIN, i);
        t->term[ROPE_BACKWARD_DGAIN][i] = fabs(t->value[ROPE_BACKWARD_DGAIN][i]);
    }
    for (int64_t k = 0; k < rows * turned; k++) {
        struct head head = head_of(call, t->value, k / turned, k % turned);
        double second = 0.0, second_size = 0.0;
        for (int64_t i = 0; gain == NULL && i < head.half; i++) {
            int64_t first = head.at + i, last = first + head.half;
            double sizes[2], a = ref_back(dy, &head, i, &sizes[0]),
                             b = ref_back(dy, &head, i + head.half, &sizes[1]);
            ref_dx(call, t, first, a, sqrt(2.0) * sizes[0]);
            ref_dx(call, t, last, b, sqrt(2.0) * sizes[1]);
        }
        for (int64_t i = 2 * head.half; gain == NULL && i < size; i++) {
            ref_dx(call, t, head.at + i, dy[head.plain + i], REF_EXACT);
        }
        for (int64_t m = 0; gain != NULL && m < head.mean_count / size; m++) {
            /* The heads that share the mean follow each other. */
            int64_t h = head.mean_count == size          ? k % turned
                        : k % turned < call->attrs.heads ? m
                                                         : call->attrs.heads + m;
            struct head other = head_of(call, t->value, k / turned, h);
            double term, r = ref_r(call, x, &other, &term), sizes;
            for (int64_t i = 0; i < size; i++) {
                double weight = gain_at(call, gain, other.gain + i) * x[other.at + i] * r /
                                (double)head.mean_count;
                second += ref_back(dy, &other, i, &sizes) * weight;
                second_size += sizes * fabs(weight);
            }
        }
        if (gain != NULL)
            ref_head_gradient(call, t, &head, second, second_size);
    }
    double sums =
        (double)(rows * turned) * (double)size / (double)op_elements(call, ROPE_BACKWARD_DGAIN);
    for (int64_t i = 0; i < op_elements(call, ROPE_BACKWARD_DGAIN); i++)
        t->term[ROPE_BACKWARD_DGAIN][i] *= sqrt(sums + 1.0);
}

/* ---- cases ---- */

/* Makes the first operands, which both ops have.  A fifth of the cases has no gains, and turns in
 * place unless it has gates; in a third, a part of each head turns. */
static void make_rope_forward(struct maker *maker)
{
    static const int32_t kv_heads[] = {1, 2, 3, 4};
    int64_t time = case_size(maker, 33),
            half = maker->index % 20 == 19 ? 64 : case_any_size(maker, 17);
    int64_t samples = 1 + random_below(&maker->random, 3);
    struct op_attrs *attrs = case_attrs(maker);
    attrs->time = (int32_t)time;
    attrs->kv_heads = kv_heads[maker->index % 4];
    attrs->heads = attrs->kv_heads * (1 + (int32_t)random_below(&maker->random, 3));
    attrs->epsilon = 1e-5f;
    attrs->gain_offset = maker->index % 2 != 0 ? 1.0f : 0.0f;
    attrs->gated = maker->index % 7 >= 4;
    const bool has_gains = maker->index % 5 != 0, in_place = !has_gains && !attrs->gated;
    int64_t turned = (int64_t)attrs->heads + attrs->kv_heads,
            gates = attrs->gated && maker->check->call.kind == OP_ROPE_FORWARD ? attrs->heads : 0;
    attrs->accumulate = in_place ? 1u << ROPE_FORWARD_Y : 0;
    case_tensor(maker, in_place ? ROPE_FORWARD_Y : ROPE_FORWARD_X, maker->dtype, samples * time,
                (turned + attrs->kv_heads + gates) * 2 * half);
    case_tensor(maker, ROPE_FORWARD_TABLE, DTYPE_F32, time + random_below(&maker->random, 9),
                maker->index % 3 != 2 ? 2 * half : 2 * (1 + random_below(&maker->random, half)));
    case_scalars(maker, ROPE_FORWARD_SCALARS);
    if (has_gains)
        case_tensor(maker, ROPE_FORWARD_GAIN, maker->kept,
                    (maker->index % 5 < 3 ? 2 : turned) * 2 * half, 0);
}

static void make_rope_backward(struct maker *maker)
{
    make_rope_forward(maker);
    const struct operand *dy = case_operand(maker->check, ROPE_BACKWARD_DY);
    const struct operand *gain = case_operand(maker->check, ROPE_BACKWARD_GAIN);
    const struct op_attrs *attrs = case_attrs(maker);
    const uint32_t adds = attrs->gated ? 1u << ROPE_BACKWARD_DX : attrs->accumulate;
    const int64_t columns = dy->dims[1] / (attrs->heads + 2 * attrs->kv_heads) *
                            op_rope_place(attrs, attrs->heads + 2 * attrs->kv_heads);
    case_accumulate(maker, adds);
    if (!gain->present)
        return;
    case_tensor(maker, ROPE_BACKWARD_X, maker->dtype, dy->dims[0], columns);
    case_tensor(maker, ROPE_BACKWARD_DGAIN, maker->kept, gain->dims[0], 0);
    case_accumulate(maker, adds | (maker->index % 4 < 2 ? 1u << ROPE_BACKWARD_DGAIN : 0u));
}

static void bench_rope(struct maker *maker)
{
    struct op_attrs *attrs = case_attrs(maker);
    struct operand *operand = maker->check->call.operand;
    attrs->time = BENCH_TIME;
    attrs->heads = attrs->kv_heads = BENCH_CHANNELS / 64;
    attrs->gated = false;
    case_tensor(maker, ROPE_FORWARD_X, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
    case_tensor(maker, ROPE_FORWARD_TABLE, DTYPE_F32, BENCH_TIME, 64);
    if (operand[ROPE_FORWARD_GAIN].present)
        case_tensor(maker, ROPE_FORWARD_GAIN, maker->kept, 128, 0);
    if (maker->check->call.kind == OP_ROPE_BACKWARD && operand[ROPE_BACKWARD_X].present) {
        case_tensor(maker, ROPE_BACKWARD_X, maker->dtype, BENCH_ROWS, 3 * BENCH_CHANNELS);
        case_tensor(maker, ROPE_BACKWARD_DGAIN, maker->kept, 128, 0);
    }
}

static void inputs_rope(const struct check_case *check, double *const *value, struct random *random)
{
    int64_t positions = case_operand(check, ROPE_FORWARD_TABLE)->dims[0],
            size = case_operand(check, ROPE_FORWARD_TABLE)->dims[1];
    value[ROPE_FORWARD_SCALARS][SCALAR_POSITION] =
        (double)random_below(random, positions - check->call.attrs.time + 1);
    for (int64_t i = 0; i < positions * size / 2 && check->inputs != INPUTS_INTEGER; i++) {
        int64_t p = i / (size / 2), k = i % (size / 2);
        double angle = (double)(p + 1) * pow(100.0, -2.0 * (double)k / (double)size);
        value[ROPE_FORWARD_TABLE][p * size + k] = cos(angle);
        value[ROPE_FORWARD_TABLE][p * size + size / 2 + k] = sin(angle);
    }
    if (check->inputs == INPUTS_SMALL && check->call.kind == OP_ROPE_FORWARD)
        inputs_scale(check, op_rope_rows(&check->call), value[op_rope_rows(&check->call)], 1e-2,
                     0.0);
    if (check->inputs == INPUTS_SMALL && check->call.kind == OP_ROPE_BACKWARD &&
        value[ROPE_BACKWARD_X] != NULL)
        inputs_scale(check, ROPE_BACKWARD_X, value[ROPE_BACKWARD_X], 1e-2, 0.0);
    inputs_huge(check, op_rope_rows(&check->call), value, HUGE_SCALE);
    inputs_huge(check, ROPE_FORWARD_GAIN, value, HUGE_SCALE);
}

/* With gains the elements of a row share the error of r. */
static double rope_shared_by(const struct op_call *call, int32_t slot)
{
    return slot == ROPE_FORWARD_Y && call->operand[ROPE_FORWARD_GAIN].present
               ? judge_row(call, slot)
               : 1.0;
}

const struct op_test test_rope_forward = {
    .shape = make_rope_forward,
    .bench = bench_rope,
    .inputs = inputs_rope,
    .ref = ref_rope_forward,
    .has_many_variants = true,
    .shared_by = rope_shared_by,
};

const struct op_test test_rope_backward = {
    .shape = make_rope_backward,
    .bench = bench_rope,
    .inputs = inputs_rope,
    .ref = ref_rope_backward,
    .has_many_variants = true,
    .shared_by = rope_shared_by,
};
