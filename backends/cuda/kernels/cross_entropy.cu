/* cross_entropy: losses and, in place, the gradient of the logits; loss_sum: the sum of losses.
 *
 * A block takes a row and reads it twice, the second time from the cache.  The first pass computes the maximum and the
 * sum of exponentials together: each thread rescales its sum when its maximum rises (Milakov & Gimelshein 2018).  The
 * second pass computes the gradient, which overwrites the row.  Sums are fp32, over a thread's groups in the order of
 * the row, then over the threads as in cuda_reduce.h.  Columns beyond the vocabulary do not contribute, and become 0
 * with the gradient.
 */
#include "backends/cuda/cuda_reduce.h"

struct cross_entropy_args {
    const int32_t *targets;
    const union scalar_word *scalars;
    struct cuda_floats logits;
    float *losses;
    int32_t width, vocab;
    bool gradient;
    bool aligned; /* every group of every row is aligned */
};

struct loss_sum_args {
    const float *losses;
    union scalar_word *scalars;
    int64_t count;
};

#define THREADS_MAX 512
#define LOSS_THREADS 1024
#define LOG2_E 1.44269504088896f
#define LEAST (-0x1.6p127f) /* about the smallest number whose product with LOG2_E is finite */

/* The largest logit, LOG2_E times it, and the sum of e^(logit - largest). */
struct softmax {
    float largest, zero, sum;
};

/* Adds a group's logits.  A maximum that is not finite makes the sum NaN, as it should be.  The maximum of no logits is
 * finite, so that there is always something to subtract. */
DEVICE void softmax_add(struct softmax *total, const float (&z)[CUDA_GROUP])
{
    float largest = total->largest;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        largest = fmaxf(largest, z[k]);
    const float zero = largest * LOG2_E;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        sum += fast_exp2(fmaf(z[k], LOG2_E, -zero));
    total->sum = fmaf(total->sum, fast_exp2(total->zero - zero), sum);
    total->largest = largest;
    total->zero = zero;
}

/* Returns row n of the logits. */
DEVICE struct cuda_floats row_of(const struct cross_entropy_args &args, int64_t n)
{
    const int64_t size = args.logits.dtype == DTYPE_F32 ? 4 : 2;
    struct cuda_floats row = {(char *)args.logits.memory + n * args.width * size, args.logits.dtype};
    return row;
}

/* Returns the result for the whole row, in every thread. */
DEVICE struct softmax row_softmax(const struct cross_entropy_args &args, const struct cuda_floats &row, float *shared)
{
    struct softmax own = {LEAST, LEAST * LOG2_E, 0.0f};
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < args.vocab; c += CUDA_GROUP * (int)blockDim.x) {
        float z[CUDA_GROUP];
        cuda_read(row, cuda_span_make(c, args.width, args.aligned), z);
        if (c + CUDA_GROUP > args.vocab) {
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                z[k] = c + k < args.vocab ? z[k] : -INFINITY;
        }
        softmax_add(&own, z);
    }
    struct softmax total;
    total.largest = cuda_block_max(own.largest, shared);
    total.zero = total.largest * LOG2_E;
    total.sum = cuda_block_sum(own.sum * fast_exp2(own.zero - total.zero), shared);
    return total;
}

/* The row becomes (softmax - onehot) scale; zeros when scale is 0, and beyond the vocabulary. */
DEVICE void row_gradient(const struct cross_entropy_args &args, const struct cuda_floats &row,
                         const struct softmax &total, int target, float scale)
{
    const float share = scale / total.sum;
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < args.width; c += CUDA_GROUP * (int)blockDim.x) {
        const struct cuda_span span = cuda_span_make(c, args.width, args.aligned);
        float z[CUDA_GROUP];
        cuda_read(row, span, z);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            z[k] = share * fast_exp2(fmaf(z[k], LOG2_E, -total.zero));
        if ((target >= c && target < c + CUDA_GROUP) || c + CUDA_GROUP > args.vocab) {
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                z[k] = c + k >= args.vocab ? 0.0f : c + k == target ? z[k] - scale : z[k];
        }
        cuda_write(row, span, z);
    }
}

DEVICE void row_clear(const struct cross_entropy_args &args, const struct cuda_floats &row)
{
    const float zero[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < args.width; c += CUDA_GROUP * (int)blockDim.x)
        cuda_write(row, cuda_span_make(c, args.width, args.aligned), zero);
}

template <int DTYPE> static __global__ void __launch_bounds__(THREADS_MAX) cross_entropy(struct cross_entropy_args args)
{
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    cuda_dtype_fix<DTYPE>(&args.logits);
    const int64_t n = blockIdx.x;
    const int target = args.targets[n];
    const struct cuda_floats row = row_of(args, n);
    if (target < 0) {
        if (threadIdx.x == 0)
            args.losses[n] = 0.0f;
        if (args.gradient)
            row_clear(args, row);
        return;
    }
    /* Read before the row is overwritten: the barriers of the sum are in between. */
    const float correct = threadIdx.x == 0 ? cuda_read_one(row, target) : 0.0f;
    const struct softmax total = row_softmax(args, row, shared);
    if (threadIdx.x == 0)
        args.losses[n] = logf(total.sum) + (total.largest - correct);
    if (args.gradient)
        row_gradient(args, row, total, target, args.scalars[SCALAR_LOSS_GRADIENT].f);
}

static __global__ void __launch_bounds__(LOSS_THREADS) loss_sum(struct loss_sum_args args)
{
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t n = threadIdx.x; n < args.count; n += LOSS_THREADS)
        sum += args.losses[n];
    sum = cuda_block_sum(sum, shared);
    if (threadIdx.x == 0)
        args.scalars[SCALAR_LOSS_SUM].f += sum;
}

CUDA_LAUNCHER_OF(cross_entropy,
                 cuda_by_dtype(cuda_dtype_common(args, CROSS_ENTROPY_LOGITS),
                               [](auto dtype) { return cross_entropy<dtype()>; }),
                 cross_entropy_args, dim3((unsigned)args->rows), dim3((unsigned)args->threads),
                 CUDA_POINTER(const int32_t, CROSS_ENTROPY_TARGETS),
                 CUDA_POINTER(union scalar_word, CROSS_ENTROPY_SCALARS), args->operand[CROSS_ENTROPY_LOGITS],
                 CUDA_POINTER(float, CROSS_ENTROPY_LOSSES), (int32_t)args->columns, args->attrs.vocab,
                 args->attrs.gradient, args->walk.aligned)
CUDA_LAUNCHER(loss_sum, loss_sum_args, dim3(1), dim3(LOSS_THREADS), CUDA_POINTER(const float, LOSS_SUM_LOSSES),
              CUDA_POINTER(union scalar_word, LOSS_SUM_SCALARS), args->walk.elements)
