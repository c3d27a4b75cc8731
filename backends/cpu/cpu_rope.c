/* rope_forward and rope_backward, one head of a row at a time.
 *
 * The backward pass rotates the other way.  With gains, the sums of squares and of the gradient's
 * products are computed first, in fp64, then the results. dgain is summed as in layernorm: in parts
 * of the rows, whose number follows from the shape, added in order.
 */
#include "backends/cpu/cpu_half.h"

#include <math.h>

/* The forward's slot names also hold for the first operands of the backward. */
struct rope {
    struct cpu_floats in, x, out;      /* in: x or dy, or out if in place; x: backward with gains */
    const float *table, *gain;         /* gain: NULL if absent */
    int64_t row, x_row;                /* columns of y and dy; of x and dx */
    int64_t size, half, heads, turned; /* columns of a head; pairs that rotate; heads of queries;
                                          heads of queries and keys */
    int64_t position, time;
    bool is_whole;          /* a mean is over all heads */
    bool in_place;          /* in is out, and the values (v) stay */
    bool is_backward, adds; /* adds: to dx */
    const struct op_attrs *attrs;
};

/* A row's number, cosines and sines, and, for the heads that share a mean, r and mean(dz g xh). */
struct row {
    int64_t n;
    const float *cosine, *sine;
    float r, product;
};

/* Returns the index of a head's first gain. */
static int64_t gain_of(const struct rope *rope, int64_t head)
{
    return (rope->is_whole ? head : head < rope->heads ? 0 : 1) * rope->size;
}

/* Returns the first element of a head of row n in x and dx; plain_at() does so in y and dy. */
static int64_t wide_at(const struct rope *rope, int64_t n, int64_t head)
{
    return n * rope->x_row + op_rope_place(rope->attrs, head) * rope->size;
}

static int64_t plain_at(const struct rope *rope, int64_t n, int64_t head)
{
    return n * rope->row + head * rope->size;
}

/* Sets out[size] to `in`, rotated by the angles times `sign`; out may be in. */
static void head_turn(const struct rope *rope, const struct row *row, float sign, const float *in,
                      float *out)
{
    const int64_t half = rope->half, rest = rope->size - 2 * half;
    CPU_SIMD(i, half) {
        const float a = in[i], b = in[i + half], sine = sign * row->sine[i];
        out[i] = a * row->cosine[i] - b * sine;
        out[i + half] = b * row->cosine[i] + a * sine;
    }
    memmove(out + 2 * half, in + 2 * half, (size_t)rest * sizeof *out);
}

static void head_turn_normal(const struct rope *rope, const struct row *row, const float *gain,
                             const float *in, float *out)
{
    const int64_t half = rope->half;
    CPU_SIMD(i, half) {
        const float a = in[i] * row->r * gain[i], b = in[i + half] * row->r * gain[i + half];
        out[i] = a * row->cosine[i] - b * row->sine[i];
        out[i + half] = b * row->cosine[i] + a * row->sine[i];
    }
    for (int64_t i = 2 * half; i < rope->size; i++)
        out[i] = in[i] * row->r * gain[i];
}

/* Computes r and the mean of heads first .. end - 1. */
static void means_make(const struct rope *rope, struct row *row, int64_t first, int64_t end)
{
    const int64_t size = rope->size;
    double square = 0.0, product = 0.0;
    for (int64_t head = first; head < end; head++) {
        float buffer[2][CPU_BLOCK];
        const int64_t wide = wide_at(rope, row->n, head),
                      at = rope->is_backward ? plain_at(rope, row->n, head) : wide;
        const float *in = cpu_floats_read(rope->in, at, size, buffer[0]), *x = in,
                    *gain = rope->gain + gain_of(rope, head);
        if (rope->is_backward) {
            x = cpu_floats_read(rope->x, wide, size, buffer[1]);
            head_turn(rope, row, -1.0f, in, buffer[0]);
            const float *dz = buffer[0];
            CPU_SIMD_SUM(i, size, product)
                product += (double)(dz[i] * gain[i]) * (double)x[i];
        }
        CPU_SIMD_SUM(i, size, square)
            square += (double)x[i] * (double)x[i];
    }
    const double count = (double)((end - first) * size),
                 r = 1.0 / sqrt(square / count + (double)rope->attrs->epsilon);
    row->r = (float)r;
    row->product = (float)(r * product / count);
}

/* Computes dx[size] of a head from dz, and adds the head's part of dgain. */
static void gradient_make(const struct row *row, int64_t size, const float *gain, const float *x,
                          const float *dz, float *dx, double *dgain)
{
    const float r = row->r, product = row->product;
    CPU_SIMD(i, size) {
        const float normal = x[i] * r;
        dgain[i] += (double)dz[i] * (double)normal;
        dx[i] = r * (dz[i] * gain[i] - normal * product);
    }
}

/* Writes a head's result, or adds it to dx. */
static void head_store(const struct rope *rope, int64_t at, const float *values)
{
    float buffer[CPU_BLOCK];
    if (rope->adds) {
        float *sum = cpu_floats_edit(rope->out, at, rope->size, buffer);
        CPU_SIMD(i, rope->size)
            sum[i] += values[i];
        values = sum;
    }
    cpu_floats_write(rope->out, at, rope->size, values);
}

static void head_make(const struct rope *rope, const struct row *row, int64_t head, double *dgain)
{
    float buffer[3][CPU_BLOCK];
    const int64_t size = rope->size, wide = wide_at(rope, row->n, head),
                  plain = plain_at(rope, row->n, head), gains = gain_of(rope, head),
                  at = rope->is_backward ? plain : wide, to = rope->is_backward ? wide : plain;
    const float *in = cpu_floats_read(rope->in, at, size, buffer[0]);
    float *out = rope->adds ? buffer[2] : cpu_floats_place(rope->out, to, buffer[0]);
    if (rope->gain == NULL) {
        head_turn(rope, row, rope->is_backward ? -1.0f : 1.0f, in, out);
    } else if (rope->is_backward) {
        head_turn(rope, row, -1.0f, in, buffer[0]);
        gradient_make(row, size, rope->gain + gains,
                      cpu_floats_read(rope->x, wide, size, buffer[1]), buffer[0], out,
                      dgain + gains);
    } else {
        head_turn_normal(rope, row, rope->gain + gains, in, out);
    }
    head_store(rope, to, out);
}

static void values_make(const struct rope *rope, int64_t n)
{
    float buffer[CPU_BLOCK];
    const int64_t wide = wide_at(rope, n, rope->turned), plain = plain_at(rope, n, rope->turned),
                  count = rope->row - rope->turned * rope->size;
    if (!rope->adds)
        cpu_floats_move(rope->out, rope->is_backward ? wide : plain, rope->in,
                        rope->is_backward ? plain : wide, count);
    for (int64_t at = 0; at < count && rope->adds; at += rope->size)
        head_store(rope, wide + at, cpu_floats_read(rope->in, plain + at, rope->size, buffer));
}

static void row_make(const struct rope *rope, int64_t n, double *dgain)
{
    const float *angles = rope->table + (rope->position + n % rope->time) * 2 * rope->half;
    struct row row = {.n = n, .cosine = angles, .sine = angles + rope->half};
    for (int64_t head = 0; head < rope->turned; head++) {
        const int64_t end = !rope->is_whole      ? head + 1
                            : head < rope->heads ? rope->heads
                                                 : rope->turned;
        if (rope->gain != NULL && (!rope->is_whole || head == 0 || head == rope->heads))
            means_make(rope, &row, head, end);
        head_make(rope, &row, head, dgain);
    }
    if (!rope->in_place)
        values_make(rope, n);
}

/* A head must fit the buffers. */
static bool rope_supports(const struct op_call *call)
{
    return op_rope_size(call) <= CPU_BLOCK;
}

/* The workspace has the parts' sums, then the gain in fp32 if it has 16 bits or an offset. */
static size_t parts_bytes(const struct op_call *call)
{
    const int64_t parts = cpu_parts(op_rows(call, op_rope_rows(call)));
    return call->kind == OP_ROPE_BACKWARD
               ? (size_t)(parts * op_elements(call, ROPE_FORWARD_GAIN)) * sizeof(double)
               : 0;
}

static size_t rope_workspace_bytes(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct operand *gain = &call->operand[ROPE_FORWARD_GAIN];
    const bool converts = gain->dtype != DTYPE_F32 || call->attrs.gain_offset != 0.0f;
    (void)cpu;
    return parts_bytes(call) + (converts ? (size_t)operand_elements(gain) * sizeof(float) : 0);
}

/* Returns the gains plus their offset, in `scratch` if they must be converted or added to; NULL if
 * absent. */
static const float *gains_read(struct cpu_floats gain, int64_t gains, float offset, float *scratch)
{
    const float *values = gain.memory != NULL ? cpu_floats_read(gain, 0, gains, scratch) : NULL;
    if (values == NULL || offset == 0.0f)
        return values;
    for (int64_t i = 0; i < gains; i++)
        scratch[i] = values[i] + offset;
    return scratch;
}

static struct rope rope_of(const struct cpu_backend *cpu, const struct op_call *call)
{
    const union scalar_word *scalars = cpu_operand(cpu, call, ROPE_FORWARD_SCALARS);
    const struct cpu_floats gain = cpu_floats_of(cpu, call, ROPE_FORWARD_GAIN);
    const int64_t gains = op_elements(call, ROPE_FORWARD_GAIN), size = op_rope_size(call);
    const size_t bytes = rope_workspace_bytes(cpu, call);
    char *workspace = bytes > 0 ? cpu_workspace(cpu, call, bytes) : NULL;
    float *scratch =
        bytes > parts_bytes(call) ? (float *)(void *)(workspace + parts_bytes(call)) : NULL;
    const struct rope rope = {
        .in = cpu_floats_of(cpu, call, op_rope_rows(call)),
        .out = cpu_floats_of(cpu, call, ROPE_FORWARD_Y),
        .x = cpu_floats_of(cpu, call, ROPE_BACKWARD_X),
        .table = cpu_operand(cpu, call, ROPE_FORWARD_TABLE),
        .gain = gains_read(gain, gains, call->attrs.gain_offset, scratch),
        .row = (call->attrs.heads + 2 * call->attrs.kv_heads) * size,
        .x_row = op_rope_place(&call->attrs, call->attrs.heads + 2 * call->attrs.kv_heads) * size,
        .size = size,
        .half = op_columns(call, ROPE_FORWARD_TABLE) / 2,
        .heads = call->attrs.heads,
        .turned = call->attrs.heads + call->attrs.kv_heads,
        .position = scalars[SCALAR_POSITION].i,
        .time = call->attrs.time,
        .is_whole = gains != 0 && gains != 2 * size,
        .in_place = op_rope_in_place(call),
        .is_backward = call->kind == OP_ROPE_BACKWARD,
        .adds = call->kind == OP_ROPE_BACKWARD && call->attrs.gated,
        .attrs = &call->attrs,
    };
    assert(rope.position >= 0 && rope.position + rope.time <= op_rows(call, ROPE_FORWARD_TABLE));
    return rope;
}

static void rope_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct rope rope = rope_of(cpu, call);
    const int64_t rows = op_rows(call, op_rope_rows(call)), parts = cpu_parts(rows);
    const int64_t sums = parts_bytes(call) > 0 ? op_elements(call, ROPE_FORWARD_GAIN) : 0;
    double *partial = sums > 0 ? cpu_workspace(cpu, call, parts_bytes(call)) : NULL;
    CPU_PARALLEL(part, parts, 1, rows * rope.row) {
        double *dgain = sums > 0 ? partial + part * sums : NULL;
        if (sums > 0)
            memset(dgain, 0, (size_t)sums * sizeof *dgain);
        for (int64_t n = cpu_part_begin(rows, parts, part);
             n < cpu_part_begin(rows, parts, part + 1); n++)
            row_make(&rope, n, dgain);
    }
    if (sums > 0)
        cpu_parts_add(cpu, call, ROPE_BACKWARD_DGAIN, partial, sums, parts);
}

const struct cpu_op CPU_NAME(cpu_rope_forward) = {
    .supports = rope_supports, .workspace_bytes = rope_workspace_bytes, .run = rope_run};
const struct cpu_op CPU_NAME(cpu_rope_backward) = {
    .supports = rope_supports, .workspace_bytes = rope_workspace_bytes, .run = rope_run};
