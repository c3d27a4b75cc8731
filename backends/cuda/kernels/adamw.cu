/* adamw: one pass over gradient, parameter, master and both moments, bound by memory.
 *
 * Elementwise in groups of eight, each operand in its own dtype; the loads of all operands are in flight before the
 * first is used.  Arithmetic is fp32 throughout, and the same as adamw_lean's; each result is rounded once.
 */
#include "backends/cuda/cuda_adamw.h"

struct adamw_args {
    struct cuda_floats grad, param, master, first, second; /* master: NULL when absent */
    struct cuda_adamw_step step;
    struct cuda_walk walk;
};

static __global__ void __launch_bounds__(CUDA_WALK_THREADS) adamw(struct cuda_tensors<struct adamw_args> tensors)
{
    unsigned block;
    const struct adamw_args args = cuda_tensor_find(tensors, &block);
    const struct cuda_adamw_factors factors = cuda_adamw_factors_make(args.step);
    if (factors.skip)
        return;
    const bool mastered = args.master.memory != NULL;
    const struct cuda_floats weights = mastered ? args.master : args.param;
    const int64_t end = args.walk.elements;
    for (int64_t begin = cuda_walk_first(block); begin < end; begin += cuda_walk_stride((unsigned)args.walk.blocks)) {
        const struct cuda_span span = cuda_span_make(begin, end, args.walk.aligned);
        const struct cuda_group from_grad = cuda_fetch(args.grad, span), from_weights = cuda_fetch(weights, span);
        const struct cuda_group from_first = cuda_fetch(args.first, span);
        const struct cuda_group from_second = cuda_fetch(args.second, span);
        float grad[CUDA_GROUP], weight[CUDA_GROUP], first[CUDA_GROUP], second[CUDA_GROUP];
        cuda_unpack(from_grad, args.grad.dtype, grad);
        cuda_unpack(from_weights, weights.dtype, weight);
        cuda_unpack(from_first, args.first.dtype, first);
        cuda_unpack(from_second, args.second.dtype, second);
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            cuda_adamw_update(factors, grad[k], &weight[k], &first[k], &second[k]);
        cuda_write(args.param, span, weight);
        if (mastered)
            cuda_write(args.master, span, weight);
        cuda_write(args.first, span, first);
        cuda_write(args.second, span, second);
    }
}

CUDA_TENSORS_LAUNCHER(adamw, struct adamw_args, CUDA_WALK_THREADS, args->operand[ADAMW_GRAD],
                      args->operand[ADAMW_PARAM], args->operand[ADAMW_MASTER], args->operand[ADAMW_M],
                      args->operand[ADAMW_V], cuda_adamw_step_of(args), args->walk)
