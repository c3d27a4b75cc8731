/* Proves a plan by replay.
 *
 * A map records, byte range by byte range, the last writer.  Each program is replayed over that
 * map, op by op: the bytes that an op reads must still belong to the tensor that it reads, and the
 * bytes that it writes then belong to the tensor that it writes.  A tensor that lost bytes that it
 * still needs is detected at its next read, a persistent one at once.  Until the wait of a copy no
 * op may touch what it writes, or write what it reads.  Workspaces are owners too.  No lifetime is
 * used: neither graph_ranges() nor the planner's items, slots or virtual addresses.
 */
#include "plan/plan_verify.h"

#include "base/size.h"
#include "plan/plan_item.h"

/* Owners of bytes and of the guard behind them: a tensor; negative ones are none, and the current
 * op's workspace. */
enum { OWNER_NONE = -1, OWNER_WORKSPACE = -2 };

struct owned {
    uint64_t start, end;
    int32_t owner;
};

/* Disjoint ranges sorted by start; bytes in none of them have no owner. */
struct owner_map {
    struct owned *at;
    int32_t count, capacity;
};

struct replay {
    const struct plan *plan;
    const struct graph *graph;
    int32_t program, op; /* current position, for messages; op -1 before the first */
    struct owner_map map;
    bool *begun; /* [tensor_count]: this program has used the storage, and its guard is claimed */
    uint64_t segment_start[BACKEND_SEGMENTS_MAX]; /* segments laid end to end on one number line */
};

/* Returns the index of the first range that ends after `byte`. */
static int32_t map_find(const struct owner_map *map, uint64_t byte)
{
    int32_t low = 0, high = map->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (map->at[middle].end <= byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const char *owner_name(const struct replay *replay, int32_t owner)
{
    if (owner < 0)
        return owner == OWNER_NONE ? "nobody" : "the op's workspace";
    return replay->graph->tensors[owner].name;
}

static const char *where_op(const struct replay *replay)
{
    if (replay->op < 0)
        return "start";
    return op_declaration(replay->graph->programs[replay->program].ops[replay->op].kind)->name;
}

/* Logs a violation at the current op, and is false. */
#define VIOLATION(replay, format, ...)                                                       \
    FAIL(false, "plan: program %s, op %" PRId32 " (%s): " format,                            \
         program_kind_name((replay)->graph->programs[(replay)->program].kind), (replay)->op, \
         where_op(replay), __VA_ARGS__)

/* Gives a range to its owner, whoever owned it.  Nothing may overwrite a tensor that lives longer
 * than the program. */
static bool claim(struct replay *replay, struct owned range)
{
    struct owner_map *map = &replay->map;
    const int32_t first = map_find(map, range.start);
    int32_t next = first, count = 0;
    struct owned pieces[3];
    if (range.start == range.end)
        return true;
    for (; next < map->count && map->at[next].start < range.end; next++) {
        const int32_t victim = map->at[next].owner;
        if (victim == range.owner || victim < 0 ||
            replay->graph->tensors[victim].lifetime == LIFETIME_PROGRAM)
            continue;
        return VIOLATION(replay, "%s overwrites %s, which must persist",
                         owner_name(replay, range.owner), owner_name(replay, victim));
    }
    if (first < next && map->at[first].start < range.start)
        pieces[count++] = (struct owned){map->at[first].start, range.start, map->at[first].owner};
    pieces[count++] = range;
    if (first < next && map->at[next - 1].end > range.end)
        pieces[count++] = (struct owned){range.end, map->at[next - 1].end, map->at[next - 1].owner};
    assert(map->count - (next - first) + count <= map->capacity);
    memmove(&map->at[first + count], &map->at[next],
            (size_t)(map->count - next) * sizeof map->at[0]);
    memcpy(&map->at[first], pieces, (size_t)count * sizeof map->at[0]);
    map->count += count - (next - first);
    return true;
}

/* Checks that all of the range still belongs to its owner. */
static bool owned_check(const struct replay *replay, struct owned range)
{
    const struct owner_map *map = &replay->map;
    for (int32_t i = map_find(map, range.start); range.start < range.end; i++) {
        const int32_t owner =
            i == map->count || map->at[i].start > range.start ? OWNER_NONE : map->at[i].owner;
        if (owner != range.owner)
            return VIOLATION(replay,
                             "%s does not hold what was last written to it; its bytes belong to %s",
                             owner_name(replay, range.owner), owner_name(replay, owner));
        range.start = map->at[i].end;
    }
    return true;
}

/* Returns the bytes at an address. */
static struct owned range_of(const struct replay *replay, struct address at, uint64_t bytes,
                             int32_t owner)
{
    const uint64_t start = replay->segment_start[at.segment] + at.offset_bytes;
    return (struct owned){start, start + bytes, owner};
}

/* Returns the guard behind all bytes of a storage or a workspace. */
static struct owned guard_of(const struct replay *replay, struct owned range)
{
    const uint64_t start =
        range.start + size_round_up(range.end - range.start, replay->plan->options.alignment_bytes);
    return (struct owned){start, start + replay->plan->options.guard_bytes, range.owner};
}

/* Returns the bytes of an operand, which may be a view. */
static struct owned tensor_range(const struct replay *replay, int32_t tensor)
{
    return range_of(replay, replay->plan->tensor[tensor], graph_tensor_bytes(replay->graph, tensor),
                    graph_storage(replay->graph, tensor));
}

static bool all_claim(struct replay *replay, struct owned range)
{
    return claim(replay, range) && claim(replay, guard_of(replay, range));
}

/* Claims all of a storage, guard included, before the program starts. */
static bool storage_claim(struct replay *replay, int32_t storage)
{
    replay->begun[storage] = true;
    return all_claim(replay, tensor_range(replay, storage));
}

static bool workspace_claim(struct replay *replay)
{
    const uint64_t bytes = replay->plan->workspace_bytes[replay->program][replay->op];
    const struct address at = replay->plan->workspace[replay->program][replay->op];
    return bytes == 0 || all_claim(replay, range_of(replay, at, bytes, OWNER_WORKSPACE));
}

typedef bool operand_fn(struct replay *replay, const struct op *op, int32_t slot);

/* Returns true when every operand of the op passes. */
static bool operands_all(struct replay *replay, const struct op *op, operand_fn *check)
{
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        if (op->operand[s] != TENSOR_NONE && !check(replay, op, s))
            return false;
    return true;
}

/* Before the op's claims, checks that an operand has an address in the memory where the op expects
 * it, that its bytes survive in this program's phase, and that what the op reads is still there. */
static bool operand_read(struct replay *replay, const struct op *op, int32_t slot)
{
    const int32_t tensor = op->operand[slot];
    const struct tensor *storage = &replay->graph->tensors[graph_storage(replay->graph, tensor)];
    const struct program *program = &replay->graph->programs[replay->program];
    const bool moved = (op->kind == OP_FETCH && slot == FETCH_X) ||
                       (op->kind == OP_STORE && slot == STORE_Y) ||
                       (op->kind == OP_WAIT && storage->home == SPACE_HOST);
    const char *why = "has no address";
    if (replay->plan->tensor[tensor].offset_bytes != PLAN_UNPLACED)
        why = storage->lifetime == LIFETIME_PHASE && storage->phase != program->phase
                  ? "belongs to another phase"
              : storage->home != (moved ? SPACE_HOST : SPACE_DEVICE) ? "lies in the wrong memory"
                                                                     : NULL;
    if (why != NULL)
        return VIOLATION(replay, "%s %s", storage->name, why);
    return op_direction(op->kind, &op->attrs, slot) == OPERAND_OUT ||
           owned_check(replay, tensor_range(replay, tensor));
}

static bool operand_claim(struct replay *replay, const struct op *op, int32_t slot)
{
    const int32_t tensor = op->operand[slot], storage = graph_storage(replay->graph, tensor);
    if (!replay->begun[storage] && !claim(replay, guard_of(replay, tensor_range(replay, storage))))
        return false;
    replay->begun[storage] = true;
    return op_direction(op->kind, &op->attrs, slot) == OPERAND_IN ||
           claim(replay, tensor_range(replay, tensor));
}

/* After the op's claims, checks that an operand still has its bytes and its guard, so that no two
 * operands overlap. */
static bool operand_check_intact(struct replay *replay, const struct op *op, int32_t slot)
{
    const int32_t tensor = op->operand[slot];
    return owned_check(replay, tensor_range(replay, tensor)) &&
           owned_check(replay, guard_of(replay, tensor_range(
                                                    replay, graph_storage(replay->graph, tensor))));
}

/* Before the first op, claims an operand that the host writes. */
static bool input_claim(struct replay *replay, const struct op *op, int32_t slot)
{
    const int32_t storage = graph_storage(replay->graph, op->operand[slot]);
    return !replay->graph->tensors[storage].input || replay->begun[storage] ||
           replay->plan->tensor[storage].offset_bytes == PLAN_UNPLACED ||
           storage_claim(replay, storage);
}

/* After the last op, checks that an output still has what the op wrote to it. */
static bool output_check(struct replay *replay, const struct op *op, int32_t slot)
{
    return op_direction(op->kind, &op->attrs, slot) == OPERAND_IN ||
           !replay->graph->tensors[graph_storage(replay->graph, op->operand[slot])].output ||
           owned_check(replay, tensor_range(replay, op->operand[slot]));
}

/* Checks that the current op does not touch what a copy in flight writes, and does not write what
 * that one reads. */
static bool async_copy_check(const struct replay *replay, const struct op *copy,
                             const struct op *op)
{
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        const bool writes =
            op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) != OPERAND_IN;
        for (int32_t slot = FETCH_X; op->operand[s] != TENSOR_NONE && slot <= FETCH_Y; slot++) {
            if (copy->operand[slot] == TENSOR_NONE)
                continue;
            const struct owned own = tensor_range(replay, op->operand[s]);
            const struct owned flying = tensor_range(replay, copy->operand[slot]);
            if ((writes || slot == FETCH_Y) && own.start < flying.end && flying.start < own.end)
                return VIOLATION(replay, "%s uses %s before the wait",
                                 op_declaration(op->kind)->name,
                                 replay->graph->tensors[copy->operand[slot]].name);
        }
    }
    return true;
}

/* Checks the ops between the copy that the current op begins and its wait. */
static bool copy_check(const struct replay *replay, const struct op *copy)
{
    const struct program *program = &replay->graph->programs[replay->program];
    for (int32_t i = replay->op + 1; i < program->count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_WAIT && op->operand[WAIT_X] == copy->operand[FETCH_X] &&
            op->operand[WAIT_Y] == copy->operand[FETCH_Y])
            return true;
        if (!async_copy_check(replay, copy, op))
            return false;
    }
    return VIOLATION(replay, "nothing waits for %s",
                     replay->graph->tensors[copy->operand[FETCH_Y]].name);
}

/* Makes all claims before the last check: if two operands overlap, the earlier one has lost its
 * bytes. */
static bool op_replay(struct replay *replay, const struct op *op)
{
    return (!op_is_async_copy(op->kind) || copy_check(replay, op)) &&
           operands_all(replay, op, operand_read) && operands_all(replay, op, operand_claim) &&
           workspace_claim(replay) && operands_all(replay, op, operand_check_intact);
}

/* Before the first op: claims persistent storages and those that the host writes. */
static bool program_begin(struct replay *replay)
{
    const struct graph *graph = replay->graph;
    const struct program *program = &graph->programs[replay->program];
    replay->op = -1;
    replay->map.count = 0;
    memset(replay->begun, 0, (size_t)graph->tensor_count * sizeof replay->begun[0]);
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        bool here = tensor->lifetime == LIFETIME_RUN ||
                    (tensor->lifetime == LIFETIME_PHASE && tensor->phase == program->phase);
        if (tensor->base == TENSOR_NONE && here &&
            replay->plan->tensor[t].offset_bytes != PLAN_UNPLACED && !storage_claim(replay, t))
            return false;
    }
    for (int32_t i = 0; i < program->count; i++)
        if (!operands_all(replay, &program->ops[i], input_claim))
            return false;
    return true;
}

static bool address_inside(const struct plan *plan, const char *what, struct address at,
                           uint64_t bytes)
{
    const uint64_t alignment = plan->options.alignment_bytes, guard = plan->options.guard_bytes;
    const bool known =
        at.segment < plan->segment_count && plan->segment[at.segment].space == at.space;
    uint64_t size = known ? plan->segment[at.segment].size_bytes : 0;
    if (at.offset_bytes <= size && bytes <= size - at.offset_bytes &&
        guard <= size - at.offset_bytes - bytes && at.offset_bytes % alignment == 0)
        return true;
    return FAIL(false,
                "plan: %s lies at segment %d, byte %" PRIu64 ", with %" PRIu64
                " bytes: not aligned to %" PRIu64 " inside the segment's %" PRIu64 " bytes",
                what, at.segment, at.offset_bytes, bytes + guard, alignment, size);
}

static bool tensor_check(const struct plan *plan, int32_t t)
{
    const struct tensor *tensor = &plan->graph->tensors[t];
    struct address at = plan->tensor[t];
    if (at.offset_bytes != PLAN_UNPLACED && at.space != tensor->home)
        return FAIL(false, "plan: %s lies in the wrong memory", tensor->name);
    if (tensor->base == TENSOR_NONE) {
        return at.offset_bytes == PLAN_UNPLACED ||
               address_inside(plan, tensor->name, at, graph_tensor_bytes(plan->graph, t));
    }
    struct address base = plan->tensor[tensor->base];
    uint64_t inside = (uint64_t)tensor->view_offset * dtype_size_bytes(tensor->dtype);
    uint64_t expected =
        base.offset_bytes == PLAN_UNPLACED ? PLAN_UNPLACED : base.offset_bytes + inside;
    if (at.segment == base.segment && at.offset_bytes == expected)
        return true;
    return FAIL(false, "plan: view %s lies at byte %" PRIu64 ", expected %" PRIu64 " in its base",
                tensor->name, at.offset_bytes, expected);
}

static bool workspace_check(const struct plan *plan, int32_t program, int32_t i)
{
    struct op_call call;
    graph_call(plan->graph, &plan->graph->programs[program].ops[i], &call);
    const struct backend *device = plan->options.device;
    uint64_t granted = plan->workspace_bytes[program][i];
    uint64_t asked = device ? device->ops->workspace_bytes(device, &call) : 0;
    if (granted < asked)
        return FAIL(false,
                    "plan: program %s, op %" PRId32 " (%s): workspace of %" PRIu64
                    " bytes, the backend asks for %" PRIu64,
                    program_kind_name(plan->graph->programs[program].kind), i,
                    op_declaration(call.kind)->name, granted, asked);
    return granted == 0 || address_inside(plan, op_declaration(call.kind)->name,
                                          plan->workspace[program][i], granted);
}

/* Checks everything that needs no replay: segments, bounds, alignment, views, workspaces. */
static bool layout_check(const struct plan *plan)
{
    uint64_t sum = 0, largest = plan->options.largest_segment_bytes;
    for (int32_t k = 0; k < plan->segment_count; k++) {
        if (plan->segment[k].size_bytes >= PLAN_BYTES_MAX ||
            (largest != 0 && plan->segment[k].size_bytes > largest))
            return FAIL(false,
                        "plan: segment %" PRId32 " has %" PRIu64 " bytes, more than %" PRIu64, k,
                        plan->segment[k].size_bytes, largest);
        sum += plan->segment[k].size_bytes;
    }
    if (sum != plan->arena_bytes + plan->host_bytes)
        return FAIL(false, "plan: the segments have %" PRIu64 " bytes, the arenas %" PRIu64, sum,
                    plan->arena_bytes + plan->host_bytes);
    for (int32_t t = TENSOR_FIRST; t < plan->tensor_count; t++)
        if (!tensor_check(plan, t))
            return false;
    for (int32_t p = 0; p < plan->program_count; p++) {
        for (int32_t i = 0; i < plan->graph->programs[p].count; i++)
            if (!workspace_check(plan, p, i))
                return false;
    }
    return true;
}

bool plan_verify(const struct plan *plan)
{
    assert(plan->segment_count >= 0 && plan->segment_count <= BACKEND_SEGMENTS_MAX);
    if (!layout_check(plan))
        return false;
    struct replay replay = {.plan = plan, .graph = plan->graph};
    for (int32_t k = 1; k < plan->segment_count; k++)
        replay.segment_start[k] = replay.segment_start[k - 1] + plan->segment[k - 1].size_bytes;
    /* The map's ranges begin and end at bounds of tensors, guards and workspaces. */
    int64_t ops = 0;
    for (int32_t p = 0; p < plan->program_count; p++)
        ops = max_i64(ops, plan->graph->programs[p].count);
    replay.map.capacity = 4 * (plan->tensor_count + (int32_t)ops) + 4;
    bool good =
        HOSTMEM_NEW(plan, (size_t)replay.map.capacity, "plan verification", &replay.map.at) ==
            GT_OK &&
        HOSTMEM_NEW(plan, (size_t)plan->tensor_count, "plan verification", &replay.begun) == GT_OK;
    for (replay.program = 0; replay.program < plan->program_count && good; replay.program++) {
        const struct program *program = &plan->graph->programs[replay.program];
        good = program_begin(&replay);
        for (replay.op = 0; good && replay.op < program->count; replay.op++)
            good = op_replay(&replay, &program->ops[replay.op]);
        replay.op = program->count - 1;
        for (int32_t i = 0; good && i < program->count; i++)
            good = operands_all(&replay, &program->ops[i], output_check);
    }
    hostmem_free(replay.begun);
    hostmem_free(replay.map.at);
    return good;
}
