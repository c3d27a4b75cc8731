/* gated_delta_forward and gated_delta_cached: the heads of one key head of one sample at a time,
 * chunk by chunk.
 *
 * S of the heads stays in scratch.  The products follow src/ops/delta.c.  One thread computes an
 * item alone, so that no sum depends on the number of threads.
 */
#include "backends/cpu/cpu_delta.h"

struct delta_item {
    const struct delta_shape *shape;
    struct cpu_floats x, y;
    const float *decay;
    const int32_t *begin;
    float *states, *state; /* one of them is set: `states` gets S of each chunk's beginning, `state`
                              the last S */
    bool fresh;            /* S is 0 at first */
    int64_t sample, key_head;
};

static int64_t scratch_floats(const struct delta_shape *shape)
{
    return delta_scratch_floats(shape) + (shape->group + 1) * shape->padded * shape->padded;
}

/* Copies S [D, D] to or from padded rows. */
static void state_move(const struct delta_shape *shape, float *padded, float *packed, bool out)
{
    const size_t bytes = (size_t)shape->size * sizeof(float);
    for (int64_t d = 0; d < shape->size; d++) {
        float *in_scratch = padded + d * shape->padded, *in_memory = packed + d * shape->size;
        memcpy(out ? in_memory : in_scratch, out ? in_scratch : in_memory, bytes);
    }
}

/* y = c S'q + sum G (q.k) u. */
static void chunk_read(const struct delta_item *item, const struct delta_gates *gates, int64_t n,
                       int64_t rows, int64_t head, float *state, const struct delta_scratch *s)
{
    const struct delta_shape *shape = item->shape;
    const int64_t padded = shape->padded;
    cpu_tile_multiply(delta_tile(s->q, padded), delta_tile(state, padded),
                      delta_tile(s->other, padded), rows, padded, padded, false);
    for (int64_t i = 0; i < rows; i++) {
        float *y = s->other + i * padded;
        CPU_SIMD(d, padded)
            y[d] *= gates->from[i];
    }
    cpu_tile_multiply(delta_tile(s->read, DELTA_ROWS), delta_tile(s->u, padded),
                      delta_tile(s->other, padded), rows, padded, rows, true);
    for (int64_t i = 0; i < rows; i++)
        cpu_floats_write(item->y, ((n + i) * shape->heads + head) * shape->size, shape->size,
                         s->other + i * padded);
}

/* S <- c_n S + sum G_nj k_j u_j'. */
static void chunk_write(const struct delta_shape *shape, const struct delta_gates *gates,
                        int64_t rows, float *state, const struct delta_scratch *s)
{
    const int64_t padded = shape->padded;
    for (int64_t i = 0; i < rows; i++) {
        CPU_SIMD(d, padded)
            s->other[i * padded + d] = s->k[i * padded + d] * gates->to[i];
    }
    CPU_SIMD(e, padded * padded)
        state[e] *= gates->left;
    cpu_tile_multiply((struct cpu_tile){s->other, 1, padded}, delta_tile(s->u, padded),
                      delta_tile(state, padded), padded, padded, rows, true);
}

static void item_run(const struct delta_item *item, float *memory)
{
    const struct delta_shape *shape = item->shape;
    const int64_t square = shape->padded * shape->padded, packed = shape->size * shape->size,
                  first_head = item->sample * shape->heads + item->key_head * shape->group;
    struct delta_scratch s;
    struct delta_gates gates;
    float *states = delta_scratch_cut(memory, shape, &s);
    memset(states, 0, (size_t)(shape->group * square) * sizeof *states);
    for (int64_t h = 0; h < shape->group && !item->fresh; h++)
        state_move(shape, states + h * square, item->state + (first_head + h) * packed, false);
    for (int64_t chunk = 0; chunk < shape->chunks; chunk++) {
        const int64_t first = chunk * DELTA_ROWS, rows = min_i64(DELTA_ROWS, shape->time - first),
                      sample = item->sample * shape->time, n = sample + first;
        delta_keys_make(shape, item->x, n, rows, item->key_head, &s);
        for (int64_t h = 0; h < shape->group; h++) {
            const int64_t head = item->key_head * shape->group + h;
            float *state = states + h * square;
            if (item->states != NULL)
                state_move(shape, state,
                           item->states + ((first_head + h) * shape->chunks + chunk) * packed,
                           true);
            delta_gates_make(shape, item->x, item->decay, item->begin, sample, first, rows, head,
                             &gates);
            delta_squares_make(&gates, rows, &s);
            delta_update_make(shape, item->x, n, rows, head, &gates, state, &s);
            chunk_read(item, &gates, n, rows, head, state, &s);
            chunk_write(shape, &gates, rows, state, &s);
        }
    }
    for (int64_t h = 0; h < shape->group && item->state != NULL; h++)
        state_move(shape, states + h * square, item->state + (first_head + h) * packed, true);
}

/* The workspace has the items' scratch, and decay in fp32 if it has 16 bits. */
static size_t delta_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct delta_shape shape = delta_shape_of(call, GATED_DELTA_FORWARD_X);
    return (size_t)(cpu->threads * scratch_floats(&shape) + 2 * shape.heads) * sizeof(float);
}

static void delta_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct delta_shape shape = delta_shape_of(call, GATED_DELTA_FORWARD_X);
    const bool is_cached = call->kind == OP_GATED_DELTA_CACHED;
    const struct cpu_floats decay = cpu_floats_of(cpu, call, GATED_DELTA_FORWARD_DECAY);
    const union scalar_word *scalars =
        is_cached ? cpu_operand(cpu, call, GATED_DELTA_CACHED_SCALARS) : NULL;
    float *scratch = cpu_workspace(cpu, call, delta_workspace_bytes(cpu, call));
    const struct delta_item item = {
        .shape = &shape,
        .x = cpu_floats_of(cpu, call, GATED_DELTA_FORWARD_X),
        .y = cpu_floats_of(
            cpu, call, is_cached ? (int32_t)GATED_DELTA_CACHED_Y : (int32_t)GATED_DELTA_FORWARD_Y),
        .decay = cpu_floats_read(decay, 0, 2 * shape.heads, scratch),
        .begin = is_cached ? NULL : cpu_operand(cpu, call, GATED_DELTA_FORWARD_FIRST),
        .states = is_cached ? NULL : cpu_operand(cpu, call, GATED_DELTA_FORWARD_STATES),
        .state = is_cached ? cpu_operand(cpu, call, GATED_DELTA_CACHED_STATE) : NULL,
        .fresh = !is_cached || scalars[SCALAR_POSITION].i == 0,
    };
    const int64_t work = shape.samples * shape.time * shape.heads * shape.size * shape.size;
    (void)work; /* used only with OpenMP */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(cpu, work)))
    for (int64_t index = 0; index < shape.samples * shape.key_heads; index++) {
        struct delta_item of_index = item;
        of_index.sample = index / shape.key_heads;
        of_index.key_head = index % shape.key_heads;
        item_run(&of_index,
                 scratch + 2 * shape.heads + cpu_thread_index() * scratch_floats(&shape));
    }
}

const struct cpu_op CPU_NAME(cpu_gated_delta_forward) = {.workspace_bytes = delta_workspace_bytes,
                                                         .run = delta_run};
const struct cpu_op CPU_NAME(cpu_gated_delta_cached) = {.workspace_bytes = delta_workspace_bytes,
                                                        .run = delta_run};
