/* The second stage of sums over rows: adds the parts' strips in a fixed order.
 *
 * A block takes 32 columns of one sum.  Warp w adds parts w, w + 8, ...; then the first warp adds the warps' sums in
 * order, and the old value last, and rounds once.
 */
#include "backends/cuda/cuda_reduce.h"

struct parts_sum_args {
    const float *strips;
    int64_t parts, columns, strip_floats;
    int32_t strips_per_part; /* they are adjacent; strip k has sum k */
    struct cuda_floats out[2];
    bool accumulate[2];
};

#define WARPS 8

static __global__ void __launch_bounds__(WARPS *WARP_LANES) parts_sum(struct parts_sum_args args)
{
    SHARED(float, shared, WARPS *WARP_LANES);
    const int64_t chunk = blockIdx.x, stride = args.strips_per_part * args.strip_floats;
    const float *from = args.strips + blockIdx.y * args.strip_floats + chunk * WARP_LANES + cuda_lane();
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
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++)
        total += shared[warp * WARP_LANES + cuda_lane()];
    /* Selected without an index, which would put the arguments into local memory. */
    const bool second = blockIdx.y != 0, accumulate = second ? args.accumulate[1] : args.accumulate[0];
    const struct cuda_floats out = second ? args.out[1] : args.out[0];
    cuda_write_one(out, column, accumulate ? cuda_read_one(out, column) + total : total);
}

CUDA_LAUNCHER(parts_sum, parts_sum_args,
              dim3((unsigned)(args->strip_floats / WARP_LANES), args->operand[1].memory != NULL ? 2 : 1),
              dim3(WARPS *WARP_LANES), args->workspace, args->parts, args->columns, args->strip_floats, args->strips,
              {args->operand[0], args->operand[1]}, {CUDA_ACCUMULATES(0), CUDA_ACCUMULATES(1)})
