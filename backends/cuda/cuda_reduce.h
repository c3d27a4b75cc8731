/* Sums and maxima over the threads of a block, in an order that the shape of the block fixes.
 *
 * Each warp reduces by the shuffles of cuda_device.h.  Then every warp reduces the warps' results from shared memory,
 * so that each thread has the result.  Blocks are whole warps, and all threads take part.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_REDUCE_H
#define GPT_TRAIN_CUDA_CUDA_REDUCE_H

#include "backends/cuda/cuda_floats.h"

/* Shared memory for the functions below, in floats: one for each warp of the largest block. */
#define CUDA_REDUCE_WORDS 32

DEVICE int cuda_lane(void)
{
    return (int)threadIdx.x % WARP_LANES;
}

DEVICE int cuda_warp(void)
{
    return (int)threadIdx.x / WARP_LANES;
}

DEVICE int cuda_warps(void)
{
    return (int)blockDim.x / WARP_LANES;
}

/* The sum, or the largest value, over each run of LANES lanes, in all of them. */
template <int LANES> DEVICE float cuda_lanes_sum(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

template <int LANES> DEVICE float cuda_lanes_max(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Returns in lane i the value of warp i's first lane, and `missing` in lanes beyond the last warp.  The second barrier
 * lets the next call write `shared` again. */
DEVICE float cuda_warps_gather(float value, float missing, float *shared)
{
    if (cuda_lane() == 0)
        shared[cuda_warp()] = value;
    __syncthreads();
    const float gathered = cuda_lane() < cuda_warps() ? shared[cuda_lane()] : missing;
    __syncthreads();
    return gathered;
}

DEVICE float cuda_block_sum(float value, float *shared)
{
    return warp_sum(cuda_warps_gather(warp_sum(value), 0.0f, shared));
}

/* NaN when any thread has a NaN. */
DEVICE float cuda_block_max(float value, float *shared)
{
    return warp_max(cuda_warps_gather(warp_max(value), -INFINITY, shared));
}

#endif
