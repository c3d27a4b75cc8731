/* Gates, with and without a norm before them.  The terms are derived in tests/opcheck/bounds.md. */
#include <math.h>

#include "tests/ops/op_test.h"

#define LOGISTIC_TERM 6.0 /* of the factor: exp, sum, division, product */
#define TINY 0x1p-104     /* a logistic function that stops at e^-87 */

/* A head of a row: the first elements of x and z, r and its relative term. */
struct head {
    int64_t at, z, size;
    double r, r_term;
};

static struct head head_of(const struct op_call *call, double *const *value, int64_t index)
{
    int64_t heads = call->attrs.heads, columns = op_columns(call, GATE_FORWARD_X),
            row = op_columns(call, GATE_FORWARD_Z), size = columns / heads;
    struct head head = {.at = index * size, .size = size, .r = 1.0};
    head.z = row == columns ? head.at : index / heads * row + (2 * (index % heads) + 1) * size;
    if (value[GATE_FORWARD_GAIN] == NULL)
        return head;
    double square = 0.0;
    for (int64_t i = 0; i < size; i++)
        square += value[GATE_FORWARD_X][head.at + i] * value[GATE_FORWARD_X][head.at + i];
    square /= (double)size;
    head.r = 1.0 / sqrt(square + (double)call->attrs.epsilon);
    head.r_term = 0.5 * (sqrt((double)size) + 1.0) * square * head.r * head.r + 4.0;
    return head;
}

/* Returns the factor, its slope, and the size of the slope's parts. */
static double ref_gate(enum gate_kind kind, double z, double *out_slope, double *out_size)
{
    double s = 1.0 / (1.0 + exp(-z)), rest = 1.0 / (1.0 + exp(z));
    *out_slope = kind == GATE_SIGMOID ? s * rest : s * (1.0 + z * rest);
    *out_size = kind == GATE_SIGMOID
                    ? s * rest + TINY
                    : s * (1.0 + sqrt(5.0) * fabs(z) * rest) + TINY * (1.0 + fabs(z));
    return kind == GATE_SIGMOID ? s : z * s;
}

static void ref_gate_forward(const struct op_call *call, const struct ref_tensors *t)
{
    const double *x = t->value[GATE_FORWARD_X], *z = t->value[GATE_FORWARD_Z],
                 *gain = t->value[GATE_FORWARD_GAIN];
    for (int64_t k = 0; k < op_rows(call, GATE_FORWARD_X) * call->attrs.heads; k++) {
        struct head head = head_of(call, t->value, k);
        for (int64_t i = 0; i < head.size; i++) {
            double slope, size, of_z = z[head.z + i];
            double u = x[head.at + i] * head.r * (gain != NULL ? gain[i] : 1.0),
                   y = u * ref_gate(call->attrs.gate, of_z, &slope, &size);
            t->value[GATE_FORWARD_Y][head.at + i] = y;
            t->term[GATE_FORWARD_Y][head.at + i] =
                fabs(y) * (head.r_term + LOGISTIC_TERM) + TINY * fabs(u) * (1.0 + fabs(of_z));
        }
    }
}

/* The terms of dgain collect sizes until they are complete. */
static void ref_head_gradient(const struct op_call *call, const struct ref_tensors *t,
                              const struct head *head)
{
    const double *x = t->value[GATE_BACKWARD_X], *z = t->value[GATE_BACKWARD_Z],
                 *dy = t->value[GATE_BACKWARD_DY], *gain = t->value[GATE_BACKWARD_GAIN];
    double mean = 0.0, mean_size = 0.0, slope, size, count = (double)head->size;
    for (int64_t i = 0; i < head->size && gain != NULL; i++) {
        double du = dy[head->at + i] * ref_gate(call->attrs.gate, z[head->z + i], &slope, &size),
               xh = x[head->at + i] * head->r;
        mean += du * gain[i] * xh / count;
        mean_size += fabs(du * gain[i] * xh) / count;
        t->value[GATE_BACKWARD_DGAIN][i] += du * xh;
        t->term[GATE_BACKWARD_DGAIN][i] += fabs(du * xh);
    }
    for (int64_t i = 0; i < head->size; i++) {
        double factor = ref_gate(call->attrs.gate, z[head->z + i], &slope, &size),
               g = gain != NULL ? gain[i] : 1.0, xh = x[head->at + i] * head->r,
               of_dy = dy[head->at + i], du = of_dy * factor * g;
        double before = ref_before(call, t, GATE_BACKWARD_DZ, head->z + i),
               dz = of_dy * xh * g * slope;
        t->value[GATE_BACKWARD_DX][head->at + i] = gain != NULL ? head->r * (du - xh * mean) : du;
        t->term[GATE_BACKWARD_DX][head->at + i] =
            gain != NULL ? head->r * (fabs(du) * (head->r_term + LOGISTIC_TERM + 2.0) +
                                      fabs(xh) * mean_size *
                                          (sqrt(count) + 3.0 * head->r_term + LOGISTIC_TERM + 3.0))
                         : fabs(du) * LOGISTIC_TERM + TINY * fabs(of_dy);
        t->value[GATE_BACKWARD_DZ][head->z + i] = before + dz;
        t->term[GATE_BACKWARD_DZ][head->z + i] = fabs(before) + fabs(dz) * (head->r_term + 3.0) +
                                                 fabs(of_dy * xh * g) * sqrt(5.0) * size * 2.0;
    }
}

static void ref_gate_backward(const struct op_call *call, const struct ref_tensors *t)
{
    const int64_t heads = op_rows(call, GATE_BACKWARD_X) * call->attrs.heads,
                  gains = op_elements(call, GATE_BACKWARD_DGAIN);
    for (int64_t i = 0; i < op_elements(call, GATE_BACKWARD_DZ); i++) {
        t->value[GATE_BACKWARD_DZ][i] = ref_before(call, t, GATE_BACKWARD_DZ, i);
        t->term[GATE_BACKWARD_DZ][i] = REF_EXACT;
    }
    for (int64_t i = 0; i < gains; i++) {
        t->value[GATE_BACKWARD_DGAIN][i] = ref_before(call, t, GATE_BACKWARD_DGAIN, i);
        t->term[GATE_BACKWARD_DGAIN][i] = fabs(t->value[GATE_BACKWARD_DGAIN][i]);
    }
    double r_term = 0.0;
    for (int64_t k = 0; k < heads; k++) {
        struct head head = head_of(call, t->value, k);
        ref_head_gradient(call, t, &head);
        r_term = fmax(r_term, head.r_term);
    }
    for (int64_t i = 0; i < gains; i++)
        t->term[GATE_BACKWARD_DGAIN][i] *= sqrt((double)heads) + r_term + LOGISTIC_TERM;
}

static void make_gate(struct maker *maker, int32_t y)
{
    int64_t rows = case_size(maker, 65), size = case_any_size(maker, 33),
            heads = 1 + random_below(&maker->random, 4), columns = heads * size;
    struct op_attrs *attrs = case_attrs(maker);
    attrs->heads = (int32_t)heads;
    attrs->gate = maker->index % 2 != 0 ? GATE_SIGMOID : GATE_SILU;
    attrs->epsilon = 1e-6f;
    case_tensor(maker, GATE_FORWARD_X, maker->dtype, rows, columns);
    case_tensor(maker, GATE_FORWARD_Z, maker->dtype, rows,
                maker->index % 3 != 0
                    ? columns
                    : 2 * columns + 2 * size * (1 + random_below(&maker->random, 2)));
    if (maker->index % 5 < 3)
        case_tensor(maker, GATE_FORWARD_GAIN, maker->kept, size, 0);
    case_tensor(maker, y, maker->dtype, rows, columns);
}

static void make_gate_forward(struct maker *maker)
{
    make_gate(maker, GATE_FORWARD_Y);
}

static void make_gate_backward(struct maker *maker)
{
    make_gate(maker, GATE_BACKWARD_DY);
    const struct operand *gain = case_operand(maker->check, GATE_BACKWARD_GAIN);
    uint32_t mask = maker->index % 4 < 2 ? 1u << GATE_BACKWARD_DZ : 0u;
    if (gain->present) {
        case_tensor(maker, GATE_BACKWARD_DGAIN, maker->kept, gain->dims[0], 0);
        mask |= maker->index % 7 < 3 ? 1u << GATE_BACKWARD_DGAIN : 0u;
    }
    case_accumulate(maker, mask);
}

static void bench_gate(struct maker *maker)
{
    case_attrs(maker)->heads = BENCH_CHANNELS / 64;
    bench_plain(maker);
    if (case_operand(maker->check, GATE_FORWARD_GAIN)->present)
        case_tensor(maker, GATE_FORWARD_GAIN, maker->kept, 64, 0);
    if (case_operand(maker->check, GATE_BACKWARD_DGAIN)->present)
        case_tensor(maker, GATE_BACKWARD_DGAIN, maker->kept, 64, 0);
}

static void inputs_gate(const struct check_case *check, double *const *value, struct random *random)
{
    (void)random;
    if (check->inputs == INPUTS_SMALL)
        inputs_scale(check, GATE_FORWARD_X, value[GATE_FORWARD_X], 1e-2, 0.0);
    if (check->inputs == INPUTS_LARGE)
        inputs_scale(check, GATE_FORWARD_Z, value[GATE_FORWARD_Z], 6.0, 0.0);
    inputs_huge(check, GATE_FORWARD_X, value, HUGE_SCALE);
}

/* With a norm the elements of a row share the error of r. */
static double gate_shared_by(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].rank == 2 && call->operand[GATE_FORWARD_GAIN].present
               ? judge_row(call, slot)
               : 1.0;
}

const struct op_test test_gate_forward = {
    .shape = make_gate_forward,
    .bench = bench_gate,
    .inputs = inputs_gate,
    .ref = ref_gate_forward,
    .shared_by = gate_shared_by,
};

const struct op_test test_gate_backward = {
    .shape = make_gate_backward,
    .bench = bench_gate,
    .inputs = inputs_gate,
    .ref = ref_gate_backward,
    .shared_by = gate_shared_by,
};
