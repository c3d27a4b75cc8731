/* muon_step: applies the orthogonalised direction and the decay to a weight.
 *
 * With a master, the update applies to the master, and the weight is the master rounded to nearest.  Otherwise it
 * applies to the weight itself, which, if bf16, is rounded stochastically, in blocks of STATE_BLOCK elements.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_rounding.h"

struct step_memory {
    struct cpu_floats direction, param, master;
    float rate, scale, decay;
};

static void block_run(const struct step_memory *memory, const struct cpu_rounding *rounding, int64_t begin,
                      int64_t count)
{
    float buffer[2][STATE_BLOCK];
    struct cpu_rounding_bits random;
    const bool mastered = memory->master.memory != NULL;
    const struct cpu_floats weights = mastered ? memory->master : memory->param;
    const float *o = cpu_floats_read(memory->direction, begin, count, buffer[0]);
    float *p = cpu_floats_edit(weights, begin, count, buffer[1]);
    const float rate = memory->rate, scale = memory->scale, decay = memory->decay;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        p[i] = p[i] - rate * (scale * o[i] + decay * p[i]);
    if (mastered || memory->param.dtype == DTYPE_F32) {
        cpu_floats_write(memory->param, begin, count, p);
        return;
    }
    cpu_rounding_fill(rounding, begin, ROUNDING_PARAM, &random);
    cpu_rounding_bf16(p, random.bits, (uint16_t *)memory->param.memory + begin, count);
}

static enum gt_status muon_step_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const union scalar_word *scalars = cpu_operand(backend, call, MUON_STEP_SCALARS);
    const struct step_memory memory = {
        .direction = cpu_floats_of(backend, call, MUON_STEP_O),
        .param = cpu_floats_of(backend, call, MUON_STEP_PARAM),
        .master = cpu_floats_of(backend, call, MUON_STEP_MASTER),
        .rate = scalars[SCALAR_LEARNING_RATE].f * call->attrs.alpha,
        .scale = call->attrs.value,
        .decay = call->attrs.weight_decay,
    };
    const struct cpu_rounding rounding = cpu_rounding_make(scalars, call->attrs.index_base);
    const int64_t elements = op_elements(call, MUON_STEP_PARAM);
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return GT_OK;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += STATE_BLOCK)
        block_run(&memory, &rounding, begin, min_i64(STATE_BLOCK, elements - begin));
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_muon_step) = {.run = muon_step_run};
