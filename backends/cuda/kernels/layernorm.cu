/* layernorm and rmsnorm, forward and backward: a warp per row.
 *
 * Their operands have the same numbers (ops/layernorm.c); rmsnorm is a layernorm without a mean
 * (MEAN false): 0 counts.
 *
 * When a row has at most 1024 channels of 16 bits, a lane keeps its groups of eight channels in
 * registers, as stored; otherwise it fetches them once more, from the cache.  So memory is read
 * once.  Forward: first the mean, then the squared deviations from it, in fp32 (the difference of
 * squares would cancel).  Backward: first the two means of the row, then dx and, in the same pass,
 * the row's share of dgain and dbias, which each warp adds up in its own strips. At the end of a
 * part of the rows the warps' strips are added in order into the workspace.  The shape alone
 * determines which rows make a part, and which warp takes which row.
 */
#include "backends/cuda/cuda_floats.h"

/* Operands, of which the gain, the bias and the mean may be absent. */
#define FORWARD(slot) args.operand[LAYERNORM_FORWARD_##slot]
#define BACKWARD(slot) args.operand[LAYERNORM_BACKWARD_##slot]
#define FLOATS(operand) ((float *)(operand).memory)

/* Blocks on a multiprocessor, by registers; otherwise the compiler aims at more, and spills, or in
 * the forward at fewer. */
#define FORWARD_BLOCKS_MIN 3
#define BACKWARD_BLOCKS_MIN 2

/* Groups that a lane keeps in registers. */
#define KEPT 4
#define KEPT_CHANNELS (KEPT * CUDA_TILE_COLUMNS)

/* The tile loops below run `kept` times, unrolled, or as often as the row needs when nothing is
 * kept. */
template <int kept> DEVICE int tiles_of(int64_t channels)
{
    return kept > 0 ? kept : (int)((channels + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS);
}

/* Returns the lane's span of tile `tile` of row n, or, with n = 0, of a vector of channels; it is
 * empty when the count is not positive. */
DEVICE struct cuda_span row_span(int64_t n, int64_t tile, int64_t channels, bool aligned)
{
    const int64_t c = tile * CUDA_TILE_COLUMNS + CUDA_GROUP * cuda_lane();
    return cuda_span_make(n * channels + c, (n + 1) * channels, aligned);
}

/* A lane's groups of one row, of 16-bit elements. */
template <int kept> struct lane_row {
    uint4 group[kept > 0 ? kept : 1];
};

template <int kept>
DEVICE void row_keep(const struct cuda_floats &x, int64_t n, int64_t channels, bool aligned,
                     struct lane_row<kept> *row)
{
    UNROLLED(tile, kept) {
        const struct cuda_span span = row_span(n, tile, channels, aligned);
        if (span.count > 0)
            row->group[tile] = cuda_fetch(x, span).low;
    }
}

template <int kept>
DEVICE void row_values(const struct lane_row<kept> &row, const struct cuda_floats &x,
                       const struct cuda_span &span, int64_t tile, float (&value)[CUDA_GROUP])
{
    if constexpr (kept > 0) {
        const struct cuda_group group = {row.group[tile], make_uint4(0, 0, 0, 0)};
        cuda_unpack(group, x.dtype, value);
    } else {
        cuda_read(x, span, value);
    }
}

DEVICE void gain_read(const struct cuda_args &args, const struct cuda_floats &gain,
                      const struct cuda_span &span, float (&value)[CUDA_GROUP])
{
    if (gain.memory != NULL)
        cuda_read(gain, span, value);
    UNROLLED(k, CUDA_GROUP)
        value[k] = gain.memory != NULL ? value[k] + args.attrs.gain_offset : 1.0f;
}

/* ---- forward ---- */

/* Returns the mean of the row, or with SQUARES of the squared deviations from `mean`. */
template <int kept, bool SQUARES>
DEVICE float row_mean(const struct cuda_args &args, const struct lane_row<kept> &row, int64_t n,
                      float mean)
{
    float sum = 0.0f;
    UNROLLED(tile, tiles_of<kept>(args.columns)) {
        const struct cuda_span span = row_span(n, tile, args.columns, args.walk.aligned);
        if (span.count <= 0)
            continue;
        float x[CUDA_GROUP];
        row_values(row, FORWARD(X), span, tile, x); /* zeros beyond the count */
        if (SQUARES && span.count < CUDA_GROUP) {
            UNROLLED(k, CUDA_GROUP)
                x[k] = k < span.count ? x[k] : mean;
        }
        UNROLLED(k, CUDA_GROUP)
            sum += SQUARES ? (x[k] - mean) * (x[k] - mean) : x[k];
    }
    return warp_sum(sum) / (float)args.columns;
}

template <int kept>
DEVICE void row_normalise(const struct cuda_args &args, const struct lane_row<kept> &row, int64_t n,
                          float mean, float rstd)
{
    UNROLLED(tile, tiles_of<kept>(args.columns)) {
        const struct cuda_span span = row_span(n, tile, args.columns, args.walk.aligned);
        if (span.count <= 0)
            continue;
        const struct cuda_span of_vector = row_span(0, tile, args.columns, args.walk.aligned);
        float x[CUDA_GROUP], gain[CUDA_GROUP], bias[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        row_values(row, FORWARD(X), span, tile, x);
        gain_read(args, FORWARD(GAIN), of_vector, gain);
        if (FORWARD(BIAS).memory != NULL)
            cuda_read(FORWARD(BIAS), of_vector, bias);
        UNROLLED(k, CUDA_GROUP)
            x[k] = (x[k] - mean) * rstd * gain[k] + bias[k];
        cuda_write(FORWARD(Y), span, x);
    }
}

template <int DTYPE, int kept, bool MEAN>
static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, FORWARD_BLOCKS_MIN)
    layernorm_forward(struct cuda_args args)
{
    cuda_dtype_fix<DTYPE>(&FORWARD(X), &FORWARD(Y));
    const int64_t stride = (int64_t)gridDim.x * CUDA_ROW_WARPS;
    for (int64_t n = (int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); n < args.rows;
         n += stride) {
        struct lane_row<kept> row;
        row_keep<kept>(FORWARD(X), n, args.columns, args.walk.aligned, &row);
        const float mean = MEAN ? row_mean<kept, false>(args, row, n, 0.0f) : 0.0f;
        const float rstd =
            1.0f / sqrtf(row_mean<kept, true>(args, row, n, mean) + args.attrs.epsilon);
        row_normalise<kept>(args, row, n, mean, rstd);
        if (cuda_lane() == 0) {
            if (MEAN)
                FLOATS(FORWARD(MEAN))[n] = mean;
            FLOATS(FORWARD(RSTD))[n] = rstd;
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
DEVICE void row_means(const struct cuda_args &args, const struct lane_row<kept> &of_dy,
                      const struct lane_row<kept> &of_x, struct gradient_row *row)
{
    float weighted = 0.0f, product = 0.0f;
    UNROLLED(tile, tiles_of<kept>(args.columns)) {
        const struct cuda_span span = row_span(row->n, tile, args.columns, args.walk.aligned);
        if (span.count <= 0)
            continue;
        float dy[CUDA_GROUP], x[CUDA_GROUP], gain[CUDA_GROUP];
        row_values(of_dy, BACKWARD(DY), span, tile, dy);
        row_values(of_x, BACKWARD(X), span, tile, x);
        gain_read(args, BACKWARD(GAIN), row_span(0, tile, args.columns, args.walk.aligned), gain);
        UNROLLED(k, CUDA_GROUP) {
            const float term = dy[k] * gain[k]; /* 0 beyond the count */
            weighted += term;
            product += term * ((x[k] - row->mean) * row->rstd);
        }
    }
    row->weighted = MEAN ? warp_sum(weighted) / (float)args.columns : 0.0f;
    row->product = warp_sum(product) / (float)args.columns;
}

/* Computes dx of the row, and adds the row's share of dgain and dbias to the warp's strips. */
template <int kept, bool MEAN>
DEVICE void row_gradient(const struct cuda_args &args, const struct lane_row<kept> &of_dy,
                         const struct lane_row<kept> &of_x, const struct gradient_row &row,
                         float *strips)
{
    UNROLLED(tile, tiles_of<kept>(args.columns)) {
        const struct cuda_span span = row_span(row.n, tile, args.columns, args.walk.aligned);
        if (span.count <= 0)
            continue;
        float dy[CUDA_GROUP], x[CUDA_GROUP], gain[CUDA_GROUP],
            dx[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
        row_values(of_dy, BACKWARD(DY), span, tile, dy);
        row_values(of_x, BACKWARD(X), span, tile, x);
        gain_read(args, BACKWARD(GAIN), row_span(0, tile, args.columns, args.walk.aligned), gain);
        if (CUDA_ACCUMULATES(LAYERNORM_BACKWARD_DX))
            cuda_read(BACKWARD(DX), span, dx);
        float *dgain = strips + tile * CUDA_TILE_COLUMNS + cuda_lane(),
              *dbias = dgain + args.strip_floats;
        UNROLLED(k, CUDA_GROUP) {
            const float normal = (x[k] - row.mean) * row.rstd;
            dgain[k * WARP_LANES] += dy[k] * normal;
            if (MEAN)
                dbias[k * WARP_LANES] += dy[k];
            dx[k] += row.rstd * (dy[k] * gain[k] - row.weighted - normal * row.product);
        }
        cuda_write(BACKWARD(DX), span, dx);
    }
}

/* Clears the lane's own floats of the warp's strips.  No lane uses another one's, so no barrier is
 * needed. */
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
static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, BACKWARD_BLOCKS_MIN)
    layernorm_backward(struct cuda_args args)
{
    cuda_dtype_fix<DTYPE>(&BACKWARD(DY), &BACKWARD(X), &BACKWARD(DX));
    DYN_SHARED(float, shared);
    const struct cuda_part rows = cuda_part_of(args.rows, args.parts, blockIdx.x);
    const int64_t part = blockIdx.x, floats = args.strips * args.strip_floats;
    float *out = args.workspace + part * floats,
          *strips = kept > 0 || args.shared_bytes > 0 ? shared + cuda_warp() * floats : out;
    strips_clear(strips, floats);
    for (int64_t n = rows.begin + cuda_warp(); n < rows.end; n += cuda_warps()) {
        struct gradient_row row = {n, MEAN ? FLOATS(BACKWARD(MEAN))[n] : 0.0f,
                                   FLOATS(BACKWARD(RSTD))[n], 0.0f, 0.0f};
        struct lane_row<kept> of_dy, of_x;
        row_keep<kept>(BACKWARD(DY), n, args.columns, args.walk.aligned, &of_dy);
        row_keep<kept>(BACKWARD(X), n, args.columns, args.walk.aligned, &of_x);
        row_means<kept, MEAN>(args, of_dy, of_x, &row);
        row_gradient<kept, MEAN>(args, of_dy, of_x, row, strips);
    }
    if (args.shared_bytes > 0)
        strips_add(shared, floats, out);
}

/* Returns true when a lane can keep its groups of the operand's rows. */
static bool is_kept(const struct cuda_args *args, int32_t slot)
{
    return args->columns <= KEPT_CHANNELS && args->operand[slot].dtype != DTYPE_F32;
}

/* The instance for operands of a dtype, or for rows that are not kept. */
#define INSTANCE(kernel, mean)                                                         \
    (kept ? cuda_by_dtype(dtype, [](auto type) { return kernel<type(), KEPT, mean>; }) \
          : kernel<DTYPE_COUNT, 0, mean>)

extern "C" cudaError_t cuda_launch_layernorm_forward(cudaStream_t stream,
                                                     const struct cuda_args *args)
{
    const int dtype = cuda_dtype_common(*args, LAYERNORM_FORWARD_X, LAYERNORM_FORWARD_Y);
    const bool kept = is_kept(args, LAYERNORM_FORWARD_X),
               has_mean = args->operand[LAYERNORM_FORWARD_MEAN].memory != NULL;
    const auto kernel =
        has_mean ? INSTANCE(layernorm_forward, true) : INSTANCE(layernorm_forward, false);
    return LAUNCH(kernel, dim3((unsigned)args->walk.blocks), dim3(CUDA_ROW_WARPS * WARP_LANES), 0,
                  stream, *args);
}

/* dx, and the first stage of dgain and dbias; the second stage is cuda_launch_parts_sum(). */
extern "C" cudaError_t cuda_launch_layernorm_backward(cudaStream_t stream,
                                                      const struct cuda_args *args)
{
    const int dtype = cuda_dtype_common(*args, LAYERNORM_BACKWARD_DY, LAYERNORM_BACKWARD_X,
                                        LAYERNORM_BACKWARD_DX);
    const bool kept = is_kept(args, LAYERNORM_BACKWARD_X) && is_kept(args, LAYERNORM_BACKWARD_DY);
    const bool has_mean = args->operand[LAYERNORM_BACKWARD_MEAN].memory != NULL;
    const auto kernel =
        has_mean ? INSTANCE(layernorm_backward, true) : INSTANCE(layernorm_backward, false);
    const cudaError_t error = cuda_shared_prefer((const void *)kernel, args->shared_bytes);
    if (error != cudaSuccess)
        return error;
    return LAUNCH(kernel, dim3((unsigned)args->parts), dim3((unsigned)args->threads),
                  args->shared_bytes, stream, *args);
}
