/* Makes a plan: asks the backend for workspaces, places persistent tensors, then each program on
 * top of them.
 *
 * Run tensors come first.  On top of them come the tensors of each phase in turn, and on top of
 * those each of its programs by itself.  All placement is first fit in virtual bytes (plan_item.h),
 * so segments need no special case; virtual addresses become (segment, offset) when they are
 * stored.
 *
 * Lives come from graph_ranges().  Inputs and outputs are clamped to the first and last op, which
 * does not change which lives overlap, since some op uses both.  Live bytes are footprints
 * (alignment and guard included): the largest sum over the ops is a lower bound for every
 * placement.  Nothing here proves that the result is right: plan_verify() does, without this file's
 * lifetimes.
 */

#include "plan/plan_create.h"

#include "base/size.h"
#include "plan/plan_item.h"
#include "plan/plan_place.h"

#define SHAPES_TEXT_MAX 512

/* ---- lifetimes ---- */

const char *plan_op_target(const struct graph *graph, const struct op *op)
{
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        if (op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) != OPERAND_IN)
            return graph->tensors[op->operand[s]].name;
    return "-";
}

uint64_t plan_footprint(const struct plan_options *options, uint64_t bytes)
{
    assert(bytes < PLAN_BYTES_MAX);
    return size_round_up(bytes > 0 ? bytes : 1, options->alignment_bytes) + options->guard_bytes;
}

int32_t plan_items_collect(const struct plan *plan, int32_t program,
                           const struct tensor_range *ranges, struct plan_item *items)
{
    const struct graph *graph = plan->graph;
    int32_t ops = graph->programs[program].count, count = 0;
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        if (tensor->base != TENSOR_NONE || tensor->lifetime != LIFETIME_PROGRAM ||
            ranges[t].last < 0)
            continue;
        items[count++] = (struct plan_item){
            .first = ranges[t].first < 0 ? 0 : ranges[t].first,
            .last = ranges[t].last >= ops ? ops - 1 : ranges[t].last,
            .bytes = plan_footprint(&plan->options, graph_tensor_bytes(graph, t)),
            .offset_bytes = PLAN_UNPLACED,
            .tensor = t,
        };
    }
    for (int32_t i = 0; i < ops; i++) {
        if (plan->workspace_bytes[program][i] == 0)
            continue;
        items[count++] = (struct plan_item){
            .first = i,
            .last = i,
            .bytes = plan_footprint(&plan->options, plan->workspace_bytes[program][i]),
            .offset_bytes = PLAN_UNPLACED,
            .tensor = TENSOR_NONE,
            .op = i,
        };
    }
    return count;
}

/* Returns true for an op of a block's pass.  Copies do not count, because they may be among the ops
 * of the block before. */
static bool is_block_op(const struct op *op, enum op_pass pass)
{
    return op->layer >= 0 && op->pass == pass && !op_is_async_copy(op->kind);
}

/* Adds the bytes that left-out blocks keep to the differences of live bytes.  A left-out block
 * keeps as much as the block that stands for it, from the end of that block's forward pass to the
 * beginning of its backward pass. */
static void left_out_add(const struct program *program, const struct plan_item *items,
                         int32_t count, uint64_t *live)
{
    int32_t loss = 0; /* the first op after the forward pass: what lives until then is kept */
    while (loss < program->count && program->ops[loss].pass == PASS_FORWARD)
        loss++;
    for (int32_t first = 0; first < loss; first++) {
        const int32_t times = program->ops[first].left_out;
        int32_t end = first, back = program->count, last = program->ops[first].layer;
        uint64_t kept = 0;
        if (times == 0 || !is_block_op(&program->ops[first], PASS_FORWARD))
            continue;
        for (; program->ops[end].left_out > 0 || op_is_async_copy(program->ops[end].kind); end++)
            last = program->ops[end].left_out > 0 ? program->ops[end].layer : last;
        for (int32_t i = loss; i < back; i++)
            if (program->ops[i].layer == last && is_block_op(&program->ops[i], PASS_BACKWARD))
                back = i;
        for (int32_t i = 0; i < count; i++)
            kept += items[i].first >= first && items[i].first < end && items[i].last >= loss
                        ? items[i].bytes
                        : 0;
        live[end] += (uint64_t)times * kept;
        live[back] -= (uint64_t)times * kept;
        first = end - 1;
    }
}

void plan_live_measure(const struct plan *plan, int32_t program, const struct plan_item *items,
                       int32_t count, uint64_t *live, struct plan_program *out)
{
    int32_t ops = plan->graph->programs[program].count;
    memset(live, 0, ((size_t)ops + 1) * sizeof live[0]);
    /* First the differences, then their running sum; a negative difference wraps, and the sum wraps
     * back. */
    for (int32_t i = 0; i < count; i++) {
        live[items[i].first] += items[i].bytes;
        live[items[i].last + 1] -= items[i].bytes;
    }
    left_out_add(&plan->graph->programs[program], items, count, live);
    out->bytes_bound = 0;
    out->peak_op = 0;
    for (int32_t i = 0; i < ops; i++) {
        live[i] += i > 0 ? live[i - 1] : 0;
        if (live[i] > out->bytes_bound) {
            out->bytes_bound = live[i];
            out->peak_op = i;
        }
    }
    memset(out->live_bytes, 0, sizeof out->live_bytes);
    for (int32_t i = 0; i < count; i++) {
        if (items[i].first > out->peak_op || items[i].last < out->peak_op)
            continue;
        int32_t t = items[i].tensor;
        out->live_bytes[t == TENSOR_NONE ? CATEGORY_WORKSPACE : plan->graph->tensors[t].category] +=
            items[i].bytes;
    }
}

/* ---- the plan ---- */

/* The working memory of plan_create(). */
struct plan_builder {
    struct plan *plan;
    const struct graph *graph;
    int32_t ops_max;             /* of the longest program */
    struct tensor_range *ranges; /* [tensor_count], of the current program */
    bool *touched;               /* [tensor_count]: true if a program uses the storage */
    struct plan_item *items;     /* [tensor_count + ops_max] */
    struct plan_item *placed;    /* [tensor_count + ops_max]: items of the last program placed */
    int32_t placed_count;        /* number of items in `placed`; -1 = none in this phase */
    struct plan_placer run;      /* the run's tensors; [tensor_count] */
    struct plan_placer fixed;    /* and those of the current phase; [tensor_count] */
    struct plan_scratch scratch;
    uint64_t segment_bytes;  /* S of the virtual addresses */
    enum memory_space space; /* whose tensors are being placed */
    bool bound_only;         /* programs are measured, not placed */
    /* The largest program's lower bound: no placement makes the arena smaller. */
    uint64_t enough_bytes;
    /* Of one pass over all phases. */
    uint64_t run_categories[CATEGORY_COUNT];
    uint64_t high[BACKEND_SEGMENTS_MAX];
    uint64_t peak_bytes; /* of plan->peak_program, above the run's */
};

static enum gt_status plan_arrays_create(struct plan *plan)
{
    const struct graph *graph = plan->graph;
    TRY(HOSTMEM_NEW(plan, (size_t)graph->tensor_count, "plan addresses", &plan->tensor));
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++)
        plan->tensor[t] = (struct address){.space = SPACE_DEVICE, .offset_bytes = PLAN_UNPLACED};
    for (int32_t p = 0; p < graph->program_count; p++) {
        size_t ops = (size_t)graph->programs[p].count;
        TRY(HOSTMEM_NEW(plan, ops, "plan workspaces", &plan->workspace[p]));
        TRY(HOSTMEM_NEW(plan, ops, "plan workspaces", &plan->workspace_bytes[p]));
    }
    return GT_OK;
}

/* Writes "a=float32[3,4] b=..."  for the operands that are present. */
static const char *operands_text(const struct op_call *call, char text[static SHAPES_TEXT_MAX])
{
    const struct op_declaration *declaration = op_declaration(call->kind);
    const char *between = "";
    text[0] = text[SHAPES_TEXT_MAX - 1] = '\0';
    FILE *out = fmemopen(text, SHAPES_TEXT_MAX - 1, "w");
    for (int32_t s = 0; out != NULL && s < declaration->operands; s++) {
        const struct operand *operand = &call->operand[s];
        if (!operand->present)
            continue;
        fprintf(out, "%s%s=%s[", between, op_operand_name(call->kind, s),
                dtype_name(operand->dtype));
        for (int32_t i = 0; i < operand->rank; i++)
            fprintf(out, "%s%" PRId64, i ? "," : "", operand->dims[i]);
        fprintf(out, "]");
        between = " ";
    }
    if (out != NULL)
        fclose(out);
    return text;
}

/* Asks the backend whether it supports each op, and for its workspace. */
static enum gt_status workspaces_ask(struct plan *plan)
{
    const struct backend *device = plan->options.device;
    for (int32_t p = 0; device && p < plan->graph->program_count; p++) {
        const struct program *program = &plan->graph->programs[p];
        for (int32_t i = 0; i < program->count; i++) {
            struct op_call call;
            graph_call(plan->graph, &program->ops[i], &call);
            if (call.kind == OP_EXCHANGE) /* exec runs it */
                continue;
            if (!device->ops->supports(device, &call)) {
                const struct backend_info nothing = {.device = ""}, *given = plan->options.info;
                const struct backend_info *info = given != NULL ? given : &nothing;
                char text[SHAPES_TEXT_MAX];
                return FAIL(GT_UNSUPPORTED,
                            "backend %s cannot run %s (%s), op %" PRId32
                            " of program %s, which writes %s%s%s%s%s%s%s",
                            device->ops->name, op_declaration(call.kind)->name,
                            operands_text(&call, text), i, program_kind_name(program->kind),
                            plan_op_target(plan->graph, &program->ops[i]),
                            info->device[0] != '\0' ? "; " : "", info->device,
                            info->detail[0] != '\0' ? "; " : "", info->detail,
                            info->limits[0] != '\0' ? "; " : "", info->limits);
            }
            plan->workspace_bytes[p][i] = device->ops->workspace_bytes(device, &call);
        }
    }
    return GT_OK;
}

/* Checks that one size fits a segment and that the sum so far does not overflow. */
static enum gt_status size_check(const struct plan_builder *builder, const char *what,
                                 const char *name, enum tensor_lifetime lifetime, uint64_t bytes,
                                 uint64_t *sum)
{
    const struct plan_options *options = &builder->plan->options;
    if (bytes >= PLAN_BYTES_MAX || plan_footprint(options, bytes) >= PLAN_BYTES_MAX - *sum)
        return FAIL(GT_USAGE,
                    "%s %s needs %" PRIu64 " bytes; all tensors together must stay below %" PRIu64,
                    what, name, bytes, PLAN_BYTES_MAX);
    uint64_t footprint = plan_footprint(options, bytes);
    if (options->largest_segment_bytes != 0 && footprint > options->largest_segment_bytes) {
        if (options->quiet)
            return GT_NO_FIT;
        return FAIL(GT_NO_FIT,
                    "%s %s needs %" PRIu64
                    " bytes, more than the device's largest allocation of %" PRIu64
                    ", whatever the budget; its size follows from %s",
                    what, name, footprint, options->largest_segment_bytes,
                    lifetime == LIFETIME_PROGRAM ? "batch_size, block_size and n_embd"
                                                 : "vocab_size, n_embd and block_size");
    }
    *sum += footprint;
    return GT_OK;
}

/* Checks every size, so that no sum of footprints can wrap from here on; sets S. */
static enum gt_status sizes_check(struct plan_builder *builder)
{
    const struct graph *graph = builder->graph;
    uint64_t sum = 0;
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++)
        if (graph->tensors[t].base == TENSOR_NONE)
            TRY(size_check(builder, "tensor", graph->tensors[t].name, graph->tensors[t].lifetime,
                           graph_tensor_bytes(graph, t), &sum));
    for (int32_t p = 0; p < graph->program_count; p++) {
        for (int32_t i = 0; i < graph->programs[p].count; i++) {
            const char *name = op_declaration(graph->programs[p].ops[i].kind)->name;
            uint64_t bytes = builder->plan->workspace_bytes[p][i];
            if (bytes > 0)
                TRY(size_check(builder, "the workspace of", name, LIFETIME_PROGRAM, bytes, &sum));
        }
    }
    const struct plan_options *options = &builder->plan->options;
    uint64_t segment =
        options->largest_segment_bytes - options->largest_segment_bytes % options->alignment_bytes;
    builder->segment_bytes = segment >= sum ? 0 : segment;
    return GT_OK;
}

static enum gt_status builder_arrays_create(struct plan_builder *builder)
{
    size_t tensors = (size_t)builder->graph->tensor_count, ops = (size_t)builder->ops_max,
           items = tensors + ops;
    struct plan_scratch *scratch = &builder->scratch;
    TRY(HOSTMEM_NEW(builder, tensors, "plan ranges", &builder->ranges));
    TRY(HOSTMEM_NEW(builder, tensors, "plan uses", &builder->touched));
    TRY(HOSTMEM_NEW(builder, items, "plan items", &builder->items));
    TRY(HOSTMEM_NEW(builder, items, "plan items", &builder->placed));
    TRY(HOSTMEM_NEW(builder, tensors, "plan slots", &builder->run.slots));
    TRY(HOSTMEM_NEW(builder, tensors, "plan slots", &builder->fixed.slots));
    TRY(HOSTMEM_NEW(builder, items, "plan slots", &scratch->placer.slots));
    TRY(HOSTMEM_NEW(builder, items, "plan order", &scratch->keys));
    TRY(HOSTMEM_NEW(builder, items, "plan offsets", &scratch->best));
    TRY(HOSTMEM_NEW(builder, ops + 1, "plan live bytes", &scratch->live));
    TRY(HOSTMEM_NEW(builder, 2 * ops, "plan ranks", &scratch->ranks));
    builder->run.capacity = builder->fixed.capacity = (int32_t)tensors;
    scratch->placer.capacity = (int32_t)items;
    return GT_OK;
}

static struct address address_of(const struct plan_builder *builder, uint64_t virtual_bytes)
{
    uint64_t segment = builder->segment_bytes;
    const int32_t first = builder->space == SPACE_DEVICE ? 0 : builder->plan->device_segments;
    return (struct address){
        .space = (uint8_t)builder->space,
        .segment = (uint8_t)(first + (segment == 0 ? 0 : (int32_t)(virtual_bytes / segment))),
        .offset_bytes = segment == 0 ? virtual_bytes : virtual_bytes % segment,
    };
}

static enum gt_status segments_exceeded(const struct plan_builder *builder, const char *what)
{
    if (!builder->plan->options.quiet)
        log_error("%s does not fit %d segments of %" PRIu64
                  " bytes, the device's largest allocation",
                  what, BACKEND_SEGMENTS_MAX, builder->plan->options.largest_segment_bytes);
    return GT_NO_FIT;
}

/* Places the persistent storages of the run (all of them, whether an op uses them or not: the host
 * may own them) or of one phase (those that a program uses).  Adds their footprints to
 * categories[]. */
static enum gt_status persistent_place(struct plan_builder *builder, struct plan_placer *placer,
                                       enum tensor_lifetime lifetime, enum program_phase phase,
                                       uint64_t categories[static CATEGORY_COUNT])
{
    for (int32_t t = TENSOR_FIRST; t < builder->graph->tensor_count; t++) {
        const struct tensor *tensor = &builder->graph->tensors[t];
        if (tensor->base != TENSOR_NONE || tensor->lifetime != lifetime ||
            tensor->home != builder->space)
            continue;
        if (lifetime == LIFETIME_PHASE && (tensor->phase != phase || !builder->touched[t]))
            continue;
        struct plan_item item = {
            .first = 0,
            .last = INT32_MAX,
            .bytes = plan_footprint(&builder->plan->options, graph_tensor_bytes(builder->graph, t)),
            .tensor = t,
        };
        if (!plan_first_fit(placer, &item))
            return segments_exceeded(builder, tensor->name);
        builder->plan->tensor[t] = address_of(builder, item.offset_bytes);
        categories[tensor->category] += item.bytes;
    }
    return GT_OK;
}

/* If the items equal those of the previous program in sizes and lives, as in the first micro-step
 * and the next ones, reuses its addresses, which are still in the placer. */
static bool items_place(struct plan_builder *builder, int32_t count, int32_t ops)
{
    struct plan_scratch *scratch = &builder->scratch;
    bool same = count == builder->placed_count;
    for (int32_t i = 0; i < count && same; i++) {
        const struct plan_item *a = &builder->items[i], *b = &builder->placed[i];
        same = a->first == b->first && a->last == b->last && a->bytes == b->bytes;
    }
    for (int32_t i = 0; i < count && same; i++)
        builder->items[i].offset_bytes = builder->placed[i].offset_bytes;
    if (same)
        return true;
    builder->placed_count = -1;
    if (!plan_place(&builder->fixed, builder->items, count, scratch->live, ops,
                    builder->enough_bytes, scratch))
        return false;
    if (count > 0)
        memcpy(builder->placed, builder->items, (size_t)count * sizeof builder->items[0]);
    builder->placed_count = count;
    return true;
}

static void high_raise(uint64_t high[static BACKEND_SEGMENTS_MAX],
                       const uint64_t other[static BACKEND_SEGMENTS_MAX])
{
    for (int32_t k = 0; k < BACKEND_SEGMENTS_MAX; k++)
        high[k] = other[k] > high[k] ? other[k] : high[k];
}

static enum gt_status program_place(struct plan_builder *builder, int32_t program,
                                    uint64_t high[static BACKEND_SEGMENTS_MAX])
{
    struct plan *plan = builder->plan;
    struct plan_scratch *scratch = &builder->scratch;
    struct plan_program *out = &plan->program[program];
    int32_t ops = builder->graph->programs[program].count;
    graph_ranges(builder->graph, program, builder->ranges);
    int32_t count = plan_items_collect(plan, program, builder->ranges, builder->items);
    plan_live_measure(plan, program, builder->items, count, scratch->live, out);
    if (builder->bound_only)
        return GT_OK;
    if (!items_place(builder, count, ops))
        return segments_exceeded(builder,
                                 program_kind_name(builder->graph->programs[program].kind));
    for (int32_t i = 0; i < count; i++) {
        const struct plan_item *item = &builder->items[i];
        struct address at = address_of(builder, item->offset_bytes);
        if (item->tensor == TENSOR_NONE)
            plan->workspace[program][item->op] = at;
        else
            plan->tensor[item->tensor] = at;
    }
    out->bytes =
        plan_high_water_sum(scratch->placer.high) - plan_high_water_sum(builder->fixed.high);
    assert(out->bytes >= out->bytes_bound);
    high_raise(high, scratch->placer.high);
    return GT_OK;
}

/* Updates the peak with a program, given the bytes and categories of the phase tensors below it. */
static void peak_update(struct plan_builder *builder, int32_t program, uint64_t persistent_bytes,
                        const uint64_t *persistent)
{
    struct plan *plan = builder->plan;
    const struct plan_program *planned = &plan->program[program];
    uint64_t bound = plan->run_bytes + persistent_bytes + planned->bytes_bound;
    plan->arena_bytes_bound = bound > plan->arena_bytes_bound ? bound : plan->arena_bytes_bound;
    if (plan->peak_program >= 0 && persistent_bytes + planned->bytes <= builder->peak_bytes)
        return;
    builder->peak_bytes = persistent_bytes + planned->bytes;
    plan->peak_program = program;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        plan->category_bytes[c] = persistent[c] + planned->live_bytes[c];
}

/* Places one phase on top of the run tensors. */
static enum gt_status phase_place(struct plan_builder *builder, enum program_phase phase)
{
    const uint64_t run_bytes = builder->plan->run_bytes;
    uint64_t categories[CATEGORY_COUNT], high[BACKEND_SEGMENTS_MAX];
    memcpy(categories, builder->run_categories, sizeof categories);
    builder->placed_count = -1;
    plan_placer_reset(&builder->fixed, &builder->run);
    TRY(persistent_place(builder, &builder->fixed, LIFETIME_PHASE, phase, categories));
    memcpy(high, builder->fixed.high, sizeof high);
    const uint64_t persistent_bytes = plan_high_water_sum(high) - run_bytes;
    for (int32_t p = 0; p < builder->graph->program_count; p++) {
        if (builder->graph->programs[p].phase != phase)
            continue;
        TRY(program_place(builder, p, high));
        peak_update(builder, p, persistent_bytes, categories);
    }
    builder->plan->phase_bytes[phase] = plan_high_water_sum(high) - run_bytes;
    high_raise(builder->high, high);
    return GT_OK;
}

/* Appends the segments in use to the plan's. */
static enum gt_status segments_add(const struct plan_builder *builder,
                                   const uint64_t high[static BACKEND_SEGMENTS_MAX])
{
    struct plan *plan = builder->plan;
    for (int32_t k = 0; k < BACKEND_SEGMENTS_MAX && high[k] > 0; k++) {
        if (plan->segment_count == BACKEND_SEGMENTS_MAX)
            return segments_exceeded(builder, "what lives in host memory");
        plan->segment[plan->segment_count++] =
            (struct backend_segment){.space = builder->space, .size_bytes = high[k]};
    }
    return GT_OK;
}

/* Places the run's tensors in host memory, after all of the device's. */
static enum gt_status host_place(struct plan_builder *builder)
{
    uint64_t *categories = builder->plan->host_category_bytes;
    memset(categories, 0, sizeof builder->plan->host_category_bytes);
    builder->space = SPACE_HOST;
    plan_placer_reset(&builder->fixed,
                      &(struct plan_placer){.segment_bytes = builder->segment_bytes});
    enum gt_status status =
        persistent_place(builder, &builder->fixed, LIFETIME_RUN, PHASE_TRAIN, categories);
    builder->plan->host_bytes = plan_high_water_sum(builder->fixed.high);
    if (status == GT_OK && !builder->bound_only)
        status = segments_add(builder, builder->fixed.high);
    builder->space = SPACE_DEVICE;
    return status;
}

static enum gt_status arena_place(struct plan_builder *builder)
{
    struct plan *plan = builder->plan;
    plan->peak_program = -1;
    memset(builder->run_categories, 0, sizeof builder->run_categories);
    plan_placer_reset(&builder->run,
                      &(struct plan_placer){.segment_bytes = builder->segment_bytes});
    TRY(persistent_place(builder, &builder->run, LIFETIME_RUN, PHASE_TRAIN,
                         builder->run_categories));
    memcpy(builder->high, builder->run.high, sizeof builder->high);
    plan->run_bytes = plan_high_water_sum(builder->high);
    plan->arena_bytes_bound = plan->run_bytes;
    memcpy(plan->category_bytes, builder->run_categories, sizeof plan->category_bytes);
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++)
        TRY(phase_place(builder, (enum program_phase)phase));
    if (!builder->bound_only) {
        plan->arena_bytes = plan_high_water_sum(builder->high);
        TRY(segments_add(builder, builder->high));
        plan->device_segments = plan->segment_count;
    }
    TRY(host_place(builder));
    for (int32_t t = TENSOR_FIRST; t < plan->tensor_count && !builder->bound_only; t++) {
        const struct tensor *view = &plan->graph->tensors[t];
        if (view->base == TENSOR_NONE || plan->tensor[view->base].offset_bytes == PLAN_UNPLACED)
            continue;
        plan->tensor[t] = plan->tensor[view->base];
        plan->tensor[t].offset_bytes += (uint64_t)view->view_offset * dtype_size_bytes(view->dtype);
    }
    return GT_OK;
}

/* Measures all programs before any is placed, so that placing those which do not need the whole
 * arena takes little time. */
static enum gt_status plan_fill(struct plan *plan)
{
    TRY(plan_arrays_create(plan));
    TRY(workspaces_ask(plan));
    struct plan_builder *builder;
    TRY(HOSTMEM_NEW(plan, 1, "making a plan", &builder));
    *builder = (struct plan_builder){.plan = plan, .graph = plan->graph, .bound_only = true};
    for (int32_t p = 0; p < plan->graph->program_count; p++)
        if (plan->graph->programs[p].count > builder->ops_max)
            builder->ops_max = plan->graph->programs[p].count;
    TRY(sizes_check(builder));
    TRY(builder_arrays_create(builder));
    for (int32_t p = 0; p < plan->graph->program_count; p++) {
        graph_ranges(plan->graph, p, builder->ranges);
        for (int32_t t = TENSOR_FIRST; t < plan->graph->tensor_count; t++)
            builder->touched[t] = builder->touched[t] || builder->ranges[t].last >= 0;
    }
    TRY(arena_place(builder));
    if (!plan->options.measure_only) {
        builder->bound_only = false;
        builder->enough_bytes = plan->arena_bytes_bound;
        TRY(arena_place(builder));
    }
    hostmem_free(builder);
    return GT_OK;
}

enum gt_status plan_create(const void *owner, const struct graph *graph,
                           const struct plan_options *options, struct plan **out)
{
    assert(options->alignment_bytes > 0 &&
           (options->alignment_bytes & (options->alignment_bytes - 1)) == 0);
    assert(options->guard_bytes % options->alignment_bytes == 0);
    struct plan *plan;
    TRY(HOSTMEM_NEW(owner, 1, "plan", &plan));
    plan->graph = graph;
    plan->options = *options;
    plan->tensor_count = graph->tensor_count;
    plan->program_count = graph->program_count;
    enum gt_status status = plan_fill(plan);
    return FINISH(status, out, plan, hostmem_free);
}

void plan_call(const struct plan *plan, int32_t program, int32_t op, struct op_call *call)
{
    const int32_t *operand = plan->graph->programs[program].ops[op].operand;
    graph_call(plan->graph, &plan->graph->programs[program].ops[op], call);
    for (int32_t s = 0; s < op_declaration(call->kind)->operands; s++) {
        if (operand[s] == TENSOR_NONE)
            continue;
        call->operand[s].at = plan->tensor[operand[s]];
        assert(call->operand[s].at.offset_bytes != PLAN_UNPLACED);
    }
    call->workspace_bytes = (size_t)plan->workspace_bytes[program][op];
    if (call->workspace_bytes > 0)
        call->workspace = plan->workspace[program][op];
}
