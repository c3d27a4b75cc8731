/* The end of a product whose bias has another dtype than its result, or which is added to 16-bit
 * numbers: fp32 sums plus the bias or the numbers, rounded once.
 *
 * cuBLASLt's epilogue only takes a bias of the result's dtype, and rounding a bias or a product to
 * 16 bits before it is added exceeds the bounds of the op.  The sums were written just before and
 * are mostly still in the L2 cache.  Sums of several parts of K (gemm_own.cu) are added in order.
 */
#include "backends/cuda/cuda_floats.h"

#define BLOCKS_MAX 65536
#define PER_BLOCK (CUDA_GROUP * CUDA_WALK_THREADS)

/* The addend is repeated after `period` elements; it may be d, of which a thread reads a group
 * before it writes it. is_wide: groups do not cross the end of a period. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS)
    sums_add(const struct cuda_sums_add_args args, const struct cuda_walk walk, int64_t period,
             bool is_wide)
{
    cuda_walk_each(walk, [&](const struct cuda_span &span) {
        float x[CUDA_GROUP], y[CUDA_GROUP];
        cuda_read(args.sums, span, x);
        for (int part = 1; part < args.parts; part++) {
            const struct cuda_span there = {span.first + part * walk.elements, span.count,
                                            span.whole};
            cuda_read(args.sums, there, y);
            UNROLLED(k, CUDA_GROUP)
                x[k] += y[k];
        }
        if (args.addend.memory == NULL) {
            UNROLLED(k, CUDA_GROUP)
                y[k] = 0.0f;
        } else if (is_wide) {
            cuda_read(args.addend, cuda_span_make(span.first % period, period, walk.aligned), y);
        } else {
            UNROLLED(k, CUDA_GROUP)
                y[k] =
                    k < span.count ? cuda_read_one(args.addend, (span.first + k) % period) : 0.0f;
        }
        UNROLLED(k, CUDA_GROUP)
            x[k] += y[k];
        cuda_write(args.d, span, x);
    });
}

cudaError_t cuda_launch_sums_add(cudaStream_t stream, const struct cuda_sums_add_args *args)
{
    const int64_t elements = args->rows * args->columns,
                  blocks = (elements + PER_BLOCK - 1) / PER_BLOCK;
    const uintptr_t addresses =
        (uintptr_t)args->sums.memory | (uintptr_t)args->addend.memory | (uintptr_t)args->d.memory;
    const struct cuda_walk walk = {elements, (int32_t)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX),
                                   addresses % 16 == 0};
    if (elements == 0)
        return cudaSuccess;
    return LAUNCH(sums_add, dim3((unsigned)walk.blocks), dim3(CUDA_WALK_THREADS), 0, stream, *args,
                  walk, args->addend_is_matrix ? elements : args->columns,
                  args->columns % CUDA_GROUP == 0);
}
