/* embed_forward gathers rows of two tables and adds them; embed_backward computes the tables' gradients.
 *
 * Forward: a warp takes a row, its lanes groups of eight channels.  Backward: the rows of dy come grouped by token id,
 * and a block takes one row of dwte (or of dwpe) and a tile of 256 columns.  Warp w sums rows w, w + 8, ... of the list
 * in fp32; the warps' sums are added in order, and the old value last.  So one thread writes each element, the list
 * fixes the order of the sum, and there are no atomics.  Eight warps share a long list (a frequent token).
 */
#include "backends/cuda/cuda_reduce.h"

struct embed_forward_args {
    const int32_t *ids;
    struct cuda_floats wte, wpe, y; /* wpe may be absent */
    const union scalar_word *scalars;
    const int32_t *first; /* or NULL, as below */
    int64_t rows, channels, time;
    bool aligned; /* every group of every row is aligned, in every operand */
};

struct embed_backward_args {
    struct cuda_floats dy;
    const int32_t *ids, *order, *starts;
    struct cuda_floats dwte, dwpe;
    const int32_t *first;
    int64_t rows, channels, time;
    bool accumulate; /* into dwpe */
    bool aligned;
};

#define THREADS (CUDA_ROW_WARPS * WARP_LANES)
/* Element k of all lanes' groups is stored together, in rows padded by 4 floats: neither writing by lane nor reading by
 * column has a bank conflict. */
#define ELEMENT_STRIDE (WARP_LANES + 4)
#define WARP_STRIDE (CUDA_GROUP * ELEMENT_STRIDE)

static __global__ void __launch_bounds__(THREADS) embed_forward(struct embed_forward_args args)
{
    const int64_t position = args.scalars[SCALAR_POSITION].i;
    const int64_t stride = (int64_t)gridDim.x * CUDA_ROW_WARPS;
    for (int64_t n = (int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); n < args.rows; n += stride) {
        const int64_t skipped = args.first != NULL ? args.first[n] : 0;
        const int64_t token = args.ids[n] * args.channels, place = (position + n % args.time - skipped) * args.channels;
        for (int64_t c = CUDA_GROUP * cuda_lane(); c < args.channels; c += CUDA_TILE_COLUMNS) {
            const struct cuda_span of_token = cuda_span_make(token + c, token + args.channels, args.aligned);
            const struct cuda_span of_place = cuda_span_make(place + c, place + args.channels, args.aligned);
            const struct cuda_span of_y = cuda_span_make(n * args.channels + c, (n + 1) * args.channels, args.aligned);
            const struct cuda_group from_wte = cuda_fetch(args.wte, of_token);
            float x[CUDA_GROUP], y[CUDA_GROUP];
            if (args.wpe.memory != NULL) {
                const struct cuda_group from_wpe = cuda_fetch(args.wpe, of_place);
                cuda_unpack(from_wte, args.wte.dtype, x);
                cuda_unpack(from_wpe, args.wpe.dtype, y);
#pragma unroll
                for (int k = 0; k < CUDA_GROUP; k++)
                    x[k] += y[k];
            } else {
                cuda_unpack(from_wte, args.wte.dtype, x);
            }
            cuda_write(args.y, of_y, x);
        }
    }
}

/* The rows of dy that make a row of a gradient: those of `list`, or first, first + stride, ... when it is NULL.  With
 * position >= 0, only rows at that position of their document count. */
struct row_set {
    const int32_t *list;
    int64_t first, stride, count, position;
};

/* Adds this warp's rows of the set, columns c .. c + 7, to sum. */
DEVICE void rows_sum(const struct embed_backward_args &args, const struct row_set &set, int64_t c,
                     float (&sum)[CUDA_GROUP])
{
#pragma unroll 4
    for (int64_t i = cuda_warp(); i < set.count; i += CUDA_ROW_WARPS) {
        const int64_t n = set.list != NULL ? set.list[i] : set.first + i * set.stride;
        if (set.position >= 0 && n % args.time - args.first[n] != set.position)
            continue;
        float row[CUDA_GROUP];
        cuda_read(args.dy, cuda_span_make(n * args.channels + c, (n + 1) * args.channels, args.aligned), row);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            sum[k] += row[k];
    }
}

/* Row `to` of out (+)= the sum of the set, this block's tile of columns.  All threads of the block take part. */
DEVICE void row_write(const struct embed_backward_args &args, const struct row_set &set, const struct cuda_floats &out,
                      int64_t to, bool accumulate)
{
    SHARED(float, shared, CUDA_ROW_WARPS *WARP_STRIDE);
    const int64_t tile = (int64_t)blockIdx.y * CUDA_TILE_COLUMNS, c = tile + CUDA_GROUP * cuda_lane();
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
        for (int warp = 0; warp < CUDA_ROW_WARPS; warp++)
            total += shared[warp * WARP_STRIDE + at];
        const int64_t index = to * args.channels + column;
        cuda_write_one(out, index, accumulate ? cuda_read_one(out, index) + total : total);
    }
}

static __global__ void __launch_bounds__(THREADS) embed_backward_tokens(struct embed_backward_args args)
{
    const int64_t group = blockIdx.x;
    if (group >= args.starts[0]) /* the same for the whole block */
        return;
    const int64_t begin = args.starts[1 + group], end = args.starts[2 + group];
    const struct row_set set = {args.order + begin, 0, 0, end - begin, -1};
    row_write(args, set, args.dwte, args.ids[args.order[begin]], true);
}

static __global__ void __launch_bounds__(THREADS) embed_backward_positions(struct embed_backward_args args)
{
    const int64_t t = blockIdx.x;
    struct row_set set = {NULL, t, args.time, t < args.time ? args.rows / args.time : 0, -1};
    if (args.first != NULL && t < args.time)
        set = {NULL, t, 1, args.rows - t, t};
    row_write(args, set, args.dwpe, t, args.accumulate);
}

#define BACKWARD                                                                                               \
    args->operand[EMBED_BACKWARD_DY], CUDA_POINTER(const int32_t, EMBED_BACKWARD_IDS),                         \
        CUDA_POINTER(const int32_t, EMBED_BACKWARD_ORDER), CUDA_POINTER(const int32_t, EMBED_BACKWARD_STARTS), \
        args->operand[EMBED_BACKWARD_DWTE], args->operand[EMBED_BACKWARD_DWPE],                                \
        CUDA_POINTER(const int32_t, EMBED_BACKWARD_FIRST), args->rows, args->columns, args->attrs.time,        \
        CUDA_ACCUMULATES(EMBED_BACKWARD_DWPE), args->walk.aligned
#define BACKWARD_GRID dim3((unsigned)args->walk.blocks, (unsigned)(args->strip_floats / CUDA_TILE_COLUMNS))

CUDA_LAUNCHER(embed_forward, embed_forward_args, dim3((unsigned)args->walk.blocks), dim3(THREADS),
              CUDA_POINTER(const int32_t, EMBED_FORWARD_IDS), args->operand[EMBED_FORWARD_WTE],
              args->operand[EMBED_FORWARD_WPE], args->operand[EMBED_FORWARD_Y],
              CUDA_POINTER(union scalar_word, EMBED_FORWARD_SCALARS), CUDA_POINTER(const int32_t, EMBED_FORWARD_FIRST),
              args->rows, args->columns, args->attrs.time, args->walk.aligned)
CUDA_LAUNCHER(embed_backward_tokens, embed_backward_args, BACKWARD_GRID, dim3(THREADS), BACKWARD)
CUDA_LAUNCHER(embed_backward_positions, embed_backward_args, BACKWARD_GRID, dim3(THREADS), BACKWARD)
