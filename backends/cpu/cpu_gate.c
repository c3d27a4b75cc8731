/* gate_forward and gate_backward, one head of a row at a time.
 *
 * With gains, r and the mean of the gradient's products are computed first, in fp64. dgain is
 * summed in parts of the rows, whose number follows from the shape, and the parts are added in
 * order.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

struct gate {
    struct cpu_floats x, z, out, dy, dz; /* out: y, or dx */
    const float *gain;                   /* NULL: no norm */
    int64_t heads, size;
    int64_t z_row, z_head, z_first; /* columns of z: per row, per head, before the first head */
    enum gate_kind kind;
    bool is_backward, adds; /* adds: to dz */
    float epsilon;
};

static float head_r(const struct gate *gate, const float *x)
{
    double square = 0.0;
    CPU_SIMD_SUM(i, gate->size, square)
        square += (double)x[i] * (double)x[i];
    return (float)(1.0 / sqrt(square / (double)gate->size + (double)gate->epsilon));
}

static void head_forward(const struct gate *gate, int64_t at, int64_t z_at)
{
    float buffer[2][CPU_BLOCK];
    const int64_t size = gate->size;
    const float *x = cpu_floats_read(gate->x, at, size, buffer[0]),
                *z = cpu_floats_read(gate->z, z_at, size, buffer[1]);
    float *y = cpu_floats_place(gate->out, at, buffer[0]);
    const float r = gate->gain != NULL ? head_r(gate, x) : 1.0f;
    CPU_SIMD(i, size) {
        const float u = gate->gain != NULL ? x[i] * r * gate->gain[i] : x[i];
        y[i] = u * gate_of(z[i], gate->kind);
    }
    cpu_floats_write(gate->out, at, size, y);
}

/* Computes dx from dy, and writes dz or adds to it.  With a norm, dx first has the gradient of the
 * normalised values. */
static void head_backward(const struct gate *gate, int64_t at, int64_t z_at, double *dgain)
{
    float buffer[5][CPU_BLOCK];
    const int64_t size = gate->size;
    const float *x = cpu_floats_read(gate->x, at, size, buffer[0]),
                *z = cpu_floats_read(gate->z, z_at, size, buffer[1]),
                *dy = cpu_floats_read(gate->dy, at, size, buffer[2]), *gain = gate->gain;
    float *dx = cpu_floats_place(gate->out, at, buffer[3]), *dz = buffer[4];
    const float r = gain != NULL ? head_r(gate, x) : 1.0f;
    double product = 0.0;
    if (gate->adds)
        cpu_floats_copy(gate->dz, z_at, size, dz);
    for (int64_t i = 0; i < size; i++) {
        const float normal = x[i] * r, du = dy[i] * gate_of(z[i], gate->kind),
                    g = gain != NULL ? gain[i] : 1.0f,
                    slope = dy[i] * (normal * g) * gate_slope(z[i], gate->kind);
        dz[i] = gate->adds ? dz[i] + slope : slope;
        dx[i] = du * g;
        product += (double)dx[i] * (double)normal;
        if (gain != NULL)
            dgain[i] += (double)du * (double)normal;
    }
    const float mean = (float)(product / (double)size);
    for (int64_t i = 0; i < size && gain != NULL; i++)
        dx[i] = r * (dx[i] - x[i] * r * mean);
    cpu_floats_write(gate->out, at, size, dx);
    cpu_floats_write(gate->dz, z_at, size, dz);
}

/* Clears columns first .. end - 1 of a row of dz. */
static void columns_clear(const struct gate *gate, int64_t n, int64_t first, int64_t end)
{
    const size_t bytes = dtype_size_bytes(gate->dz.dtype);
    memset((char *)gate->dz.memory + (size_t)(n * gate->z_row + first) * bytes, 0,
           (size_t)(end - first) * bytes);
}

static void row_run(const struct gate *gate, int64_t n, double *dgain)
{
    int64_t cleared = 0;
    for (int64_t head = 0; head < gate->heads; head++) {
        const int64_t at = (n * gate->heads + head) * gate->size,
                      column = gate->z_first + head * gate->z_head;
        if (!gate->is_backward) {
            head_forward(gate, at, n * gate->z_row + column);
            continue;
        }
        if (!gate->adds)
            columns_clear(gate, n, cleared, column);
        head_backward(gate, at, n * gate->z_row + column, dgain);
        cleared = column + gate->size;
    }
    if (gate->is_backward && !gate->adds)
        columns_clear(gate, n, cleared, gate->z_row);
}

/* A head must fit the buffers. */
static bool gate_supports(const struct op_call *call)
{
    return op_columns(call, GATE_FORWARD_X) / call->attrs.heads <= CPU_BLOCK;
}

/* The workspace has the parts' sums, then the gain in fp32 if it has 16 bits. */
static size_t gate_parts_bytes(const struct op_call *call)
{
    const int64_t parts = cpu_parts(op_rows(call, GATE_FORWARD_X));
    return call->kind == OP_GATE_BACKWARD
               ? (size_t)(parts * op_elements(call, GATE_FORWARD_GAIN)) * sizeof(double)
               : 0;
}

static size_t gate_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct operand *gain = &call->operand[GATE_FORWARD_GAIN];
    (void)cpu;
    return gate_parts_bytes(call) +
           (gain->dtype != DTYPE_F32 ? (size_t)operand_elements(gain) : 0) * sizeof(float);
}

static struct gate gate_make(const struct cpu_backend *cpu, const struct op_call *call)
{
    const bool is_backward = call->kind == OP_GATE_BACKWARD;
    const struct cpu_floats gain = cpu_floats_of(cpu, call, GATE_FORWARD_GAIN);
    const int64_t columns = op_columns(call, GATE_FORWARD_X),
                  z_row = op_columns(call, GATE_FORWARD_Z), size = columns / call->attrs.heads;
    const bool packed = z_row != columns;
    const size_t bytes = gate_workspace_bytes(cpu, call), parts = gate_parts_bytes(call);
    char *workspace = bytes > 0 ? cpu_workspace(cpu, call, bytes) : NULL;
    float *scratch = bytes > parts ? (float *)(void *)(workspace + parts) : NULL;
    return (struct gate){
        .x = cpu_floats_of(cpu, call, GATE_FORWARD_X),
        .z = cpu_floats_of(cpu, call, GATE_FORWARD_Z),
        .out = cpu_floats_of(cpu, call,
                             is_backward ? (int32_t)GATE_BACKWARD_DX : (int32_t)GATE_FORWARD_Y),
        .dy = cpu_floats_of(cpu, call, GATE_BACKWARD_DY),
        .dz = cpu_floats_of(cpu, call, GATE_BACKWARD_DZ),
        .gain = gain.memory != NULL ? cpu_floats_read(gain, 0, size, scratch) : NULL,
        .heads = call->attrs.heads,
        .size = size,
        .z_row = z_row,
        .z_head = packed ? 2 * size : size,
        .z_first = packed ? size : 0,
        .kind = call->attrs.gate,
        .is_backward = is_backward,
        .adds = is_backward && op_accumulates(call, GATE_BACKWARD_DZ),
        .epsilon = call->attrs.epsilon,
    };
}

static void gate_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct gate gate = gate_make(cpu, call);
    const int64_t rows = op_rows(call, GATE_FORWARD_X), parts = cpu_parts(rows),
                  sums = gate_parts_bytes(call) > 0 ? gate.size : 0;
    double *partial = sums > 0 ? cpu_workspace(cpu, call, gate_parts_bytes(call)) : NULL;
    CPU_PARALLEL(part, parts, 1, rows * gate.heads * gate.size) {
        double *dgain = sums > 0 ? partial + part * sums : NULL;
        if (sums > 0)
            memset(dgain, 0, (size_t)sums * sizeof *dgain);
        for (int64_t n = cpu_part_begin(rows, parts, part);
             n < cpu_part_begin(rows, parts, part + 1); n++)
            row_run(&gate, n, dgain);
    }
    if (sums > 0)
        cpu_parts_add(cpu, call, GATE_BACKWARD_DGAIN, partial, sums, parts);
}

const struct cpu_op CPU_NAME(cpu_gate_forward) = {
    .supports = gate_supports, .workspace_bytes = gate_workspace_bytes, .run = gate_run};
const struct cpu_op CPU_NAME(cpu_gate_backward) = {
    .supports = gate_supports, .workspace_bytes = gate_workspace_bytes, .run = gate_run};
