/* attention_cached: new keys and values are appended to the cache, then the new queries attend to all of it.
 *
 * The arithmetic is attention_forward's band, with keys and values read from the cache.  Prefill and decode differ only
 * in the number of rows.  A cache with another dtype than qkv stores rounded keys and values.
 */
#include "backends/cpu/cpu_attention.h"

#include <string.h>

/* to[at ..] = from[source ..], `count` elements, converted if the dtypes differ. */
static void row_copy(struct cpu_floats to, int64_t at, struct cpu_floats from, int64_t source, int64_t count)
{
    const size_t bytes = dtype_size_bytes(to.dtype);
    if (to.dtype == from.dtype) {
        memcpy((char *)to.memory + (size_t)at * bytes, (const char *)from.memory + (size_t)source * bytes,
               (size_t)count * bytes);
        return;
    }
    float buffer[CPU_BLOCK];
    for (int64_t i = 0; i < count; i += CPU_BLOCK) {
        const int64_t piece = min_i64(CPU_BLOCK, count - i);
        cpu_floats_write(to, at + i, piece, cpu_floats_read(from, source + i, piece, buffer));
    }
}

static size_t attention_cached_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct attention_shape shape = attention_shape_of(call, &call->operand[ATTENTION_CACHED_QKV]);
    return (size_t)cpu_from(backend)->threads * attention_band_floats(shape.padded) * sizeof(float);
}

static enum gt_status attention_cached_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct attention_shape shape = attention_shape_of(call, &call->operand[ATTENTION_CACHED_QKV]);
    const struct cpu_floats qkv = cpu_floats_of(backend, call, ATTENTION_CACHED_QKV);
    const struct cpu_floats cache = cpu_floats_of(backend, call, ATTENTION_CACHED_CACHE);
    const struct cpu_floats y = cpu_floats_of(backend, call, ATTENTION_CACHED_Y);
    const union scalar_word *scalars = cpu_operand(backend, call, ATTENTION_CACHED_SCALARS);
    const int64_t size = shape.head_size, width = shape.kv_heads * size;
    const int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], position = scalars[SCALAR_POSITION].i;
    const int64_t values = shape.samples * capacity * width; /* keys precede values */
    assert(position >= 0 && position + shape.time <= capacity);
    for (int64_t n = 0; n < shape.samples * shape.time; n++) {
        const int64_t row = n / shape.time * capacity + position + n % shape.time;
        const int64_t source = n * shape.row + shape.heads * size;
        row_copy(cache, row * width, qkv, source, width);
        row_copy(cache, values + row * width, qkv, source + width, width);
    }
    const size_t thread_floats = attention_band_floats(shape.padded);
    float *scratch = cpu_workspace(backend, call, (size_t)cpu_from(backend)->threads * thread_floats * sizeof(float));
    const int64_t bands = size_ceil_div(shape.time, ATTENTION_BAND), per_sample = shape.heads * bands;
    const int64_t work = shape.samples * shape.time * shape.heads * size * (position + shape.time);
    (void)work; /* used only with OpenMP */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(backend, work)))
    for (int64_t item = 0; item < shape.samples * per_sample; item++) {
        const int64_t sample = item / per_sample, head = item % per_sample / bands;
        const int64_t first = (bands - 1 - item % bands) * ATTENTION_BAND, n = sample * shape.time + first;
        const int64_t source = sample * capacity * width + head / shape.group * size;
        const struct attention_band band = {
            .q = {qkv, n * shape.row + head * size, shape.row},
            .k = {cache, source, width},
            .v = {cache, values + source, width},
            .y = {y, (n * shape.heads + head) * size, shape.heads * size},
            .first = first,
            .rows = min_i64(ATTENTION_BAND, shape.time - first),
            .position = position,
            .head_size = size,
            .padded = shape.padded,
            .time = shape.time,
            .scale = shape.scale,
        };
        CPU_NAME(cpu_attention_band)(&band, scratch + (size_t)cpu_thread_index() * thread_floats);
    }
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_attention_cached) = {.workspace_bytes = attention_cached_workspace_bytes,
                                                       .run = attention_cached_run};
