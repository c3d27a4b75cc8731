/* layernorm and rmsnorm, forward and backward: a warp per row.
 *
 * Their operands have the same numbers (ops/layernorm.c); rmsnorm is a layernorm without a mean (MEAN false): 0 counts.
 *
 * When a row has at most 1024 channels of 16 bits, a lane keeps its groups of eight channels in registers, as stored;
 * otherwise it fetches them once more, from the cache.  So memory is read once.  Forward: first the mean, then the
 * squared deviations from it, in fp32 (the difference of squares would cancel).  Backward: first the two means of the
 * row, then dx and, in the same pass, the row's share of dgain and dbias, which each warp adds up in its own strips.
 * At the end of a part of the rows the warps' strips are added in order into the workspace.  The shape alone determines
 * which rows make a part, and which warp takes which row.
 */
#include "backends/cuda/cuda_reduce.h"

struct layernorm_forward_args {
    struct cuda_floats x, gain, bias, y; /* the gain and the bias may be absent */
    float *mean, *rstd;                  /* mean: MEAN */
    int64_t rows, channels;
    float epsilon;
    bool aligned; /* every group of every row is aligned, in every operand */
};

/* The arguments of dx and of the first stage of dgain and dbias; the second stage is cuda_launch_parts_sum(). */
struct layernorm_backward_args {
    struct cuda_floats dy, x, gain, dx;
    const float *mean, *rstd;
    float *strips; /* [parts][strips_per_part]: dgain's and, if there is a mean, dbias's */
    int64_t rows, channels, parts, strip_floats;
    int32_t strips_per_part;
    bool is_shared;  /* each warp sums its own strips in shared memory, as always for kept rows; else the block's one
                        warp sums in `strips` */
    bool accumulate; /* into dx */
    bool aligned;
};

/* Blocks of the backward on a multiprocessor, by registers; otherwise the compiler aims at more, and spills. */
#define BLOCKS_MIN 2

/* Groups that a lane keeps in registers. */
#define KEPT 4
#define KEPT_CHANNELS (KEPT * CUDA_TILE_COLUMNS)

/* The tile loops below run `kept` times, unrolled, or as often as the row needs when nothing is kept. */
template <int kept> DEVICE int64_t tiles_of(int64_t channels)
{
    return kept > 0 ? kept : (channels + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS;
}

/* Returns the lane's span of tile `tile` of row n; it is empty when the count is not positive. */
DEVICE struct cuda_span row_span(int64_t n, int64_t tile, int64_t channels, bool aligned)
{
    const int64_t c = tile * CUDA_TILE_COLUMNS + CUDA_GROUP * cuda_lane();
    return cuda_span_make(n * channels + c, (n + 1) * channels, aligned);
}

/* The same for a vector of channels. */
DEVICE struct cuda_span vector_span(int64_t tile, int64_t channels, bool aligned)
{
    return row_span(0, tile, channels, aligned);
}

/* A lane's groups of one row, of 16-bit elements. */
template <int kept> struct lane_row {
    uint4 group[kept > 0 ? kept : 1];
};

template <int kept>
DEVICE void row_keep(const struct cuda_floats &x, int64_t n, int64_t channels, bool aligned, struct lane_row<kept> *row)
{
#pragma unroll
    for (int tile = 0; tile < kept; tile++) {
        const struct cuda_span span = row_span(n, tile, channels, aligned);
        if (span.count > 0)
            row->group[tile] = cuda_fetch(x, span).low;
    }
}

template <int kept>
DEVICE void row_values(const struct lane_row<kept> &row, const struct cuda_floats &x, const struct cuda_span &span,
                       int64_t tile, float (&value)[CUDA_GROUP])
{
    if constexpr (kept > 0) {
        const struct cuda_group group = {row.group[tile], make_uint4(0, 0, 0, 0)};
        cuda_unpack(group, x.dtype, value);
    } else {
        cuda_read(x, span, value);
    }
}

DEVICE void gain_read(const struct cuda_floats &gain, const struct cuda_span &span, float (&value)[CUDA_GROUP])
{
    if (gain.memory != NULL) {
        cuda_read(gain, span, value);
        return;
    }
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        value[k] = 1.0f;
}

/* ---- forward ---- */

template <int kept>
DEVICE float row_mean(const struct layernorm_forward_args &args, const struct lane_row<kept> &row, int64_t n)
{
    float sum = 0.0f;
#pragma unroll
    for (int64_t tile = 0; tile < tiles_of<kept>(args.channels); tile++) {
        const struct cuda_span span = row_span(n, tile, args.channels, args.aligned);
        if (span.count <= 0)
            continue;
        float x[CUDA_GROUP];
        row_values(row, args.x, span, tile, x);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            sum += x[k]; /* zeros beyond the count */
    }
    return warp_sum(sum) / (float)args.channels;
}

template <int kept>
DEVICE float row_variance(const struct layernorm_forward_args &args, const struct lane_row<kept> &row, int64_t n,
                          float mean)
{
    float square = 0.0f;
#pragma unroll
    for (int64_t tile = 0; tile < tiles_of<kept>(args.channels); tile++) {
        const struct cuda_span span = row_span(n, tile, args.channels, args.aligned);
        if (span.count <= 0)
            continue;
        float x[CUDA_GROUP];
        row_values(row, args.x, span, tile, x);
        if (span.count < CUDA_GROUP) {
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                x[k] = k < span.count ? x[k] : mean;
        }
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            square += (x[k] - mean) * (x[k] - mean);
    }
    return warp_sum(square) / (float)args.channels;
}

template <int kept>
DEVICE void row_normalise(const struct layernorm_forward_args &args, const struct lane_row<kept> &row, int64_t n,
                          float mean, float rstd)
{
#pragma unroll
    for (int64_t tile = 0; tile < tiles_of<kept>(args.channels); tile++) {
        const struct cuda_span span = row_span(n, tile, args.channels, args.aligned);
        if (span.count <= 0)
            continue;
        const struct cuda_span of_vector = vector_span(tile, args.channels, args.aligned);
        float x[CUDA_GROUP], gain[CUDA_GROUP], bias[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        row_values(row, args.x, span, tile, x);
        gain_read(args.gain, of_vector, gain);
        if (args.bias.memory != NULL)
            cuda_read(args.bias, of_vector, bias);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            x[k] = (x[k] - mean) * rstd * gain[k] + bias[k];
        cuda_write(args.y, span, x);
    }
}

template <int DTYPE, int kept, bool MEAN>
static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES)
    layernorm_forward(struct layernorm_forward_args args)
{
    cuda_dtype_fix<DTYPE>(&args.x, &args.y);
    const int64_t stride = (int64_t)gridDim.x * CUDA_ROW_WARPS;
    for (int64_t n = (int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); n < args.rows; n += stride) {
        struct lane_row<kept> row;
        row_keep<kept>(args.x, n, args.channels, args.aligned, &row);
        const float mean = MEAN ? row_mean<kept>(args, row, n) : 0.0f;
        const float rstd = 1.0f / sqrtf(row_variance<kept>(args, row, n, mean) + args.epsilon);
        row_normalise<kept>(args, row, n, mean, rstd);
        if (cuda_lane() == 0) {
            if (MEAN)
                args.mean[n] = mean;
            args.rstd[n] = rstd;
        }
    }
}

/* ---- backward ---- */

/* A row in progress: its statistics, and the means over it of dy gain and of dy gain xh. */
struct gradient_row {
    int64_t n;
    float mean, rstd, weighted, product;
};

template <int kept, bool MEAN>
DEVICE void row_means(const struct layernorm_backward_args &args, const struct lane_row<kept> &of_dy,
                      const struct lane_row<kept> &of_x, struct gradient_row *row)
{
    float weighted = 0.0f, product = 0.0f;
#pragma unroll
    for (int64_t tile = 0; tile < tiles_of<kept>(args.channels); tile++) {
        const struct cuda_span span = row_span(row->n, tile, args.channels, args.aligned);
        if (span.count <= 0)
            continue;
        float dy[CUDA_GROUP], x[CUDA_GROUP], gain[CUDA_GROUP];
        row_values(of_dy, args.dy, span, tile, dy);
        row_values(of_x, args.x, span, tile, x);
        gain_read(args.gain, vector_span(tile, args.channels, args.aligned), gain);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float term = dy[k] * gain[k]; /* 0 beyond the count */
            weighted += term;
            product += term * ((x[k] - row->mean) * row->rstd);
        }
    }
    row->weighted = MEAN ? warp_sum(weighted) / (float)args.channels : 0.0f;
    row->product = warp_sum(product) / (float)args.channels;
}

/* Computes dx of the row, and adds the row's share of dgain and dbias to the warp's strips. */
template <int kept, bool MEAN>
DEVICE void row_gradient(const struct layernorm_backward_args &args, const struct lane_row<kept> &of_dy,
                         const struct lane_row<kept> &of_x, const struct gradient_row &row, float *strips)
{
#pragma unroll
    for (int64_t tile = 0; tile < tiles_of<kept>(args.channels); tile++) {
        const struct cuda_span span = row_span(row.n, tile, args.channels, args.aligned);
        if (span.count <= 0)
            continue;
        float dy[CUDA_GROUP], x[CUDA_GROUP], gain[CUDA_GROUP], dx[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        row_values(of_dy, args.dy, span, tile, dy);
        row_values(of_x, args.x, span, tile, x);
        gain_read(args.gain, vector_span(tile, args.channels, args.aligned), gain);
        if (args.accumulate)
            cuda_read(args.dx, span, dx);
        float *dgain = strips + tile * CUDA_TILE_COLUMNS + cuda_lane(), *dbias = dgain + args.strip_floats;
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float normal = (x[k] - row.mean) * row.rstd;
            dgain[k * WARP_LANES] += dy[k] * normal;
            if (MEAN)
                dbias[k * WARP_LANES] += dy[k];
            dx[k] += row.rstd * (dy[k] * gain[k] - row.weighted - normal * row.product);
        }
        cuda_write(args.dx, span, dx);
    }
}

/* Clears the lane's own floats of the warp's strips.  No lane uses another one's, so no barrier is needed. */
DEVICE void strips_clear(float *strips, int64_t floats)
{
    for (int64_t at = cuda_lane(); at < floats; at += WARP_LANES)
        strips[at] = 0.0f;
}

/* out[floats] = the sum of the warps' strips, by all threads of the block. */
DEVICE void strips_add(const float *strips, int64_t floats, float *out)
{
    __syncthreads();
    for (int64_t at = threadIdx.x; at < floats; at += blockDim.x) {
        float sum = 0.0f;
        for (int warp = 0; warp < cuda_warps(); warp++)
            sum += strips[warp * floats + at];
        out[at] = sum;
    }
}

template <int DTYPE, int kept, bool MEAN>
static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, BLOCKS_MIN)
    layernorm_backward(struct layernorm_backward_args args)
{
    cuda_dtype_fix<DTYPE>(&args.dy, &args.x, &args.dx);
    DYN_SHARED(float, shared);
    const struct cuda_part rows = cuda_part_of(args.rows, args.parts, blockIdx.x);
    const int64_t part = blockIdx.x, floats = args.strips_per_part * args.strip_floats;
    float *out = args.strips + part * floats,
          *strips = kept > 0 || args.is_shared ? shared + cuda_warp() * floats : out;
    strips_clear(strips, floats);
    for (int64_t n = rows.begin + cuda_warp(); n < rows.end; n += cuda_warps()) {
        struct gradient_row row = {n, MEAN ? args.mean[n] : 0.0f, args.rstd[n], 0.0f, 0.0f};
        struct lane_row<kept> of_dy, of_x;
        row_keep<kept>(args.dy, n, args.channels, args.aligned, &of_dy);
        row_keep<kept>(args.x, n, args.channels, args.aligned, &of_x);
        row_means<kept, MEAN>(args, of_dy, of_x, &row);
        row_gradient<kept, MEAN>(args, of_dy, of_x, row, strips);
    }
    if (args.is_shared)
        strips_add(shared, floats, out);
}

/* Returns true when a lane can keep its groups of the operand's rows. */
static bool is_kept(const struct cuda_args *args, int32_t slot)
{
    return args->columns <= KEPT_CHANNELS && args->operand[slot].dtype != DTYPE_F32;
}

#define OPERAND(slot) args->operand[LAYERNORM_##slot]

template <bool MEAN> static auto forward_of(bool kept, int dtype)
{
    return kept ? cuda_by_dtype(dtype, [](auto dtype) { return layernorm_forward<dtype(), KEPT, MEAN>; })
                : layernorm_forward<DTYPE_COUNT, 0, MEAN>;
}

template <bool MEAN> static auto backward_of(bool kept, int dtype)
{
    return kept ? cuda_by_dtype(dtype, [](auto dtype) { return layernorm_backward<dtype(), KEPT, MEAN>; })
                : layernorm_backward<DTYPE_COUNT, 0, MEAN>;
}

extern "C" cudaError_t cuda_launch_layernorm_forward(cudaStream_t stream, const struct cuda_args *args)
{
    const struct layernorm_forward_args own = {OPERAND(FORWARD_X),
                                               OPERAND(FORWARD_GAIN),
                                               OPERAND(FORWARD_BIAS),
                                               OPERAND(FORWARD_Y),
                                               CUDA_POINTER(float, LAYERNORM_FORWARD_MEAN),
                                               CUDA_POINTER(float, LAYERNORM_FORWARD_RSTD),
                                               args->rows,
                                               args->columns,
                                               args->attrs.epsilon,
                                               args->walk.aligned};
    const int dtype = cuda_dtype_common(args, LAYERNORM_FORWARD_X, LAYERNORM_FORWARD_Y);
    const bool kept = is_kept(args, LAYERNORM_FORWARD_X);
    const auto kernel = own.mean != NULL ? forward_of<true>(kept, dtype) : forward_of<false>(kept, dtype);
    return LAUNCH(kernel, dim3((unsigned)args->walk.blocks), dim3(CUDA_ROW_WARPS * WARP_LANES), 0, stream, own);
}

extern "C" cudaError_t cuda_launch_layernorm_backward(cudaStream_t stream, const struct cuda_args *args)
{
    const struct layernorm_backward_args own = {OPERAND(BACKWARD_DY),
                                                OPERAND(BACKWARD_X),
                                                OPERAND(BACKWARD_GAIN),
                                                OPERAND(BACKWARD_DX),
                                                CUDA_POINTER(const float, LAYERNORM_BACKWARD_MEAN),
                                                CUDA_POINTER(const float, LAYERNORM_BACKWARD_RSTD),
                                                args->workspace,
                                                args->rows,
                                                args->columns,
                                                args->parts,
                                                args->strip_floats,
                                                args->strips,
                                                args->shared_bytes > 0,
                                                CUDA_ACCUMULATES(LAYERNORM_BACKWARD_DX),
                                                args->walk.aligned};
    const int dtype = cuda_dtype_common(args, LAYERNORM_BACKWARD_DY, LAYERNORM_BACKWARD_X, LAYERNORM_BACKWARD_DX);
    const bool kept = is_kept(args, LAYERNORM_BACKWARD_X) && is_kept(args, LAYERNORM_BACKWARD_DY);
    const auto kernel = own.mean != NULL ? backward_of<true>(kept, dtype) : backward_of<false>(kept, dtype);
    return LAUNCH(kernel, dim3((unsigned)args->parts), dim3((unsigned)args->threads), args->shared_bytes, stream, own);
}
