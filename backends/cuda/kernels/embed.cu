/* embed_forward gathers rows of two tables and adds them; embed_backward computes the tables' gradients.
 *
 * Forward: a warp takes a row, its lanes groups of eight channels.  Backward: the rows of dy come grouped by token id,
 * and a block takes one row of dwte (or of dwpe) and a tile of 256 columns.  Warp w sums rows w, w + 8, ... of the list
 * in fp32; the warps' sums are added in order, and the old value last.  So one thread writes each element, the list
 * fixes the order of the sum, and there are no atomics.  Eight warps share a long list (a frequent token).
 */
#include "backends/cuda/cuda_embed.h"

#include "backends/cuda/cuda_reduce.h"

#define THREADS (CUDA_EMBED_WARPS * WARP_LANES)
/* Element k of all lanes' groups is stored together, in rows padded by 4 floats: neither writing by lane nor reading by
 * column has a bank conflict. */
#define ELEMENT_STRIDE (WARP_LANES + 4)
#define WARP_STRIDE (CUDA_GROUP * ELEMENT_STRIDE)

static __global__ void __launch_bounds__(THREADS) embed_forward(struct cuda_embed_forward_args args)
{
    const int64_t position = args.scalars[SCALAR_POSITION].i;
    const int64_t stride = (int64_t)gridDim.x * CUDA_EMBED_WARPS;
    for (int64_t n = (int64_t)blockIdx.x * CUDA_EMBED_WARPS + cuda_warp(); n < args.rows; n += stride) {
        const int64_t token = args.ids[n] * args.channels, place = (position + n % args.time) * args.channels;
        for (int64_t c = CUDA_GROUP * cuda_lane(); c < args.channels; c += CUDA_EMBED_TILE) {
            const struct cuda_span of_token = cuda_span_make(token + c, token + args.channels, args.aligned);
            const struct cuda_span of_place = cuda_span_make(place + c, place + args.channels, args.aligned);
            const struct cuda_span of_y = cuda_span_make(n * args.channels + c, (n + 1) * args.channels, args.aligned);
            const struct cuda_group from_wte = cuda_fetch(args.wte, of_token);
            const struct cuda_group from_wpe = cuda_fetch(args.wpe, of_place);
            float x[CUDA_GROUP], y[CUDA_GROUP];
            cuda_unpack(from_wte, args.wte.dtype, x);
            cuda_unpack(from_wpe, args.wpe.dtype, y);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                x[k] += y[k];
            cuda_write(args.y, of_y, x);
        }
    }
}

/* The rows of dy that make a row of a gradient: those of `list`, or first, first + stride, ... when it is NULL. */
struct row_set {
    const int32_t *list;
    int64_t first, stride, count;
};

/* Adds this warp's rows of the set, columns c .. c + 7, to sum. */
DEVICE void rows_sum(const struct cuda_embed_backward_args &args, const struct row_set &set, int64_t c,
                     float (&sum)[CUDA_GROUP])
{
#pragma unroll 4
    for (int64_t i = cuda_warp(); i < set.count; i += CUDA_EMBED_WARPS) {
        const int64_t n = set.list != NULL ? set.list[i] : set.first + i * set.stride;
        float row[CUDA_GROUP];
        cuda_read(args.dy, cuda_span_make(n * args.channels + c, (n + 1) * args.channels, args.aligned), row);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            sum[k] += row[k];
    }
}

/* Row `to` of out (+)= the sum of the set, this block's tile of columns.  All threads of the block take part. */
DEVICE void row_write(const struct cuda_embed_backward_args &args, const struct row_set &set,
                      const struct cuda_floats &out, int64_t to, bool accumulate)
{
    SHARED(float, shared, CUDA_EMBED_WARPS *WARP_STRIDE);
    const int64_t tile = (int64_t)blockIdx.y * CUDA_EMBED_TILE, c = tile + CUDA_GROUP * cuda_lane();
    float sum[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (c < args.channels)
        rows_sum(args, set, c, sum);
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        shared[cuda_warp() * WARP_STRIDE + k * ELEMENT_STRIDE + cuda_lane()] = sum[k];
    __syncthreads();
    const int64_t column = tile + threadIdx.x;
    if (column < args.channels) {
        const int at = (int)threadIdx.x % CUDA_GROUP * ELEMENT_STRIDE + (int)threadIdx.x / CUDA_GROUP;
        float total = 0.0f;
#pragma unroll
        for (int warp = 0; warp < CUDA_EMBED_WARPS; warp++)
            total += shared[warp * WARP_STRIDE + at];
        const int64_t index = to * args.channels + column;
        cuda_write_one(out, index, accumulate ? cuda_read_one(out, index) + total : total);
    }
}

static __global__ void __launch_bounds__(THREADS) embed_backward_tokens(struct cuda_embed_backward_args args)
{
    const int64_t group = blockIdx.x;
    if (group >= args.starts[0]) /* the same for the whole block */
        return;
    const int64_t begin = args.starts[1 + group], end = args.starts[2 + group];
    const struct row_set set = {args.order + begin, 0, 0, end - begin};
    row_write(args, set, args.dwte, args.ids[args.order[begin]], true);
}

static __global__ void __launch_bounds__(THREADS) embed_backward_positions(struct cuda_embed_backward_args args)
{
    const int64_t t = blockIdx.x;
    const struct row_set set = {NULL, t, args.time, t < args.time ? args.rows / args.time : 0};
    row_write(args, set, args.dwpe, t, args.accumulate);
}

extern "C" cudaError_t cuda_launch_embed_forward(cudaStream_t stream, const struct cuda_embed_forward_args *args)
{
    return LAUNCH(embed_forward, dim3((unsigned)args->blocks), dim3(THREADS), 0, stream, *args);
}

/* When accumulating, rows of dwpe beyond `time` stay unchanged; otherwise they become 0. */
extern "C" cudaError_t cuda_launch_embed_backward(cudaStream_t stream, const struct cuda_embed_backward_args *args)
{
    const unsigned tiles = (unsigned)((args->channels + CUDA_EMBED_TILE - 1) / CUDA_EMBED_TILE);
    const int64_t positions = args->accumulate ? args->time : args->positions;
    const cudaError_t error =
        LAUNCH(embed_backward_tokens, dim3((unsigned)args->groups_max, tiles), dim3(THREADS), 0, stream, *args);
    if (error != cudaSuccess)
        return error;
    return LAUNCH(embed_backward_positions, dim3((unsigned)positions, tiles), dim3(THREADS), 0, stream, *args);
}
