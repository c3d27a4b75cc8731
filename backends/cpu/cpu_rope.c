/* rope_forward and rope_backward, one row at a time.
 *
 * Queries and keys turn in blocks of pairs; the backward turns the other way.  With gains, the sums of squares and of
 * the gradient's products are made first, in fp64, then the results.  dgain is summed as layernorm's: in parts of the
 * rows, whose number follows from the shape, added in order.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"

#include <math.h>
#include <string.h>

/* The slots of the forward name the first operands of the backward too. */
struct rope {
    struct cpu_floats in, x, out; /* in: x, or dy; x: backward with gains */
    const float *table;
    const float *gain;                    /* fp32; NULL if absent */
    int64_t columns, size, heads, turned; /* size of a head; heads: queries'; turned: queries' and keys' */
    int64_t position, time;
    bool is_whole; /* a mean is over all heads */
    bool is_backward;
    float epsilon;
};

/* A block of pairs of a head: as stored, or turned back in the backward; and those of x there. */
struct pairs {
    int64_t at, count; /* first element of the first halves */
    const float *cosine, *sine;
    float in[2][CPU_BLOCK], x[2][CPU_BLOCK];
};

static void pairs_turn(struct pairs *p, float sign)
{
    float *a = p->in[0], *b = p->in[1];
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < p->count; i++) {
        const float first = a[i], second = b[i], sine = sign * p->sine[i];
        a[i] = first * p->cosine[i] - second * sine;
        b[i] = second * p->cosine[i] + first * sine;
    }
}

static void pairs_copy(struct cpu_floats from, int64_t at, int64_t count, float *to)
{
    const float *values = cpu_floats_read(from, at, count, to);
    if (values != to)
        memcpy(to, values, (size_t)count * sizeof *to);
}

/* Reads the pairs from element `begin` of a head of row n.  The backward turns them back. */
static void pairs_read(const struct rope *rope, int64_t n, int64_t head, int64_t begin, struct pairs *out)
{
    const int64_t half = rope->size / 2;
    out->at = n * rope->columns + head * rope->size + begin;
    out->count = min_i64(CPU_BLOCK, half - begin);
    out->cosine = rope->table + (rope->position + n % rope->time) * rope->size + begin;
    out->sine = out->cosine + half;
    for (int second = 0; second < 2; second++) {
        pairs_copy(rope->in, out->at + second * half, out->count, out->in[second]);
        if (rope->x.memory != NULL)
            pairs_copy(rope->x, out->at + second * half, out->count, out->x[second]);
    }
    if (rope->is_backward)
        pairs_turn(out, -1.0f);
}

/* Returns the number of the first gain of a head. */
static int64_t gain_of(const struct rope *rope, int64_t head)
{
    return (rope->is_whole ? head : head < rope->heads ? 0 : 1) * rope->size;
}

/* What the elements of a mean share: r, and mean(dz g xh). */
struct shared {
    float r, product;
};

static struct shared shared_make(const struct rope *rope, int64_t n, int64_t first, int64_t end, struct pairs *p)
{
    const int64_t half = rope->size / 2;
    double square = 0.0, product = 0.0;
    for (int64_t head = first; head < end; head++) {
        for (int64_t begin = 0; begin < half; begin += CPU_BLOCK) {
            pairs_read(rope, n, head, begin, p);
            for (int second = 0; second < 2; second++) {
                const float *gain = rope->gain + gain_of(rope, head) + second * half + begin, *in = p->in[second];
                const float *x = rope->is_backward ? p->x[second] : in;
                CPU_OMP(omp simd reduction(+ : square, product))
                for (int64_t i = 0; i < p->count; i++) {
                    square += (double)x[i] * (double)x[i];
                    product += (double)(in[i] * gain[i]) * (double)x[i];
                }
            }
        }
    }
    const double count = (double)((end - first) * rope->size);
    const double r = 1.0 / sqrt(square / count + (double)rope->epsilon);
    return (struct shared){(float)r, (float)(r * product / count)};
}

/* Makes one half of a block of dx from the gradient dz, and adds the half's share of dgain. */
static void gradient_half(const struct shared *shared, const float *gain, const float *x, float *dz, double *dgain,
                          int64_t count)
{
    const float r = shared->r, product = shared->product;
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        const float normal = x[i] * r;
        dgain[i] += (double)dz[i] * (double)normal;
        dz[i] = r * (dz[i] * gain[i] - normal * product);
    }
}

/* Makes heads first .. end - 1 of a row, which share a mean if there are gains. */
static void heads_make(const struct rope *rope, int64_t n, int64_t first, int64_t end, double *dgain)
{
    const int64_t half = rope->size / 2;
    struct pairs p;
    struct shared shared = {1.0f, 0.0f};
    if (rope->gain != NULL)
        shared = shared_make(rope, n, first, end, &p);
    for (int64_t head = first; head < end; head++) {
        for (int64_t begin = 0; begin < half; begin += CPU_BLOCK) {
            pairs_read(rope, n, head, begin, &p);
            for (int second = 0; rope->gain != NULL && second < 2; second++) {
                const int64_t at = gain_of(rope, head) + second * half + begin;
                if (rope->is_backward) {
                    gradient_half(&shared, rope->gain + at, p.x[second], p.in[second], dgain + at, p.count);
                    continue;
                }
                CPU_OMP(omp simd)
                for (int64_t i = 0; i < p.count; i++)
                    p.in[second][i] = p.in[second][i] * shared.r * rope->gain[at + i];
            }
            if (!rope->is_backward)
                pairs_turn(&p, 1.0f);
            cpu_floats_write(rope->out, p.at, p.count, p.in[0]);
            cpu_floats_write(rope->out, p.at + half, p.count, p.in[1]);
        }
    }
}

static void row_make(const struct rope *rope, int64_t n, double *dgain)
{
    const int64_t turned = rope->turned;
    if (rope->is_whole) {
        heads_make(rope, n, 0, rope->heads, dgain);
        heads_make(rope, n, rope->heads, turned, dgain);
    }
    for (int64_t head = 0; head < turned && !rope->is_whole; head++)
        heads_make(rope, n, head, head + 1, dgain);
    for (int64_t at = turned * rope->size; at < rope->columns; at += CPU_BLOCK) {
        float buffer[CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, rope->columns - at), first = n * rope->columns + at;
        cpu_floats_write(rope->out, first, count, cpu_floats_read(rope->in, first, count, buffer));
    }
}

/* The sums of the parts, followed by the gain if it has 16 bits. */
static size_t parts_bytes(const struct op_call *call)
{
    const int64_t parts = cpu_parts(op_rows(call, ROPE_FORWARD_X));
    return call->kind == OP_ROPE_BACKWARD ? (size_t)(parts * op_elements(call, ROPE_FORWARD_GAIN)) * sizeof(double) : 0;
}

static size_t rope_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct operand *gain = &call->operand[ROPE_FORWARD_GAIN];
    (void)backend;
    return parts_bytes(call) + (gain->dtype != DTYPE_F32 ? (size_t)operand_elements(gain) * sizeof(float) : 0);
}

static struct rope rope_of(const struct backend *backend, const struct op_call *call)
{
    const union scalar_word *scalars = cpu_operand(backend, call, ROPE_FORWARD_SCALARS);
    const struct cpu_floats gain = cpu_floats_of(backend, call, ROPE_FORWARD_GAIN);
    const int64_t gains = op_elements(call, ROPE_FORWARD_GAIN), size = op_columns(call, ROPE_FORWARD_TABLE);
    const size_t bytes = rope_workspace_bytes(backend, call);
    char *workspace = bytes > 0 ? cpu_workspace(backend, call, bytes) : NULL;
    float *scratch = bytes > parts_bytes(call) ? (float *)(void *)(workspace + parts_bytes(call)) : NULL;
    const struct rope rope = {
        .in = cpu_floats_of(backend, call, ROPE_FORWARD_X),
        .out = cpu_floats_of(backend, call, ROPE_FORWARD_Y),
        .x = cpu_floats_of(backend, call, ROPE_BACKWARD_X),
        .table = cpu_operand(backend, call, ROPE_FORWARD_TABLE),
        .gain = gain.memory != NULL ? cpu_floats_read(gain, 0, gains, scratch) : NULL,
        .columns = op_columns(call, ROPE_FORWARD_X),
        .size = size,
        .heads = call->attrs.heads,
        .turned = call->attrs.heads + call->attrs.kv_heads,
        .position = scalars[SCALAR_POSITION].i,
        .time = call->attrs.time,
        .is_whole = gains != 0 && gains != 2 * size,
        .is_backward = call->kind == OP_ROPE_BACKWARD,
        .epsilon = call->attrs.epsilon,
    };
    assert(rope.position >= 0 && rope.position + rope.time <= op_rows(call, ROPE_FORWARD_TABLE));
    return rope;
}

static enum gt_status rope_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct rope rope = rope_of(backend, call);
    const int64_t rows = op_rows(call, ROPE_FORWARD_X), parts = cpu_parts(rows);
    const int64_t sums = parts_bytes(call) > 0 ? op_elements(call, ROPE_FORWARD_GAIN) : 0;
    double *partial = sums > 0 ? cpu_workspace(backend, call, parts_bytes(call)) : NULL;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * rope.columns)))
    for (int64_t part = 0; part < parts; part++) {
        double *dgain = sums > 0 ? partial + part * sums : NULL;
        if (sums > 0)
            memset(dgain, 0, (size_t)sums * sizeof *dgain);
        for (int64_t n = cpu_part_begin(rows, parts, part); n < cpu_part_begin(rows, parts, part + 1); n++)
            row_make(&rope, n, dgain);
    }
    for (int64_t first = 0; first < sums; first += CPU_PART_COLUMNS)
        cpu_parts_add(cpu_floats_of(backend, call, ROPE_BACKWARD_DGAIN), op_accumulates(call, ROPE_BACKWARD_DGAIN),
                      partial, sums, parts, first, sums);
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_rope_forward) = {.workspace_bytes = rope_workspace_bytes, .run = rope_run};
const struct op_impl CPU_NAME(cpu_rope_backward) = {.workspace_bytes = rope_workspace_bytes, .run = rope_run};
