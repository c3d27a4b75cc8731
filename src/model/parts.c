/* The programs that add the gradients of an update's parts, and give each rank the other ranks' new weights.
 *
 * An update's gradient is ((p0 + p1) + p2) + ... of its parts' gradients, in fp32.  In a round each rank computes one
 * part.  Then it adds the parts of the elements whose states it has: it receives the other ranks' parts of these
 * elements, and sends each other rank what that one adds.  While the bytes of a piece are under way, the piece before
 * is added.  A single rank computes all parts, and adds each to those before it.  If reduce_dtype says so, a part is
 * rounded first; its random numbers are those of its last micro-step.
 */
#include "base/size.h"
#include "model/parameters.h"
#include "model/programs.h"

#define PIECE_BYTES ((int64_t)8 << 20) /* of all ranks' parts of the elements that one rank adds */

/* The same share of each rank's elements of a parameter. */
struct piece {
    const struct parameter *parameter;
    int64_t number, of;
    int32_t own, others; /* the part of this rank, and those of the other ranks */
    int32_t begin, end;  /* the ops that exchange it */
};

struct parts_builder {
    struct graph_pen pen;
    const struct model *model;
    bool first; /* the first round overwrites */
    int32_t ranks, rank;
    int32_t part; /* the gradient of this rank's part of a parameter, or its rounding */
    struct piece under_way;
};

/* Adds a program, and begins to build it. */
static enum gt_status builder_begin(struct model *model, const char *name, int32_t *program, struct parts_builder *out)
{
    const int32_t ranks = model_ranks(&model->options);
    TRY(graph_program_add(model->graph, name, PHASE_TRAIN, program));
    *out = (struct parts_builder){.pen = {model->graph, *program, PASS_UPDATE, -1, 0, false},
                                  .model = model,
                                  .ranks = ranks,
                                  .rank = ranks > 1 ? model->options.rank : 0,
                                  .under_way = {.own = TENSOR_NONE}};
    return GT_OK;
}

/* Returns the elements of a piece that `rank` has. */
static struct parameter_range piece_range(const struct parts_builder *builder, const struct piece *piece, int32_t rank)
{
    const struct parameter *parameter = piece->parameter;
    const struct parameter_range share = parameters_share(builder->pen.graph, parameter, builder->ranks,
                                                          parameter->owner == OWNER_ALL ? builder->ranks : rank);
    const int64_t blocks = state_blocks(share.count), first = blocks * piece->number / piece->of * STATE_BLOCK;
    const int64_t end = min_i64(blocks * (piece->number + 1) / piece->of * STATE_BLOCK, share.count);
    return (struct parameter_range){share.first + first, end - first};
}

/* Sets *out to a view of those elements of `tensor`, which begins with the parameter's element `base`.  If the rank has
 * none of them, sets it to TENSOR_NONE. */
static enum gt_status piece_take(const struct parts_builder *builder, const struct piece *piece, int32_t rank,
                                 int32_t tensor, int64_t base, int32_t *out)
{
    const struct parameter_range range = piece_range(builder, piece, rank);
    *out = TENSOR_NONE;
    return range.count > 0 ? graph_range_add(builder->pen.graph, tensor, range.first - base, range.count, out) : GT_OK;
}

/* Adds the tensor for the other ranks' parts of a piece. */
static enum gt_status others_add(const struct parts_builder *builder, struct piece *piece)
{
    const struct graph *graph = builder->pen.graph;
    struct tensor others = {.dtype = graph->tensors[piece->own].dtype,
                            .rank = 2,
                            .dims = {builder->ranks - 1, graph_tensor_elements(graph, piece->own)},
                            .category = CATEGORY_TEMPORARY,
                            .lifetime = LIFETIME_PROGRAM,
                            .phase = PHASE_TRAIN,
                            .base = TENSOR_NONE};
    snprintf(others.name, sizeof others.name, "%.60s.others", piece->parameter->name);
    return graph_tensor_add(builder->pen.graph, &others, &piece->others);
}

/* Sets builder->part, rounded if reduce_dtype says so. */
static enum gt_status part_choose(struct parts_builder *builder, const struct parameter *parameter)
{
    const struct model *model = builder->model;
    const struct op_attrs attrs = {.index_base = parameter->index_base};
    int32_t operands[GRADIENT_ROUND_OPERANDS] = {parameter->part_gradient, model->scalars, TENSOR_NONE};
    builder->part = parameter->part_gradient;
    if (model->options.reduce_dtype == DTYPE_F32 || model->graph->tensors[builder->part].dtype != DTYPE_F32)
        return GT_OK;
    TRY(graph_op_add(&builder->pen, OP_GRADIENT_ROUND, &attrs, parameter->name, operands));
    builder->part = operands[GRADIENT_ROUND_Y];
    return GT_OK;
}

/* Begins to exchange a piece: the parts of what each rank adds, or this rank's new weights for those of the others. */
static enum gt_status piece_exchange(const struct parts_builder *builder, struct piece *piece, bool weights)
{
    const int32_t whole = weights ? piece->parameter->tensor : builder->part, ranks = builder->ranks;
    int32_t own;
    TRY(piece_take(builder, piece, builder->rank, whole, 0, &own));
    piece->own = weights ? TENSOR_NONE : own;
    if (piece->own != TENSOR_NONE && ranks > 1)
        TRY(others_add(builder, piece));
    for (int32_t i = 1; i < ranks; i++) {
        const struct op_attrs attrs = {.to = (builder->rank + i) % ranks, .from = (builder->rank + ranks - i) % ranks};
        int32_t operands[EXCHANGE_OPERANDS] = {[EXCHANGE_X] = own, [EXCHANGE_Y] = TENSOR_NONE};
        if (weights)
            TRY(piece_take(builder, piece, attrs.from, whole, 0, &operands[EXCHANGE_Y]));
        else
            TRY(piece_take(builder, piece, attrs.to, whole, 0, &operands[EXCHANGE_X]));
        if (piece->own != TENSOR_NONE)
            TRY(graph_view_add(builder->pen.graph, piece->others, attrs.from - (attrs.from > builder->rank), 1,
                               &operands[EXCHANGE_Y]));
        if (operands[EXCHANGE_X] != TENSOR_NONE || operands[EXCHANGE_Y] != TENSOR_NONE)
            TRY(graph_op_add(&builder->pen, OP_EXCHANGE, &attrs, piece->parameter->name, operands));
    }
    return GT_OK;
}

/* Adds the parts of a piece that this rank has: all ranks' of this round. */
static enum gt_status piece_add(const struct parts_builder *builder, const struct piece *piece)
{
    const struct op_attrs attrs = {.accumulate = builder->first ? 0 : 1u << SUM_PARTS_Y, .from = builder->rank};
    int32_t operands[SUM_PARTS_OPERANDS] = {[SUM_PARTS_X] = piece->own, [SUM_PARTS_OTHERS] = piece->others};
    if (piece->own == TENSOR_NONE)
        return GT_OK;
    TRY(piece_take(builder, piece, builder->rank, piece->parameter->gradient, piece->parameter->first,
                   &operands[SUM_PARTS_Y]));
    return graph_op_add(&builder->pen, OP_SUM_PARTS, &attrs, piece->parameter->name, operands);
}

/* Waits for the piece that is under way and adds its parts, unless they are weights; `next` is under way instead. */
static enum gt_status piece_shift(struct parts_builder *builder, const struct piece *next)
{
    const struct program *program = &builder->pen.graph->programs[builder->pen.program];
    const struct piece piece = builder->under_way;
    builder->under_way = *next;
    for (int32_t i = piece.begin; i < piece.end; i++) {
        struct op_attrs attrs = program->ops[i].attrs;
        int32_t operands[WAIT_OPERANDS];
        attrs.exchanged = true;
        memcpy(operands, program->ops[i].operand, sizeof operands);
        TRY(graph_op_add(&builder->pen, OP_WAIT, &attrs, piece.parameter->name, operands));
    }
    return piece.own != TENSOR_NONE ? piece_add(builder, &piece) : GT_OK;
}

/* Appends the exchange of each parameter, and the sums of the parts. */
static enum gt_status pieces_append(struct parts_builder *builder, bool weights)
{
    const struct graph *graph = builder->pen.graph;
    const struct parameter_list *parameters = &builder->model->parameters;
    for (int32_t i = 0; i < parameters->count; i++) {
        const struct parameter *parameter = &parameters->at[i];
        const int64_t elements = graph_tensor_elements(graph, parameter->tensor);
        const int64_t most = parameter->owner == OWNER_UNITS ? parameter->most * builder->ranks : elements;
        struct piece piece = {.parameter = parameter, .of = 1};
        if (parameter->frozen || (weights && parameter->owner == OWNER_ALL))
            continue;
        if (!weights)
            TRY(part_choose(builder, parameter));
        if (!weights && builder->ranks > 1)
            piece.of = size_ceil_div(most * (int64_t)sizeof(float), PIECE_BYTES);
        for (; piece.number < piece.of; piece.number++) {
            piece.others = TENSOR_NONE;
            piece.begin = graph->programs[builder->pen.program].count;
            TRY(piece_exchange(builder, &piece, weights));
            piece.end = graph->programs[builder->pen.program].count;
            TRY(piece_shift(builder, &piece));
        }
    }
    return piece_shift(builder, &(struct piece){.own = TENSOR_NONE});
}

enum gt_status parts_build(struct model *model)
{
    const int32_t parts = model_parts(&model->options), ranks = model_ranks(&model->options);
    struct parts_builder builder;
    if (parts > 1) {
        TRY(builder_begin(model, "part_first", &model->part_first, &builder));
        builder.first = true;
        TRY(pieces_append(&builder, false));
    }
    if (parts > ranks) {
        TRY(builder_begin(model, "part_next", &model->part_next, &builder));
        TRY(pieces_append(&builder, false));
    }
    return GT_OK;
}

enum gt_status gather_build(struct model *model)
{
    struct parts_builder builder;
    if (model_ranks(&model->options) == 1)
        return GT_OK;
    TRY(builder_begin(model, "gather", &model->gather, &builder));
    return pieces_append(&builder, true);
}
