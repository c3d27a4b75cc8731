/* The update program.
 *
 *   gradients -- sum_of_squares, one each -- clip_factor: norm, factor, step count
 *                                                 |
 *   all on the device  --------------- adamw, adamw_lean or Muon's ops -- weights or masters
 *
 *   states, gradients or weights in host memory, a column at a time:
 *      fetch slice 1 | fetch slice 2  | fetch slice 3  |                |
 *                    | update slice 1 | update slice 2 | update slice 3 |
 *                    |                | store slice 1  | store slice 2  | store slice 3
 *
 * The optimizer and the state format determine the ops that update a parameter.  If Muon was
 * chosen, its ops update the matrices of blocks.  Otherwise adamw updates a parameter that is fp32
 * or has a master, and adamw_lean a bf16 parameter without a master.
 *
 * Muon is momentum, orthogonalised by a Newton-Schulz iteration: X0 = u / |u|, then five times
 * X <- a X + b (X X') X + c (X X')^2 X, which brings all singular values close to 1.  Products are
 * GEMM ops in muon_dtype, 16 bits if the device has such a type, with fp32 sums.  If a matrix has
 * more rows than columns, they use X' X on the right, X (X' X), through the GEMM's transpose flags.
 * The square matrices are thus the small ones, and nothing is transposed in memory.  Source: Jordan
 * et al., "Muon: an optimizer for hidden layers in neural networks" (2024), KellerJordan/Muon
 * muon.py: coefficients, Nesterov momentum and the scale sqrt(max(1, out / in)).  Queries, keys and
 * values, and the two halves of a gated MLP, are matrices of their own, even if a file has them as
 * one, in all models but GPT-2, whose matrices are [in, out] (Conv1D).
 *
 * What is in host memory passes through the device in slices: of whole blocks for AdamW, whole
 * matrices for Muon.  While a slice is updated, the next one is fetched and the previous one is
 * stored, so that three are on the device at a time.
 *
 * With several ranks, a rank updates the elements whose states it has.  The norm's sums are then a
 * program of their own, because the other ranks' sums must arrive before the clip factor.
 */

#include "model/update.h"

#include <math.h>

#include "base/size.h"
#include "model/parameters.h"

#define SLICE_ELEMENTS ((int64_t)4 << 20)
#define STEPS 5
#define COEFFICIENT_A 3.4445f
#define COEFFICIENT_B (-4.7750f)
#define COEFFICIENT_C 2.0315f

#define MOVES_MAX 7 /* gradient, master, m, v, weight and the two rows of exponents */

/* A parameter or a range of its elements, and the tensors with which it is updated. */
struct slice {
    const struct graph_pen *pen;
    const struct model *model;
    const struct parameter *parameter;
    int32_t weight, gradient, master, m, v, scales;
    int64_t first, count; /* of the elements whose states are here */
    int64_t index_base;
    struct move {
        int32_t host, device;
        bool fetched, stored;
    } move[MOVES_MAX]; /* tensors in host memory and their copies on the device */
    int32_t moves;
};

/* The slices of a program, in order. */
struct pipeline {
    const struct graph_pen *pen;
    const struct model *model;
    bool refreshes; /* copies masters to weights instead of updating them */
    struct slice *slice;
    int32_t count, fetched;  /* the fetches of slices before `fetched` have begun */
    struct slice *stored[2]; /* on their way back, the older one first, or NULL */
};

/* ---- slices ---- */

/* Replaces a tensor by a view of the slice's elements, the first of which is at `from`.
 * TENSOR_NONE stays, and so does a tensor that has no other elements. */
static enum gt_status range_view(const struct slice *slice, int64_t from, int32_t *tensor)
{
    struct graph *graph = slice->pen->graph;
    if (*tensor == TENSOR_NONE || slice->count == graph_tensor_elements(graph, *tensor))
        return GT_OK;
    const int64_t columns = graph->tensors[*tensor].dims[1];
    return slice->parameter->group == GROUP_MUON
               ? graph_view_add(graph, *tensor, from / columns, slice->count / columns, tensor)
               : graph_range_add(graph, *tensor, from, slice->count, tensor);
}

/* Makes a slice of `count` elements of a parameter, from `first` on.  The exponents of 8-bit
 * moments stay whole. */
static enum gt_status slice_view(const struct graph_pen *pen, const struct model *model,
                                 const struct parameter *parameter, int64_t first, int64_t count,
                                 struct slice *out)
{
    *out = (struct slice){.pen = pen,
                          .model = model,
                          .parameter = parameter,
                          .weight = parameter->tensor,
                          .gradient = parameter->gradient,
                          .master = parameter->master,
                          .m = parameter->m,
                          .v = parameter->v,
                          .scales = parameter->scales,
                          .first = first - parameter->first,
                          .count = count,
                          .index_base = parameter->index_base + first};
    TRY(range_view(out, first, &out->weight));
    TRY(range_view(out, out->first, &out->gradient));
    TRY(range_view(out, out->first, &out->master));
    TRY(range_view(out, out->first, &out->m));
    return range_view(out, out->first, &out->v);
}

static enum gt_status fetch_add(struct slice *slice, int32_t host, bool stored, int32_t *device)
{
    assert(slice->moves < MOVES_MAX);
    TRY(GRAPH_ADD(FETCH, slice->pen, slice->parameter->name, device, .x = host, .y = *device));
    slice->move[slice->moves++] = (struct move){host, *device, true, stored};
    return GT_OK;
}

static bool is_on_host(const struct slice *slice, int32_t tensor)
{
    return tensor != TENSOR_NONE && slice->pen->graph->tensors[tensor].home == SPACE_HOST;
}

/* Begins to copy a tensor that is in host memory to the device, and replaces it by the copy.
 * `stored`: the slice changes it. */
static enum gt_status tensor_fetch(struct slice *slice, bool stored, int32_t *tensor)
{
    const int32_t host = *tensor;
    if (!is_on_host(slice, host))
        return GT_OK;
    *tensor = TENSOR_NONE;
    return fetch_add(slice, host, stored, tensor);
}

/* Replaces a weight that is in host memory by a tensor on the device, all of which is written. */
static enum gt_status weight_replace(struct slice *slice)
{
    const int32_t host = slice->weight;
    if (!is_on_host(slice, host))
        return GT_OK;
    TRY(graph_temporary_add(slice->pen->graph, host, &slice->weight));
    slice->move[slice->moves++] = (struct move){host, slice->weight, false, true};
    return GT_OK;
}

/* Begins to fetch the exponents of a slice's blocks, which are a range of columns of two rows. */
static enum gt_status scales_fetch(struct slice *slice)
{
    struct graph *graph = slice->pen->graph;
    const int32_t home = slice->scales;
    if (!is_on_host(slice, home))
        return GT_OK;
    struct tensor scales = graph->tensors[home];
    scales.dims[1] = state_blocks(slice->count);
    scales.base = TENSOR_NONE;
    scales.home = SPACE_DEVICE;
    scales.category = CATEGORY_TEMPORARY;
    scales.lifetime = LIFETIME_PROGRAM;
    TRY(graph_tensor_add(graph, &scales, &slice->scales));
    for (int64_t row = 0; row < 2; row++) {
        struct tensor view = graph->tensors[home];
        int32_t inside, at;
        view.base = graph_storage(graph, home);
        view.view_offset = row * view.dims[1] + slice->first / STATE_BLOCK;
        view.dims[0] = 1;
        view.dims[1] = scales.dims[1];
        TRY(graph_tensor_add(graph, &view, &inside));
        TRY(graph_view_add(graph, slice->scales, row, 1, &at));
        TRY(fetch_add(slice, inside, true, &at));
    }
    return GT_OK;
}

/* Appends an op `kind` for each fetched tensor, from host memory to the device, or, if `back`, for
 * each stored tensor, from the device to host memory. */
static enum gt_status moves_add(const struct slice *slice, enum op_kind kind, bool back)
{
    for (int32_t i = 0; i < slice->moves; i++) {
        const struct move *move = &slice->move[i];
        if (back ? !move->stored : !move->fetched)
            continue;
        const int32_t from = back ? move->device : move->host,
                      to = back ? move->host : move->device;
        TRY(graph_op_add(slice->pen, kind, slice->parameter->name,
                         OP_ARGUMENTS(WAIT, .x = from, .y = to), NULL));
    }
    return GT_OK;
}

/* ---- Muon ---- */

static enum gt_status gemm_add(const struct slice *slice, int32_t a, int32_t b, bool transpose_a,
                               bool transpose_b, int32_t *out)
{
    return GRAPH_ADD(GEMM, slice->pen, slice->parameter->name, out, .a = a, .b = b,
                     .attrs.transpose_a = transpose_a, .attrs.transpose_b = transpose_b);
}

/* Appends z = alpha x + beta z. */
static enum gt_status blend_add(const struct slice *slice, float alpha, int32_t x, float beta,
                                int32_t z)
{
    return GRAPH_ADD(BLEND, slice->pen, slice->parameter->name, NULL, .x = x, .z = z, .y = z,
                     .attrs.alpha = alpha, .attrs.beta = beta);
}

/* Appends *out = a X + (b A + c A A) X with A = X X', or the product from the right with A = X' X.
 */
static enum gt_status newton_schulz_add(const struct slice *slice, int32_t x, int32_t *out)
{
    const int64_t *dims = slice->pen->graph->tensors[x].dims;
    const bool tall = dims[0] > dims[1];
    int32_t square, power;
    TRY(gemm_add(slice, x, x, tall, !tall, &square));
    TRY(gemm_add(slice, square, square, false, false, &power));
    TRY(blend_add(slice, COEFFICIENT_B, square, COEFFICIENT_C, power));
    TRY(gemm_add(slice, tall ? x : power, tall ? power : x, false, false, out));
    return blend_add(slice, COEFFICIENT_A, x, 1.0f, *out);
}

/* Appends *out = the Nesterov momentum, scaled to norm 1, in muon_dtype. */
static enum gt_status direction_add(const struct slice *slice, int32_t *out)
{
    struct graph *graph = slice->pen->graph;
    const struct parameter *parameter = slice->parameter;
    int32_t momentum, squares;
    TRY(GRAPH_ADD(MUON_MOMENTUM, slice->pen, parameter->name, &momentum, .grad = slice->gradient,
                  .scalars = slice->model->scalars, .m = slice->m,
                  .attrs.index_base = slice->index_base));
    TRY(GRAPH_ADD(SUM_OF_SQUARES, slice->pen, parameter->name, &squares, .x = momentum));
    struct tensor direction = graph->tensors[momentum];
    direction.dtype = slice->model->options.muon_dtype;
    snprintf(direction.name, sizeof direction.name, "%.80s.x", parameter->name);
    TRY(graph_tensor_add(graph, &direction, out));
    return GRAPH_ADD(MUON_NORMALIZE, slice->pen, parameter->name, NULL, .x = momentum,
                     .sum = squares, .y = *out);
}

/* Appends Muon's update of one matrix. */
static enum gt_status matrix_add(const struct slice *slice)
{
    const struct model_options *options = &slice->model->options;
    const struct tensor *tensor = &slice->pen->graph->tensors[slice->weight];
    const double rows = (double)tensor->dims[0], columns = (double)tensor->dims[1];
    int32_t x;
    TRY(direction_add(slice, &x));
    for (int step = 0; step < STEPS; step++)
        TRY(newton_schulz_add(slice, x, &x));
    struct op_attrs attrs = {
        .alpha = options->rates[GROUP_MUON],
        .value = (float)sqrt(
            fmax(1.0, model_is_gpt2(&options->config) ? columns / rows : rows / columns)),
        .weight_decay = options->muon_weight_decay,
        .index_base = slice->index_base,
    };
    return GRAPH_ADD(MUON_STEP, slice->pen, slice->parameter->name, NULL, .o = x,
                     .scalars = slice->model->scalars, .param = slice->weight,
                     .master = slice->master, .attrs = attrs);
}

/* ---- AdamW ---- */

/* Appends AdamW's update of a slice. */
static enum gt_status adamw_add(const struct slice *slice)
{
    const struct model *model = slice->model;
    const struct model_options *options = &model->options;
    const struct parameter *parameter = slice->parameter;
    const bool lean = model->graph->tensors[model_parameter_home(parameter)].dtype != DTYPE_F32;
    const struct op_attrs attrs = {
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->adam_epsilon,
        .alpha = options->rates[parameter->group],
        .weight_decay = parameter->decays ? options->weight_decay : 0.0f,
        .index_base = lean ? slice->index_base : 0,
    };
    if (lean)
        return GRAPH_ADD(ADAMW_LEAN, slice->pen, parameter->name, NULL, .grad = slice->gradient,
                         .scalars = model->scalars, .corrections = model->corrections,
                         .param = slice->weight, .m = slice->m, .v = slice->v,
                         .scales = slice->scales, .attrs = attrs);
    return GRAPH_ADD(ADAMW, slice->pen, parameter->name, NULL, .grad = slice->gradient,
                     .scalars = model->scalars, .corrections = model->corrections,
                     .param = slice->weight, .m = slice->m, .v = slice->v, .master = slice->master,
                     .attrs = attrs);
}

/* ---- the order of slices ---- */

/* Appends the ops that compute a slice. */
static enum gt_status slice_compute(const struct pipeline *line, const struct slice *slice)
{
    if (line->refreshes)
        return GRAPH_ADD(COPY, line->pen, slice->parameter->name, NULL, .x = slice->master,
                         .y = slice->weight);
    return slice->parameter->group == GROUP_MUON ? matrix_add(slice) : adamw_add(slice);
}

/* Returns true if something that the program reads or writes of a parameter is in host memory. */
static bool parameter_moves(const struct pipeline *line, const struct parameter *parameter)
{
    const enum memory_space weight = line->model->graph->tensors[parameter->tensor].home;
    return weight == SPACE_HOST || parameter->states_home == SPACE_HOST ||
           (parameter->gradient_home == SPACE_HOST && !line->refreshes);
}

/* Begins to fetch the next slice of which something is in host memory, if there is one. */
static enum gt_status next_fetch(struct pipeline *line)
{
    while (line->fetched < line->count &&
           !parameter_moves(line, line->slice[line->fetched].parameter))
        line->fetched++;
    if (line->fetched == line->count)
        return GT_OK;
    struct slice *slice = &line->slice[line->fetched++];
    TRY(tensor_fetch(slice, !line->refreshes, &slice->master));
    if (line->refreshes)
        return weight_replace(slice);
    TRY(tensor_fetch(slice, false, &slice->gradient));
    TRY(tensor_fetch(slice, true, &slice->weight));
    TRY(tensor_fetch(slice, true, &slice->m));
    TRY(tensor_fetch(slice, true, &slice->v));
    return scales_fetch(slice);
}

/* Waits for the older one of the slices on their way back, and adds `slice` to them. */
static enum gt_status stored_shift(struct pipeline *line, struct slice *slice)
{
    if (line->stored[0] != NULL)
        TRY(moves_add(line->stored[0], OP_WAIT, true));
    line->stored[0] = line->stored[1];
    line->stored[1] = slice;
    return GT_OK;
}

/* Appends a slice of which something is in host memory; the next one is fetched meanwhile. */
static enum gt_status host_slice_append(struct pipeline *line, struct slice *slice)
{
    TRY(stored_shift(line, slice));
    TRY(next_fetch(line));
    TRY(moves_add(slice, OP_WAIT, false));
    TRY(slice_compute(line, slice));
    return moves_add(slice, OP_STORE, true);
}

static enum gt_status slices_append(struct pipeline *line)
{
    for (int32_t i = 0; i < line->count; i++) {
        struct slice *slice = &line->slice[i];
        TRY(parameter_moves(line, slice->parameter) ? host_slice_append(line, slice)
                                                    : slice_compute(line, slice));
    }
    TRY(stored_shift(line, NULL));
    return stored_shift(line, NULL);
}

/* Adds the slices of a parameter to the list: its parts, for Muon; else all of it, unless its
 * tensors are in host memory. */
static enum gt_status parameter_divide(struct pipeline *line, const struct parameter *parameter)
{
    struct graph *graph = line->model->graph;
    const int64_t rows = graph->tensors[parameter->tensor].dims[0],
                  end = parameter->first + parameter->count;
    const bool muon = parameter->group == GROUP_MUON,
               parts = muon && parameter->matrices > 1 && !line->refreshes;
    /* On the device, a range of columns of the two rows of exponents is no view. */
    const bool whole = muon || !parameter_moves(line, parameter) ||
                       (parameter->scales != TENSOR_NONE && parameter->states_home == SPACE_DEVICE);
    const int64_t most = whole ? parameter->count : SLICE_ELEMENTS;
    int32_t part = 0;
    for (int64_t first = parameter->first, count; first < end; first += count) {
        count = parts ? parameter->part_rows[part++] * (parameter->count / rows)
                      : min_i64(most, end - first);
        TRY(HOSTMEM_GROW(graph, &line->slice, (size_t)line->count + 1, "slices of parameters"));
        TRY(slice_view(line->pen, line->model, parameter, first, count, &line->slice[line->count]));
        line->count++;
    }
    return GT_OK;
}

/* A unit of a gradient whose squares are summed once it is on the device. */
struct fetched_unit {
    const char *name;
    int32_t host, device, partial;
};

/* Sums the squares of the unit of which the copy to the device has begun, if there is one. */
static enum gt_status fetched_unit_finish(const struct graph_pen *pen, struct fetched_unit *unit)
{
    const struct fetched_unit old = *unit;
    *unit = (struct fetched_unit){NULL};
    if (old.name == NULL)
        return GT_OK;
    TRY(GRAPH_ADD(WAIT, pen, old.name, NULL, .x = old.host, .y = old.device));
    return GRAPH_ADD(SUM_OF_SQUARES, pen, old.name, NULL, .x = old.device, .partial = old.partial);
}

/* Sums the squares of the units of a gradient that this rank has, into partials from *at on.  A
 * unit in host memory is fetched while the one before it, *under_way, is summed. */
static enum gt_status squares_add(const struct graph_pen *pen, const struct parameter *parameter,
                                  int32_t partials, int32_t *at, struct fetched_unit *under_way)
{
    struct graph *graph = pen->graph;
    for (int32_t unit = 0; unit < parameter->units; unit++, ++*at) {
        const int64_t first = parameters_unit_first(graph, parameter, unit) - parameter->first;
        const int64_t end = parameters_unit_first(graph, parameter, unit + 1) - parameter->first;
        struct fetched_unit new = {parameter->name, parameter->gradient, TENSOR_NONE, TENSOR_NONE};
        if (first < 0 || end > parameter->count)
            continue;
        if (end - first < parameter->count)
            TRY(graph_range_add(graph, parameter->gradient, first, end - first, &new.host));
        TRY(graph_view_add(graph, partials, *at, 1, &new.partial));
        if (parameter->gradient_home == SPACE_DEVICE) {
            TRY(GRAPH_ADD(SUM_OF_SQUARES, pen, parameter->name, NULL, .x = new.host,
                          .partial = new.partial));
            continue;
        }
        TRY(GRAPH_ADD(FETCH, pen, parameter->name, &new.device, .x = new.host));
        TRY(fetched_unit_finish(pen, under_way));
        *under_way = new;
    }
    return GT_OK;
}

/* Sums the squares of the units into partials[units], then computes norm and clip factor from them.
 * With several ranks, the program `norm` sums the squares. */
static enum gt_status norm_add(const struct graph_pen *pen, struct model *model)
{
    const struct parameter_list *parameters = &model->parameters;
    const bool alone = model_ranks(&model->options) == 1;
    struct graph_pen sums = *pen;
    int32_t at = 0;
    struct tensor tensor = {.name = "update.partials",
                            .dtype = DTYPE_F32,
                            .rank = 1,
                            .dims = {parameters_units(parameters)},
                            .phase = PHASE_TRAIN,
                            .category = CATEGORY_TEMPORARY,
                            .lifetime = LIFETIME_PROGRAM,
                            .input = !alone};
    struct fetched_unit under_way = {NULL};
    if (model->sums != TENSOR_NONE) /* the micro-steps have filled some of it */
        model->partials = model->sums;
    else
        TRY(graph_tensor_add(model->graph, &tensor, &model->partials));
    model->squares = model->partials;
    if (!alone) {
        TRY(graph_program_add(model->graph, PROGRAM_NORM, &model->norm));
        sums.program = model->norm;
        tensor.input = false;
        tensor.output = true;
        snprintf(tensor.name, sizeof tensor.name, "norm.squares");
        TRY(graph_tensor_add(model->graph, &tensor, &model->squares));
    }
    for (int32_t i = 0; i < parameters->count; i++)
        if (model->sums != TENSOR_NONE && parameters->at[i].gradient_home == SPACE_HOST)
            at += parameters->at[i].units;
        else if (!parameters->at[i].frozen)
            TRY(squares_add(&sums, &parameters->at[i], model->squares, &at, &under_way));
    TRY(fetched_unit_finish(&sums, &under_way));
    return GRAPH_ADD(CLIP_FACTOR, pen, "clip", NULL, .partials = model->partials,
                     .scalars = model->scalars, .attrs.clip_max = model->options.grad_clip);
}

enum gt_status update_build(struct model *model)
{
    TRY(graph_program_add(model->graph, PROGRAM_UPDATE, &model->update.program));
    const struct graph_pen pen = graph_pen_make(model->graph, model->update.program, PASS_UPDATE);
    struct pipeline line = {.pen = &pen, .model = model};
    for (int32_t i = 0; i < model->parameters.count; i++)
        if (!model->parameters.at[i].frozen)
            TRY(parameter_divide(&line, &model->parameters.at[i]));
    TRY(next_fetch(&line));
    TRY(norm_add(&pen, model));
    TRY(slices_append(&line));
    hostmem_free(line.slice);
    return GT_OK;
}

enum gt_status refresh_build(struct model *model)
{
    struct graph_pen pen = graph_pen_make(model->graph, -1, PASS_UPDATE);
    struct pipeline line = {.pen = &pen, .model = model, .refreshes = true};
    for (int32_t i = 0; i < model->parameters.count; i++) {
        if (model->parameters.at[i].master == TENSOR_NONE)
            continue;
        if (pen.program < 0)
            TRY(graph_program_add(model->graph, PROGRAM_REFRESH, &pen.program));
        TRY(parameter_divide(&line, &model->parameters.at[i]));
    }
    model->refresh.program = pen.program;
    TRY(next_fetch(&line));
    TRY(slices_append(&line));
    hostmem_free(line.slice);
    return GT_OK;
}
