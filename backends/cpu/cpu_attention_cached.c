/* attention_cached: new keys and values go to the cache, then the new queries attend to all of it.
 *
 * The arithmetic is attention_forward's band, with keys and values read from the cache; prefill and decode differ in
 * the number of rows only.
 */
#include "backends/cpu/cpu_attention.h"

#include <string.h>

CPU_SUPPORTS_ANY(attention_cached)

size_t CPU_NAME(cpu_attention_cached_workspace_bytes)(const struct backend *backend, const struct op_call *call)
{
    const struct attention_shape shape = attention_shape_of(call, &call->operand[ATTENTION_CACHED_QKV]);
    return (size_t)cpu_from(backend)->threads * attention_band_floats(shape.padded) * sizeof(float);
}

enum gt_status CPU_NAME(cpu_attention_cached_run)(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct attention_shape shape = attention_shape_of(call, &call->operand[ATTENTION_CACHED_QKV]);
    const float *qkv = cpu_operand(backend, call, ATTENTION_CACHED_QKV);
    const union scalar_word *scalars = cpu_operand(backend, call, ATTENTION_CACHED_SCALARS);
    float *cache = cpu_operand(backend, call, ATTENTION_CACHED_CACHE);
    float *y = cpu_operand(backend, call, ATTENTION_CACHED_Y);
    const int64_t size = shape.head_size, width = shape.kv_heads * size;
    const int64_t capacity = call->operand[ATTENTION_CACHED_CACHE].dims[2], position = scalars[SCALAR_POSITION].i;
    float *keys = cache, *values = cache + shape.samples * capacity * width;
    assert(position >= 0 && position + shape.time <= capacity);
    for (int64_t n = 0; n < shape.samples * shape.time; n++) {
        const int64_t row = n / shape.time * capacity + position + n % shape.time;
        const float *source = qkv + n * shape.row + shape.heads * size;
        memcpy(keys + row * width, source, (size_t)width * sizeof *keys);
        memcpy(values + row * width, source + width, (size_t)width * sizeof *values);
    }
    const size_t thread_floats = attention_band_floats(shape.padded);
    float *scratch = cpu_workspace(backend, call, (size_t)cpu_from(backend)->threads * thread_floats * sizeof(float));
    const int64_t bands = size_ceil_div(shape.time, ATTENTION_BAND), per_sample = shape.heads * bands;
    const int64_t work = shape.samples * shape.time * shape.heads * size * (position + shape.time);
    (void)work; /* only OpenMP looks at it */
    CPU_OMP(omp parallel for schedule(dynamic, 1) num_threads(cpu_threads_for(backend, work)))
    for (int64_t item = 0; item < shape.samples * per_sample; item++) {
        const int64_t sample = item / per_sample, head = item % per_sample / bands;
        const int64_t first = (bands - 1 - item % bands) * ATTENTION_BAND, n = sample * shape.time + first;
        const int64_t source = sample * capacity * width + head / shape.group * size;
        const struct attention_band band = {
            .q = qkv + n * shape.row + head * size,
            .k = keys + source,
            .v = values + source,
            .q_row = shape.row,
            .k_row = width,
            .v_row = width,
            .y = y + n * shape.heads * size + head * size,
            .y_row = shape.heads * size,
            .first = first,
            .rows = cpu_min(ATTENTION_BAND, shape.time - first),
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
