/* Tensors and programs.
 *
 * Arrays grow by doubling while the graph is built; nothing is added after planning.  Shapes come
 * from op_infer(), so a program cannot contain operands that do not fit.  plan/ assigns the
 * addresses.
 */
#include "model/graph.h"

#include "base/size.h"
#include "ops/infer.h"

/* The most characters that a derived name takes from the original name. */
#define NAME_WORD_MAX 44
#define VIEW_PART_MAX 36

enum gt_status graph_create(const void *owner, struct graph **out)
{
    struct graph *graph;
    TRY(HOSTMEM_NEW(owner, 1, "graph", &graph));
    enum gt_status status = HOSTMEM_GROW(graph, &graph->tensors, TENSOR_FIRST, "graph tensors");
    if (status == GT_OK)
        graph->tensors[TENSOR_NONE] = (struct tensor){0};
    graph->tensor_count = TENSOR_FIRST;
    return FINISH(status, out, graph, hostmem_free);
}

char *graph_name_put(char *at, const char *text, size_t most)
{
    const size_t length = strnlen(text, most);
    memmove(at, text, length);
    at[length] = '\0';
    return at + length;
}

char *graph_name_number(char *at, int64_t number)
{
    char digits[20];
    int count = 0;
    for (; count == 0 || number > 0; number /= 10)
        digits[count++] = (char)('0' + number % 10);
    while (count > 0)
        *at++ = digits[--count];
    *at = '\0';
    return at;
}

char *graph_name_join(char *at, size_t size, const char *const *texts)
{
    const char *const end = at + size - 1;
    for (; *texts != NULL; texts++)
        at = graph_name_put(at, *texts, (size_t)(end - at));
    return at;
}

enum gt_status graph_tensor_add(struct graph *graph, const struct tensor *proto, int32_t *out)
{
    size_t elements, bytes;
    assert(proto->rank >= 1 && proto->rank <= OP_RANK_MAX);
    if (!size_product(proto->dims, (size_t)proto->rank, &elements) ||
        !size_mul(elements, dtype_size_bytes(proto->dtype), &bytes) || bytes > INT64_MAX)
        return FAIL(GT_USAGE, "tensor %s is too large: its size in bytes does not fit 63 bits",
                    proto->name);
    TRY(HOSTMEM_GROW(graph, &graph->tensors, (size_t)graph->tensor_count + 1, "graph tensors"));
    graph->tensors[graph->tensor_count] = *proto;
    *out = graph->tensor_count++;
    return GT_OK;
}

/* Adds a view of `count` units of `unit` elements each, named after its base + "[first:+count]". */
static enum gt_status part_add(struct graph *graph, int32_t base, int32_t rank, int64_t unit,
                               int64_t first, int64_t count, int32_t *out)
{
    struct tensor view = graph->tensors[base];
    assert(first >= 0 && count > 0 && (first + count) * unit <= graph_tensor_elements(graph, base));
    char *at = graph_name_put(view.name, view.name, VIEW_PART_MAX);
    *at++ = '[';
    at = graph_name_put(graph_name_number(at, first), ":+", 2);
    memcpy(graph_name_number(at, count), "]", sizeof "]");
    view.rank = rank;
    view.dims[0] = count;
    view.base = graph_storage(graph, base);
    view.view_offset += first * unit;
    return graph_tensor_add(graph, &view, out);
}

enum gt_status graph_range_add(struct graph *graph, int32_t base, int64_t first, int64_t count,
                               int32_t *out)
{
    return part_add(graph, base, 1, 1, first, count, out);
}

enum gt_status graph_temporary_add(struct graph *graph, int32_t like, int32_t *out)
{
    struct tensor tensor = graph->tensors[like];
    tensor.base = TENSOR_NONE;
    tensor.view_offset = 0;
    tensor.home = SPACE_DEVICE;
    tensor.category = CATEGORY_TEMPORARY;
    tensor.lifetime = LIFETIME_PROGRAM;
    tensor.phase = PHASE_TRAIN;
    return graph_tensor_add(graph, &tensor, out);
}

enum gt_status graph_view_add(struct graph *graph, int32_t base, int64_t first_row, int64_t rows,
                              int32_t *out)
{
    const struct tensor *whole = &graph->tensors[base];
    const int64_t row_elements = graph_tensor_elements(graph, base) / whole->dims[0];
    return part_add(graph, base, whole->rank, row_elements, first_row, rows, out);
}

static const struct {
    const char *name;
    enum program_phase phase;
} program_kinds[PROGRAM_KINDS] = {
    [PROGRAM_TRAIN_FIRST] = {"train_first", PHASE_TRAIN},
    [PROGRAM_TRAIN_NEXT] = {"train_next", PHASE_TRAIN},
    [PROGRAM_TRAIN_REMAINDER] = {"train_remainder", PHASE_TRAIN},
    [PROGRAM_PART_FIRST] = {"part_first", PHASE_TRAIN},
    [PROGRAM_PART_NEXT] = {"part_next", PHASE_TRAIN},
    [PROGRAM_NORM] = {"norm", PHASE_TRAIN},
    [PROGRAM_UPDATE] = {"update", PHASE_TRAIN},
    [PROGRAM_GATHER] = {"gather", PHASE_TRAIN},
    [PROGRAM_REFRESH] = {"refresh", PHASE_TRAIN},
    [PROGRAM_EVALUATE] = {"evaluate", PHASE_EVALUATE},
    [PROGRAM_PREFILL] = {"prefill", PHASE_GENERATE},
    [PROGRAM_DECODE] = {"decode", PHASE_GENERATE},
};

enum gt_status graph_program_add(struct graph *graph, enum program_kind kind, int32_t *out)
{
    assert(graph->program_count < GRAPH_PROGRAMS_MAX);
    struct program *program = &graph->programs[graph->program_count];
    program->kind = kind;
    program->phase = program_kind_phase(kind);
    *out = graph->program_count++;
    return GT_OK;
}

int32_t graph_storage(const struct graph *graph, int32_t tensor)
{
    assert(tensor >= TENSOR_FIRST && tensor < graph->tensor_count);
    int32_t base = graph->tensors[tensor].base;
    return base == TENSOR_NONE ? tensor : base;
}

int64_t graph_tensor_elements(const struct graph *graph, int32_t tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    int64_t elements = 1;
    for (int32_t i = 0; i < t->rank; i++)
        elements *= t->dims[i];
    return elements;
}

uint64_t graph_tensor_bytes(const struct graph *graph, int32_t tensor)
{
    return (uint64_t)graph_tensor_elements(graph, tensor) *
           dtype_size_bytes(graph->tensors[tensor].dtype);
}

void graph_call(const struct graph *graph, const struct op *op, struct op_call *out)
{
    memset(out, 0, sizeof *out);
    out->kind = op->kind;
    out->attrs = op->attrs;
    const int32_t count = op_declaration(op->kind)->operands;
    for (int32_t i = 0; i < count; i++) {
        if (op->operand[i] == TENSOR_NONE)
            continue;
        const struct tensor *t = &graph->tensors[op->operand[i]];
        out->operand[i] = (struct operand){.present = true, .dtype = t->dtype, .rank = t->rank};
        memcpy(out->operand[i].dims, t->dims, sizeof t->dims);
    }
}

/* Adds the tensor for output `slot` of an op. */
static enum gt_status made_tensor_add(const struct graph_pen *pen, const struct op_call *call,
                                      int32_t slot, const char *name, int32_t *out)
{
    const struct operand *operand = &call->operand[slot];
    struct tensor made = {
        .dtype = operand->dtype,
        .rank = operand->rank,
        .category = CATEGORY_TEMPORARY,
        .lifetime = LIFETIME_PROGRAM,
        .phase = pen->graph->programs[pen->program].phase,
    };
    memcpy(made.dims, operand->dims, sizeof made.dims);
    char *at = graph_name_put(made.name, name, NAME_WORD_MAX);
    *at++ = '.';
    graph_name_put(at, op_operand_name(call->kind, slot), NAME_WORD_MAX);
    return graph_tensor_add(pen->graph, &made, out);
}

enum gt_status graph_op_append(struct graph *graph, int32_t program, const struct op *op)
{
    struct program *p = &graph->programs[program];
    TRY(HOSTMEM_GROW(graph, &p->ops, (size_t)p->count + 1, "program ops"));
    p->ops[p->count++] = *op;
    return GT_OK;
}

enum gt_status graph_op_add(const struct graph_pen *pen, enum op_kind kind, const char *name,
                            union op_arguments *arguments, int32_t *out)
{
    struct graph *graph = pen->graph;
    const struct op_declaration *declaration = op_declaration(kind);
    struct op op = {.kind = kind,
                    .pass = pen->pass,
                    .attrs = arguments->attrs,
                    .layer = pen->layer,
                    .chunk = pen->chunk,
                    .recompute = pen->recompute,
                    .left_out = pen->left_out};
    memcpy(op.operand, arguments->operand, (size_t)declaration->operands * sizeof op.operand[0]);
    struct op_call call;
    graph_call(graph, &op, &call);
    if (!op_infer(&call))
        return GT_USAGE;
    for (int32_t i = 0; i < declaration->operands; i++) {
        if (op.operand[i] == TENSOR_NONE && call.operand[i].present)
            TRY(made_tensor_add(pen, &call, i, name, &op.operand[i]));
        arguments->operand[i] = op.operand[i];
    }
    if (out != NULL) {
        assert(op_result(kind) >= 0);
        *out = op.operand[op_result(kind)];
    }
    return graph_op_append(graph, pen->program, &op);
}

void graph_ranges(const struct graph *graph, int32_t program, struct tensor_range *ranges)
{
    const struct program *p = &graph->programs[program];
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++)
        ranges[t] = (struct tensor_range){.first = p->count, .last = -1};
    for (int32_t i = 0; i < p->count; i++) {
        for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
            if (p->ops[i].operand[s] == TENSOR_NONE)
                continue;
            struct tensor_range *range = &ranges[graph_storage(graph, p->ops[i].operand[s])];
            range->first = i < range->first ? i : range->first;
            range->last = i;
        }
    }
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        if (graph->tensors[t].base != TENSOR_NONE || ranges[t].last < 0)
            continue;
        if (graph->tensors[t].input)
            ranges[t].first = -1;
        if (graph->tensors[t].output)
            ranges[t].last = p->count;
    }
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++)
        ranges[t] = ranges[graph_storage(graph, t)];
}

enum gt_status graph_ops_move(struct graph *graph, int32_t program, int32_t count,
                              const int32_t *after)
{
    struct program *p = &graph->programs[program];
    struct op *merged;
    int32_t *next, made = 0; /* next[i]: the first op moved after op i, or, for a moved op, the next
                                one moved to the same place; 0: none */
    if (p->count == count)
        return GT_OK;
    TRY(HOSTMEM_NEW(graph, (size_t)p->count, "program order", &next));
    TRY(HOSTMEM_NEW(graph, (size_t)p->count, "program ops", &merged));
    for (int32_t k = p->count - 1; k >= count; k--) {
        next[k] = next[after[k - count]];
        next[after[k - count]] = k;
    }
    for (int32_t i = 0; i < count; i++) {
        const struct op *before = &p->ops[i];
        const bool goes_on = i + 1 < count && before[1].chunk == before->chunk;
        merged[made++] = *before;
        for (int32_t k = next[i]; k != 0; k = next[k]) {
            merged[made] = p->ops[k];
            merged[made].layer = before->layer;
            merged[made].left_out = before->left_out;
            merged[made++].chunk = goes_on ? before->chunk : 0;
        }
    }
    assert(made == p->count);
    hostmem_free(p->ops);
    p->ops = merged;
    hostmem_free(next);
    return GT_OK;
}

const char *tensor_category_name(enum tensor_category category)
{
    static const char *const names[CATEGORY_COUNT] = {[CATEGORY_PARAMETER] = "parameters",
                                                      [CATEGORY_MASTER] = "master",
                                                      [CATEGORY_MOMENT] = "moments",
                                                      [CATEGORY_GRADIENT] = "gradients",
                                                      [CATEGORY_ACTIVATION] = "activations",
                                                      [CATEGORY_LOGITS] = "logits",
                                                      [CATEGORY_TEMPORARY] = "temporaries",
                                                      [CATEGORY_WORKSPACE] = "workspace",
                                                      [CATEGORY_CACHE] = "cache",
                                                      [CATEGORY_DATA] = "data"};
    assert(category >= 0 && category < CATEGORY_COUNT);
    return names[category];
}

const char *program_phase_name(enum program_phase phase)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_TRAIN] = "train", [PHASE_EVALUATE] = "evaluate", [PHASE_GENERATE] = "generate"};
    assert(phase >= 0 && phase < PHASE_COUNT);
    return names[phase];
}

const char *program_kind_name(enum program_kind kind)
{
    assert(kind >= 0 && kind < PROGRAM_KINDS);
    return program_kinds[kind].name;
}

enum program_phase program_kind_phase(enum program_kind kind)
{
    assert(kind >= 0 && kind < PROGRAM_KINDS);
    return program_kinds[kind].phase;
}

static void print_tensor(const struct graph *graph, int32_t tensor, FILE *out)
{
    const struct tensor *t = &graph->tensors[tensor];
    fprintf(out, "%s %s[", t->name, dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank; i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", t->dims[i]);
    fprintf(out, "]");
}

static void print_op(const struct graph *graph, const struct op *op, int32_t index, FILE *out)
{
    static const char *const passes[] = {
        [PASS_FORWARD] = "fwd", [PASS_BACKWARD] = "bwd", [PASS_UPDATE] = "upd"};
    static const char *const directions[] = {
        [OPERAND_IN] = "", [OPERAND_OUT] = "-> ", [OPERAND_INOUT] = "<> "};
    const struct op_declaration *declaration = op_declaration(op->kind);
    fprintf(out, "%5" PRId32 " %s %-20s", index, passes[op->pass], declaration->name);
    for (int32_t s = 0; s < declaration->operands; s++) {
        if (op->operand[s] == TENSOR_NONE)
            continue;
        fprintf(out, "  %s%s=", directions[op_direction(op->kind, &op->attrs, s)],
                op_operand_name(op->kind, s));
        print_tensor(graph, op->operand[s], out);
    }
    fprintf(out, "\n");
}

void graph_print(const struct graph *graph, int32_t program, FILE *out)
{
    static const char *const lifetimes[] = {
        [LIFETIME_RUN] = "run", [LIFETIME_PHASE] = "phase", [LIFETIME_PROGRAM] = "program"};
    const struct program *p = &graph->programs[program];
    fprintf(out, "program %s (%s): %" PRId32 " ops; -> written, <> read and written\n",
            program_kind_name(p->kind), program_phase_name(p->phase), p->count);
    for (int32_t i = 0; i < p->count; i++)
        print_op(graph, &p->ops[i], i, out);
    struct tensor_range *ranges;
    if (HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "ranges", &ranges) != GT_OK)
        return;
    graph_ranges(graph, program, ranges);
    fprintf(out, "tensors of %s: category, lifetime, first and last op, bytes\n",
            program_kind_name(p->kind));
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        if (tensor->base != TENSOR_NONE || ranges[t].last < 0)
            continue;
        fprintf(out, "%-11s %-7s %5" PRId32 " .. %-5" PRId32 " %12" PRIu64 "  ",
                tensor_category_name(tensor->category), lifetimes[tensor->lifetime],
                ranges[t].first, ranges[t].last, graph_tensor_bytes(graph, t));
        print_tensor(graph, t, out);
        fprintf(out, "\n");
    }
    hostmem_free(ranges);
}
