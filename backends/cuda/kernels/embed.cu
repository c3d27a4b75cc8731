/* embed_forward gathers rows of two tables and adds them; embed_backward computes the tables'
 * gradients.
 *
 * Forward: a warp takes a row, its lanes groups of eight channels.  Backward: the rows of dy come
 * grouped by token id, and a block takes one row of dwte (or of dwpe) and a tile of 256 columns.
 * Warp w sums rows w, w + 8, ... of the list in fp32; the warps' sums are added in order, and the
 * old value last.  So one thread writes each element, the list fixes the order of the sum, and
 * there are no atomics.  Eight warps share a long list (a frequent token).
 */
#include "backends/cuda/cuda_floats.h"

#define THREADS (CUDA_ROW_WARPS * WARP_LANES)
/* Element k of all lanes' groups is stored together, in rows padded by 4 floats: neither writing by
 * lane nor reading by column has a bank conflict. */
#define ELEMENT_STRIDE (WARP_LANES + 4)
#define WARP_STRIDE (CUDA_GROUP * ELEMENT_STRIDE)

static __global__ void __launch_bounds__(THREADS) embed_forward(const struct cuda_args args)
{
    const struct cuda_floats wte = args.operand[EMBED_FORWARD_WTE],
                             wpe = args.operand[EMBED_FORWARD_WPE];
    const int32_t *ids = CUDA_POINTER(const int32_t, EMBED_FORWARD_IDS);
    const int32_t *first = CUDA_POINTER(const int32_t, EMBED_FORWARD_FIRST);
    const int64_t position =
        CUDA_POINTER(const union scalar_word, EMBED_FORWARD_SCALARS)[SCALAR_POSITION].i;
    const int64_t channels = args.columns, stride = (int64_t)gridDim.x * CUDA_ROW_WARPS;
    for (int64_t n = (int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); n < args.rows;
         n += stride) {
        const int64_t skipped = first != NULL ? first[n] : 0;
        const int64_t token = ids[n] * channels,
                      place = (position + n % args.attrs.time - skipped) * channels;
        for (int64_t c = CUDA_GROUP * cuda_lane(); c < channels; c += CUDA_TILE_COLUMNS) {
            const struct cuda_span of_token =
                cuda_span_make(token + c, token + channels, args.walk.aligned);
            const struct cuda_span of_place =
                cuda_span_make(place + c, place + channels, args.walk.aligned);
            float x[CUDA_GROUP], y[CUDA_GROUP];
            if (wpe.memory != NULL) {
                cuda_read(wte, of_token, x, wpe, of_place, y);
                UNROLLED(k, CUDA_GROUP)
                    x[k] += y[k];
            } else {
                cuda_read(wte, of_token, x);
            }
            cuda_write(args.operand[EMBED_FORWARD_Y],
                       cuda_span_make(n * channels + c, (n + 1) * channels, args.walk.aligned), x);
        }
    }
}

/* The rows of dy that make a row of a gradient: those of `list`, or first, first + stride, ... when
 * it is NULL.  With `documents`, only rows at `position` of their document count. */
struct row_set {
    const int32_t *list, *documents;
    int64_t first, stride, count, position;
};

/* Adds this warp's rows of the set, columns c .. c + 7, to sum. */
DEVICE void rows_sum(const struct cuda_args &args, const struct row_set &set, int64_t c,
                     float (&sum)[CUDA_GROUP])
{
#pragma unroll 4
    for (int64_t i = cuda_warp(); i < set.count; i += CUDA_ROW_WARPS) {
        const int64_t n = set.list != NULL ? set.list[i] : set.first + i * set.stride;
        if (set.documents != NULL && n % args.attrs.time - set.documents[n] != set.position)
            continue;
        float row[CUDA_GROUP];
        cuda_read(args.operand[EMBED_BACKWARD_DY],
                  cuda_span_make(n * args.columns + c, (n + 1) * args.columns, args.walk.aligned),
                  row);
        UNROLLED(k, CUDA_GROUP)
            sum[k] += row[k];
    }
}

/* Row `to` of out (+)= the sum of the set, this block's tile of columns.  All threads of the block
 * take part. */
DEVICE void row_write(const struct cuda_args &args, const struct row_set &set,
                      const struct cuda_floats &out, int64_t to, bool accumulate)
{
    SHARED(float, shared, CUDA_ROW_WARPS *WARP_STRIDE);
    const int64_t tile = (int64_t)blockIdx.y * CUDA_TILE_COLUMNS,
                  c = tile + CUDA_GROUP * cuda_lane();
    float sum[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (c < args.columns)
        rows_sum(args, set, c, sum);
    UNROLLED(k, CUDA_GROUP)
        shared[cuda_warp() * WARP_STRIDE + k * ELEMENT_STRIDE + cuda_lane()] = sum[k];
    __syncthreads();
    const int64_t column = tile + threadIdx.x;
    if (column < args.columns) {
        const int at =
            (int)threadIdx.x % CUDA_GROUP * ELEMENT_STRIDE + (int)threadIdx.x / CUDA_GROUP;
        float total = 0.0f;
        UNROLLED(warp, CUDA_ROW_WARPS)
            total += shared[warp * WARP_STRIDE + at];
        const int64_t index = to * args.columns + column;
        cuda_write_one(out, index, accumulate ? cuda_read_one(out, index) + total : total);
    }
}

static __global__ void __launch_bounds__(THREADS) embed_backward_tokens(const struct cuda_args args)
{
    const int32_t *order = CUDA_POINTER(const int32_t, EMBED_BACKWARD_ORDER);
    const int32_t *starts = CUDA_POINTER(const int32_t, EMBED_BACKWARD_STARTS);
    const int64_t group = blockIdx.x;
    if (group >= starts[0]) /* the same for the whole block */
        return;
    const int64_t begin = starts[1 + group], end = starts[2 + group];
    const struct row_set set = {order + begin, NULL, 0, 0, end - begin, 0};
    row_write(args, set, args.operand[EMBED_BACKWARD_DWTE],
              CUDA_POINTER(const int32_t, EMBED_BACKWARD_IDS)[order[begin]], true);
}

static __global__ void __launch_bounds__(THREADS)
    embed_backward_positions(const struct cuda_args args)
{
    const int32_t *documents = CUDA_POINTER(const int32_t, EMBED_BACKWARD_FIRST);
    const int64_t t = blockIdx.x, time = args.attrs.time;
    struct row_set set = {NULL, NULL, t, time, t < time ? args.rows / time : 0, t};
    if (documents != NULL && t < time)
        set = {NULL, documents, t, 1, args.rows - t, t};
    row_write(args, set, args.operand[EMBED_BACKWARD_DWPE], t,
              CUDA_ACCUMULATES(EMBED_BACKWARD_DWPE));
}

#define BACKWARD_GRID \
    dim3((unsigned)args.walk.blocks, (unsigned)(args.strip_floats / CUDA_TILE_COLUMNS))
CUDA_LAUNCHER(embed_forward, embed_forward, dim3((unsigned)args.walk.blocks), dim3(THREADS))
CUDA_LAUNCHER(embed_backward_tokens, embed_backward_tokens, BACKWARD_GRID, dim3(THREADS))
CUDA_LAUNCHER(embed_backward_positions, embed_backward_positions, BACKWARD_GRID, dim3(THREADS))
