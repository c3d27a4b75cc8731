/* Sums over rows, in two stages: bias_backward sums the rows of dy within each part of the rows, as
 * layernorm_backward and rope_backward do with theirs; parts_sum adds the parts' strips in a fixed
 * order.
 */
#include "backends/cuda/cuda_floats.h"

#define WARPS 8

/* A block takes a part and a tile of 256 columns.  Warp w adds rows w, w + 8, ... of the part,
 * eight columns in each lane, and the warps' sums are added in order into the part's strip.  dy is
 * read once. */
static __global__ void __launch_bounds__(WARPS *WARP_LANES)
    bias_backward(const struct cuda_args args)
{
    SHARED(float, shared, WARPS *CUDA_TILE_COLUMNS);
    const int64_t part = blockIdx.x, tile = (int64_t)blockIdx.y * CUDA_TILE_COLUMNS;
    const struct cuda_part rows = cuda_part_of(args.rows, args.parts, part);
    const int64_t c = tile + CUDA_GROUP * cuda_lane();
    float sum[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (c < args.columns) {
#pragma unroll 4
        for (int64_t n = rows.begin + cuda_warp(); n < rows.end; n += WARPS) {
            float row[CUDA_GROUP];
            cuda_read(
                args.operand[BIAS_BACKWARD_DY],
                cuda_span_make(n * args.columns + c, (n + 1) * args.columns, args.walk.aligned),
                row);
            UNROLLED(k, CUDA_GROUP)
                sum[k] += row[k];
        }
    }
    UNROLLED(k, CUDA_GROUP)
        shared[cuda_warp() * CUDA_TILE_COLUMNS + k * WARP_LANES + cuda_lane()] = sum[k];
    __syncthreads();
    float total = 0.0f;
    UNROLLED(warp, WARPS)
        total += shared[warp * CUDA_TILE_COLUMNS + threadIdx.x];
    args.workspace[part * args.strip_floats + tile + threadIdx.x] = total;
}

/* A block takes 32 columns of one sum: operand blockIdx.y.  Warp w adds parts w, w + 8, ...; then
 * the first warp adds the warps' sums in order, and the old value last, and rounds once. */
static __global__ void __launch_bounds__(WARPS *WARP_LANES) parts_sum(const struct cuda_args args)
{
    SHARED(float, shared, WARPS *WARP_LANES);
    const int64_t chunk = blockIdx.x, stride = args.strips * args.strip_floats;
    const float *from =
        args.workspace + blockIdx.y * args.strip_floats + chunk * WARP_LANES + cuda_lane();
    const int64_t tile = chunk / CUDA_GROUP, element = chunk % CUDA_GROUP;
    const int64_t column = tile * CUDA_TILE_COLUMNS + CUDA_GROUP * cuda_lane() + element;
    float sum = 0.0f;
    if (column < args.columns) {
#pragma unroll 4
        for (int64_t part = cuda_warp(); part < args.parts; part += WARPS)
            sum += from[part * stride];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (cuda_warp() > 0 || column >= args.columns)
        return;
    float total = 0.0f;
    UNROLLED(warp, WARPS)
        total += shared[warp * WARP_LANES + cuda_lane()];
    /* Selected without an index, which would put the arguments into local memory. */
    const struct cuda_floats out = blockIdx.y != 0 ? args.operand[1] : args.operand[0];
    cuda_write_one(out, column,
                   CUDA_ACCUMULATES(blockIdx.y) ? cuda_read_one(out, column) + total : total);
}

CUDA_LAUNCHER(bias_backward, bias_backward,
              dim3((unsigned)args.parts, (unsigned)(args.strip_floats / CUDA_TILE_COLUMNS)),
              dim3(WARPS *WARP_LANES))
CUDA_LAUNCHER(parts_sum, parts_sum,
              dim3((unsigned)(args.strip_floats / WARP_LANES),
                   args.operand[1].memory != NULL ? 2 : 1),
              dim3(WARPS *WARP_LANES))
