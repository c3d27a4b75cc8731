/* fill: y = value; copy: y = x, or y += x, from any float dtype to any.
 *
 * Elementwise in groups of eight.  A value is rounded once, to the dtype of y; a copy between equal dtypes moves the
 * bits.
 */
#include "backends/cuda/cuda_floats.h"

struct fill_args {
    struct cuda_floats y;
    float value;
    struct cuda_walk walk;
};

struct copy_args {
    struct cuda_floats x, y; /* y may be x if the dtypes are equal */
    bool accumulate;
    struct cuda_walk walk;
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) fill(struct fill_args args)
{
    const int64_t end = args.walk.elements;
    float value[CUDA_GROUP];
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++)
        value[k] = args.value;
    const struct cuda_group group = cuda_pack(args.y.dtype, value);
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride())
        cuda_put(args.y, cuda_span_make(first, end, args.walk.aligned), group);
}

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) copy(struct copy_args args)
{
    const int64_t end = args.walk.elements;
    for (int64_t first = cuda_walk_first(); first < end; first += cuda_walk_stride()) {
        const struct cuda_span span = cuda_span_make(first, end, args.walk.aligned);
        const struct cuda_group from = cuda_fetch(args.x, span);
        if (args.x.dtype == args.y.dtype && !args.accumulate) {
            cuda_put(args.y, span, from);
            continue;
        }
        float x[CUDA_GROUP];
        cuda_unpack(from, args.x.dtype, x);
        if (args.accumulate) {
            float old[CUDA_GROUP];
            cuda_read(args.y, span, old);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++)
                x[k] += old[k];
        }
        cuda_write(args.y, span, x);
    }
}

CUDA_WALK_LAUNCHER(fill, fill_args, args->operand[FILL_Y], args->attrs.value)
CUDA_WALK_LAUNCHER(copy, copy_args, args->operand[COPY_X], args->operand[COPY_Y], CUDA_ACCUMULATES(COPY_Y))
