/* adamw and adamw_lean: arguments and launch functions. */
#ifndef GPT_TRAIN_CUDA_CUDA_ADAMW_H
#define GPT_TRAIN_CUDA_CUDA_ADAMW_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

/* The arguments of a step that both ops share. */
struct cuda_adamw_step {
    const union scalar_word *scalars;
    const float *corrections; /* [rows, 2] */
    int64_t rows;
    float beta1, beta2, epsilon, weight_decay;
};

struct cuda_adamw_args {
    struct cuda_floats grad, param, master, first, second; /* master: NULL when absent */
    struct cuda_adamw_step step;
    struct cuda_walk walk;
};

/* param is bf16.  The moments are fp32, bf16 or 8-bit codes.  Codes have `scales`: int8 exponents, [blocks] of m, then
 * [blocks] of v. */
struct cuda_adamw_lean_args {
    struct cuda_floats grad, param, first, second;
    uint8_t *scales;
    int64_t blocks; /* of STATE_BLOCK elements */
    int64_t index_base;
    struct cuda_adamw_step step;
    struct cuda_walk walk;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_launch_adamw(cudaStream_t stream, const struct cuda_adamw_args *args);
cudaError_t cuda_launch_adamw_lean(cudaStream_t stream, const struct cuda_adamw_lean_args *args);
#ifdef __cplusplus
}

#include "backends/cuda/cuda_device.h"

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
    f.learning_rate = step.scalars[SCALAR_LEARNING_RATE].f;
    f.beta1 = step.beta1;
    f.beta2 = step.beta2;
    f.rest1 = sub_rn(1.0f, step.beta1);
    f.rest2 = sub_rn(1.0f, step.beta2);
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
    const float g = mul_rn(grad, f.clip);
    const float m = add_rn(mul_rn(f.beta1, *first), mul_rn(f.rest1, g));
    const float v = add_rn(mul_rn(f.beta2, *second), mul_rn(f.rest2, mul_rn(g, g)));
    const float root = sqrt_rn(div_rn(v, f.correction2));
    const float move = div_rn(div_rn(m, f.correction1), add_rn(root, f.epsilon));
    const float p = *param;
    *first = m;
    *second = v;
    *param = sub_rn(p, mul_rn(f.learning_rate, add_rn(move, mul_rn(f.weight_decay, p))));
}
#endif

#endif
