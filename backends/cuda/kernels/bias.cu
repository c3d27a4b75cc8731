/* bias_backward, first stage: sums the rows of dy within each part of the rows.
 *
 * A block takes a part and a tile of 256 columns.  Warp w adds rows w, w + 8, ... of the part, eight columns in each
 * lane, and the warps' sums are added in order into the part's strip.  dy is read once.
 */
#include "backends/cuda/cuda_bias.h"

#include "backends/cuda/cuda_reduce.h"

#define WARPS 8

static __global__ void __launch_bounds__(WARPS *WARP_LANES) bias_backward(struct cuda_bias_args args)
{
    SHARED(float, shared, WARPS *CUDA_TILE_COLUMNS);
    const int64_t part = blockIdx.x, tile = (int64_t)blockIdx.y * CUDA_TILE_COLUMNS;
    const int64_t rows = args.rows, parts = args.parts, rest = rows % parts;
    const int64_t begin = rows / parts * part + (part < rest ? part : rest);
    const int64_t end = begin + rows / parts + (part < rest ? 1 : 0);
    const int64_t c = tile + CUDA_GROUP * cuda_lane();
    float sum[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (c < args.columns) {
#pragma unroll 4
        for (int64_t n = begin + cuda_warp(); n < end; n += WARPS) {
            float row[CUDA_GROUP];
            cuda_read(args.dy, cuda_span_make(n * args.columns + c, (n + 1) * args.columns, args.aligned), row);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                sum[k] += row[k];
        }
    }
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        shared[cuda_warp() * CUDA_TILE_COLUMNS + k * WARP_LANES + cuda_lane()] = sum[k];
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++)
        total += shared[warp * CUDA_TILE_COLUMNS + threadIdx.x];
    args.strips[part * args.strip_floats + tile + threadIdx.x] = total;
}

extern "C" cudaError_t cuda_launch_bias_backward(cudaStream_t stream, const struct cuda_bias_args *args)
{
    const dim3 grid((unsigned)args->parts, (unsigned)(args->strip_floats / CUDA_TILE_COLUMNS));
    return LAUNCH(bias_backward, grid, dim3(WARPS * WARP_LANES), 0, stream, *args);
}
