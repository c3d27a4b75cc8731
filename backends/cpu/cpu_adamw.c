/* adamw: one pass over gradient, parameter and both moments; memory-bound.
 *
 * Elementwise in blocks; values common to all elements are read before the loop.  The whole update is skipped if
 * clip_factor found an infinity.  Arithmetic is in fp32 for any storage dtype: m, v and the parameter are rounded once,
 * from the fp32 values of this step.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

struct adamw_memory {
    struct cpu_floats grad, param, master, first, second;
};

static void block_update(const struct adamw_step *step, const float *grad, float *param, float *first, float *second,
                         int64_t count)
{
    const struct adamw_step s = *step;
    CPU_SIMD(i, count) {
        const float g = grad[i] * s.clip;
        const float m = s.beta1 * first[i] + s.rest1 * g;
        const float v = s.beta2 * second[i] + s.rest2 * g * g;
        const float p = param[i];
        first[i] = m;
        second[i] = v;
        param[i] =
            p - s.learning_rate * ((m / s.correction1) / (sqrtf(v / s.correction2) + s.epsilon) + s.weight_decay * p);
    }
}

/* Updates elements begin .. begin + count - 1, count <= CPU_BLOCK.  With a master, the update applies to the master. */
static void memory_update(const struct adamw_step *step, const struct adamw_memory *memory, int64_t begin,
                          int64_t count)
{
    float buffer[4][CPU_BLOCK];
    const bool mastered = memory->master.memory != NULL;
    const struct cpu_floats weights = mastered ? memory->master : memory->param;
    const float *grad = cpu_floats_read(memory->grad, begin, count, buffer[0]);
    float *weight = cpu_floats_edit(weights, begin, count, buffer[1]);
    float *first = cpu_floats_edit(memory->first, begin, count, buffer[2]);
    float *second = cpu_floats_edit(memory->second, begin, count, buffer[3]);
    block_update(step, grad, weight, first, second, count);
    cpu_floats_write(memory->param, begin, count, weight);
    if (mastered)
        cpu_floats_write(memory->master, begin, count, weight);
    cpu_floats_write(memory->first, begin, count, first);
    cpu_floats_write(memory->second, begin, count, second);
}

static void adamw_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct adamw_memory memory = {
        .grad = cpu_floats_of(cpu, call, ADAMW_GRAD),
        .param = cpu_floats_of(cpu, call, ADAMW_PARAM),
        .master = cpu_floats_of(cpu, call, ADAMW_MASTER),
        .first = cpu_floats_of(cpu, call, ADAMW_M),
        .second = cpu_floats_of(cpu, call, ADAMW_V),
    };
    const int64_t elements = op_elements(call, ADAMW_PARAM);
    struct adamw_step step;
    if (!cpu_adamw_step_read(cpu, call, &step))
        return;
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements)
        memory_update(&step, &memory, begin, min_i64(CPU_BLOCK, elements - begin));
}

const struct cpu_op CPU_NAME(cpu_adamw) = {.run = adamw_run};
