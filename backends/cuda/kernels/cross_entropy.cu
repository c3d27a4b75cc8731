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
    int64_t width;
    int32_t vocab;
    bool gradient;
    bool aligned; /* every group of every row is aligned */
};

struct loss_sum_args {
    const float *losses;
    union scalar_word *scalars;
    int64_t count;
};

#include <float.h>

#define THREADS_MAX 512
#define LOSS_THREADS 1024

/* The largest logit and the sum of e^(logit - largest). */
struct softmax {
    float largest, sum;
};

/* Adds the group's first `count` logits.  A maximum that is not finite makes the sum NaN, as it should be.  The maximum
 * of no logits is the smallest finite number, so that there is always something to subtract. */
DEVICE void softmax_add(struct softmax *total, const float (&z)[CUDA_GROUP], int count)
{
    float largest = total->largest;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        largest = k < count ? fmaxf(largest, z[k]) : largest;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        sum += k < count ? expf(z[k] - largest) : 0.0f;
    total->sum = total->sum * expf(total->largest - largest) + sum;
    total->largest = largest;
}

/* Returns how many columns of the group at `c` are in the vocabulary, at most eight. */
DEVICE int counted(int64_t c, int32_t vocab)
{
    const int64_t left = vocab - c;
    return left <= 0 ? 0 : left < CUDA_GROUP ? (int)left : CUDA_GROUP;
}

/* Returns the result for the whole row, in every thread. */
DEVICE struct softmax row_softmax(const struct cross_entropy_args &args, int64_t n, float *shared)
{
    struct softmax own = {-FLT_MAX, 0.0f};
    const int64_t begin = n * args.width, stride = (int64_t)blockDim.x * CUDA_GROUP;
    for (int64_t c = CUDA_GROUP * (int64_t)threadIdx.x; c < args.vocab; c += stride) {
        float z[CUDA_GROUP];
        cuda_read(args.logits, cuda_span_make(begin + c, begin + args.width, args.aligned), z);
        softmax_add(&own, z, counted(c, args.vocab));
    }
    struct softmax total;
    total.largest = cuda_block_max(own.largest, shared);
    total.sum = cuda_block_sum(own.sum * expf(own.largest - total.largest), shared);
    return total;
}

/* Row n becomes (softmax - onehot) scale; zeros when scale is 0, and beyond the vocabulary. */
DEVICE void row_gradient(const struct cross_entropy_args &args, int64_t n, const struct softmax &total, int32_t target,
                         float scale)
{
    const int64_t begin = n * args.width, stride = (int64_t)blockDim.x * CUDA_GROUP;
    const float share = 1.0f / total.sum;
    for (int64_t c = CUDA_GROUP * (int64_t)threadIdx.x; c < args.width; c += stride) {
        const struct cuda_span span = cuda_span_make(begin + c, begin + args.width, args.aligned);
        float z[CUDA_GROUP];
        cuda_read(args.logits, span, z);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            const float p = expf(z[k] - total.largest) * share;
            z[k] = c + k < args.vocab ? (c + k == target ? p - 1.0f : p) * scale : 0.0f;
        }
        cuda_write(args.logits, span, z);
    }
}

DEVICE void row_clear(const struct cross_entropy_args &args, int64_t n)
{
    const int64_t begin = n * args.width, stride = (int64_t)blockDim.x * CUDA_GROUP;
    const float zero[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int64_t c = CUDA_GROUP * (int64_t)threadIdx.x; c < args.width; c += stride)
        cuda_write(args.logits, cuda_span_make(begin + c, begin + args.width, args.aligned), zero);
}

static __global__ void __launch_bounds__(THREADS_MAX) cross_entropy(struct cross_entropy_args args)
{
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    const int64_t n = blockIdx.x;
    const int32_t target = args.targets[n];
    if (target < 0) {
        if (threadIdx.x == 0)
            args.losses[n] = 0.0f;
        if (args.gradient)
            row_clear(args, n);
        return;
    }
    /* Read before the row is overwritten: the barriers of the sum are in between. */
    const float correct = threadIdx.x == 0 ? cuda_read_one(args.logits, n * args.width + target) : 0.0f;
    const struct softmax total = row_softmax(args, n, shared);
    if (threadIdx.x == 0)
        args.losses[n] = logf(total.sum) + (total.largest - correct);
    if (args.gradient)
        row_gradient(args, n, total, target, args.scalars[SCALAR_LOSS_GRADIENT].f);
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

CUDA_LAUNCHER(cross_entropy, cross_entropy_args, dim3((unsigned)args->rows), dim3((unsigned)args->threads),
              CUDA_POINTER(const int32_t, CROSS_ENTROPY_TARGETS),
              CUDA_POINTER(union scalar_word, CROSS_ENTROPY_SCALARS), args->operand[CROSS_ENTROPY_LOGITS],
              CUDA_POINTER(float, CROSS_ENTROPY_LOSSES), args->columns, args->attrs.vocab, args->attrs.gradient,
              args->walk.aligned)
CUDA_LAUNCHER(loss_sum, loss_sum_args, dim3(1), dim3(LOSS_THREADS), CUDA_POINTER(const float, LOSS_SUM_LOSSES),
              CUDA_POINTER(union scalar_word, LOSS_SUM_SCALARS), args->walk.elements)
