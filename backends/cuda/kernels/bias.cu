/* bias_backward, first stage: sums the rows of dy within each part of the rows.
 *
 * A block takes a part and a tile of 256 columns.  Warp w adds rows w, w + 8, ... of the part, eight columns in each
 * lane, and the warps' sums are added in order into the part's strip.  dy is read once.
 */
#include "backends/cuda/cuda_reduce.h"

/* The arguments of the first stage; the second is cuda_launch_parts_sum(). */
struct bias_backward_args {
    struct cuda_floats dy;
    float *strips; /* [parts], one strip each */
    int64_t rows, columns, parts, strip_floats;
    bool aligned; /* every group of every row is aligned */
};

#define WARPS 8

static __global__ void __launch_bounds__(WARPS *WARP_LANES) bias_backward(struct bias_backward_args args)
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

CUDA_LAUNCHER(bias_backward, bias_backward_args,
              dim3((unsigned)args->parts, (unsigned)(args->strip_floats / CUDA_TILE_COLUMNS)), dim3(WARPS *WARP_LANES),
              args->operand[BIAS_BACKWARD_DY], args->workspace, args->rows, args->columns, args->parts,
              args->strip_floats, args->walk.aligned)
