/* fill, copy, residual, gelu and swiglu forward and backward, and dropout.
 *
 * They run in blocks of fixed size, with 16-bit operands converted to fp32.  A result may replace
 * an input at the same place, and is rounded once.  A copy between equal dtypes copies the bytes.
 *
 * dropout: y = x times a mask that is a pure function of seed, step, sample, site and element
 * (ops/op.h).  The op is its own backward.  Elements are numbered through all rows of a sample.
 * Blocks start at multiples of eight of these numbers, so that the eight elements that share a
 * Philox block are never in different blocks.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_philox.h"

static void fill(const struct op_attrs *attrs, const float *const *in, float *out, int64_t count)
{
    const float value = attrs->value;
    (void)in;
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
}

static void residual(const struct op_attrs *attrs, const float *const *in, float *out,
                     int64_t count)
{
    const float *x = in[0], *y = in[1];
    (void)attrs;
    CPU_SIMD(i, count)
        out[i] = x[i] + y[i];
}

static void gelu_forward(const struct op_attrs *attrs, const float *const *in, float *out,
                         int64_t count)
{
    const float *x = in[0];
    if (attrs->gelu == GELU_TANH) {
        CPU_SIMD(i, count)
            out[i] = gelu(x[i], GELU_TANH);
        return;
    }
    CPU_SIMD(i, count)
        out[i] = gelu(x[i], GELU_ERF);
}

static void gelu_backward(const struct op_attrs *attrs, const float *const *in, float *out,
                          int64_t count)
{
    const float *dy = in[0], *x = in[1];
    if (attrs->gelu == GELU_TANH) {
        CPU_SIMD(i, count)
            out[i] = dy[i] * gelu_slope(x[i], GELU_TANH);
        return;
    }
    CPU_SIMD(i, count)
        out[i] = dy[i] * gelu_slope(x[i], GELU_ERF);
}

CPU_ELEMENTWISE(fill)
CPU_ELEMENTWISE(residual)
CPU_ELEMENTWISE(gelu_forward)
CPU_ELEMENTWISE(gelu_backward)

static void copy_add(struct cpu_floats x, struct cpu_floats y, int64_t begin, int64_t count)
{
    float buffer[2][CPU_BLOCK];
    const float *from = cpu_floats_read(x, begin, count, buffer[0]);
    float *to = cpu_floats_edit(y, begin, count, buffer[1]);
    CPU_SIMD(i, count)
        to[i] += from[i];
    cpu_floats_write(y, begin, count, to);
}

static void copy_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, COPY_X),
                            y = cpu_floats_of(cpu, call, COPY_Y);
    const int64_t elements = op_elements(call, COPY_X);
    const bool accumulate = op_accumulates(call, COPY_Y);
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements) {
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        if (accumulate)
            copy_add(x, y, begin, count);
        else
            cpu_floats_move(y, begin, x, begin, count);
    }
}

/* All memory is the host's, so fetch and store are plain copies, which end at once. */
static void move_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    memcpy(cpu_operand(cpu, call, 1), cpu_operand(cpu, call, 0), operand_bytes(&call->operand[0]));
}

static void wait_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    (void)cpu;
    (void)call;
}

/* The kind is constant in each loop, so that the loop vectorises. */
static void gates_apply(enum gate_kind gate, const float *a, const float *b, float *y,
                        int64_t count)
{
    if (gate == GATE_GELU) {
        CPU_SIMD(i, count)
            y[i] = swiglu(a[i], b[i], GATE_GELU);
        return;
    }
    CPU_SIMD(i, count)
        y[i] = swiglu(a[i], b[i], GATE_SILU);
}

#define GRADIENTS_LOOP(gate)                           \
    CPU_SIMD(i, count) {                               \
        float of_a = a[i], of_b = b[i];                \
        swiglu_gradients(dy[i], (gate), &of_a, &of_b); \
        da[i] = of_a;                                  \
        db[i] = of_b;                                  \
    }

static void gates_differentiate(enum gate_kind gate, const float *dy, const float *a,
                                const float *b, float *da, float *db, int64_t count)
{
    if (gate == GATE_GELU) {
        GRADIENTS_LOOP(GATE_GELU)
        return;
    }
    GRADIENTS_LOOP(GATE_SILU)
}

static void swiglu_forward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, SWIGLU_FORWARD_X);
    const struct cpu_floats y = cpu_floats_of(cpu, call, SWIGLU_FORWARD_Y);
    const int64_t rows = op_rows(call, SWIGLU_FORWARD_Y),
                  columns = op_columns(call, SWIGLU_FORWARD_Y);
    CPU_PARALLEL(n, rows, 1, rows * columns) {
        for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
            float buffer[2][CPU_BLOCK];
            const int64_t count = min_i64(CPU_BLOCK, columns - begin), at = 2 * n * columns + begin;
            const float *a = cpu_floats_read(x, at, count, buffer[0]);
            const float *b = cpu_floats_read(x, at + columns, count, buffer[1]);
            float *out = cpu_floats_place(y, n * columns + begin, buffer[0]);
            gates_apply(call->attrs.gate, a, b, out, count);
            cpu_floats_write(y, n * columns + begin, count, out);
        }
    }
}

static void swiglu_backward_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats dy = cpu_floats_of(cpu, call, SWIGLU_BACKWARD_DY);
    const struct cpu_floats x = cpu_floats_of(cpu, call, SWIGLU_BACKWARD_X);
    const struct cpu_floats dx = cpu_floats_of(cpu, call, SWIGLU_BACKWARD_DX);
    const int64_t rows = op_rows(call, SWIGLU_BACKWARD_DY),
                  columns = op_columns(call, SWIGLU_BACKWARD_DY);
    CPU_PARALLEL(n, rows, 1, rows * columns) {
        for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
            float buffer[5][CPU_BLOCK];
            const int64_t count = min_i64(CPU_BLOCK, columns - begin), at = 2 * n * columns + begin;
            float *da = cpu_floats_place(dx, at, buffer[3]),
                  *db = cpu_floats_place(dx, at + columns, buffer[4]);
            const float *of_y = cpu_floats_read(dy, n * columns + begin, count, buffer[0]);
            const float *a = cpu_floats_read(x, at, count, buffer[1]);
            const float *b = cpu_floats_read(x, at + columns, count, buffer[2]);
            gates_differentiate(call->attrs.gate, of_y, a, b, da, db, count);
            cpu_floats_write(dx, at, count, da);
            cpu_floats_write(dx, at + columns, count, db);
        }
    }
}

/* Processes elements offset .. offset + count - 1; the first is number `first` in its sample. */
static void block_drop(const struct cpu_mask *mask, struct cpu_floats x, struct cpu_floats y,
                       int64_t offset, int64_t first, int64_t count)
{
    float factor[8 * CPU_MASK_GROUPS], buffer[8 * CPU_MASK_GROUPS];
    for (int64_t begin = 0; begin < count; begin += 8 * CPU_MASK_GROUPS) {
        const int64_t width = min_i64(8 * CPU_MASK_GROUPS, count - begin);
        cpu_mask_fill(mask, (first + begin) / 8, size_ceil_div(width, 8), factor);
        const float *in = cpu_floats_read(x, offset + begin, width, buffer);
        float *out = cpu_floats_place(y, offset + begin, buffer);
        CPU_SIMD(i, width)
            out[i] = factor[i] != 0.0f ? in[i] * factor[i] : 0.0f;
        cpu_floats_write(y, offset + begin, width, out);
    }
}

static void dropout_run(const struct cpu_backend *cpu, const struct op_call *call)
{
    const struct cpu_floats x = cpu_floats_of(cpu, call, DROPOUT_X);
    const union scalar_word *scalars = cpu_operand(cpu, call, DROPOUT_SCALARS);
    const struct cpu_floats y = cpu_floats_of(cpu, call, DROPOUT_Y);
    const int64_t sample_elements = call->attrs.time * call->operand[DROPOUT_X].dims[1];
    const int64_t samples = op_elements(call, DROPOUT_X) / sample_elements;
    const int64_t blocks = size_ceil_div(sample_elements, CPU_BLOCK);
    struct cpu_mask shared = cpu_mask_make(scalars, call->attrs.dropout);
    shared.site = (uint32_t)call->attrs.site;
    CPU_PARALLEL(item, samples * blocks, 1, samples * sample_elements) {
        const int64_t sample = item / blocks, first = item % blocks * CPU_BLOCK;
        struct cpu_mask mask = shared;
        mask.sample = scalars[SCALAR_SAMPLE_BASE].u + (uint32_t)sample;
        const int64_t offset = sample * sample_elements + first;
        block_drop(&mask, x, y, offset, first, min_i64(CPU_BLOCK, sample_elements - first));
    }
}

const struct cpu_op CPU_NAME(cpu_copy) = {.run = copy_run};
const struct cpu_op CPU_NAME(cpu_fetch) = {.run = move_run};
const struct cpu_op CPU_NAME(cpu_store) = {.run = move_run};
const struct cpu_op CPU_NAME(cpu_wait) = {.run = wait_run};
const struct cpu_op CPU_NAME(cpu_exchange) = {.run = NULL}; /* exec runs it */
const struct cpu_op CPU_NAME(cpu_swiglu_forward) = {.run = swiglu_forward_run};
const struct cpu_op CPU_NAME(cpu_swiglu_backward) = {.run = swiglu_backward_run};
const struct cpu_op CPU_NAME(cpu_dropout) = {.run = dropout_run};
