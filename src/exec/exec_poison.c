/* Poison and guard bands.
 *
 * Lifetimes come from graph_ranges(), computed once per program.  A storage is fresh before its
 * first op, except inputs, which the host has written, and dead after its last op, except outputs.
 * A guard is written when its tensor becomes live, and checked when it dies.  Guards of tensors
 * that outlive the program are checked after every program.
 */

#include "exec/exec_poison.h"

#include "backend/backend_call.h"
#include "base/size.h"

enum { CHUNK_BYTES = 65536, CHUNK_WORDS = CHUNK_BYTES / 4 };

struct exec_poison {
    struct backend *device;
    const struct plan *plan;
    uint32_t *chunk; /* [CHUNK_WORDS]: of a pattern, or read back from a guard */
    struct tensor_range *ranges[GRAPH_PROGRAMS_MAX];
    int32_t phase; /* enum program_phase, or -1 before the first */
};

static enum gt_status buffers_create(struct exec_poison *poison)
{
    TRY(HOSTMEM_NEW(poison, CHUNK_WORDS, "poison", &poison->chunk));
    const struct graph *graph = poison->plan->graph;
    for (int32_t p = 0; p < graph->program_count; p++) {
        TRY(HOSTMEM_NEW(poison, (size_t)graph->tensor_count, "poison ranges", &poison->ranges[p]));
        graph_ranges(graph, p, poison->ranges[p]);
    }
    return GT_OK;
}

enum gt_status exec_poison_create(const void *owner, struct backend *device,
                                  const struct plan *plan, struct exec_poison **out)
{
    struct exec_poison *poison;
    TRY(HOSTMEM_NEW(owner, 1, "poison", &poison));
    assert(plan->options.guard_bytes % sizeof(uint32_t) == 0);
    poison->device = device;
    poison->plan = plan;
    poison->phase = -1;
    enum gt_status status = buffers_create(poison);
    return FINISH(status, out, poison, hostmem_free);
}

static enum gt_status range_fill(struct exec_poison *poison, struct address at, uint64_t bytes,
                                 uint32_t word)
{
    for (size_t i = 0; i < CHUNK_WORDS && 4 * i < bytes; i++)
        poison->chunk[i] = word;
    while (bytes > 0) {
        size_t count = bytes < CHUNK_BYTES ? (size_t)bytes : CHUNK_BYTES;
        TRY(backend_upload(poison->device, at, poison->chunk, count));
        at.offset_bytes += count;
        bytes -= count;
    }
    return GT_OK;
}

/* A storage or a workspace. */
struct piece {
    const char *name;
    struct address at;
    uint64_t bytes;
};

static struct piece tensor_piece(const struct exec_poison *poison, int32_t tensor)
{
    const struct graph *graph = poison->plan->graph;
    return (struct piece){graph->tensors[tensor].name, poison->plan->tensor[tensor],
                          graph_tensor_bytes(graph, tensor)};
}

static struct address guard_address(const struct exec_poison *poison, const struct piece *piece)
{
    struct address at = piece->at;
    at.offset_bytes += size_round_up(piece->bytes, poison->plan->options.alignment_bytes);
    return at;
}

static enum gt_status guard_fill(struct exec_poison *poison, struct piece piece)
{
    return range_fill(poison, guard_address(poison, &piece), poison->plan->options.guard_bytes,
                      POISON_GUARD);
}

/* `op` is the index of the current op, or -1 at the program's end. */
static enum gt_status guard_check(struct exec_poison *poison, struct piece piece, int32_t program,
                                  int32_t op)
{
    struct address guard = guard_address(poison, &piece);
    const struct program *of = &poison->plan->graph->programs[program];
    uint64_t bytes = poison->plan->options.guard_bytes;
    for (uint64_t done = 0; done < bytes; done += CHUNK_BYTES, guard.offset_bytes += CHUNK_BYTES) {
        size_t count = bytes - done < CHUNK_BYTES ? (size_t)(bytes - done) : CHUNK_BYTES, i = 0;
        TRY(backend_download(poison->device, poison->chunk, guard, count));
        while (i < count / 4 && poison->chunk[i] == POISON_GUARD)
            i++;
        if (i < count / 4)
            return FAIL(GT_FAILURE,
                        "program %s, %s %" PRId32 " (%s): the guard of %s was overwritten %" PRIu64
                        " bytes beyond its end",
                        program_kind_name(of->kind), op < 0 ? "after op" : "op",
                        op < 0 ? of->count - 1 : op,
                        op < 0 ? "its last" : op_declaration(of->ops[op].kind)->name, piece.name,
                        done + 4 * i);
    }
    return GT_OK;
}

static enum gt_status piece_begin(struct exec_poison *poison, struct piece piece)
{
    TRY(range_fill(poison, piece.at, piece.bytes, POISON_FRESH));
    return guard_fill(poison, piece);
}

/* Returns true for a placed storage of that lifetime and, unless it is LIFETIME_RUN, of that phase.
 */
static bool storage_is(const struct exec_poison *poison, int32_t tensor,
                       enum tensor_lifetime lifetime, int32_t phase)
{
    const struct tensor *t = &poison->plan->graph->tensors[tensor];
    return t->base == TENSOR_NONE && t->lifetime == lifetime &&
           (lifetime == LIFETIME_RUN || (int32_t)t->phase == phase) &&
           poison->plan->tensor[tensor].offset_bytes != UINT64_MAX;
}

enum gt_status exec_poison_arena(struct exec_poison *poison)
{
    const struct plan *plan = poison->plan;
    for (int32_t k = 0; k < plan->segment_count; k++) {
        struct address at = {.space = (uint8_t)plan->segment[k].space, .segment = (uint8_t)k};
        TRY(range_fill(poison, at, plan->segment[k].size_bytes, POISON_FRESH));
    }
    for (int32_t t = TENSOR_FIRST; t < plan->tensor_count; t++)
        if (storage_is(poison, t, LIFETIME_RUN, 0))
            TRY(guard_fill(poison, tensor_piece(poison, t)));
    return GT_OK;
}

enum gt_status exec_poison_phase(struct exec_poison *poison, enum program_phase phase)
{
    if (poison->phase == (int32_t)phase)
        return GT_OK;
    poison->phase = (int32_t)phase;
    for (int32_t t = TENSOR_FIRST; t < poison->plan->tensor_count; t++)
        if (storage_is(poison, t, LIFETIME_PHASE, poison->phase))
            TRY(piece_begin(poison, tensor_piece(poison, t)));
    return GT_OK;
}

enum gt_status exec_poison_program_begin(struct exec_poison *poison, int32_t program)
{
    const struct graph *graph = poison->plan->graph;
    TRY(exec_poison_phase(poison, graph->programs[program].phase));
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++)
        if (graph->tensors[t].base == TENSOR_NONE &&
            graph->tensors[t].lifetime == LIFETIME_PROGRAM &&
            poison->ranges[program][t].first < 0 && poison->ranges[program][t].last >= 0)
            TRY(guard_fill(poison, tensor_piece(poison, t)));
    return GT_OK;
}

static enum gt_status piece_end(struct exec_poison *poison, struct piece piece, int32_t program,
                                int32_t op)
{
    TRY(guard_check(poison, piece, program, op));
    return range_fill(poison, piece.at, piece.bytes, POISON_DEAD);
}

enum gt_status exec_poison_op(struct exec_poison *poison, int32_t program, int32_t op, bool begins)
{
    const struct graph *graph = poison->plan->graph;
    const struct op *at = &graph->programs[program].ops[op];
    const struct piece workspace = {"the op's workspace", poison->plan->workspace[program][op],
                                    poison->plan->workspace_bytes[program][op]};
    for (int32_t s = 0; s < op_declaration(at->kind)->operands; s++) {
        if (at->operand[s] == TENSOR_NONE)
            continue;
        const int32_t storage = graph_storage(graph, at->operand[s]);
        const struct tensor_range *range = &poison->ranges[program][storage];
        if (graph->tensors[storage].lifetime == LIFETIME_PROGRAM &&
            (begins ? range->first : range->last) == op)
            TRY(begins ? piece_begin(poison, tensor_piece(poison, storage))
                       : piece_end(poison, tensor_piece(poison, storage), program, op));
    }
    if (workspace.bytes == 0)
        return GT_OK;
    return begins ? piece_begin(poison, workspace) : piece_end(poison, workspace, program, op);
}

enum gt_status exec_poison_program_end(struct exec_poison *poison, int32_t program)
{
    const struct graph *graph = poison->plan->graph;
    const struct program *of = &graph->programs[program];
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        bool output = graph->tensors[t].base == TENSOR_NONE &&
                      graph->tensors[t].lifetime == LIFETIME_PROGRAM &&
                      poison->ranges[program][t].last == of->count;
        if (output || storage_is(poison, t, LIFETIME_RUN, 0) ||
            storage_is(poison, t, LIFETIME_PHASE, (int32_t)of->phase))
            TRY(guard_check(poison, tensor_piece(poison, t), program, -1));
    }
    return GT_OK;
}
