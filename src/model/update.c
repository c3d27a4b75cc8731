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
 *
 * States in host memory are fetched before the op that updates them, and stored after it.  AdamW's pass through the
 * device in slices of rows, whose tensors live as long as one slice; Muon's, whose ops need the whole matrix, at once.
 */
#include "model/programs.h"

#include <math.h>

#include "base/size.h"

#define SLICE_ELEMENTS ((int64_t)4 << 20)
#define STEPS 5
#define COEFFICIENT_A 3.4445f
#define COEFFICIENT_B (-4.7750f)
#define COEFFICIENT_C 2.0315f

/* A parameter or a range of its rows, and the tensors with which it is updated. */
struct slice {
    const struct graph_pen *pen;
    const struct model *model;
    const struct parameter *parameter;
    int32_t weight, gradient, master, m, v, scales;
    int64_t first, rows, index_base;
};

/* A matrix that Muon updates. */
struct muon {
    struct slice slice;
    bool tall; /* more rows than columns */
};

/* ---- slices ---- */

/* Replaces a tensor by a view of its rows; TENSOR_NONE stays, and so does the whole. */
static enum gt_status rows_take(const struct slice *slice, int32_t *tensor)
{
    struct graph *graph = slice->pen->graph;
    if (*tensor == TENSOR_NONE || slice->rows == graph->tensors[*tensor].dims[0])
        return GT_OK;
    return graph_view_add(graph, *tensor, slice->first, slice->rows, tensor);
}

/* Takes `rows` rows of a parameter from `first` on.  The exponents of 8-bit moments stay whole. */
static enum gt_status slice_take(const struct graph_pen *pen, const struct model *model,
                                 const struct parameter *parameter, int64_t first, int64_t rows, struct slice *out)
{
    const struct tensor *whole = &pen->graph->tensors[parameter->tensor];
    *out = (struct slice){.pen = pen,
                          .model = model,
                          .parameter = parameter,
                          .weight = parameter->tensor,
                          .gradient = parameter->gradient,
                          .master = parameter->master,
                          .m = parameter->m,
                          .v = parameter->v,
                          .scales = parameter->scales,
                          .first = first,
                          .rows = rows,
                          .index_base = parameter->index_base + first * (whole->rank == 2 ? whole->dims[1] : 1)};
    TRY(rows_take(out, &out->weight));
    TRY(rows_take(out, &out->gradient));
    TRY(rows_take(out, &out->master));
    TRY(rows_take(out, &out->m));
    return rows_take(out, &out->v);
}

/* Returns how many rows of a parameter are updated at once: all of them unless its states are in host memory, and then
 * as many whole blocks of 8-bit moments as a slice may have. */
static int64_t slice_rows(const struct model *model, const struct parameter *parameter)
{
    const struct tensor *whole = &model->graph->tensors[parameter->tensor];
    int64_t step = 1;
    if (parameter->states_home == SPACE_DEVICE || parameter->group == GROUP_MUON)
        return whole->dims[0];
    while (step * whole->dims[1] % STATE_BLOCK != 0)
        step *= 2;
    return max_i64(SLICE_ELEMENTS / (step * whole->dims[1]), 1) * step;
}

static enum gt_status move_add(const struct slice *slice, enum op_kind kind, int32_t from, int32_t *to)
{
    const struct op_attrs none = {0};
    int32_t operands[FETCH_OPERANDS] = {[FETCH_X] = from, [FETCH_Y] = *to}; /* store's are the same */
    TRY(graph_op_add(slice->pen, kind, &none, slice->parameter->name, operands));
    *to = operands[FETCH_Y];
    return GT_OK;
}

/* Replaces a state in host memory by a copy on the device. */
static enum gt_status state_fetch(const struct slice *slice, int32_t *state)
{
    const int32_t from = *state;
    if (from == TENSOR_NONE || slice->parameter->states_home == SPACE_DEVICE)
        return GT_OK;
    *state = TENSOR_NONE;
    return move_add(slice, OP_FETCH, from, state);
}

/* Copies a state back to `home`, where state_fetch() found it. */
static enum gt_status state_store(const struct slice *slice, int32_t state, int32_t home)
{
    return state == home ? GT_OK : move_add(slice, OP_STORE, state, &home);
}

/* Fetches, or stores, the exponents of a slice's blocks: a range of columns of the two rows of `home`. */
static enum gt_status scales_move(const struct slice *slice, enum op_kind kind, int32_t home, int32_t scales)
{
    struct graph *graph = slice->pen->graph;
    const int64_t columns = graph->tensors[slice->weight].dims[1];
    for (int64_t row = 0; row < 2; row++) {
        struct tensor view = graph->tensors[home];
        int32_t inside, at;
        view.base = home;
        view.view_offset = row * view.dims[1] + slice->first * columns / STATE_BLOCK;
        view.dims[0] = 1;
        view.dims[1] = graph->tensors[scales].dims[1];
        TRY(graph_tensor_add(graph, &view, &inside));
        TRY(graph_view_add(graph, scales, row, 1, &at));
        TRY(kind == OP_FETCH ? move_add(slice, kind, inside, &at) : move_add(slice, kind, at, &inside));
    }
    return GT_OK;
}

static enum gt_status scales_fetch(struct slice *slice)
{
    struct graph *graph = slice->pen->graph;
    const int32_t home = slice->scales;
    if (home == TENSOR_NONE || slice->parameter->states_home == SPACE_DEVICE)
        return GT_OK;
    struct tensor scales = graph->tensors[home];
    scales.dims[1] = state_blocks(graph_tensor_elements(graph, slice->weight));
    scales.home = SPACE_DEVICE;
    scales.category = CATEGORY_TEMPORARY;
    scales.lifetime = LIFETIME_PROGRAM;
    TRY(graph_tensor_add(graph, &scales, &slice->scales));
    return scales_move(slice, OP_FETCH, home, slice->scales);
}

/* ---- Muon ---- */

static enum gt_status gemm_add(const struct muon *muon, int32_t a, int32_t b, bool transpose_a, bool transpose_b,
                               int32_t *out)
{
    struct op_attrs attrs = {.transpose_a = transpose_a, .transpose_b = transpose_b};
    int32_t operands[GEMM_OPERANDS] = {[GEMM_A] = a, [GEMM_B] = b, [GEMM_BIAS] = TENSOR_NONE, [GEMM_D] = TENSOR_NONE};
    TRY(graph_op_add(muon->slice.pen, OP_GEMM, &attrs, muon->slice.parameter->name, operands));
    *out = operands[GEMM_D];
    return GT_OK;
}

/* Appends z = alpha x + beta z. */
static enum gt_status blend_add(const struct muon *muon, float alpha, int32_t x, float beta, int32_t z)
{
    struct op_attrs attrs = {.alpha = alpha, .beta = beta};
    int32_t operands[BLEND_OPERANDS] = {[BLEND_X] = x, [BLEND_Z] = z, [BLEND_Y] = z};
    return graph_op_add(muon->slice.pen, OP_BLEND, &attrs, muon->slice.parameter->name, operands);
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
    struct graph *graph = muon->slice.pen->graph;
    const struct parameter *parameter = muon->slice.parameter;
    struct op_attrs momentum = {.index_base = muon->slice.index_base};
    struct op_attrs none = {0};
    int32_t operands[MUON_MOMENTUM_OPERANDS] = {[MUON_MOMENTUM_GRAD] = muon->slice.gradient,
                                                [MUON_MOMENTUM_SCALARS] = muon->slice.model->scalars,
                                                [MUON_MOMENTUM_M] = muon->slice.m,
                                                [MUON_MOMENTUM_U] = TENSOR_NONE};
    TRY(graph_op_add(muon->slice.pen, OP_MUON_MOMENTUM, &momentum, parameter->name, operands));
    int32_t squares[SUM_OF_SQUARES_OPERANDS] = {
        [SUM_OF_SQUARES_X] = operands[MUON_MOMENTUM_U], [SUM_OF_SQUARES_PARTIAL] = TENSOR_NONE};
    TRY(graph_op_add(muon->slice.pen, OP_SUM_OF_SQUARES, &none, parameter->name, squares));
    struct tensor direction = graph->tensors[operands[MUON_MOMENTUM_U]];
    direction.dtype = muon->slice.model->options.muon_dtype;
    snprintf(direction.name, sizeof direction.name, "%.80s.x", parameter->name);
    TRY(graph_tensor_add(graph, &direction, out));
    int32_t normalize[MUON_NORMALIZE_OPERANDS] = {[MUON_NORMALIZE_X] = operands[MUON_MOMENTUM_U],
                                                  [MUON_NORMALIZE_SUM] = squares[SUM_OF_SQUARES_PARTIAL],
                                                  [MUON_NORMALIZE_Y] = *out};
    return graph_op_add(muon->slice.pen, OP_MUON_NORMALIZE, &none, parameter->name, normalize);
}

/* Appends Muon's update of one matrix. */
static enum gt_status matrix_add(struct muon *muon)
{
    const struct model_options *options = &muon->slice.model->options;
    const struct tensor *tensor = &muon->slice.pen->graph->tensors[muon->slice.weight];
    const double rows = (double)tensor->dims[0], columns = (double)tensor->dims[1];
    int32_t x;
    const int32_t m = muon->slice.m, master = muon->slice.master;
    muon->tall = rows > columns;
    TRY(state_fetch(&muon->slice, &muon->slice.m));
    TRY(direction_add(muon, &x));
    TRY(state_store(&muon->slice, muon->slice.m, m));
    for (int step = 0; step < STEPS; step++)
        TRY(newton_schulz_add(muon, x, &x));
    struct op_attrs attrs = {
        .alpha = options->rates[GROUP_MUON],
        .value = (float)sqrt(fmax(1.0, model_is_gpt2(&options->config) ? columns / rows : rows / columns)),
        .weight_decay = options->muon_weight_decay,
        .index_base = muon->slice.index_base,
    };
    TRY(state_fetch(&muon->slice, &muon->slice.master));
    int32_t operands[MUON_STEP_OPERANDS] = {[MUON_STEP_O] = x,
                                            [MUON_STEP_SCALARS] = muon->slice.model->scalars,
                                            [MUON_STEP_PARAM] = muon->slice.weight,
                                            [MUON_STEP_MASTER] = muon->slice.master};
    TRY(graph_op_add(muon->slice.pen, OP_MUON_STEP, &attrs, muon->slice.parameter->name, operands));
    return state_store(&muon->slice, muon->slice.master, master);
}

/* Appends Muon's update of one parameter. */
static enum gt_status muon_add(const struct graph_pen *pen, const struct model *model,
                               const struct parameter *parameter)
{
    int64_t first = 0;
    for (int32_t part = 0; part < parameter->parts; part++) {
        const int64_t rows =
            parameter->parts > 1 ? parameter->part_rows[part] : pen->graph->tensors[parameter->tensor].dims[0];
        struct muon muon;
        TRY(slice_take(pen, model, parameter, first, rows, &muon.slice));
        TRY(matrix_add(&muon));
        first += rows;
    }
    return GT_OK;
}

/* ---- AdamW ---- */

static enum gt_status adamw_add(const struct slice *slice, const struct op_attrs *attrs)
{
    int32_t operands[ADAMW_OPERANDS] = {
        [ADAMW_GRAD] = slice->gradient,
        [ADAMW_SCALARS] = slice->model->scalars,
        [ADAMW_CORRECTIONS] = slice->model->corrections,
        [ADAMW_PARAM] = slice->weight,
        [ADAMW_MASTER] = slice->master,
        [ADAMW_M] = slice->m,
        [ADAMW_V] = slice->v,
    };
    return graph_op_add(slice->pen, OP_ADAMW, attrs, slice->parameter->name, operands);
}

static enum gt_status adamw_lean_add(const struct slice *slice, const struct op_attrs *attrs)
{
    struct op_attrs lean = *attrs;
    int32_t operands[ADAMW_LEAN_OPERANDS] = {
        [ADAMW_LEAN_GRAD] = slice->gradient,
        [ADAMW_LEAN_SCALARS] = slice->model->scalars,
        [ADAMW_LEAN_CORRECTIONS] = slice->model->corrections,
        [ADAMW_LEAN_PARAM] = slice->weight,
        [ADAMW_LEAN_M] = slice->m,
        [ADAMW_LEAN_V] = slice->v,
        [ADAMW_LEAN_SCALES] = slice->scales,
    };
    lean.index_base = slice->index_base;
    return graph_op_add(slice->pen, OP_ADAMW_LEAN, &lean, slice->parameter->name, operands);
}

/* Appends AdamW's update of a slice, between the fetches and the stores of its states. */
static enum gt_status slice_update(struct slice *slice, const struct op_attrs *attrs)
{
    const struct slice home = *slice;
    const bool fp32 = slice->model->graph->tensors[model_parameter_home(slice->parameter)].dtype == DTYPE_F32;
    TRY(state_fetch(slice, &slice->master));
    TRY(state_fetch(slice, &slice->m));
    TRY(state_fetch(slice, &slice->v));
    TRY(scales_fetch(slice));
    TRY(fp32 ? adamw_add(slice, attrs) : adamw_lean_add(slice, attrs));
    TRY(state_store(slice, slice->master, home.master));
    TRY(state_store(slice, slice->m, home.m));
    TRY(state_store(slice, slice->v, home.v));
    return slice->scales == home.scales ? GT_OK : scales_move(slice, OP_STORE, home.scales, slice->scales);
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
    const int64_t all = model->graph->tensors[parameter->tensor].dims[0], most = slice_rows(model, parameter);
    for (int64_t first = 0; first < all; first += most) {
        struct slice slice;
        TRY(slice_take(pen, model, parameter, first, min_i64(most, all - first), &slice));
        TRY(slice_update(&slice, &attrs));
    }
    return GT_OK;
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

/* Appends the copies of one master, in the slices in which it is updated. */
static enum gt_status master_copy(const struct graph_pen *pen, const struct model *model,
                                  const struct parameter *parameter)
{
    const int64_t all = model->graph->tensors[parameter->tensor].dims[0], most = slice_rows(model, parameter);
    for (int64_t first = 0; first < all; first += most) {
        const struct op_attrs none = {0};
        struct slice slice = {pen, model, parameter, .weight = parameter->tensor, .master = parameter->master};
        slice.first = first;
        slice.rows = min_i64(most, all - first);
        TRY(rows_take(&slice, &slice.weight));
        TRY(rows_take(&slice, &slice.master));
        TRY(state_fetch(&slice, &slice.master));
        int32_t operands[COPY_OPERANDS] = {[COPY_X] = slice.master, [COPY_Y] = slice.weight};
        TRY(graph_op_add(pen, OP_COPY, &none, parameter->name, operands));
    }
    return GT_OK;
}

enum gt_status refresh_build(struct model *model)
{
    int32_t *program = &model->refresh.program;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        if (model->parameters.at[i].master == TENSOR_NONE)
            continue;
        if (*program < 0)
            TRY(graph_program_add(model->graph, "refresh", PHASE_TRAIN, program));
        const struct graph_pen pen = {model->graph, *program, PASS_UPDATE, -1, 0, false};
        TRY(master_copy(&pen, model, &model->parameters.at[i]));
    }
    return GT_OK;
}
