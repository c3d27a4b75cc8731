/* cross_entropy: losses and, in place, the gradient of the logits; loss_sum: the sum of losses.
 *
 * A block takes a row and reads it twice, the second time from the cache.  The first pass computes
 * the maximum and the sum of exponentials together: each thread rescales its sum when its maximum
 * rises (Milakov & Gimelshein 2018).  The second pass computes the gradient, which overwrites the
 * row.  Sums are fp32, over a thread's groups in the order of the row, then over the threads as in
 * cuda_device.h.  Columns beyond the vocabulary do not contribute, and become 0 with the gradient.
 */
#include "backends/cuda/cuda_floats.h"

#define THREADS_MAX 512
#define LOSS_THREADS 1024
#define LOG2_E 1.44269504088896f
#define LEAST (-0x1.6p127f) /* about the smallest number whose product with LOG2_E is finite */

/* The largest logit, LOG2_E times it, and the sum of e^(logit - largest). */
struct softmax {
    float largest, zero, sum;
};

/* Adds a group's logits.  A maximum that is not finite makes the sum NaN, as it should be.  The
 * maximum of no logits is finite, so that there is always something to subtract. */
DEVICE void softmax_add(struct softmax *total, const float (&z)[CUDA_GROUP])
{
    float largest = total->largest;
    UNROLLED(k, CUDA_GROUP)
        largest = fmaxf(largest, z[k]);
    const float zero = largest * LOG2_E;
    float sum = 0.0f;
    UNROLLED(k, CUDA_GROUP)
        sum += fast_exp2(fmaf(z[k], LOG2_E, -zero));
    total->sum = fmaf(total->sum, fast_exp2(total->zero - zero), sum);
    total->largest = largest;
    total->zero = zero;
}

/* Returns the result for the whole row, in every thread. */
DEVICE struct softmax row_softmax(const struct cuda_args &args, const struct cuda_floats &row,
                                  float *shared)
{
    struct softmax own = {LEAST, LEAST * LOG2_E, 0.0f};
    const int vocab = args.attrs.vocab;
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < vocab; c += CUDA_GROUP * (int)blockDim.x) {
        float z[CUDA_GROUP];
        cuda_read(row, cuda_span_make(c, args.columns, args.walk.aligned), z);
        if (c + CUDA_GROUP > vocab) {
            UNROLLED(k, CUDA_GROUP)
                z[k] = c + k < vocab ? z[k] : -INFINITY;
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
DEVICE void row_gradient(const struct cuda_args &args, const struct cuda_floats &row,
                         const struct softmax &total, int target, float scale)
{
    const int width = (int)args.columns, vocab = args.attrs.vocab;
    const float share = scale / total.sum;
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < width; c += CUDA_GROUP * (int)blockDim.x) {
        const struct cuda_span span = cuda_span_make(c, width, args.walk.aligned);
        float z[CUDA_GROUP];
        cuda_read(row, span, z);
        UNROLLED(k, CUDA_GROUP)
            z[k] = share * fast_exp2(fmaf(z[k], LOG2_E, -total.zero));
        if ((target >= c && target < c + CUDA_GROUP) || c + CUDA_GROUP > vocab) {
            UNROLLED(k, CUDA_GROUP)
                z[k] = c + k >= vocab ? 0.0f : c + k == target ? z[k] - scale : z[k];
        }
        cuda_write(row, span, z);
    }
}

DEVICE void row_clear(const struct cuda_args &args, const struct cuda_floats &row)
{
    const int width = (int)args.columns;
    const float zero[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int c = CUDA_GROUP * (int)threadIdx.x; c < width; c += CUDA_GROUP * (int)blockDim.x)
        cuda_write(row, cuda_span_make(c, width, args.walk.aligned), zero);
}

template <int DTYPE>
static __global__ void __launch_bounds__(THREADS_MAX) cross_entropy(const struct cuda_args args)
{
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    const int64_t n = blockIdx.x;
    const int target = CUDA_POINTER(const int32_t, CROSS_ENTROPY_TARGETS)[n];
    float *loss = CUDA_POINTER(float, CROSS_ENTROPY_LOSSES) + n;
    struct cuda_floats row = args.operand[CROSS_ENTROPY_LOGITS];
    cuda_dtype_fix<DTYPE>(&row);
    row.memory = (char *)row.memory + n * args.columns * (row.dtype == DTYPE_F32 ? 4 : 2);
    if (target < 0) {
        if (threadIdx.x == 0)
            *loss = 0.0f;
        if (args.attrs.gradient)
            row_clear(args, row);
        return;
    }
    /* Read before the row is overwritten: the barriers of the sum are in between. */
    const float correct = threadIdx.x == 0 ? cuda_read_one(row, target) : 0.0f;
    const struct softmax total = row_softmax(args, row, shared);
    if (threadIdx.x == 0)
        *loss = logf(total.sum) + (total.largest - correct);
    if (args.attrs.gradient)
        row_gradient(
            args, row, total, target,
            CUDA_POINTER(const union scalar_word, CROSS_ENTROPY_SCALARS)[SCALAR_LOSS_GRADIENT].f);
}

static __global__ void __launch_bounds__(LOSS_THREADS) loss_sum(const struct cuda_args args)
{
    SHARED(float, shared, CUDA_REDUCE_WORDS);
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t n = threadIdx.x; n < args.walk.elements; n += LOSS_THREADS)
        sum += CUDA_POINTER(const float, LOSS_SUM_LOSSES)[n];
    sum = cuda_block_sum(sum, shared);
    if (threadIdx.x == 0)
        CUDA_POINTER(union scalar_word, LOSS_SUM_SCALARS)[SCALAR_LOSS_SUM].f += sum;
}

CUDA_LAUNCHER(cross_entropy,
              cuda_by_dtype(cuda_dtype_common(args, CROSS_ENTROPY_LOGITS),
                            [](auto dtype) { return cross_entropy<dtype()>; }),
              dim3((unsigned)args.rows), dim3((unsigned)args.threads))
CUDA_LAUNCHER(loss_sum, loss_sum, dim3(1), dim3(LOSS_THREADS))
