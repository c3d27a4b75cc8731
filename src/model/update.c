/* The update program.
 *
 * The optimizer and the state format determine the ops that update a parameter.  If Muon was chosen, its ops update the
 * matrices of blocks.  Otherwise adamw updates a parameter that is fp32 or has a master, and adamw_lean a bf16
 * parameter without a master.
 *
 * Muon is momentum, orthogonalised by a Newton-Schulz iteration: X0 = u / |u|, then five times
 * X <- a X + b (X X') X + c (X X')^2 X, which brings all singular values close to 1.  Products are GEMM ops in
 * muon_dtype, 16 bits if the device has such a type, with fp32 sums.  If a matrix has more rows than columns, they use
 * X' X on the right, X (X' X), through the GEMM's transpose flags.  The square matrices are thus the small ones, and
 * nothing is transposed in memory.  Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks"
 * (2024), KellerJordan/Muon muon.py: coefficients, Nesterov momentum and the scale sqrt(max(1, out / in)).  Queries,
 * keys and values, and the two halves of a gated MLP, are matrices of their own where they are ranges of rows: in all
 * models but GPT-2, whose matrices are [in, out] (Conv1D).
 */
#include "model/programs.h"

#include <math.h>
#include <stdio.h>

#define STEPS 5
#define COEFFICIENT_A 3.4445f
#define COEFFICIENT_B (-4.7750f)
#define COEFFICIENT_C 2.0315f

/* A matrix that Muon updates: a parameter, or a range of its rows. */
struct muon {
    const struct graph_pen *pen;
    const struct model *model;
    const struct parameter *parameter;
    int32_t weight, master, gradient, m;
    int64_t index_base;
    bool tall; /* more rows than columns */
};

static enum gt_status gemm_add(const struct muon *muon, int32_t a, int32_t b, bool transpose_a, bool transpose_b,
                               int32_t *out)
{
    struct op_attrs attrs = {.transpose_a = transpose_a, .transpose_b = transpose_b};
    int32_t operands[GEMM_OPERANDS] = {[GEMM_A] = a, [GEMM_B] = b, [GEMM_BIAS] = TENSOR_NONE, [GEMM_D] = TENSOR_NONE};
    TRY(graph_op_add(muon->pen, OP_GEMM, &attrs, muon->parameter->name, operands));
    *out = operands[GEMM_D];
    return GT_OK;
}

/* Appends z = alpha x + beta z. */
static enum gt_status blend_add(const struct muon *muon, float alpha, int32_t x, float beta, int32_t z)
{
    struct op_attrs attrs = {.alpha = alpha, .beta = beta};
    int32_t operands[BLEND_OPERANDS] = {[BLEND_X] = x, [BLEND_Z] = z, [BLEND_Y] = z};
    return graph_op_add(muon->pen, OP_BLEND, &attrs, muon->parameter->name, operands);
}

/* Appends *out = a X + (b A + c A A) X with A = X X', or the product from the right with A = X' X. */
static enum gt_status newton_schulz_add(const struct muon *muon, int32_t x, int32_t *out)
{
    int32_t square, power;
    TRY(gemm_add(muon, x, x, muon->tall, !muon->tall, &square));
    TRY(gemm_add(muon, square, square, false, false, &power));
    TRY(blend_add(muon, COEFFICIENT_B, square, COEFFICIENT_C, power));
    TRY(gemm_add(muon, muon->tall ? x : power, muon->tall ? power : x, false, false, out));
    return blend_add(muon, COEFFICIENT_A, x, 1.0f, *out);
}

/* Appends *out = the Nesterov momentum, scaled to norm 1, in muon_dtype. */
static enum gt_status direction_add(const struct muon *muon, int32_t *out)
{
    struct graph *graph = muon->pen->graph;
    const struct parameter *parameter = muon->parameter;
    struct op_attrs momentum = {.index_base = muon->index_base};
    struct op_attrs none = {0};
    int32_t operands[MUON_MOMENTUM_OPERANDS] = {[MUON_MOMENTUM_GRAD] = muon->gradient,
                                                [MUON_MOMENTUM_SCALARS] = muon->model->scalars,
                                                [MUON_MOMENTUM_M] = muon->m,
                                                [MUON_MOMENTUM_U] = TENSOR_NONE};
    TRY(graph_op_add(muon->pen, OP_MUON_MOMENTUM, &momentum, parameter->name, operands));
    int32_t squares[SUM_OF_SQUARES_OPERANDS] = {
        [SUM_OF_SQUARES_X] = operands[MUON_MOMENTUM_U], [SUM_OF_SQUARES_PARTIAL] = TENSOR_NONE};
    TRY(graph_op_add(muon->pen, OP_SUM_OF_SQUARES, &none, parameter->name, squares));
    struct tensor direction = graph->tensors[operands[MUON_MOMENTUM_U]];
    direction.dtype = muon->model->options.muon_dtype;
    snprintf(direction.name, sizeof direction.name, "%.80s.x", parameter->name);
    TRY(graph_tensor_add(graph, &direction, out));
    int32_t normalize[MUON_NORMALIZE_OPERANDS] = {[MUON_NORMALIZE_X] = operands[MUON_MOMENTUM_U],
                                                  [MUON_NORMALIZE_SUM] = squares[SUM_OF_SQUARES_PARTIAL],
                                                  [MUON_NORMALIZE_Y] = *out};
    return graph_op_add(muon->pen, OP_MUON_NORMALIZE, &none, parameter->name, normalize);
}

/* Appends Muon's update of one matrix. */
static enum gt_status matrix_add(struct muon *muon)
{
    const struct model_options *options = &muon->model->options;
    const struct tensor *tensor = &muon->pen->graph->tensors[muon->weight];
    const double rows = (double)tensor->dims[0], columns = (double)tensor->dims[1];
    int32_t x;
    muon->tall = rows > columns;
    TRY(direction_add(muon, &x));
    for (int step = 0; step < STEPS; step++)
        TRY(newton_schulz_add(muon, x, &x));
    struct op_attrs attrs = {
        .alpha = options->rates[GROUP_MUON],
        .value = (float)sqrt(fmax(1.0, model_is_gpt2(&options->config) ? columns / rows : rows / columns)),
        .weight_decay = options->muon_weight_decay,
        .index_base = muon->index_base,
    };
    int32_t operands[MUON_STEP_OPERANDS] = {[MUON_STEP_O] = x,
                                            [MUON_STEP_SCALARS] = muon->model->scalars,
                                            [MUON_STEP_PARAM] = muon->weight,
                                            [MUON_STEP_MASTER] = muon->master};
    return graph_op_add(muon->pen, OP_MUON_STEP, &attrs, muon->parameter->name, operands);
}

/* Replaces a tensor by a view of its rows; TENSOR_NONE stays. */
static enum gt_status rows_take(struct graph *graph, int64_t first, int64_t rows, int32_t *tensor)
{
    return *tensor == TENSOR_NONE ? GT_OK : graph_view_add(graph, *tensor, first, rows, tensor);
}

/* Appends Muon's update of one parameter. */
static enum gt_status muon_add(const struct graph_pen *pen, const struct model *model,
                               const struct parameter *parameter)
{
    struct graph *graph = pen->graph;
    int64_t first = 0;
    for (int32_t part = 0; part < parameter->parts; part++) {
        const int64_t rows = parameter->part_rows[part];
        struct muon muon = {pen,
                            model,
                            parameter,
                            .weight = parameter->tensor,
                            .master = parameter->master,
                            .gradient = parameter->gradient,
                            .m = parameter->m};
        muon.index_base = parameter->index_base + first * graph->tensors[parameter->tensor].dims[1];
        if (parameter->parts > 1) {
            TRY(rows_take(graph, first, rows, &muon.weight));
            TRY(rows_take(graph, first, rows, &muon.master));
            TRY(rows_take(graph, first, rows, &muon.gradient));
            TRY(rows_take(graph, first, rows, &muon.m));
        }
        TRY(matrix_add(&muon));
        first += rows;
    }
    return GT_OK;
}

static enum gt_status adamw_add(const struct graph_pen *pen, const struct model *model,
                                const struct parameter *parameter, const struct op_attrs *attrs)
{
    int32_t operands[ADAMW_OPERANDS] = {
        [ADAMW_GRAD] = parameter->gradient,
        [ADAMW_SCALARS] = model->scalars,
        [ADAMW_CORRECTIONS] = model->corrections,
        [ADAMW_PARAM] = parameter->tensor,
        [ADAMW_MASTER] = parameter->master,
        [ADAMW_M] = parameter->m,
        [ADAMW_V] = parameter->v,
    };
    return graph_op_add(pen, OP_ADAMW, attrs, parameter->name, operands);
}

static enum gt_status adamw_lean_add(const struct graph_pen *pen, const struct model *model,
                                     const struct parameter *parameter, const struct op_attrs *attrs)
{
    struct op_attrs lean = *attrs;
    int32_t operands[ADAMW_LEAN_OPERANDS] = {
        [ADAMW_LEAN_GRAD] = parameter->gradient,
        [ADAMW_LEAN_SCALARS] = model->scalars,
        [ADAMW_LEAN_CORRECTIONS] = model->corrections,
        [ADAMW_LEAN_PARAM] = parameter->tensor,
        [ADAMW_LEAN_M] = parameter->m,
        [ADAMW_LEAN_V] = parameter->v,
        [ADAMW_LEAN_SCALES] = parameter->scales,
    };
    lean.index_base = parameter->index_base;
    return graph_op_add(pen, OP_ADAMW_LEAN, &lean, parameter->name, operands);
}

static enum gt_status optimizer_add(const struct graph_pen *pen, const struct model *model,
                                    const struct parameter *parameter)
{
    const struct model_options *options = &model->options;
    struct op_attrs attrs = {
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->adam_epsilon,
        .alpha = options->rates[parameter->group],
        .weight_decay = parameter->group == GROUP_VECTOR ? 0.0f : options->weight_decay,
    };
    if (parameter->group == GROUP_MUON)
        return muon_add(pen, model, parameter);
    bool fp32 = model->graph->tensors[model_parameter_home(parameter)].dtype == DTYPE_F32;
    return fp32 ? adamw_add(pen, model, parameter, &attrs) : adamw_lean_add(pen, model, parameter, &attrs);
}

/* Sums the squares of each gradient into partials[parameters], then computes norm and clip factor from them. */
static enum gt_status norm_add(const struct graph_pen *pen, const struct model *model)
{
    struct graph *graph = model->graph;
    int32_t count = model->parameters.count, partials;
    struct tensor tensor = {.name = "update.partials",
                            .dtype = DTYPE_F32,
                            .rank = 1,
                            .dims = {count},
                            .phase = PHASE_TRAIN,
                            .category = CATEGORY_TEMPORARY,
                            .lifetime = LIFETIME_PROGRAM,
                            .base = TENSOR_NONE};
    TRY(graph_tensor_add(graph, &tensor, &partials));
    for (int32_t i = 0; i < count; i++) {
        struct op_attrs attrs = {0};
        int32_t operands[SUM_OF_SQUARES_OPERANDS] = {[SUM_OF_SQUARES_X] = model->parameters.at[i].gradient};
        TRY(graph_view_add(graph, partials, i, 1, &operands[SUM_OF_SQUARES_PARTIAL]));
        TRY(graph_op_add(pen, OP_SUM_OF_SQUARES, &attrs, model->parameters.at[i].name, operands));
    }
    struct op_attrs clip = {.clip_max = model->options.grad_clip};
    int32_t operands[CLIP_FACTOR_OPERANDS] = {
        [CLIP_FACTOR_PARTIALS] = partials, [CLIP_FACTOR_SCALARS] = model->scalars};
    return graph_op_add(pen, OP_CLIP_FACTOR, &clip, "clip", operands);
}

enum gt_status update_build(struct model *model)
{
    TRY(graph_program_add(model->graph, "update", PHASE_TRAIN, &model->update.program));
    struct graph_pen pen = {model->graph, model->update.program, PASS_UPDATE, -1, 0, false};
    TRY(norm_add(&pen, model));
    for (int32_t i = 0; i < model->parameters.count; i++)
        TRY(optimizer_add(&pen, model, &model->parameters.at[i]));
    return GT_OK;
}
