/* Takes programs apart into the parts that repeat.
 *
 * An op belongs to a block, to a loss chunk or to neither.  The planner's lifetimes tell which bytes are live at an op.
 * A probe subtracts the bytes that earlier blocks save, because the whole model has another number of blocks.
 */
#include "plan/plan_probe.h"

#include "base/size.h"
#include "plan/plan_internal.h"

/* A program that is being taken apart. */
struct taking {
    const struct probe_request *request;
    const struct model *model;
    const struct program *program;
    const struct plan_item *items;
    int32_t count;
    const uint64_t *live; /* the sum of the items' footprints at each op */
};

/* Returns the recompute level of a layer of the probed model, which has one block at each level up to RECOMPUTE_FULL,
 * the highest first. */
static int level_of(int32_t layer)
{
    return RECOMPUTE_FULL - layer;
}

void probe_raise(uint64_t *bytes, uint64_t value)
{
    *bytes = value > *bytes ? value : *bytes;
}

/* Measures three things.  The largest item.  The bytes that each block saves: those of the items that it writes and
 * that are still live at the loss.  The bytes that a program with a single loss chunk needs at each op of the chunk:
 * those of the items that are live from this op in the first chunk to the same op in the second. */
static void items_take(const struct taking *taking, struct probe_program *out)
{
    const struct op *ops = taking->program->ops;
    int32_t loss = 0, second = 0;
    while (ops[loss].chunk == 0)
        loss++;
    for (second = loss; ops[second].chunk == 1;)
        second++;
    const int32_t chunk_ops = second - loss;
    second = ops[second].chunk == 2 ? second : loss;
    for (int32_t i = 0; i < taking->count; i++) {
        const struct plan_item *item = &taking->items[i];
        const bool block = ops[item->first].layer >= 0;
        if (ops[item->first].chunk > 0 && ops[item->last].chunk > 0)
            continue;
        probe_raise(&out->largest, item->bytes);
        if (block && item->first < loss && item->last >= loss)
            out->saved[level_of(ops[item->first].layer)] += item->bytes;
        for (int32_t k = 0; k < chunk_ops && !block; k++)
            out->chunk[PROBE_CHUNK_ONLY][k] += item->first <= loss + k && item->last >= second + k ? item->bytes : 0;
    }
}

/* Returns the call of an op.  Bit s of `logits` is set if operand s holds logits; bit s of `rows` if it holds logits or
 * is a view, so that its number of rows is the chunk's. */
static struct probe_op chunk_op(const struct graph *graph, const struct op *op)
{
    struct probe_op out = {.rows = 0};
    graph_call(graph, op, &out.call);
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
        const struct tensor *tensor = op->operand[s] == TENSOR_NONE ? NULL : &graph->tensors[op->operand[s]];
        bool logits = tensor && tensor->category == CATEGORY_LOGITS;
        out.logits |= (unsigned)logits << s;
        out.rows |= (unsigned)(logits || (tensor && tensor->base != TENSOR_NONE)) << s;
    }
    return out;
}

static uint64_t footprint(const struct probe_request *request, size_t bytes)
{
    return bytes > 0 ? plan_footprint(request->plan, bytes) : 0;
}

/* Returns the bytes that an op of a loss chunk needs only within the chunk: its workspace and its logits.  Raises
 * *largest to the largest of these. */
static uint64_t chunk_bytes(const struct probe_request *request, const struct probe_op *op, uint64_t *largest)
{
    const struct backend *device = request->plan->device;
    uint64_t sum = footprint(request, device ? device->ops->workspace_bytes(device, &op->call) : 0);
    probe_raise(largest, sum);
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
        uint64_t bytes = (op->logits >> s & 1u) != 0 ? footprint(request, operand_bytes(&op->call.operand[s])) : 0;
        probe_raise(largest, bytes);
        sum += bytes;
    }
    return sum;
}

/* Measures the seconds of each part of the program, and the bytes that are live while it runs. */
static void ops_take(const struct taking *taking, struct probe_program *out)
{
    const struct graph *graph = taking->model->graph;
    bool any_block = false, any_backward = false;
    uint64_t all = 0, largest = 0, below[RECOMPUTE_LEVELS];
    for (int level = RECOMPUTE_FULL; level >= RECOMPUTE_NONE; all += out->saved[level--])
        below[level] = all;
    for (int32_t i = 0, in_chunk = 0; i < taking->program->count; i++) {
        const struct op *op = &taking->program->ops[i];
        struct probe_op parts = chunk_op(graph, op);
        const enum op_queue queue = op_declaration(op->kind)->queue;
        double seconds = plan_cost_op(&parts.call, taking->request->rates);
        in_chunk = i > 0 && op->chunk == op[-1].chunk ? in_chunk + 1 : 0;
        any_block = any_block || op->layer >= 0;
        any_backward = any_backward || (op->layer >= 0 && op->pass == PASS_BACKWARD);
        if (op->chunk > 0) {
            assert(in_chunk < PROBE_CHUNK_OPS_MAX);
            uint64_t own = chunk_bytes(taking->request, &parts, &largest);
            if (op->chunk <= PROBE_CHUNK_NEXT + 1)
                out->chunk[op->chunk - 1][in_chunk] = taking->live[i] - all - own;
        } else if (op->layer >= 0) {
            if (queue == QUEUE_COMPUTE) /* a copy may begin in another block */
                probe_raise(&out->local[level_of(op->layer)], taking->live[i] - below[level_of(op->layer)]);
            out->block[level_of(op->layer)][op->pass == PASS_BACKWARD].busy[queue] += seconds;
        } else {
            bool loss = any_block && !any_backward;
            probe_raise(loss ? &out->high : &out->low, taking->live[i] - (loss ? all : 0));
            out->outside_seconds += seconds;
        }
    }
}

/* Takes a program of a plan apart, whose bounds alone are known. */
static enum gt_status program_take(struct taking *taking, const struct plan *plan, int32_t program,
                                   struct probe_program *out)
{
    const size_t tensors = (size_t)plan->tensor_count, ops = (size_t)plan->graph->programs[program].count;
    struct plan_program bounds;
    struct tensor_range *ranges;
    struct plan_item *items;
    uint64_t *live;
    TRY(HOSTMEM_NEW(plan, tensors, "probe", &ranges));
    TRY(HOSTMEM_NEW(plan, tensors + ops, "probe", &items));
    TRY(HOSTMEM_NEW(plan, ops + 1, "probe", &live));
    graph_ranges(plan->graph, program, ranges);
    taking->program = &plan->graph->programs[program];
    taking->items = items;
    taking->live = live;
    taking->count = plan_items_collect(plan, program, ranges, items);
    plan_live_measure(plan, program, items, taking->count, live, &bounds);
    items_take(taking, out);
    ops_take(taking, out);
    return GT_OK;
}

bool probe_adds_in_step(const struct probe_request *request, int32_t micro_batch)
{
    return model_parts(request->options) > 1 && micro_batch == request->samples;
}

/* Builds a model with two micro-steps per part, or one that is in_step, and two loss chunks, if there are two rows. */
static enum gt_status model_make(struct model_options *options, bool in_step, struct hostmem *mem, struct model **out)
{
    int64_t rows = (int64_t)options->choice.micro_batch * options->config.block_size;
    options->micro_steps = in_step ? 1 : 2;
    options->choice.remainder_batch = 0;
    options->choice.loss_chunk_rows = (int32_t)((rows + 1) / 2);
    return model_create(mem, options, out);
}

static void chunks_take(const struct graph *graph, int32_t program, enum probe_kind kind, struct probe_fixed *out)
{
    for (int32_t i = 0; i < graph->programs[program].count; i++) {
        const struct op *op = &graph->programs[program].ops[i];
        if (op->chunk == 0 || op->chunk > 2)
            continue;
        int32_t *count = &out->chunk_ops[kind][op->chunk - 1];
        assert(*count < PROBE_CHUNK_OPS_MAX);
        out->chunk[kind][op->chunk - 1][(*count)++] = chunk_op(graph, op);
    }
}

/* Adds `times` times the persistent tensors of a model, of which `host_times` times those that live in host memory are
 * there and the rest on the device.  Returns the bytes of the cache for generation, one tensor for all blocks, which it
 * scales to those of the request. */
static uint64_t persistent_add(const struct probe_request *request, const struct model *model, int64_t times,
                               int64_t host_times, struct probe_states *states, struct probe_fixed *out)
{
    const uint64_t all = (uint64_t)request->options->config.n_layer, own = (uint64_t)model->options.config.n_layer;
    uint64_t cache = 0;
    for (int32_t t = TENSOR_FIRST; t < model->graph->tensor_count; t++) {
        const struct tensor *tensor = &model->graph->tensors[t];
        uint64_t bytes = graph_tensor_bytes(model->graph, t);
        if (tensor->base != TENSOR_NONE || tensor->lifetime == LIFETIME_PROGRAM)
            continue;
        const bool is_cache = tensor->category == CATEGORY_CACHE;
        bytes = plan_footprint(request->plan, is_cache ? bytes / own * all : bytes);
        probe_raise(&out->largest, bytes);
        const int64_t away = tensor->home == SPACE_HOST ? host_times : 0;
        states->host_bytes += (uint64_t)away * bytes;
        if (is_cache)
            cache = bytes;
        else if (tensor->lifetime == LIFETIME_RUN)
            states->run_bytes += (uint64_t)(times - away) * bytes;
    }
    return cache;
}

/* Returns the bytes that gradients keep between programs. */
static uint64_t gradient_bytes(const struct probe_request *request, const struct model *model)
{
    uint64_t bytes = 0;
    for (int32_t t = TENSOR_FIRST; t < model->graph->tensor_count; t++) {
        const struct tensor *tensor = &model->graph->tensors[t];
        if (tensor->category == CATEGORY_GRADIENT && tensor->lifetime == LIFETIME_PHASE && tensor->base == TENSOR_NONE)
            bytes += plan_footprint(request->plan, graph_tensor_bytes(model->graph, t));
    }
    return bytes;
}

/* Returns the seconds of an update between micro-steps and the update's program. */
static double between_seconds(const struct model *model, const struct plan_rates *rates)
{
    const int32_t programs[] = {model->part_first, model->part_next, model->norm};
    double seconds = 0.0;
    for (int i = 0; i < 3; i++)
        if (programs[i] >= 0)
            seconds += model_runs(&model->options, model->graph->programs[programs[i]].name) *
                       plan_cost_seconds(model->graph, programs[i], rates);
    return seconds;
}

/* Adds a model of `layers` blocks, of which each has its optimizer state in host memory if options->choice.offload is
 * not 0; then to every part.  Sums over a model of L blocks are L - 1 times those of two blocks, less L - 2 times those
 * of one block. */
static enum gt_status fixed_add(const struct probe_request *request, struct model_options *options, int32_t layers,
                                struct probe_fixed *out)
{
    const int64_t all = request->options->config.n_layer, times = layers == 1 ? 2 - all : all - 1;
    struct plan_options unlimited = *request->plan;
    struct model *model;
    struct plan *plan;
    unlimited.largest_segment_bytes = 0;
    unlimited.measure_only = true;
    options->config.n_layer = layers;
    TRY(model_make(options, false, request->mem, &model));
    enum gt_status status;
    TRY_GOTO(status, close, plan_create(model, model->graph, &unlimited, &plan));
    const struct plan_queues update = plan_cost_queues(model->graph, model->update.program, request->rates);
    if (options->choice.offload == 0) {
        out->between_seconds[0] += (double)times * between_seconds(model, request->rates);
        out->gradient_bytes[0] += (uint64_t)times * gradient_bytes(request, model);
    }
    for (int32_t offload = options->choice.offload > 0; offload <= options->choice.offload; offload++) {
        struct probe_states *states = &out->states[offload];
        const int64_t host = plan_choice_offload_blocks(offload, (int32_t)all);
        const int64_t host_times = layers == 1 ? 2 - host : host - 1;
        const uint64_t cache = persistent_add(request, model, times, host_times, states, out);
        for (int queue = 0; queue < QUEUE_COUNT; queue++)
            states->update.busy[queue] += (double)(queue == QUEUE_COMPUTE ? times : host_times) * update.busy[queue];
        /* The states of a single block in host memory move as those of a model of one block. */
        for (int32_t p = 0; p < plan->program_count; p++)
            if (model->graph->programs[p].phase == PHASE_GENERATE)
                probe_raise(&states->generate_bytes, cache + plan->program[p].bytes_bound);
            else if (p == model->update.program && (layers == 1 || host != 1))
                states->update_bytes = plan->program[p].bytes_bound;
    }
    memset(out->chunk_ops, 0, sizeof out->chunk_ops);
    chunks_take(model->graph, model->train_first.program, PROBE_FIRST, out);
    chunks_take(model->graph, model->train_next.program, PROBE_NEXT, out);
    if (options->evaluate)
        chunks_take(model->graph, model->evaluate.program, PROBE_EVALUATE, out);
close:
    hostmem_free(model);
    if (status != GT_OK || options->choice.offload > 0 || model_parts(options) == 1)
        return status;
    TRY(model_make(options, true, request->mem, &model));
    out->between_seconds[1] += (double)times * between_seconds(model, request->rates);
    out->gradient_bytes[1] += (uint64_t)times * gradient_bytes(request, model);
    hostmem_free(model);
    return GT_OK;
}

enum gt_status probe_fixed_make(const struct probe_request *request, bool offload, struct probe_fixed *out)
{
    struct model_options options = *request->options;
    const int32_t layers = options.config.n_layer;
    const uint64_t segment = request->plan->largest_segment_bytes;
    const double weights = (double)dtype_size_bytes(options.dtype) * (double)model_parameter_count(&options.config);
    struct probe_fixed fixed = {.gradient_bytes = {0}};
    options.choice.micro_batch = 2;
    options.choice.evaluate_batch = 1;
    options.choice.recompute = recompute_uniform(RECOMPUTE_NONE, 1);
    for (int32_t i = 0; i < (offload ? 4 : 2); i++) {
        options.choice.offload = i < 2 ? 0 : OFFLOAD_ALL;
        if (i % 2 < layers)
            TRY(fixed_add(request, &options, i % 2 + 1, &fixed));
    }
    fixed.unplaceable = weights > (double)PLAN_BYTES_MAX || (segment != 0 && fixed.largest > segment);
    *out = fixed;
    return GT_OK;
}

/* Derives a block at RECOMPUTE_OFFLOAD from one at RECOMPUTE_FULL: its input leaves the device while others run. */
static void offload_derive(const struct probe_request *request, struct probe *probe, enum probe_kind kind)
{
    struct probe_program *out = &probe->program[kind];
    const struct model_config *config = &request->options->config;
    const struct operand input = {.present = true,
                                  .dtype = request->options->dtype,
                                  .rank = 2,
                                  .dims = {(int64_t)probe->micro_batch * config->block_size, config->n_embd}};
    struct op_call move = {.kind = OP_STORE, .operand = {[STORE_X] = input, [STORE_Y] = input}};
    probe->input_bytes = footprint(request, operand_bytes(&input));
    memcpy(out->block[RECOMPUTE_OFFLOAD], out->block[RECOMPUTE_FULL], sizeof out->block[RECOMPUTE_FULL]);
    out->block[RECOMPUTE_OFFLOAD][0].busy[QUEUE_OUT] += plan_cost_op(&move, request->rates);
    move.kind = OP_FETCH;
    out->block[RECOMPUTE_OFFLOAD][1].busy[QUEUE_IN] += plan_cost_op(&move, request->rates);
    out->saved[RECOMPUTE_OFFLOAD] = out->saved[RECOMPUTE_FULL] - probe->input_bytes;
    out->local[RECOMPUTE_OFFLOAD] = out->local[RECOMPUTE_FULL];
}

enum gt_status probe_make(const struct probe_request *request, int32_t micro_batch, int32_t evaluate_batch,
                          int32_t offload, struct probe *out)
{
    struct model_options options = *request->options;
    struct plan_options unlimited = *request->plan;
    struct model *model;
    struct plan *plan;
    unlimited.largest_segment_bytes = 0;
    unlimited.measure_only = true;
    options.config.n_layer = RECOMPUTE_OFFLOAD;
    options.choice.recompute = (struct recompute_mix){{0, 1, 1, 1, 1}};
    options.choice.micro_batch = micro_batch;
    options.choice.evaluate_batch = evaluate_batch;
    options.choice.offload = offload;
    options.generate = false;
    options.no_update = true;
    TRY(model_make(&options, probe_adds_in_step(request, micro_batch), request->mem, &model));
    *out = (struct probe){.micro_batch = micro_batch, .evaluate_batch = evaluate_batch, .offload = offload};
    struct taking taking = {.request = request, .model = model};
    const int32_t programs[PROBE_KINDS] = {model->train_first.program, model->train_next.program,
                                           model->evaluate.program};
    enum gt_status status = plan_create(model, model->graph, &unlimited, &plan);
    for (int kind = 0; kind < PROBE_KINDS && status == GT_OK; kind++)
        status = programs[kind] < 0 ? GT_OK : program_take(&taking, plan, programs[kind], &out->program[kind]);
    hostmem_free(model);
    for (int kind = PROBE_FIRST; kind < PROBE_EVALUATE; kind++)
        offload_derive(request, out, (enum probe_kind)kind);
    return status;
}

/* Returns an op of a loss chunk with `rows` rows. */
static struct probe_op op_sized(const struct probe_op *of, int64_t rows)
{
    struct probe_op op = *of;
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++)
        if ((op.rows >> s & 1u) != 0)
            op.call.operand[s].dims[0] = rows;
    return op;
}

struct probe_loss probe_loss_of(const struct probe_request *request, const struct probe_fixed *fixed,
                                const struct probe *probe, enum probe_kind kind, int64_t rows, int64_t chunk)
{
    const int64_t whole = rows / chunk, rest = rows % chunk;
    const struct {
        enum probe_chunk chunk;
        int64_t rows, times;
    } parts[] = {{rows <= chunk ? PROBE_CHUNK_ONLY : PROBE_CHUNK_FIRST, min_i64(rows, chunk), 1},
                 {PROBE_CHUNK_NEXT, chunk, whole - 1},
                 {PROBE_CHUNK_NEXT, rest, whole > 0 && rest > 0}};
    struct probe_loss loss = {.seconds = 0.0};
    /* With parts in a step each part overwrites its gradients. */
    const int ops_kind = kind == PROBE_NEXT && probe_adds_in_step(request, probe->micro_batch) ? PROBE_FIRST : kind;
    for (int p = 0; p < 3; p++) {
        /* A program without a second chunk here is an evaluation: all its chunks run the ops of the first. */
        const int which = parts[p].chunk == PROBE_CHUNK_NEXT && fixed->chunk_ops[ops_kind][1] > 0;
        for (int32_t i = 0; i < fixed->chunk_ops[ops_kind][which] && parts[p].times > 0; i++) {
            const struct probe_op op = op_sized(&fixed->chunk[ops_kind][which][i], parts[p].rows);
            loss.seconds += (double)parts[p].times * plan_cost_op(&op.call, request->rates);
            probe_raise(&loss.bytes,
                        probe->program[kind].chunk[parts[p].chunk][i] + chunk_bytes(request, &op, &loss.largest));
        }
    }
    return loss;
}
