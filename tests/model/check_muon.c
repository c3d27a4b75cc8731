/* Checks Muon's direction, computed from the update program's change of a weight, against linear
 * algebra in double.
 *
 *   parts       queries, keys and values of a model with Llama's layout, and the halves of its MLP,
 *               are matrices of their own
 *   fused       a model that stores them as one matrix gets the same update
 *   iteration   it equals five Newton-Schulz steps in double, up to the rounding of 16-bit
 *               products, for wide, square and tall matrices
 *   momentum    a second, different gradient moves it as Nesterov momentum does
 *   zero        a gradient of zeros changes no weight
 *
 * Source of the iteration: Jordan et al. 2024, KellerJordan/Muon, muon.py.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/parameters.h"
#include "tests/model/model_fixture.h"
#include "tests/unit/unit_main.h"

#define SIDE 16 /* the smaller side of every matrix of the small model */
#define MOMENTUM 0.95
#define RATE 0.5f

/* A matrix [rows, columns] in double; the helpers use it with its smaller side first. */
struct matrix {
    int64_t rows, columns;
    double *at;
};

static double element(const struct matrix *m, int64_t small, int64_t large)
{
    return m->rows <= m->columns ? m->at[small * m->columns + large]
                                 : m->at[large * m->columns + small];
}

/* out = a b' over the larger side: [SIDE, SIDE]. */
static void product(const struct matrix *a, const struct matrix *b, double out[SIDE][SIDE])
{
    const int64_t large = a->rows * a->columns / SIDE;
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            out[i][j] = 0.0;
            for (int64_t k = 0; k < large; k++)
                out[i][j] += element(a, i, k) * element(b, j, k);
        }
    }
}

static double norm(const double *values, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* Runs five steps in double: x = u / |u|, then a x + (b A + c A A) x. */
static void newton_schulz(const struct matrix *u, double *out)
{
    const int64_t large = u->rows * u->columns / SIDE;
    const double length = norm(u->at, u->rows * u->columns);
    struct matrix x = {SIDE, large, out};
    double *next = calloc((size_t)(SIDE * large), sizeof *next);
    ck_assert_ptr_nonnull(next);
    for (int i = 0; i < SIDE; i++)
        for (int64_t k = 0; k < large; k++)
            out[i * large + k] = element(u, i, k) / length;
    for (int step = 0; step < 5; step++) {
        double square[SIDE][SIDE], mixed[SIDE][SIDE];
        product(&x, &x, square);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                double power = 0.0;
                for (int k = 0; k < SIDE; k++)
                    power += square[i][k] * square[k][j];
                mixed[i][j] = -4.7750 * square[i][j] + 2.0315 * power;
            }
        for (int i = 0; i < SIDE; i++)
            for (int64_t k = 0; k < large; k++) {
                double sum = 3.4445 * out[i * large + k];
                for (int j = 0; j < SIDE; j++)
                    sum += mixed[i][j] * out[j * large + k];
                next[i * large + k] = sum;
            }
        memcpy(out, next, (size_t)(SIDE * large) * sizeof *next);
    }
    free(next);
}

static void muon_rig(struct rig *rig, enum dtype products, bool llama, bool fused)
{
    const struct rig_how how = {.threads = 1};
    struct model_options options = rig_options(!llama, 0.0f, GELU_TANH);
    if (llama) {
        options.config.norm = NORM_RMSNORM;
        options.config.position = POSITION_ROPE;
        options.config.rope.theta = 1e4;
        options.config.mlp = MLP_SWIGLU;
        options.config.untied = true;
        options.config.fused_projections = fused;
    }
    options.muon = true;
    options.rates[GROUP_MUON] = RATE;
    options.muon_dtype = products;
    options.muon_weight_decay = 0.0f;
    options.grad_clip = 0.0f;
    rig_open(rig, &options, &how, unit_seed());
    rig->scalars[SCALAR_MUON_MOMENTUM].f = (float)MOMENTUM;
}

static double gradient_value(const struct rig *rig, int32_t parameter, uint64_t which,
                             int64_t index)
{
    return 1e-3 * rig_normal(rig->seed, 5000 + 100 * which + (uint64_t)parameter, (uint64_t)index);
}

/* Fills every gradient with normal numbers of the stream `which`, or with zeros. */
static void gradients_fill(struct rig *rig, uint64_t which, bool zero)
{
    for (int32_t p = 0; p < rig->model->parameters.count; p++) {
        const int32_t tensor = rig->model->parameters.at[p].gradient;
        const int64_t count = graph_tensor_elements(rig->model->graph, tensor);
        float *values = calloc((size_t)count, sizeof *values);
        ck_assert_ptr_nonnull(values);
        for (int64_t i = 0; i < count && !zero; i++)
            values[i] = (float)gradient_value(rig, p, which, i);
        ck_assert_int_eq(exec_upload(rig->exec, tensor, 0, values, count), GT_OK);
        free(values);
    }
}

/* Runs one update and returns the parameter's weights after it, minus `before` unless that is NULL;
 * the caller calls free(). */
static double *weights_take(struct rig *rig, const struct parameter *parameter,
                            const double *before)
{
    const int32_t home = model_parameter_home(parameter);
    const int64_t count = graph_tensor_elements(rig->model->graph, home);
    float *values = rig_download(rig, home);
    double *out = calloc((size_t)count, sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (int64_t i = 0; i < count; i++)
        out[i] = (double)values[i] - (before != NULL ? before[i] : 0.0);
    free(values);
    return out;
}

/* Returns the direction: the change of the parameter in the next update, divided by the rate. */
static struct matrix direction_take(struct rig *rig, const struct parameter *parameter)
{
    const struct tensor *tensor = &rig->model->graph->tensors[parameter->tensor];
    struct matrix out = {tensor->dims[0], tensor->dims[1], NULL};
    double *before = weights_take(rig, parameter, NULL);
    rig_run(rig, rig->model->update.program);
    out.at = weights_take(rig, parameter, before);
    free(before);
    for (int64_t i = 0; i < out.rows * out.columns; i++)
        out.at[i] /= -(double)rig->scalars[SCALAR_LEARNING_RATE].f * (double)RATE;
    return out;
}

/* Returns a matrix that Muon treats as one, without its scale if it is a direction: rows of
 * `whole`, borrowed. */
static struct matrix part_shape_select(const struct matrix *whole,
                                       const struct parameter *parameter, int part, bool direction)
{
    struct matrix out = *whole;
    for (int i = 0; i < part; i++)
        out.at += parameter->part_rows[i] * out.columns;
    if (parameter->matrices > 1)
        out.rows = parameter->part_rows[part];
    const bool gpt2 = strncmp(parameter->name, "h.", 2) == 0;
    const double in = (double)(gpt2 ? out.rows : out.columns),
                 to = (double)(gpt2 ? out.columns : out.rows);
    for (int64_t i = 0; direction && i < out.rows * out.columns; i++)
        out.at[i] /= sqrt(fmax(1.0, to / in));
    return out;
}

static struct matrix gradient_of(const struct rig *rig, int32_t p, double first, double second)
{
    const struct tensor *tensor = &rig->model->graph->tensors[rig->model->parameters.at[p].tensor];
    struct matrix out = {tensor->dims[0], tensor->dims[1], NULL};
    out.at = calloc((size_t)(out.rows * out.columns), sizeof *out.at);
    ck_assert_ptr_nonnull(out.at);
    for (int64_t i = 0; i < out.rows * out.columns; i++)
        out.at[i] = first * gradient_value(rig, p, 1, i) + second * gradient_value(rig, p, 2, i);
    return out;
}

static void iteration_check(const char *name, const struct matrix *direction,
                            const struct matrix *u, double bound)
{
    const int64_t count = direction->rows * direction->columns, large = count / SIDE;
    double *expected = calloc((size_t)count, sizeof *expected),
           *difference = calloc((size_t)count, sizeof *difference);
    ck_assert(expected != NULL && difference != NULL);
    newton_schulz(u, expected);
    for (int i = 0; i < SIDE; i++)
        for (int64_t k = 0; k < large; k++)
            difference[i * large + k] = element(direction, i, k) - expected[i * large + k];
    const double distance = norm(difference, count) / norm(expected, count);
    ck_assert_msg(distance <= bound, "%s: %.4f away from the iteration in double", name, distance);
    free(difference);
    free(expected);
}

/* Compares two updates of a parameter with the gradients that they had; returns the number of its
 * matrices. */
static int parameter_check(struct rig *rig, int32_t p, double bound)
{
    const struct parameter *parameter = &rig->model->parameters.at[p];
    const double mu = MOMENTUM, rest = 1.0 - MOMENTUM;
    for (uint64_t update = 1; update <= 2; update++) {
        gradients_fill(rig, update, false);
        struct matrix direction = direction_take(rig, parameter);
        struct matrix u = update == 1 ? gradient_of(rig, p, 1.0, 0.0)
                                      : gradient_of(rig, p, mu * mu * rest, mu * rest + rest);
        for (int part = 0; part < parameter->matrices; part++) {
            const struct matrix moved = part_shape_select(&direction, parameter, part, true);
            const struct matrix from = part_shape_select(&u, parameter, part, false);
            iteration_check(parameter->name, &moved, &from, bound);
        }
        free(u.at);
        free(direction.at);
    }
    return parameter->matrices;
}

/* Tests each matrix of the blocks in turn, with a new rig each, because one update changes all of
 * them. */
TEST_LOOP(direction_is_that_of_the_iteration, 4)
{
    static const enum dtype products[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32, DTYPE_F32};
    static const double bounds[] = {
        0.05, 0.008, 5e-4,
        5e-4}; /* units of the dtype, through five steps; for fp32, those of the weight */
    const bool llama = _i == 3;
    int matrices = 0;
    for (int32_t p = 0;; p++) {
        struct rig rig;
        muon_rig(&rig, products[_i], llama, false);
        const bool end = p == rig.model->parameters.count;
        if (!end && rig.model->parameters.at[p].group == GROUP_MUON)
            matrices += parameter_check(&rig, p, bounds[_i]);
        rig_close(&rig);
        if (end)
            break;
    }
    ck_assert_int_eq(matrices, llama ? 14 : 8); /* in two blocks */
}

/* Fused or not, a model has the same parameters, weights and gradients. */
TEST(fused_matrices_move_as_separate_ones_do)
{
    struct rig rig[2];
    for (int fused = 0; fused < 2; fused++) {
        muon_rig(&rig[fused], DTYPE_F32, true, fused != 0);
        gradients_fill(&rig[fused], 1, false);
        rig_run(&rig[fused], rig[fused].model->update.program);
    }
    for (int32_t p = 0; p < rig[0].model->parameters.count; p++) {
        const struct parameter *parameter = &rig[0].model->parameters.at[p];
        const int32_t home = model_parameter_home(parameter);
        float *apart = rig_download(&rig[0], home), *fused = rig_download(&rig[1], home);
        const size_t count = (size_t)graph_tensor_elements(rig[0].model->graph, home);
        ck_assert_mem_eq(apart, fused, count * sizeof *fused);
        free(apart);
        free(fused);
    }
    rig_close(&rig[0]);
    rig_close(&rig[1]);
}

TEST(no_gradient_no_step)
{
    struct rig rig;
    muon_rig(&rig, DTYPE_BF16, false, false);
    gradients_fill(&rig, 0, true);
    for (int32_t p = 0; p < rig.model->parameters.count; p++) {
        const struct parameter *parameter = &rig.model->parameters.at[p];
        if (parameter->group != GROUP_MUON)
            continue;
        struct matrix direction = direction_take(&rig, parameter);
        for (int64_t i = 0; i < direction.rows * direction.columns; i++)
            ck_assert_double_eq(direction.at[i], 0.0);
        free(direction.at);
    }
    rig_close(&rig);
}
