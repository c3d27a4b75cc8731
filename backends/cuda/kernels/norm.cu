/* sum_of_squares and clip_factor: the gradient's norm and what follows from it.
 *
 * A block takes a part of a tensor, reads it once and sums its squares in fp32; one more block for
 * each tensor adds the parts.  A square beyond fp32 is infinite, as the whole sum would be.
 * clip_factor is one block and computes in fp64, so that the norm is finite whenever fp32 can
 * represent it, even if its square is too large.
 */
#include "backends/cuda/cuda_floats.h"

struct sum_of_squares_args {
    struct cuda_floats x;
    float *partials; /* [parts] */
    float *out;
    int64_t elements, parts;
    bool aligned;
};

#define THREADS 512
#define SUM_THREADS 256

static __global__ void __launch_bounds__(THREADS)
    sum_of_squares(struct cuda_tensors<struct sum_of_squares_args> tensors)
{
    unsigned part;
    const struct sum_of_squares_args args = cuda_tensor_find(tensors, &part);
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    /* Parts are whole groups, so that all groups but the tensor's last may be aligned. */
    const struct cuda_part groups =
        cuda_part_of((args.elements + CUDA_GROUP - 1) / CUDA_GROUP, args.parts, part);
    float sum = 0.0f;
#pragma unroll 2
    for (int64_t group = groups.begin + threadIdx.x; group < groups.end; group += THREADS) {
        float x[CUDA_GROUP];
        cuda_read(args.x, cuda_span_make(CUDA_GROUP * group, args.elements, args.aligned), x);
        UNROLLED(k, CUDA_GROUP)
            sum += x[k] * x[k]; /* zeros beyond the end */
    }
    sum = cuda_block_sum(sum, shared);
    if (threadIdx.x == 0)
        args.partials[part] = sum;
}

static __global__ void __launch_bounds__(SUM_THREADS)
    partials_sum(struct cuda_tensors<struct sum_of_squares_args> tensors)
{
    const struct sum_of_squares_args &args = tensors.at[blockIdx.x];
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    float sum = 0.0f;
    for (int64_t part = threadIdx.x; part < args.parts; part += SUM_THREADS)
        sum += args.partials[part];
    sum = cuda_block_sum(sum, shared);
    if (threadIdx.x == 0)
        *args.out = sum;
}

/* Sets the scalars that depend on the norm, as op.h's clip_factor. */
DEVICE void scalars_set(union scalar_word *scalars, double sum, double limit)
{
    const double unscale = (double)scalars[SCALAR_UNSCALE].f, norm = sqrt(sum) * unscale;
    const double ratio = limit / (norm + 1e-6);
    const bool found_inf = !isfinite((float)norm);
    scalars[SCALAR_GRAD_NORM].f = (float)norm;
    scalars[SCALAR_CLIP].f = (float)(limit > 0.0 && ratio < 1.0 ? unscale * ratio : unscale);
    scalars[SCALAR_FOUND_INF].i = found_inf ? 1 : 0;
    if (!found_inf)
        scalars[SCALAR_ADAM_STEP].i++;
}

static __global__ void __launch_bounds__(SUM_THREADS) clip_factor(const struct cuda_args args)
{
    SHARED(double, shared, SUM_THREADS);
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < args.walk.elements; i += SUM_THREADS)
        sum += (double)CUDA_POINTER(const float, CLIP_FACTOR_PARTIALS)[i];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = SUM_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        scalars_set(CUDA_POINTER(union scalar_word, CLIP_FACTOR_SCALARS), shared[0],
                    (double)args.attrs.clip_max);
}

#define SQUARES                                                                                  \
    args.operand[SUM_OF_SQUARES_X], args.workspace, CUDA_POINTER(float, SUM_OF_SQUARES_PARTIAL), \
        args.walk.elements, args.parts, args.walk.aligned
CUDA_TENSORS_LAUNCHER(sum_of_squares, struct sum_of_squares_args, THREADS, SQUARES)
CUDA_TENSORS_LAUNCHER(partials_sum, struct sum_of_squares_args, SUM_THREADS, SQUARES)
CUDA_LAUNCHER(clip_factor, clip_factor, dim3(1), dim3(SUM_THREADS))
