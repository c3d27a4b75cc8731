/* cross_entropy: losses and, in place, the gradient of the logits; loss_sum: their sum.
 *
 * A row is read twice: for its maximum, then for e^(logit - max).  If the gradient is needed,
 * e^(logit - max) overwrites the logits and is scaled in a third pass while it is still in the
 * cache.  Sums run in fp32 lanes over blocks, and in fp64 over the blocks.  Columns from
 * attrs.vocab on are never read.  16-bit logits take the same passes as a row of fp32 in the
 * workspace, one row per thread, and are rounded once.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

#define SUM_BLOCK 256

static float block_exp(const float *logits, float largest, int64_t count)
{
    float sum = 0.0f;
    CPU_SIMD_SUM(i, count, sum)
        sum += cpu_exp(logits[i] - largest);
    return sum;
}

static double row_exp(float *logits, float largest, int64_t count, bool store)
{
    double sum = 0.0;
    for (int64_t begin = 0; begin < count; begin += SUM_BLOCK) {
        const int64_t width = min_i64(SUM_BLOCK, count - begin);
        sum += (double)(store ? cpu_exp_sum(logits + begin, width, largest)
                              : block_exp(logits + begin, largest, width));
    }
    return sum;
}

/* Returns the loss of one row of `width` logits; with `gradient` the row becomes (softmax - onehot)
 * scale. */
static float row_loss(float *row, int64_t vocab, int64_t width, int32_t target, bool gradient,
                      float scale)
{
    if (target < 0) {
        if (gradient)
            memset(row, 0, (size_t)width * sizeof *row);
        return 0.0f;
    }
    assert(target < vocab);
    const float largest = cpu_max_of(row, vocab), correct = row[target];
    const double sum = row_exp(row, largest, vocab, gradient);
    if (gradient) {
        const double share = (double)row[target] / sum;
        const float factor = (float)((double)scale / sum);
        CPU_SIMD(i, vocab)
            row[i] *= factor;
        row[target] = (float)((share - 1.0) * (double)scale);
        memset(row + vocab, 0, (size_t)(width - vocab) * sizeof *row);
    }
    return (float)(log(sum) + ((double)largest - (double)correct));
}

static size_t cross_entropy_workspace_bytes(const struct cpu_backend *cpu,
                                            const struct op_call *call)
{
    const struct operand *logits = &call->operand[CROSS_ENTROPY_LOGITS];
    const size_t row_bytes = cpu_row_floats(logits->dims[1]) * sizeof(float);
    return logits->dtype == DTYPE_F32 ? 0 : (size_t)cpu->threads * row_bytes;
}

static void cross_entropy_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const int32_t *targets = cpu_operand(cpu, call, CROSS_ENTROPY_TARGETS);
    const union scalar_word *scalars = cpu_operand(cpu, call, CROSS_ENTROPY_SCALARS);
    const struct cpu_floats logits = cpu_floats_of(cpu, call, CROSS_ENTROPY_LOGITS);
    float *losses = cpu_operand(cpu, call, CROSS_ENTROPY_LOSSES);
    const int64_t rows = call->operand[CROSS_ENTROPY_LOGITS].dims[0];
    const int64_t width = call->operand[CROSS_ENTROPY_LOGITS].dims[1], vocab = call->attrs.vocab;
    const float scale = scalars[SCALAR_LOSS_GRADIENT].f;
    const bool gradient = call->attrs.gradient;
    const size_t scratch_bytes = cross_entropy_workspace_bytes(cpu, call);
    float *scratch = scratch_bytes > 0 ? cpu_workspace(cpu, call, scratch_bytes) : NULL;
    CPU_PARALLEL(n, rows, 1, rows * width) {
        float *buffer =
            scratch != NULL ? scratch + (size_t)cpu_thread_index() * cpu_row_floats(width) : NULL;
        float *row = cpu_floats_edit(logits, n * width, vocab, buffer);
        losses[n] = row_loss(row, vocab, width, targets[n], gradient, scale);
        if (gradient)
            cpu_floats_write(logits, n * width, width, row);
    }
}

static void loss_sum_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const float *losses = cpu_operand(cpu, call, LOSS_SUM_LOSSES);
    union scalar_word *scalars = cpu_operand(cpu, call, LOSS_SUM_SCALARS);
    const int64_t count = op_elements(call, LOSS_SUM_LOSSES);
    double sum = 0.0;
    CPU_SIMD_SUM(i, count, sum)
        sum += (double)losses[i];
    scalars[SCALAR_LOSS_SUM].f = (float)((double)scalars[SCALAR_LOSS_SUM].f + sum);
}

const struct cpu_op CPU_NAME(cpu_cross_entropy) = {.workspace_bytes = cross_entropy_workspace_bytes,
                                                   .run = cross_entropy_run};
const struct cpu_op CPU_NAME(cpu_loss_sum) = {.run = loss_sum_run};
