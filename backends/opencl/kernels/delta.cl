/* The gated delta net: short_conv has a work-item for each element; gated_delta has a group for
 * each head of a sample, or, in the backward pass, for each key head (backends/delta.h).
 */
#include "backends/gelu.h"

struct delta_tensor {
    __global uchar *memory;
    ulong at;
    int dtype;
};

#define DELTA_GLOBAL __global
#define DELTA_FUNCTION GT_INLINE
#define DELTA_ITEM ((int)get_local_id(0))
#define DELTA_ITEMS GT_GROUP
#define DELTA_SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define delta_exp(x) cpu_exp(x)
#define delta_log(x) log(x)
#define delta_sqrt(x) sqrt(x)

GT_INLINE float delta_load(const struct delta_tensor *tensor, long i)
{
    return gt_load(tensor->memory, tensor->at + (ulong)i, tensor->dtype);
}

GT_INLINE void delta_store(const struct delta_tensor *tensor, long i, float value)
{
    gt_store(tensor->memory, tensor->at + (ulong)i, tensor->dtype, value);
}

#include "backends/delta.h"

/* ---- gated_delta ---- */

#define DELTA_TENSOR_OF(out, name)  \
    do {                            \
        (out).memory = name;        \
        (out).at = name##_at;       \
        (out).dtype = name##_dtype; \
    } while (0)
#define DELTA_VALUES long time, long chunks, int heads, int key_heads, int size, int row

/* Declares a kernel's net.  `values` is its y or dy; `gradients` is its dx, or y where it has no
 * dx. */
#define DELTA_NET(net, values, gradients) \
    struct delta_net net;                 \
    net.time = time;                      \
    net.chunks = chunks;                  \
    net.heads = heads;                    \
    net.key_heads = key_heads;            \
    net.size = size;                      \
    net.row = row;                        \
    net.first = 0;                        \
    net.has_first = 0;                    \
    net.states = 0;                       \
    net.state = 0;                        \
    net.is_cached = 0;                    \
    net.continues = 0;                    \
    DELTA_TENSOR_OF(net.x, x);            \
    DELTA_TENSOR_OF(net.decay, decay);    \
    DELTA_TENSOR_OF(net.read, values);    \
    DELTA_TENSOR_OF(net.dx, gradients)

GT_KERNEL(GT_GROUP)
gt_gated_delta_forward(GT_TENSOR(x), GT_TENSOR(decay), GT_TENSOR(y), GT_ARRAY(float, states),
                       GT_TENSOR(first), GT_ARRAY(float, work), DELTA_VALUES)
{
    DELTA_NET(net, y, y);
    const long index = gt_group_index(0);
    net.states = states + states_at;
    net.has_first = first_dtype >= 0;
    net.first = (__global const int *)first + first_at;
    delta_forward(&net, index, work + work_at + index * (DELTA_FORWARD_FLOATS((long)size)));
}

GT_KERNEL(GT_GROUP)
gt_gated_delta_cached(GT_TENSOR(x), GT_TENSOR(decay), GT_SCALARS, GT_ARRAY(float, state),
                      GT_TENSOR(y), GT_ARRAY(float, work), DELTA_VALUES)
{
    DELTA_NET(net, y, y);
    const long index = gt_group_index(0);
    net.state = state + state_at;
    net.is_cached = 1;
    net.continues = GT_SCALAR(POSITION).i > 0;
    delta_forward(&net, index, work + work_at + index * (DELTA_FORWARD_FLOATS((long)size)));
}

/* The workspace begins with each sample's gradients of decay. */
GT_KERNEL(GT_GROUP)
gt_gated_delta_backward(GT_TENSOR(x), GT_TENSOR(decay), GT_TENSOR(dy), GT_ARRAY(float, states),
                        GT_TENSOR(first), GT_TENSOR(dx), GT_ARRAY(float, work), DELTA_VALUES,
                        long samples)
{
    DELTA_NET(net, dy, dx);
    const long index = gt_group_index(0), sums = 2 * (long)heads;
    net.states = states + states_at;
    net.has_first = first_dtype >= 0;
    net.first = (__global const int *)first + first_at;
    delta_backward(&net, index,
                   work + work_at + samples * sums +
                       index * (DELTA_BACKWARD_FLOATS((long)size, heads / key_heads)),
                   work + work_at + index / key_heads * sums);
}

/* ---- short_conv: x of column c, `back` rows before row n, of its document or of the cache ---- */

#define CONV_VALUES long time, long columns, long width, int taps

GT_INLINE float gt_conv_x(__global const uchar *x, ulong x_at, int x_dtype,
                          __global const uchar *first, ulong first_at, int first_dtype, long n,
                          long c, int back, long time, long columns)
{
    const long begin = first_dtype >= 0 ? ((__global const int *)first)[first_at + (ulong)n] : 0;
    return n % time - back >= begin ? GT_LOAD(x, (n - back) * columns + c) : 0.0f;
}
#define CONV_X(n, c, back) \
    gt_conv_x(x, x_at, x_dtype, first, first_at, first_dtype, n, c, back, time, columns)

/* Sums a row's taps, beginning with the earliest row. */
#define CONV_SUM(u, n, c)                           \
    float u = 0.0f;                                 \
    for (int back_ = taps - 1; back_ >= 0; back_--) \
    u += GT_LOAD(weight, (c)*taps + taps - 1 - back_) * CONV_X(n, c, back_)

__kernel void gt_short_conv_forward(GT_TENSOR(x), GT_TENSOR(weight), GT_TENSOR(y), GT_TENSOR(first),
                                    CONV_VALUES)
{
    long n;
    const long c = gt_column(columns, &n);
    if (c >= columns)
        return;
    if (c >= width) {
        GT_STORE(y, n * columns + c, GT_LOAD(x, n * columns + c));
        return;
    }
    CONV_SUM(u, n, c);
    GT_STORE(y, n * columns + c, gate_of(u, GATE_SILU));
}

/* A work-item processes a column of a sample, row by row. */
__kernel void gt_short_conv_cached(GT_TENSOR(x), GT_TENSOR(weight), GT_SCALARS, GT_TENSOR(cache),
                                   GT_TENSOR(y), CONV_VALUES)
{
    long sample;
    float before[8]; /* OP_CONV_TAPS */
    const long c = gt_column(columns, &sample), rows = taps - 1;
    if (c >= columns)
        return;
    for (int j = 0; j < rows && c < width; j++)
        before[j] =
            GT_SCALAR(POSITION).i > 0 ? GT_LOAD(cache, (sample * rows + j) * width + c) : 0.0f;
    for (long t = 0; t < time; t++) {
        const long at = (sample * time + t) * columns + c;
        float u = 0.0f;
        before[rows] = GT_LOAD(x, at);
        for (int j = 0; j < taps && c < width; j++)
            u += GT_LOAD(weight, c * taps + j) * before[j];
        GT_STORE(y, at, c < width ? gate_of(u, GATE_SILU) : before[rows]);
        for (int j = 0; j < rows; j++)
            before[j] = before[j + 1];
    }
    for (int j = 0; j < rows && c < width; j++)
        GT_STORE(cache, (sample * rows + j) * width + c, before[j]);
}

__kernel void gt_short_conv_backward(GT_TENSOR(dy), GT_TENSOR(weight), GT_TENSOR(x),
                                     GT_TENSOR(first), GT_TENSOR(dx), CONV_VALUES)
{
    long n;
    const long c = gt_column(columns, &n), t = n % time;
    if (c >= columns)
        return;
    float sum = c < width ? 0.0f : GT_LOAD(dy, n * columns + c);
    for (int back = 0; back < taps && c < width && t + back < time; back++) {
        const long reader = n + back;
        if (first_dtype >= 0 && ((__global const int *)first)[first_at + (ulong)reader] > t)
            break;
        CONV_SUM(u, reader, c);
        sum += GT_LOAD(weight, c * taps + taps - 1 - back) *
               (GT_LOAD(dy, reader * columns + c) * gate_slope(u, GATE_SILU));
    }
    GT_STORE(dx, n * columns + c, sum);
}

/* parts[part, c, taps]: the contribution of the part's rows. */
__kernel void gt_short_conv_partial(GT_TENSOR(dy), GT_TENSOR(weight), GT_TENSOR(x),
                                    GT_TENSOR(first), GT_ARRAY(float, parts), CONV_VALUES,
                                    long rows, long part_rows)
{
    long part;
    float sum[8]; /* OP_CONV_TAPS */
    const long c = gt_column(width, &part), end = min((part + 1) * part_rows, rows);
    if (c >= width)
        return;
    for (int j = 0; j < taps; j++)
        sum[j] = 0.0f;
    for (long n = part * part_rows; n < end; n++) {
        CONV_SUM(u, n, c);
        const float du = GT_LOAD(dy, n * columns + c) * gate_slope(u, GATE_SILU);
        for (int j = 0; j < taps; j++)
            sum[j] += du * CONV_X(n, c, taps - 1 - j);
    }
    for (int j = 0; j < taps; j++)
        GT_AT(parts, (part * width + c) * taps + j) = sum[j];
}
