/* The values of a step that adamw and adamw_lean read before the loop; they are the same for all elements. */
#ifndef GPT_TRAIN_CPU_CPU_ADAMW_H
#define GPT_TRAIN_CPU_CPU_ADAMW_H

#include <assert.h>
#include <stdbool.h>

#include "backends/cpu/cpu.h"
#include "ops/op.h"

struct cpu_adamw_step {
    float clip, learning_rate, beta1, beta2, rest1, rest2, correction1, correction2, epsilon, weight_decay;
};

/* Returns false when the update must be skipped: clip_factor found an infinity. */
static inline bool cpu_adamw_step_read(const union scalar_word *scalars, const float *corrections, int64_t rows,
                                       const struct op_attrs *attrs, struct cpu_adamw_step *out)
{
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return false;
    assert(scalars[SCALAR_ADAM_STEP].i >= 1);
    const int64_t row = min_i64(max_i64(scalars[SCALAR_ADAM_STEP].i, 1), rows) - 1;
    *out = (struct cpu_adamw_step){
        .clip = scalars[SCALAR_CLIP].f,
        .learning_rate = scalars[SCALAR_LEARNING_RATE].f,
        .beta1 = attrs->beta1,
        .beta2 = attrs->beta2,
        .rest1 = 1.0f - attrs->beta1,
        .rest2 = 1.0f - attrs->beta2,
        .correction1 = corrections[2 * row],
        .correction2 = corrections[2 * row + 1],
        .epsilon = attrs->epsilon,
        .weight_decay = attrs->weight_decay,
    };
    return true;
}

#endif
