/* The backward pass of a micro-step, and where its gradients go: rounded to 16 bits if the state
 * format says so, and copied to and from host memory if they live there. */

#include "model/micro_step.h"

#include "model/autodiff.h"
#include "model/parameters.h"

/* ---- 16-bit gradients ----
 *
 * A micro-step computes each gradient in fp32, and one op rounds it into the 16-bit accumulator.  A
 * gradient is thus rounded once per micro-step, however many loss chunks and ops contribute.  The
 * fp32 tensor lives only from the first contribution to the last. */

/* Returns the tensor to which micro-steps add a parameter's gradient. */
static int32_t accumulator(const struct parameter *parameter)
{
    return parameter->part_gradient != TENSOR_NONE ? parameter->part_gradient : parameter->gradient;
}

/* Fills sums[parameters] with the tensor to which a program adds each gradient.  For a gradient in
 * host memory it is a tensor of the program; see gradients_move(). */
static enum gt_status sums_list(struct model *model, enum program_kind program, int32_t *sums)
{
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        sums[i] = accumulator(parameter);
        if (sums[i] == TENSOR_NONE || model->graph->tensors[sums[i]].home == SPACE_DEVICE)
            continue;
        struct tensor sum = model->graph->tensors[sums[i]];
        sum.home = SPACE_DEVICE;
        sum.lifetime = LIFETIME_PROGRAM;
        NAME_JOIN(sum.name, sizeof sum.name, program_kind_name(program), ".", parameter->name,
                  ".sum");
        TRY(graph_tensor_add(model->graph, &sum, &sums[i]));
    }
    return GT_OK;
}

/* Fills targets[parameters]: each one's sum, or, if that has 16 bits, a new fp32 tensor of the
 * program. */
static enum gt_status rounding_targets(struct model *model, enum program_kind program,
                                       const int32_t *sums, struct autodiff_parameter *targets)
{
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        const int32_t to = sums[i];
        const bool rounded = to != TENSOR_NONE && model->graph->tensors[to].dtype != DTYPE_F32;
        targets[i] = (struct autodiff_parameter){parameter->tensor, to, .fresh = rounded};
        if (!rounded)
            continue;
        struct tensor whole = model->graph->tensors[to];
        whole.dtype = DTYPE_F32;
        whole.category = CATEGORY_TEMPORARY;
        whole.lifetime = LIFETIME_PROGRAM;
        NAME_JOIN(whole.name, sizeof whole.name, program_kind_name(program), ".", parameter->name,
                  ".grad");
        TRY(graph_tensor_add(model->graph, &whole, &targets[i].gradient));
    }
    return GT_OK;
}

static enum gt_status rounding_add(struct model *model, int32_t program, bool first,
                                   const struct parameter *to, int32_t from, int32_t sum)
{
    struct graph_pen pen = graph_pen_make(model->graph, program, PASS_BACKWARD);
    return GRAPH_ADD(GRADIENT_ROUND, &pen, to->name, NULL, .x = from, .scalars = model->scalars,
                     .y = sum, .attrs.accumulate = first ? 0 : 1u << GRADIENT_ROUND_Y,
                     .attrs.index_base = to->index_base);
}

/* Inserts the rounding of each new tensor directly after the last op that touches it.  Because of
 * recompute and loss chunks, only the finished program shows which op that is.  The update's first
 * micro-step overwrites the accumulator. */
static enum gt_status rounding_insert(struct model *model, int32_t program, bool first,
                                      const int32_t *sums, const struct autodiff_parameter *targets)
{
    struct graph *graph = model->graph;
    const int32_t count = graph->programs[program].count;
    struct tensor_range *ranges;
    int32_t *after, added = 0;
    TRY(HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "program ranges", &ranges));
    TRY(HOSTMEM_NEW(graph, (size_t)model->parameters.count, "places of roundings", &after));
    graph_ranges(graph, program, ranges);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        if (!targets[i].fresh || ranges[targets[i].gradient].last < 0)
            continue;
        TRY(rounding_add(model, program, first, &model->parameters.at[i], targets[i].gradient,
                         sums[i]));
        after[added++] = ranges[targets[i].gradient].last;
    }
    TRY(graph_ops_move(graph, program, count, after));
    hostmem_free(after);
    hostmem_free(ranges);
    return GT_OK;
}

/* ---- gradients in host memory ----
 *
 *     fetch w | fetch x     | fetch y     | fetch z
 *             | backward w  | backward x  | backward y  | backward z
 *             |             | store w     | store x     | store y     | store z
 *
 * A program that adds to a gradient in host memory fetches it before the first op that touches it,
 * and stores it after the last one.  At most two gradients on their way back are on the device.  If
 * an update is one part, each micro-step also sums the squares; the last one's sums are those of
 * the update's gradient.  Otherwise norm_add() of update.c sums the squares of the added parts.
 */

/* A gradient in host memory, the element of model->sums for its squares, its sum on the device, and
 * the ops of a program that touch that. */
struct moved_gradient {
    int32_t parameter, square, host, sum, first, last;
};

static int moved_compare(const void *a, const void *b)
{
    const struct moved_gradient *x = a, *y = b;
    return x->last != y->last ? (x->last > y->last) - (x->last < y->last)
                              : (x->parameter > y->parameter) - (x->parameter < y->parameter);
}

/* Lists the gradients in host memory in the order in which a program completes them. */
static enum gt_status moved_list(const struct model *model, int32_t program, const int32_t *sums,
                                 struct moved_gradient *out, int32_t *out_count)
{
    struct graph *graph = model->graph;
    struct tensor_range *ranges;
    TRY(HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "program ranges", &ranges));
    graph_ranges(graph, program, ranges);
    *out_count = 0;
    for (int32_t i = 0, unit = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        const struct tensor_range *range = &ranges[sums[i]];
        if (sums[i] != accumulator(parameter) && range->last >= 0)
            out[(*out_count)++] = (struct moved_gradient){
                i, unit, accumulator(parameter), sums[i], range->first, range->last};
        unit += parameter->frozen ? 0 : parameter->units;
    }
    qsort(out, (size_t)*out_count, sizeof *out, moved_compare);
    hostmem_free(ranges);
    return GT_OK;
}

/* Ops to be inserted into a program, and the ops after which they go. */
struct insertion {
    struct graph_pen pen;
    int32_t *after, count;
};

/* Appends a copy of a gradient, or the wait for it, to be moved after op `after`. */
static enum gt_status copy_insert(struct insertion *line, enum op_kind kind, int32_t from,
                                  int32_t to, int32_t after)
{
    line->after[line->count++] = after;
    return graph_op_add(&line->pen, kind, "gradient", OP_ARGUMENTS(WAIT, .x = from, .y = to), NULL);
}

static enum gt_status squares_insert(struct insertion *line, const struct model *model,
                                     const struct moved_gradient *moved)
{
    int32_t square;
    if (model->sums == TENSOR_NONE)
        return GT_OK;
    TRY(graph_view_add(model->graph, model->sums, moved->square, 1, &square));
    line->after[line->count++] = moved->last;
    return GRAPH_ADD(SUM_OF_SQUARES, &line->pen, model->parameters.at[moved->parameter].name, NULL,
                     .x = moved->sum, .partial = square);
}

#define STORES_UNDER_WAY 2
#define INSERTED_MOST 5 /* fetch, store, two waits and the squares */

static enum gt_status gradients_move(struct model *model, int32_t program, bool first,
                                     const int32_t *sums)
{
    struct graph *graph = model->graph;
    const int32_t ops = graph->programs[program].count, most = model->parameters.count;
    struct insertion line = {.pen = graph_pen_make(graph, program, PASS_BACKWARD)};
    struct moved_gradient *moved;
    int32_t count;
    TRY(HOSTMEM_NEW(graph, (size_t)most, "gradients in host memory", &moved));
    TRY(HOSTMEM_NEW(graph, (size_t)(INSERTED_MOST * most), "places of copies", &line.after));
    TRY(moved_list(model, program, sums, moved, &count));
    for (int32_t i = 0; count > 0 && i < count + STORES_UNDER_WAY; i++) {
        const struct moved_gradient *new = i < count ? &moved[i] : NULL;
        const struct moved_gradient *old =
            i < STORES_UNDER_WAY ? NULL : &moved[i - STORES_UNDER_WAY];
        if (new != NULL && !first) {
            TRY(copy_insert(&line, OP_FETCH, new->host, new->sum, new->first - 1));
            TRY(copy_insert(&line, OP_WAIT, new->host, new->sum, new->first - 1));
        }
        if (new != NULL)
            TRY(squares_insert(&line, model, new));
        if (old != NULL)
            TRY(copy_insert(&line, OP_WAIT, old->sum, old->host, new ? new->last : ops - 1));
        if (new != NULL)
            TRY(copy_insert(&line, OP_STORE, new->sum, new->host, new->last));
    }
    TRY(graph_ops_move(graph, program, ops, line.after));
    hostmem_free(line.after);
    hostmem_free(moved);
    return GT_OK;
}

enum gt_status micro_step_backward(struct model *model, enum program_kind kind, bool first,
                                   const struct program_io *io)
{
    struct graph *graph = model->graph;
    struct autodiff_parameter *parameters;
    const int32_t count = model->parameters.count;
    int32_t *sums;
    TRY(HOSTMEM_NEW(graph, (size_t)count, "autodiff parameters", &parameters));
    TRY(HOSTMEM_NEW(graph, (size_t)count, "sums of gradients", &sums));
    const struct autodiff_options options = {
        .program = io->program,
        .parameters = parameters,
        .parameter_count = count,
        .order = io->order,
        .starts = io->starts,
        .accumulate_parameters = !first,
    };
    TRY(sums_list(model, kind, sums));
    TRY(rounding_targets(model, kind, sums, parameters));
    TRY(autodiff_run(graph, &options));
    TRY(rounding_insert(model, io->program, first, sums, parameters));
    TRY(gradients_move(model, io->program, first, sums));
    hostmem_free(parameters);
    hostmem_free(sums);
    return GT_OK;
}
