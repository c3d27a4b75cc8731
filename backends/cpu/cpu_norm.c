/* sum_of_squares and clip_factor: the gradient's norm and the scalars derived from it; adamw, which
 * uses them.
 *
 * Squares are exact in fp64 and summed there, in parts whose number follows from the shape, added
 * in order.  An infinity or a NaN in the gradient, or a norm beyond fp32, makes the norm
 * non-finite, which skips the update.
 *
 * adamw is memory-bound: one pass over gradient, parameter and both moments.  Arithmetic is in fp32
 * for any storage dtype: m, v and the parameter are rounded once, from the fp32 values of this
 * step.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

#define PARTS_MAX 256
#define PART_ELEMENTS 4096
#define LINES_FLOATS 256
#define AHEAD_FLOATS 1024

/* Prefetches, because the processor's own prefetching is too slow for one stream per thread. */
static double block_square(const float *x, int64_t count)
{
    double sum = 0.0;
    for (int64_t begin = 0; begin < count; begin += LINES_FLOATS) {
        for (int64_t i = 0; i < LINES_FLOATS; i += 16)
            __builtin_prefetch(x + begin + AHEAD_FLOATS + i);
        const int64_t end = min_i64(begin + LINES_FLOATS, count);
        CPU_OMP(omp simd reduction(+ : sum))
        for (int64_t i = begin; i < end; i++)
            sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

/* Returns the sum over elements begin .. end - 1: in one piece if they are fp32, else in blocks. */
static double part_square(struct cpu_floats x, int64_t begin, int64_t end)
{
    float buffer[CPU_BLOCK];
    const int64_t step = x.dtype == DTYPE_F32 ? end - begin : CPU_BLOCK;
    double sum = 0.0;
    for (int64_t first = begin; first < end; first += step) {
        const int64_t count = min_i64(step, end - first);
        sum += block_square(cpu_floats_read(x, first, count, buffer), count);
    }
    return sum;
}

static void sum_of_squares_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, SUM_OF_SQUARES_X);
    float *out = cpu_operand(cpu, call, SUM_OF_SQUARES_PARTIAL);
    const int64_t elements = op_elements(call, SUM_OF_SQUARES_X);
    const int64_t parts = min_i64(size_ceil_div(elements, PART_ELEMENTS), PARTS_MAX);
    double partial[PARTS_MAX];
    CPU_PARALLEL(part, parts, 1, elements)
        partial[part] = part_square(x, cpu_part_begin(elements, parts, part),
                                    cpu_part_begin(elements, parts, part + 1));
    double sum = 0.0;
    for (int64_t part = 0; part < parts; part++)
        sum += partial[part];
    *out = (float)sum;
}

static void clip_factor_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const float *partials = cpu_operand(cpu, call, CLIP_FACTOR_PARTIALS);
    union scalar_word *scalars = cpu_operand(cpu, call, CLIP_FACTOR_SCALARS);
    const int64_t count = op_elements(call, CLIP_FACTOR_PARTIALS);
    const double unscale = (double)scalars[SCALAR_UNSCALE].f, limit = (double)call->attrs.clip_max;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)partials[i];
    const double norm = sqrt(sum) * unscale;
    const double ratio = limit / (norm + 1e-6);
    const bool found_inf = !isfinite((float)norm);
    scalars[SCALAR_GRAD_NORM].f = (float)norm;
    scalars[SCALAR_CLIP].f = (float)(limit > 0.0 && ratio < 1.0 ? unscale * ratio : unscale);
    scalars[SCALAR_FOUND_INF].i = found_inf ? 1 : 0;
    if (!found_inf)
        scalars[SCALAR_ADAM_STEP].i++;
}

struct adamw_memory {
    struct cpu_floats grad, param, master, first, second;
};

static void block_update(const struct adamw_step *step, const float *grad, float *param,
                         float *first, float *second, int64_t count)
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
            p - s.learning_rate * ((m / s.correction1) / (sqrtf(v / s.correction2) + s.epsilon) +
                                   s.weight_decay * p);
    }
}

/* Updates elements begin .. begin + count - 1, count <= CPU_BLOCK.  With a master, the update
 * applies to the master. */
static void memory_update(const struct adamw_step *step, const struct adamw_memory *memory,
                          int64_t begin, int64_t count)
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

const struct cpu_op CPU_NAME(cpu_sum_of_squares) = {.run = sum_of_squares_run};
const struct cpu_op CPU_NAME(cpu_clip_factor) = {.run = clip_factor_run};
const struct cpu_op CPU_NAME(cpu_adamw) = {.run = adamw_run};
