/* cross_entropy: losses and, in place, the gradient of the logits; loss_sum: the sum of losses.
 *
 * A block takes a row and goes through it twice.  The first pass computes the maximum and the sum
 * of exponentials together: each thread rescales its sum when its maximum rises (Milakov &
 * Gimelshein 2018).  The second pass computes the gradient, which overwrites the row.  Registers
 * keep the row for it, of 16 bits as far as they reach, because several rows on each multiprocessor
 * exceed the L2 caches of many cards; what they do not keep is read again.  Sums are fp32, over a
 * thread's groups in the order of the row, then over the threads as in cuda_device.h.  Columns
 * beyond the vocabulary do not contribute, and become 0 with the gradient.
 */
#include "backends/cuda/cuda_floats.h"

#define THREADS_MAX 512
#define LOSS_THREADS 1024
/* Groups that a thread keeps: 53,248 columns of 512 threads. */
template <int DTYPE> constexpr int kept_groups = DTYPE == DTYPE_COUNT ? 0 : 13;
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

/* Returns the span of the group at column `c`: whole and aligned in instances for a dtype. */
template <int DTYPE> DEVICE struct cuda_span group_at(const struct cuda_args &args, int c)
{
    if constexpr (DTYPE == DTYPE_COUNT)
        return cuda_span_make(c, args.columns, args.walk.aligned);
    return {c, CUDA_GROUP, true};
}

/* A row of logits, and the first groups of this thread. */
template <int DTYPE> struct row {
    struct cuda_floats at;
    uint4 kept[kept_groups<DTYPE> + 1]; /* the last one is none */
};

/* Calls body(c, z) for this thread's groups before column `end`. */
template <int DTYPE, typename Body>
DEVICE void row_each(const struct cuda_args &args, const struct row<DTYPE> &row, int end, Body body)
{
    const int step = CUDA_GROUP * (int)blockDim.x;
    int c = CUDA_GROUP * (int)threadIdx.x;
    float z[CUDA_GROUP];
    UNROLLED(i, kept_groups<DTYPE>) {
        if (c < end) {
            cuda_unpack({row.kept[i], make_uint4(0, 0, 0, 0)}, row.at.dtype, z);
            body(c, z);
        }
        c += step;
    }
    for (; c < end; c += step) {
        cuda_read(row.at, group_at<DTYPE>(args, c), z);
        body(c, z);
    }
}

/* Returns the result for the whole row, in every thread. */
template <int DTYPE>
DEVICE struct softmax row_softmax(const struct cuda_args &args, const struct row<DTYPE> &row,
                                  float *shared)
{
    struct softmax own = {LEAST, LEAST * LOG2_E, 0.0f};
    const int vocab = args.attrs.vocab;
    row_each(args, row, vocab, [&](int c, float(&z)[CUDA_GROUP]) {
        if (c + CUDA_GROUP > vocab) {
            UNROLLED(k, CUDA_GROUP)
                z[k] = c + k < vocab ? z[k] : -INFINITY;
        }
        softmax_add(&own, z);
    });
    struct softmax total;
    total.largest = cuda_block_max(own.largest, shared);
    total.zero = total.largest * LOG2_E;
    total.sum = cuda_block_sum(own.sum * fast_exp2(own.zero - total.zero), shared);
    return total;
}

/* The row becomes (softmax - onehot) scale; zeros when scale is 0, and beyond the vocabulary. */
template <int DTYPE>
DEVICE void row_gradient(const struct cuda_args &args, const struct row<DTYPE> &row,
                         const struct softmax &total, int target, float scale)
{
    const int width = (int)args.columns, vocab = args.attrs.vocab;
    const float share = scale / total.sum;
    row_each(args, row, width, [&](int c, float(&z)[CUDA_GROUP]) {
        UNROLLED(k, CUDA_GROUP)
            z[k] = share * fast_exp2(fmaf(z[k], LOG2_E, -total.zero));
        if ((target >= c && target < c + CUDA_GROUP) || c + CUDA_GROUP > vocab) {
            UNROLLED(k, CUDA_GROUP)
                z[k] = c + k >= vocab ? 0.0f : c + k == target ? z[k] - scale : z[k];
        }
        cuda_write(row.at, group_at<DTYPE>(args, c), z);
    });
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
    struct row<DTYPE> row = {
        args.operand[CROSS_ENTROPY_LOGITS],
        {
        }
    };
    cuda_dtype_fix<DTYPE>(&row.at);
    row.at.memory = (char *)row.at.memory + n * args.columns * (row.at.dtype == DTYPE_F32 ? 4 : 2);
    if (target < 0) {
        if (threadIdx.x == 0)
            *loss = 0.0f;
        if (args.attrs.gradient)
            row_clear(args, row.at);
        return;
    }
    UNROLLED(i, kept_groups<DTYPE>) {
        const int c = CUDA_GROUP * ((int)threadIdx.x + i * (int)blockDim.x);
        if (c < (int)args.columns)
            row.kept[i] = load_16_bytes((const uint16_t *)row.at.memory + c);
    }
    /* Read before the row is overwritten: the barriers of the sum are in between. */
    const float correct = threadIdx.x == 0 ? cuda_read_one(row.at, target) : 0.0f;
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
              cuda_by_dtype(args.walk.aligned ? cuda_dtype_common(args, CROSS_ENTROPY_LOGITS)
                                              : (int)DTYPE_COUNT,
                            [](auto dtype) { return cross_entropy<dtype()>; }),
              dim3((unsigned)args.rows), dim3((unsigned)args.threads))
CUDA_LAUNCHER(loss_sum, loss_sum, dim3(1), dim3(LOSS_THREADS))
