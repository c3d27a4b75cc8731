/* What the kernels of adamw and adamw_lean share: the values common to all elements, and the update of one. */
#ifndef GPT_TRAIN_CUDA_CUDA_ADAMW_H
#define GPT_TRAIN_CUDA_CUDA_ADAMW_H

#include "backends/cuda/cuda_floats.h"

static_assert(ADAMW_SCALARS == (int)ADAMW_LEAN_SCALARS && ADAMW_CORRECTIONS == (int)ADAMW_LEAN_CORRECTIONS,
              "cuda_adamw_step_of() reads both ops' operands");

struct cuda_adamw_step {
    const union scalar_word *scalars;
    const float *corrections; /* [rows, 2] */
    int64_t rows;
    float alpha, beta1, beta2, epsilon, weight_decay;
};

static inline struct cuda_adamw_step cuda_adamw_step_of(const struct cuda_args *args)
{
    return {CUDA_POINTER(union scalar_word, ADAMW_SCALARS),
            CUDA_POINTER(const float, ADAMW_CORRECTIONS),
            args->rows,
            args->attrs.alpha,
            args->attrs.beta1,
            args->attrs.beta2,
            args->attrs.epsilon,
            args->attrs.weight_decay};
}

/* Values common to all elements; every thread reads them.  skip: nothing is updated. */
struct cuda_adamw_factors {
    float clip, learning_rate, beta1, beta2, rest1, rest2, correction1, correction2, epsilon, weight_decay;
    bool skip;
};

DEVICE struct cuda_adamw_factors cuda_adamw_factors_make(const struct cuda_adamw_step &step)
{
    const int64_t updates = step.scalars[SCALAR_ADAM_STEP].i;
    const int64_t row = (updates < 1 ? 1 : updates > step.rows ? step.rows : updates) - 1;
    struct cuda_adamw_factors f;
    f.clip = step.scalars[SCALAR_CLIP].f;
    f.learning_rate = __fmul_rn(step.scalars[SCALAR_LEARNING_RATE].f, step.alpha);
    f.beta1 = step.beta1;
    f.beta2 = step.beta2;
    f.rest1 = __fsub_rn(1.0f, step.beta1);
    f.rest2 = __fsub_rn(1.0f, step.beta2);
    f.correction1 = step.corrections[2 * row];
    f.correction2 = step.corrections[2 * row + 1];
    f.epsilon = step.epsilon;
    f.weight_decay = step.weight_decay;
    f.skip = step.scalars[SCALAR_FOUND_INF].i != 0;
    return f;
}

/* Updates one element by adamw_lean's formula: each operation is rounded by itself, in the formula's order, without
 * fusing. */
DEVICE void cuda_adamw_update(const struct cuda_adamw_factors &f, float grad, float *param, float *first, float *second)
{
    const float g = __fmul_rn(grad, f.clip);
    const float m = __fadd_rn(__fmul_rn(f.beta1, *first), __fmul_rn(f.rest1, g));
    const float v = __fadd_rn(__fmul_rn(f.beta2, *second), __fmul_rn(f.rest2, __fmul_rn(g, g)));
    const float root = __fsqrt_rn(__fdiv_rn(v, f.correction2));
    const float move = __fdiv_rn(__fdiv_rn(m, f.correction1), __fadd_rn(root, f.epsilon));
    const float p = *param;
    *first = m;
    *second = v;
    *param = __fsub_rn(p, __fmul_rn(f.learning_rate, __fadd_rn(move, __fmul_rn(f.weight_decay, p))));
}
#endif
