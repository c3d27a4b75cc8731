/* The end of a product whose bias has another dtype than its result, or which is added to 16-bit numbers: fp32 sums
 * plus the bias or the numbers, rounded once.
 *
 * cuBLASLt's epilogue only takes a bias of the result's dtype, and rounding a bias or a product to 16 bits before it is
 * added exceeds the bounds of the op.  When rows are a multiple of eight elements long and the first is aligned, a
 * thread makes eight adjacent elements with 128-bit accesses, else one.  The sums were written just before and are
 * mostly still in the L2 cache.
 */
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_kernels.h"

#define THREADS 256
#define BLOCKS_MAX 65536
#define GROUP 8 /* elements of a thread in the wide kernel */

template <typename D, typename B>
__global__ static void sums_add_wide(const float *sums, const B *addend, D *d, int64_t groups, int64_t period)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t group = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; group < groups; group += step) {
        const int64_t at = group * GROUP;
        const B *here = addend + at % period; /* may be d: read before it is written */
        float values[GROUP];
        for (int i = 0; i < GROUP; i += 4) {
            float four[4];
            load_values<float>(four, sums + at + i);
            for (int k = 0; k < 4; k++)
                values[i + k] = four[k] + to_float(here[i + k]);
        }
        for (int i = 0; i < GROUP; i += vector_length<D>) {
            float part[vector_length<D>];
            for (int k = 0; k < vector_length<D>; k++)
                part[k] = values[i + k];
            store_values<D>(d + at + i, part);
        }
    }
}

template <typename D, typename B>
__global__ static void sums_add_narrow(const float *sums, const B *addend, D *d, int64_t elements, int64_t period)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < elements; at += step)
        d[at] = rounded<D>(sums[at] + to_float(addend[at % period]));
}

template <typename D, typename B> static cudaError_t launch(cudaStream_t stream, const struct cuda_sums_add_args *args)
{
    const int64_t elements = args->rows * args->columns;
    const bool wide = args->columns % GROUP == 0 && (uintptr_t)args->d % 16 == 0;
    const int64_t threads = wide ? elements / GROUP : elements;
    if (elements == 0)
        return cudaSuccess;
    int64_t blocks = (threads + THREADS - 1) / THREADS;
    blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
    const dim3 grid((unsigned)blocks), block(THREADS);
    const B *addend = (const B *)args->addend;
    const int64_t period = args->addend_is_matrix ? elements : args->columns;
    D *d = (D *)args->d;
    if (wide)
        return LAUNCH((sums_add_wide<D, B>), grid, block, 0, stream, args->sums, addend, d, threads, period);
    return LAUNCH((sums_add_narrow<D, B>), grid, block, 0, stream, args->sums, addend, d, elements, period);
}

cudaError_t cuda_launch_sums_add(cudaStream_t stream, const struct cuda_sums_add_args *args)
{
    if (args->d_dtype == DTYPE_BF16 && args->addend_dtype == DTYPE_F32)
        return launch<__nv_bfloat16, float>(stream, args);
    if (args->d_dtype == DTYPE_F16 && args->addend_dtype == DTYPE_F32)
        return launch<__half, float>(stream, args);
    if (args->d_dtype == DTYPE_BF16 && args->addend_dtype == DTYPE_BF16)
        return launch<__nv_bfloat16, __nv_bfloat16>(stream, args);
    if (args->d_dtype == DTYPE_F16 && args->addend_dtype == DTYPE_F16)
        return launch<__half, __half>(stream, args);
    if (args->d_dtype == DTYPE_F32 && args->addend_dtype == DTYPE_BF16)
        return launch<float, __nv_bfloat16>(stream, args);
    if (args->d_dtype == DTYPE_F32 && args->addend_dtype == DTYPE_F16)
        return launch<float, __half>(stream, args);
    return cudaErrorInvalidValue;
}
