/* bias_backward: the sum of the rows of dy.
 *
 * The rows are divided into parts whose number follows from the shape.  Each part sums in fp64 into its strip of the
 * workspace, and the parts are added in order.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

#include <string.h>

static size_t bias_backward_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    (void)cpu;
    const int64_t *dims = call->operand[BIAS_BACKWARD_DY].dims;
    return (size_t)cpu_parts(dims[0]) * (size_t)dims[1] * sizeof(double);
}

/* sum[columns] += the row of dy that begins at element `first`. */
static void row_add(double *sum, struct cpu_floats dy, int64_t first, int64_t columns)
{
    float buffer[CPU_BLOCK];
    for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
        const int64_t count = min_i64(CPU_BLOCK, columns - begin);
        const float *row = cpu_floats_read(dy, first + begin, count, buffer);
        double *to = sum + begin;
        CPU_OMP(omp simd)
        for (int64_t c = 0; c < count; c++)
            to[c] += (double)row[c];
    }
}

static void bias_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats dy = cpu_floats_of(cpu, call, BIAS_BACKWARD_DY);
    const struct cpu_floats dbias = cpu_floats_of(cpu, call, BIAS_BACKWARD_DBIAS);
    const int64_t rows = call->operand[BIAS_BACKWARD_DY].dims[0], columns = call->operand[BIAS_BACKWARD_DY].dims[1];
    const bool accumulate = op_accumulates(call, BIAS_BACKWARD_DBIAS);
    const int64_t parts = cpu_parts(rows);
    double *partial = cpu_workspace(cpu, call, (size_t)parts * (size_t)columns * sizeof(double));
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows * columns)))
    for (int64_t part = 0; part < parts; part++) {
        double *sum = partial + part * columns;
        memset(sum, 0, (size_t)columns * sizeof *sum);
        const int64_t end = cpu_part_begin(rows, parts, part + 1);
        for (int64_t n = cpu_part_begin(rows, parts, part); n < end; n++)
            row_add(sum, dy, n * columns, columns);
    }
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, parts * columns)))
    for (int64_t first = 0; first < columns; first += CPU_PART_COLUMNS)
        cpu_parts_add(dbias, accumulate, partial, columns, parts, first, columns);
}

const struct cpu_op CPU_NAME(cpu_bias_backward) = {.workspace_bytes = bias_backward_workspace_bytes,
                                                   .run = bias_backward_run};
