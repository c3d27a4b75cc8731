/* The gated delta net: short_conv, a thread for each element, and gated_delta, a block for each
 * head of a sample, in the backward for each key head (backends/delta.h); and the sums of parts
 * that are plain rows.
 */
#include "backends/cuda/cuda_floats.h"
#include "backends/gelu.h"

struct delta_tensor {
    struct cuda_floats of;
};

#define DELTA_GLOBAL
#define DELTA_FUNCTION DEVICE
#define DELTA_ITEM ((int)threadIdx.x)
#define DELTA_ITEMS ((int)blockDim.x)
#define DELTA_SYNC() __syncthreads()
#define delta_exp(x) expf(x)
#define delta_log(x) logf(x)
#define delta_sqrt(x) sqrtf(x)

DEVICE float delta_load(const struct delta_tensor *tensor, long i)
{
    return cuda_read_one(tensor->of, i);
}

DEVICE void delta_store(const struct delta_tensor *tensor, long i, float value)
{
    cuda_write_one(tensor->of, i, value);
}

#include "backends/delta.h"

#define DELTA_THREADS 256

/* ---- gated_delta; `read` is the slot of y or dy ---- */

DEVICE struct delta_net net_of(const struct cuda_args &args, int read)
{
    struct delta_net net;
    net.x.of = args.operand[GATED_DELTA_FORWARD_X];
    net.decay.of = args.operand[GATED_DELTA_FORWARD_DECAY];
    net.read.of = net.dx.of = args.operand[read];
    net.first = NULL;
    net.states = net.state = NULL;
    net.time = args.attrs.time;
    net.chunks = (args.attrs.time + DELTA_CHUNK - 1) / DELTA_CHUNK;
    net.heads = args.attrs.heads;
    net.key_heads = args.attrs.kv_heads;
    net.row = (int)args.columns;
    net.size = (net.row - 2 * net.heads) / (net.heads + 2 * net.key_heads);
    net.has_first = net.is_cached = net.continues = 0;
    return net;
}

static __global__ void __launch_bounds__(DELTA_THREADS, 1)
    gated_delta_forward(const struct cuda_args args)
{
    struct delta_net net = net_of(args, GATED_DELTA_FORWARD_Y);
    const int64_t size = net.size;
    net.states = CUDA_POINTER(float, GATED_DELTA_FORWARD_STATES);
    net.first = CUDA_POINTER(const int, GATED_DELTA_FORWARD_FIRST);
    net.has_first = net.first != NULL;
    delta_forward(&net, blockIdx.x, args.workspace + blockIdx.x * DELTA_FORWARD_FLOATS(size));
}

static __global__ void __launch_bounds__(DELTA_THREADS, 1)
    gated_delta_cached(const struct cuda_args args)
{
    struct delta_net net = net_of(args, GATED_DELTA_CACHED_Y);
    const int64_t size = net.size;
    net.state = CUDA_POINTER(float, GATED_DELTA_CACHED_STATE);
    net.is_cached = 1;
    net.continues =
        CUDA_POINTER(const union scalar_word, GATED_DELTA_CACHED_SCALARS)[SCALAR_POSITION].i > 0;
    delta_forward(&net, blockIdx.x, args.workspace + blockIdx.x * DELTA_FORWARD_FLOATS(size));
}

/* The gradients of decay, of each sample, are at the workspace's beginning. */
static __global__ void __launch_bounds__(DELTA_THREADS, 1)
    gated_delta_backward(const struct cuda_args args)
{
    struct delta_net net = net_of(args, GATED_DELTA_BACKWARD_DY);
    const int64_t size = net.size, group = net.heads / net.key_heads, sums = 2 * net.heads,
                  samples = args.rows / net.time;
    net.dx.of = args.operand[GATED_DELTA_BACKWARD_DX];
    net.states = CUDA_POINTER(float, GATED_DELTA_BACKWARD_STATES);
    net.first = CUDA_POINTER(const int, GATED_DELTA_BACKWARD_FIRST);
    net.has_first = net.first != NULL;
    delta_backward(&net, blockIdx.x,
                   args.workspace + samples * sums +
                       blockIdx.x * DELTA_BACKWARD_FLOATS(size, group),
                   args.workspace + blockIdx.x / net.key_heads * sums);
}

#define DELTA_LAUNCHER(name) \
    CUDA_LAUNCHER(name, name, dim3((unsigned)args.walk.blocks), dim3(DELTA_THREADS))
DELTA_LAUNCHER(gated_delta_forward)
DELTA_LAUNCHER(gated_delta_cached)
DELTA_LAUNCHER(gated_delta_backward)

/* operand[0][columns] (+)= the sum of workspace[parts, columns]. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2) rows_add(const struct cuda_args args)
{
    const int64_t c = (int64_t)blockIdx.x * CUDA_WALK_THREADS + threadIdx.x;
    float sum = 0.0f;
    if (c >= args.columns)
        return;
    for (int64_t part = 0; part < args.parts; part++)
        sum += args.workspace[part * args.columns + c];
    cuda_write_one(args.operand[0], c,
                   CUDA_ACCUMULATES(0) ? cuda_read_one(args.operand[0], c) + sum : sum);
}
CUDA_WALK_LAUNCHER(rows_add, rows_add)

/* ---- short_conv ---- */

/* The rows of a column: of x, its weights, and where a row's document begins. */
struct conv {
    struct cuda_floats x, weight;
    const int *first;
    int64_t time, columns, width;
    int32_t taps;
};

DEVICE struct conv conv_of(const struct cuda_args &args, int x, int first)
{
    const struct conv conv = {args.operand[x],
                              args.operand[SHORT_CONV_FORWARD_WEIGHT],
                              first < 0 ? NULL : (const int *)args.operand[first].memory,
                              args.attrs.time,
                              args.columns,
                              args.strip_floats,
                              args.attrs.taps};
    return conv;
}

/* Returns x of column c, `back` rows before row n. */
DEVICE float conv_x(const struct conv &conv, int64_t n, int64_t c, int32_t back)
{
    const int64_t begin = conv.first != NULL ? conv.first[n] : 0;
    return n % conv.time - back >= begin ? cuda_read_one(conv.x, (n - back) * conv.columns + c)
                                         : 0.0f;
}

DEVICE float conv_sum(const struct conv &conv, int64_t n, int64_t c)
{
    float sum = 0.0f;
    for (int32_t j = 0; j < conv.taps; j++)
        sum +=
            cuda_read_one(conv.weight, c * conv.taps + j) * conv_x(conv, n, c, conv.taps - 1 - j);
    return sum;
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2)
    short_conv_forward(const struct cuda_args args)
{
    const struct conv conv = conv_of(args, SHORT_CONV_FORWARD_X, SHORT_CONV_FORWARD_FIRST);
    const int64_t stride = (int64_t)gridDim.x * CUDA_WALK_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * CUDA_WALK_THREADS + threadIdx.x; i < args.walk.elements;
         i += stride) {
        const int64_t n = i / conv.columns, c = i % conv.columns;
        cuda_write_one(args.operand[SHORT_CONV_FORWARD_Y], i,
                       c < conv.width ? gate_of(conv_sum(conv, n, c), GATE_SILU)
                                      : cuda_read_one(conv.x, i));
    }
}

/* A thread has a column of a sample, whose rows it takes in order. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2)
    short_conv_cached(const struct cuda_args args)
{
    const struct conv conv = conv_of(args, SHORT_CONV_CACHED_X, -1);
    const struct cuda_floats &cache = args.operand[SHORT_CONV_CACHED_CACHE];
    const int64_t i = (int64_t)blockIdx.x * CUDA_WALK_THREADS + threadIdx.x,
                  sample = i / conv.columns, c = i % conv.columns;
    const int32_t rows = conv.taps - 1;
    const bool continues =
        CUDA_POINTER(const union scalar_word, SHORT_CONV_CACHED_SCALARS)[SCALAR_POSITION].i > 0;
    if (sample >= args.rows / conv.time)
        return;
    for (int64_t t = 0; t < conv.time; t++) {
        const int64_t n = sample * conv.time + t;
        float sum = 0.0f;
        for (int32_t j = 0; j < conv.taps && c < conv.width; j++) {
            const int64_t row = t - rows + j;
            const float x =
                row >= 0    ? cuda_read_one(conv.x, (n - rows + j) * conv.columns + c)
                : continues ? cuda_read_one(cache, (sample * rows + row + rows) * conv.width + c)
                            : 0.0f;
            sum += cuda_read_one(conv.weight, c * conv.taps + j) * x;
        }
        cuda_write_one(args.operand[SHORT_CONV_CACHED_Y], n * conv.columns + c,
                       c < conv.width ? gate_of(sum, GATE_SILU)
                                      : cuda_read_one(conv.x, n * conv.columns + c));
    }
    for (int32_t j = 0; j < rows && c < conv.width; j++) {
        const int64_t row = conv.time - rows + j; /* the rows move up: each is read before */
        const float x =
            row >= 0    ? cuda_read_one(conv.x, (sample * conv.time + row) * conv.columns + c)
            : continues ? cuda_read_one(cache, (sample * rows + row + rows) * conv.width + c)
                        : 0.0f;
        cuda_write_one(cache, (sample * rows + j) * conv.width + c, x);
    }
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2)
    short_conv_backward(const struct cuda_args args)
{
    const struct conv conv = conv_of(args, SHORT_CONV_BACKWARD_X, SHORT_CONV_BACKWARD_FIRST);
    const struct cuda_floats &of_dy = args.operand[SHORT_CONV_BACKWARD_DY];
    const int64_t stride = (int64_t)gridDim.x * CUDA_WALK_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * CUDA_WALK_THREADS + threadIdx.x; i < args.walk.elements;
         i += stride) {
        const int64_t n = i / conv.columns, c = i % conv.columns, t = n % conv.time;
        float sum = c < conv.width ? 0.0f : cuda_read_one(of_dy, i);
        for (int32_t back = 0; back < conv.taps && c < conv.width && t + back < conv.time; back++) {
            const int64_t reader = n + back;
            if (conv.first != NULL && conv.first[reader] > t)
                break;
            const float dy = cuda_read_one(of_dy, reader * conv.columns + c);
            sum += cuda_read_one(conv.weight, c * conv.taps + conv.taps - 1 - back) *
                   (dy * gate_slope(conv_sum(conv, reader, c), GATE_SILU));
        }
        cuda_write_one(args.operand[SHORT_CONV_BACKWARD_DX], i, sum);
    }
}

/* A block takes a part of the rows and 256 columns. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2)
    short_conv_weight(const struct cuda_args args)
{
    const struct conv conv = conv_of(args, SHORT_CONV_BACKWARD_X, SHORT_CONV_BACKWARD_FIRST);
    const struct cuda_part rows = cuda_part_of(args.rows, args.parts, blockIdx.x);
    const int64_t c = (int64_t)blockIdx.y * CUDA_WALK_THREADS + threadIdx.x;
    float sum[OP_CONV_TAPS] = {0.0f};
    if (c >= conv.width)
        return;
    for (int64_t n = rows.begin; n < rows.end; n++) {
        const float dy = cuda_read_one(args.operand[SHORT_CONV_BACKWARD_DY], n * conv.columns + c),
                    du = dy * gate_slope(conv_sum(conv, n, c), GATE_SILU);
        UNROLLED(j, OP_CONV_TAPS)
            if (j < conv.taps)
                sum[j] += du * conv_x(conv, n, c, conv.taps - 1 - j);
    }
    UNROLLED(j, OP_CONV_TAPS)
        if (j < conv.taps)
            args.workspace[(blockIdx.x * conv.width + c) * conv.taps + j] = sum[j];
}

CUDA_WALK_LAUNCHER(short_conv_forward, short_conv_forward)
CUDA_WALK_LAUNCHER(short_conv_cached, short_conv_cached)
CUDA_WALK_LAUNCHER(short_conv_backward, short_conv_backward)
CUDA_LAUNCHER(short_conv_weight, short_conv_weight,
              dim3((unsigned)args.parts,
                   (unsigned)((args.strip_floats + CUDA_WALK_THREADS - 1) / CUDA_WALK_THREADS)),
              dim3(CUDA_WALK_THREADS))
