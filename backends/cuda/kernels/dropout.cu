/* dropout: y = x times a mask that is a pure function of seed, step, sample, site and element (ops/op.h).  It is its
 * own backward.
 *
 * Elements are numbered through the rows of a sample, and groups of eight share a Philox block, so a block's threads
 * walk through one sample at a time.  Dropped elements become 0, whatever they were.
 */
#include "backends/cuda/cuda_philox.h"

struct dropout_args {
    struct cuda_floats x, y; /* y may be x */
    const union scalar_word *scalars;
    int64_t samples, sample_elements;
    int32_t site;
    uint32_t threshold;
    float scale;
    bool aligned; /* every group of every sample is aligned */
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) dropout(struct dropout_args args)
{
    for (int64_t sample = blockIdx.y; sample < args.samples; sample += gridDim.y) {
        const struct cuda_mask mask = cuda_mask_make(args.scalars, args.site, sample, args.threshold);
        const int64_t begin = sample * args.sample_elements, end = begin + args.sample_elements;
        for (int64_t at = cuda_walk_first(); at < args.sample_elements; at += cuda_walk_stride()) {
            const struct cuda_span span = cuda_span_make(begin + at, end, args.aligned);
            const struct cuda_group from = cuda_fetch(args.x, span);
            const uint32_t kept = cuda_mask_kept(mask, at / CUDA_GROUP);
            float x[CUDA_GROUP];
            cuda_unpack(from, args.x.dtype, x);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                x[k] = (kept >> k & 1u) != 0 ? x[k] * args.scale : 0.0f;
            cuda_write(args.y, span, x);
        }
    }
}

static unsigned samples_at_once(const struct cuda_args *args)
{
    return (unsigned)(args->parts < CUDA_GRID_YZ_MAX ? args->parts : CUDA_GRID_YZ_MAX);
}

CUDA_LAUNCHER(dropout, dropout_args, dim3((unsigned)args->walk.blocks, samples_at_once(args)), dim3(CUDA_WALK_THREADS),
              args->operand[DROPOUT_X], args->operand[DROPOUT_Y], CUDA_POINTER(union scalar_word, DROPOUT_SCALARS),
              args->parts, args->walk.elements, args->attrs.site, args->threshold, args->kept_scale, args->walk.aligned)
