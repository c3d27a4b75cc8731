/* The programs that add the gradients of an update's parts, and give each rank the other ranks' new
 * weights.
 *
 * An update's gradient is ((p0 + p1) + p2) + ... of its parts' gradients, in fp32.  In a round each
 * rank computes one part.  Then it adds the parts of the elements whose states it has: it receives
 * the other ranks' parts of these elements, and sends each other rank the parts that it adds.
 * While the bytes of a piece are under way, the piece before is added.  A single rank computes all
 * parts, and adds each to those before it.  If reduce_dtype says so, a part is rounded first; its
 * random numbers are those of its last micro-step.
 *
 * If a part is one micro-step, its program does all that: the gradients of a block are exchanged
 * during its backward pass and added at its end, and their memory is used again.
 *
 * A part's gradient in host memory is fetched whole.  A piece of a sum in host memory is fetched
 * while its parts are exchanged, and stored while the next piece is added.
 */
#include "model/parts.h"

#include "base/size.h"
#include "model/parameters.h"

/* The fp32 bytes of a piece: all ranks' parts of the elements that one rank adds. */
#define PIECE_BYTES ((int64_t)8 << 20)
/* Exchanges under way at a time, in all pieces of a block; CUDA_COPIES_MAX has room for them. */
#define EXCHANGES_MAX 128

/* The same share of each rank's elements of a parameter. */
struct piece {
    const struct parameter *parameter;
    int64_t number, of;
    int32_t own, others; /* the part of this rank, and those of the other ranks */
    int32_t sum, home;   /* what the parts are added to, on the device, and where it lives */
    int32_t begin, end;  /* the ops that exchange it */
};

/* A tensor on the device that is on its way to host memory. */
struct stored {
    const char *name;
    int32_t device, host;
};

struct parts_builder {
    struct graph_pen pen;
    const struct model *model;
    bool first; /* the first round overwrites */
    int32_t ranks, rank;
    int32_t part;            /* the gradient of this rank's part of a parameter, or its rounding */
    struct piece *under_way; /* the oldest first */
    int32_t count;
    struct stored stored; /* the last tensor on its way to host memory */
};

static struct parts_builder builder_of(const struct model *model, int32_t program,
                                       enum op_pass pass, bool first)
{
    const int32_t ranks = model_ranks(&model->options);
    return (struct parts_builder){.pen = graph_pen_make(model->graph, program, pass),
                                  .model = model,
                                  .first = first,
                                  .ranks = ranks,
                                  .rank = ranks > 1 ? model->options.rank : 0};
}

/* Returns the elements of a piece that `rank` has. */
static struct parameter_range piece_range(const struct parts_builder *builder,
                                          const struct piece *piece, int32_t rank)
{
    const struct parameter *parameter = piece->parameter;
    const struct parameter_range share =
        parameters_share(builder->pen.graph, parameter, builder->ranks,
                         parameter->owner == OWNER_ALL ? builder->ranks : rank);
    const int64_t blocks = state_blocks(share.count),
                  first = blocks * piece->number / piece->of * STATE_BLOCK;
    const int64_t end =
        min_i64(blocks * (piece->number + 1) / piece->of * STATE_BLOCK, share.count);
    return (struct parameter_range){share.first + first, end - first};
}

/* Sets *out to a view of those elements of `tensor`, which begins with the parameter's element
 * `base`.  If the rank has none of them, sets it to TENSOR_NONE. */
static enum gt_status piece_receive(const struct parts_builder *builder, const struct piece *piece,
                                    int32_t rank, int32_t tensor, int64_t base, int32_t *out)
{
    const struct parameter_range range = piece_range(builder, piece, rank);
    *out = TENSOR_NONE;
    return range.count > 0
               ? graph_range_add(builder->pen.graph, tensor, range.first - base, range.count, out)
               : GT_OK;
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
                            .phase = PHASE_TRAIN};
    snprintf(others.name, sizeof others.name, "%.60s.others", piece->parameter->name);
    return graph_tensor_add(builder->pen.graph, &others, &piece->others);
}

static bool is_on_host(const struct parts_builder *builder, int32_t tensor)
{
    return builder->pen.graph->tensors[tensor].home == SPACE_HOST;
}

/* Replaces a tensor in host memory by a copy on the device. */
static enum gt_status copy_fetch(const struct parts_builder *builder,
                                 const struct parameter *parameter, int32_t *tensor)
{
    const int32_t host = *tensor;
    if (!is_on_host(builder, host))
        return GT_OK;
    *tensor = TENSOR_NONE;
    TRY(GRAPH_ADD(FETCH, &builder->pen, parameter->name, tensor, .x = host));
    return GRAPH_ADD(WAIT, &builder->pen, parameter->name, NULL, .x = host, .y = *tensor);
}

/* Waits for the tensor on its way to host memory, if there is one. */
static enum gt_status store_finish(struct parts_builder *builder)
{
    const struct stored old = builder->stored;
    builder->stored = (struct stored){NULL};
    return old.name == NULL
               ? GT_OK
               : GRAPH_ADD(WAIT, &builder->pen, old.name, NULL, .x = old.device, .y = old.host);
}

/* Begins to copy `device` to host memory, where it lives, and waits for the tensor before it. */
static enum gt_status copy_store(struct parts_builder *builder, const struct parameter *parameter,
                                 int32_t device, int32_t host)
{
    if (device == host)
        return GT_OK;
    TRY(store_finish(builder));
    builder->stored = (struct stored){parameter->name, device, host};
    return GRAPH_ADD(STORE, &builder->pen, parameter->name, NULL, .x = device, .y = host);
}

/* Sets *device to `host`, or, if that is in host memory, to a new tensor for it on the device. */
static enum gt_status copy_add(const struct parts_builder *builder, int32_t host, int32_t *device)
{
    *device = host;
    return is_on_host(builder, host) ? graph_temporary_add(builder->pen.graph, host, device)
                                     : GT_OK;
}

/* Sets builder->part: on the device, rounded if reduce_dtype says so. */
static enum gt_status part_choose(struct parts_builder *builder, const struct parameter *parameter)
{
    const struct model *model = builder->model;
    builder->part = parameter->part_gradient;
    TRY(copy_fetch(builder, parameter, &builder->part));
    if (model->options.reduce_dtype == DTYPE_F32 ||
        model->graph->tensors[builder->part].dtype != DTYPE_F32)
        return GT_OK;
    return GRAPH_ADD(GRADIENT_ROUND, &builder->pen, parameter->name, &builder->part,
                     .x = builder->part, .scalars = model->scalars,
                     .attrs.index_base = parameter->index_base);
}

/* Sets piece->home and piece->sum.  Begins to fetch the sum if it has a value and is in host
 * memory. */
static enum gt_status sum_begin(const struct parts_builder *builder, struct piece *piece)
{
    const struct parameter *parameter = piece->parameter;
    TRY(piece_receive(builder, piece, builder->rank, parameter->gradient, parameter->first,
                      &piece->home));
    TRY(copy_add(builder, piece->home, &piece->sum));
    return builder->first || piece->sum == piece->home
               ? GT_OK
               : GRAPH_ADD(FETCH, &builder->pen, parameter->name, NULL, .x = piece->home,
                           .y = piece->sum);
}

/* Sets *out to the tensor that receives the weights of a piece that rank `from` has updated. */
static enum gt_status weights_receive(const struct parts_builder *builder,
                                      const struct piece *piece, int32_t from, int32_t *out)
{
    TRY(piece_receive(builder, piece, from, piece->parameter->tensor, 0, out));
    return *out == TENSOR_NONE ? GT_OK : copy_add(builder, *out, out);
}

/* Begins to exchange a piece: the parts of what each rank adds, or this rank's new weights for
 * those of the others. */
static enum gt_status piece_exchange(const struct parts_builder *builder, struct piece *piece,
                                     bool weights)
{
    const int32_t whole = weights ? piece->parameter->tensor : builder->part,
                  ranks = builder->ranks;
    int32_t own;
    TRY(piece_receive(builder, piece, builder->rank, whole, 0, &own));
    if (own != TENSOR_NONE)
        TRY(copy_fetch(builder, piece->parameter, &own));
    piece->own = weights ? TENSOR_NONE : own;
    if (piece->own != TENSOR_NONE)
        TRY(sum_begin(builder, piece));
    if (piece->own != TENSOR_NONE && ranks > 1)
        TRY(others_add(builder, piece));
    for (int32_t i = 1; i < ranks; i++) {
        const int32_t to = (builder->rank + i) % ranks, from = (builder->rank + ranks - i) % ranks;
        int32_t sent = own, received = TENSOR_NONE;
        if (weights)
            TRY(weights_receive(builder, piece, from, &received));
        else
            TRY(piece_receive(builder, piece, to, whole, 0, &sent));
        if (piece->own != TENSOR_NONE)
            TRY(graph_view_add(builder->pen.graph, piece->others, from - (from > builder->rank), 1,
                               &received));
        if (sent != TENSOR_NONE || received != TENSOR_NONE)
            TRY(GRAPH_ADD(EXCHANGE, &builder->pen, piece->parameter->name, NULL, .x = sent,
                          .y = received, .attrs.to = to, .attrs.from = from));
    }
    return GT_OK;
}

/* Adds all ranks' parts of a piece, of this round, if this rank has elements of the piece. */
static enum gt_status piece_add(struct parts_builder *builder, const struct piece *piece)
{
    if (piece->own == TENSOR_NONE)
        return GT_OK;
    if (!builder->first && piece->sum != piece->home)
        TRY(GRAPH_ADD(WAIT, &builder->pen, piece->parameter->name, NULL, .x = piece->home,
                      .y = piece->sum));
    TRY(GRAPH_ADD(SUM_PARTS, &builder->pen, piece->parameter->name, NULL, .x = piece->own,
                  .others = piece->others, .y = piece->sum,
                  .attrs.accumulate = builder->first ? 0 : 1u << SUM_PARTS_Y,
                  .attrs.from = builder->rank));
    return copy_store(builder, piece->parameter, piece->sum, piece->home);
}

/* Stores the weights that have arrived from `from` if they live in host memory. */
static enum gt_status weights_store(struct parts_builder *builder, const struct piece *piece,
                                    int32_t from, int32_t received)
{
    int32_t home;
    TRY(piece_receive(builder, piece, from, piece->parameter->tensor, 0, &home));
    return is_on_host(builder, home) ? copy_store(builder, piece->parameter, received, home)
                                     : GT_OK;
}

/* Waits for all pieces under way except the last `keep`.  Adds their parts, unless they are
 * weights. */
static enum gt_status pieces_finish(struct parts_builder *builder, int32_t keep)
{
    const struct program *program = &builder->pen.graph->programs[builder->pen.program];
    const int32_t finished = builder->count > keep ? builder->count - keep : 0;
    if (finished == 0) /* with all weights frozen there is no array either */
        return GT_OK;
    for (int32_t k = 0; k < finished; k++) {
        const struct piece piece = builder->under_way[k];
        for (int32_t i = piece.begin; i < piece.end; i++) {
            const struct op exchange = program->ops[i];
            if (exchange.kind != OP_EXCHANGE)
                continue;
            TRY(GRAPH_ADD(WAIT, &builder->pen, piece.parameter->name, NULL,
                          .x = exchange.operand[EXCHANGE_X], .y = exchange.operand[EXCHANGE_Y],
                          .attrs.to = exchange.attrs.to, .attrs.from = exchange.attrs.from,
                          .attrs.exchanged = true));
            if (piece.own == TENSOR_NONE && exchange.operand[EXCHANGE_Y] != TENSOR_NONE)
                TRY(weights_store(builder, &piece, exchange.attrs.from,
                                  exchange.operand[EXCHANGE_Y]));
        }
        if (piece.own != TENSOR_NONE)
            TRY(piece_add(builder, &piece));
    }
    builder->count -= finished;
    memmove(builder->under_way, builder->under_way + finished,
            (size_t)builder->count * sizeof *builder->under_way);
    return GT_OK;
}

/* Appends the exchange of a parameter in `of` pieces, and adds pieces early enough that at most
 * `keep` are under way. */
static enum gt_status pieces_append(struct parts_builder *builder,
                                    const struct parameter *parameter, bool weights, int64_t of,
                                    int32_t keep)
{
    struct graph *graph = builder->pen.graph;
    if (parameter->frozen || (weights && parameter->owner == OWNER_ALL))
        return GT_OK;
    if (!weights)
        TRY(part_choose(builder, parameter));
    for (struct piece piece = {.parameter = parameter, .of = of}; piece.number < of;
         piece.number++) {
        piece.others = TENSOR_NONE;
        piece.begin = graph->programs[builder->pen.program].count;
        TRY(piece_exchange(builder, &piece, weights));
        piece.end = graph->programs[builder->pen.program].count;
        TRY(HOSTMEM_GROW(graph, &builder->under_way, (size_t)builder->count + 1,
                         "pieces under way"));
        builder->under_way[builder->count++] = piece;
        TRY(pieces_finish(builder, keep));
    }
    return GT_OK;
}

/* Returns the number of pieces in which a parameter's gradient is exchanged, so that few bytes are
 * under way at once. */
static int64_t pieces_of(const struct parts_builder *builder, const struct parameter *parameter)
{
    const int64_t elements = graph_tensor_elements(builder->pen.graph, parameter->tensor);
    const int64_t most =
        parameter->owner == OWNER_UNITS ? parameter->most * builder->ranks : elements;
    return builder->ranks > 1 ? size_ceil_div(most * (int64_t)sizeof(float), PIECE_BYTES) : 1;
}

/* Adds a program that exchanges all parameters. */
static enum gt_status program_build(struct model *model, enum program_kind kind, bool first,
                                    bool weights, int32_t *program)
{
    TRY(graph_program_add(model->graph, kind, program));
    struct parts_builder builder = builder_of(model, *program, PASS_UPDATE, first);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        TRY(pieces_append(&builder, parameter, weights,
                          weights ? 1 : pieces_of(&builder, parameter), 1));
    }
    TRY(pieces_finish(&builder, 0));
    TRY(store_finish(&builder));
    hostmem_free(builder.under_way);
    return GT_OK;
}

enum gt_status parts_build(struct model *model)
{
    const int32_t parts = model_parts(&model->options), ranks = model_ranks(&model->options);
    if (parts == 1 || model_adds_in_step(&model->options))
        return GT_OK;
    TRY(program_build(model, PROGRAM_PART_FIRST, true, false, &model->part_first));
    return parts > ranks ? program_build(model, PROGRAM_PART_NEXT, false, false, &model->part_next)
                         : GT_OK;
}

enum gt_status gather_build(struct model *model)
{
    return model_ranks(&model->options) > 1
               ? program_build(model, PROGRAM_GATHER, true, true, &model->gather)
               : GT_OK;
}

/* A parameter, and the op of a micro-step after which its gradient is exchanged. */
struct stop {
    int32_t op, end,
        parameter; /* end: the last op of the block's backward pass, or of the loss chunk */
};

static int stop_compare(const void *a, const void *b)
{
    const struct stop *x = a, *y = b;
    return x->op != y->op ? (x->op > y->op) - (x->op < y->op) : x->parameter - y->parameter;
}

/* Finds where each part gradient that the program makes is exchanged, and sorts the parameters by
 * that: a block's matrix where it is complete, all others at the end. */
static enum gt_status stops_find(const struct model *model, int32_t program, struct stop *out,
                                 int32_t *out_count)
{
    const struct graph *graph = model->graph;
    const struct program *p = &graph->programs[program];
    struct tensor_range *ranges;
    int32_t count = 0;
    TRY(HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "program ranges", &ranges));
    graph_ranges(graph, program, ranges);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        const int32_t op = parameter->frozen ? -1 : ranges[parameter->part_gradient].last;
        int32_t end = op;
        if (op < 0)
            continue;
        while (end + 1 < p->count && p->ops[end + 1].layer == p->ops[op].layer &&
               p->ops[end + 1].chunk == p->ops[op].chunk)
            end++;
        out[count++] = (struct stop){
            p->ops[op].layer >= 0 && parameter->group != GROUP_VECTOR ? op : end, end, i};
    }
    qsort(out, (size_t)count, sizeof *out, stop_compare);
    *out_count = count;
    hostmem_free(ranges);
    return GT_OK;
}

enum gt_status parts_insert(struct model *model, int32_t program, bool first)
{
    struct graph *graph = model->graph;
    const int32_t before = graph->programs[program].count;
    struct parts_builder builder = builder_of(model, program, PASS_BACKWARD, first);
    struct stop *stops;
    int32_t *after = NULL, added = 0, count;
    TRY(HOSTMEM_NEW(graph, (size_t)model->parameters.count, "places of exchanges", &stops));
    TRY(stops_find(model, program, stops, &count));
    for (int32_t i = 0; i < count; i++) {
        const struct stop *stop = &stops[i];
        const struct parameter *parameter = &model->parameters.at[stop->parameter];
        const bool block = graph->programs[program].ops[stop->op].layer >= 0;
        TRY(pieces_append(&builder, parameter, false, block ? 1 : pieces_of(&builder, parameter),
                          block ? EXCHANGES_MAX / builder.ranks - 1 : 1));
        if (i + 1 == count || stop->end != stop[1].end)
            TRY(pieces_finish(&builder, 0));
        if (i + 1 == count)
            TRY(store_finish(&builder));
        const int32_t all = graph->programs[program].count - before;
        TRY(HOSTMEM_GROW(graph, &after, (size_t)all, "ops before exchanges"));
        while (added < all)
            after[added++] = stop->op;
    }
    TRY(graph_ops_move(graph, program, before, after));
    hostmem_free(builder.under_way);
    hostmem_free(after);
    hostmem_free(stops);
    return GT_OK;
}
