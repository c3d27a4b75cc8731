/* 16-bit storage: blocks of bf16 or fp16 are converted to fp32 before a kernel's loop and rounded
 * after it; loops that several kernels share.
 *
 * Kernels compute in fp32 on blocks.  cpu_floats_read() returns a block as floats: the operand's
 * own memory if that is fp32, else a converted copy in the caller's buffer.  cpu_floats_place() and
 * cpu_floats_write() store results.  Thus one kernel serves every dtype, at no cost for fp32.
 * Conversions round to nearest, ties to even; NaN stays NaN; fp16 overflows to infinity and keeps
 * its subnormals.  A test proves them equal, bit for bit, to those of base/dtype.  A sum kept in
 * fp64 is rounded to fp32 before it is rounded to 16 bits.
 */
#ifndef GPT_TRAIN_CPU_CPU_HALF_H
#define GPT_TRAIN_CPU_CPU_HALF_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/gelu.h"
#include "base/dtype.h"

#if defined(__AVX2__) || defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

static inline void cpu_bf16_load(const uint16_t *in, float *out, int64_t count)
{
    int64_t whole = 0;
    /* Widens directly from memory: compilers would load a whole vector first, and shuffle its upper
     * half down. */
#if defined(__AVX512F__)
    for (; whole + 16 <= count; whole += 16) {
        const __m512i wide =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(in + whole)));
        _mm512_storeu_ps(out + whole, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
    }
#elif defined(__AVX2__)
    for (; whole + 8 <= count; whole += 8) {
        const __m256i wide =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in + whole)));
        _mm256_storeu_ps(out + whole, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
    }
#endif
    CPU_SIMD(i, count - whole)
        out[whole + i] = bf16_to_f32(in[whole + i]);
}

static inline void cpu_bf16_store(const float *in, uint16_t *out, int64_t count)
{
    CPU_SIMD(i, count)
        out[i] = bf16_from_f32(in[i]);
}

static inline void cpu_f16_load(const uint16_t *in, float *out, int64_t count)
{
    int64_t whole = 0;
#if defined(__AVX512F__)
    for (; whole + 16 <= count; whole += 16)
        _mm512_storeu_ps(out + whole, _mm512_cvtph_ps(_mm256_loadu_si256(
                                          (const __m256i *)(const void *)(in + whole))));
#elif defined(__F16C__)
    for (; whole + 8 <= count; whole += 8)
        _mm256_storeu_ps(out + whole, _mm256_cvtph_ps(_mm_loadu_si128(
                                          (const __m128i *)(const void *)(in + whole))));
#endif
    CPU_SIMD(i, count - whole)
        out[whole + i] = f16_to_f32(in[whole + i]);
}

static inline void cpu_f16_store(const float *in, uint16_t *out, int64_t count)
{
    int64_t whole = 0;
#if defined(__AVX512F__)
    for (; whole + 16 <= count; whole += 16)
        _mm256_storeu_si256((__m256i *)(void *)(out + whole),
                            _mm512_cvtps_ph(_mm512_loadu_ps(in + whole),
                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    for (; whole + 8 <= count; whole += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + whole),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + whole), _MM_FROUND_TO_NEAREST_INT));
#endif
    CPU_SIMD(i, count - whole)
        out[whole + i] = f16_from_f32(in[whole + i]);
}

/* A float operand: its memory, NULL if absent, and its storage dtype. */
struct cpu_floats {
    void *memory;
    enum dtype dtype;
};

static inline struct cpu_floats cpu_floats_of(const struct cpu_backend *cpu,
                                              const struct op_call *call, int32_t slot)
{
    return (struct cpu_floats){cpu_operand(cpu, call, slot), call->operand[slot].dtype};
}

/* Returns elements first .. first + count - 1 as fp32: the operand's own memory, or a copy in
 * `buffer`. */
static inline const float *cpu_floats_read(struct cpu_floats from, int64_t first, int64_t count,
                                           float *buffer)
{
    if (from.dtype == DTYPE_F32)
        return (const float *)from.memory + first;
    const uint16_t *halves = (const uint16_t *)from.memory + first;
    if (from.dtype == DTYPE_BF16)
        cpu_bf16_load(halves, buffer, count);
    else
        cpu_f16_load(halves, buffer, count);
    return buffer;
}

/* Writes the elements as fp32 to `out`. */
static inline void cpu_floats_copy(struct cpu_floats from, int64_t first, int64_t count, float *out)
{
    const float *in = cpu_floats_read(from, first, count, out);
    if (in != out)
        memcpy(out, in, (size_t)count * sizeof *out);
}

/* Returns the place for results from element `first` on: the operand's memory, or `buffer` for
 * cpu_floats_write(). */
static inline float *cpu_floats_place(struct cpu_floats to, int64_t first, float *buffer)
{
    return to.dtype == DTYPE_F32 ? (float *)to.memory + first : buffer;
}

/* Returns the elements as fp32, to be modified and stored with cpu_floats_write(). */
static inline float *cpu_floats_edit(struct cpu_floats both, int64_t first, int64_t count,
                                     float *buffer)
{
    cpu_floats_read(both, first, count, buffer);
    return cpu_floats_place(both, first, buffer);
}

/* Rounds `count` values into elements from `first` on; does nothing if cpu_floats_place() returned
 * them. */
static inline void cpu_floats_write(struct cpu_floats to, int64_t first, int64_t count,
                                    const float *values)
{
    if (to.dtype == DTYPE_F32) {
        float *out = (float *)to.memory + first;
        if (out != values)
            memcpy(out, values, (size_t)count * sizeof *out);
        return;
    }
    uint16_t *halves = (uint16_t *)to.memory + first;
    if (to.dtype == DTYPE_BF16)
        cpu_bf16_store(values, halves, count);
    else
        cpu_f16_store(values, halves, count);
}

/* to[at ..] = from[first ..], `count` elements, converted if the dtypes differ. */
static inline void cpu_floats_move(struct cpu_floats to, int64_t at, struct cpu_floats from,
                                   int64_t first, int64_t count)
{
    float buffer[CPU_BLOCK];
    const size_t bytes = dtype_size_bytes(to.dtype);
    if (to.dtype == from.dtype) {
        memmove((char *)to.memory + (size_t)at * bytes,
                (const char *)from.memory + (size_t)first * bytes, (size_t)count * bytes);
        return;
    }
    for (int64_t i = 0; i < count; i += CPU_BLOCK) {
        const int64_t piece = min_i64(CPU_BLOCK, count - i);
        float *values = cpu_floats_place(to, at + i, buffer);
        cpu_floats_write(to, at + i, piece, cpu_floats_read(from, first + i, piece, values));
    }
}

/* Computes elements of a result from the elements of the inputs at the same places, which it may
 * replace. */
typedef void cpu_elements_fn(const struct op_attrs *attrs, const float *const *in, float *out,
                             int64_t count);

/* Runs an op whose operands are at most two inputs and then the result, all of the same shape. */
static inline void cpu_elements_run(const struct cpu_backend *cpu, const struct op_call *call,
                                    cpu_elements_fn *compute)
{
    const int32_t inputs = op_declaration(call->kind)->operands - 1;
    const struct cpu_floats result = cpu_floats_of(cpu, call, inputs);
    const int64_t elements = op_elements(call, inputs);
    struct cpu_floats from[2];
    for (int32_t slot = 0; slot < inputs; slot++)
        from[slot] = cpu_floats_of(cpu, call, slot);
    CPU_PARALLEL(begin, elements, CPU_BLOCK, elements) {
        float buffer[3][CPU_BLOCK];
        const float *in[2];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        for (int32_t slot = 0; slot < inputs; slot++)
            in[slot] = cpu_floats_read(from[slot], begin, count, buffer[slot]);
        float *out = cpu_floats_place(result, begin, buffer[2]);
        compute(&call->attrs, in, out, count);
        cpu_floats_write(result, begin, count, out);
    }
}

/* Defines the op `name`, which the function of that name computes. */
#define CPU_ELEMENTWISE(name)                                                         \
    static void name##_run(const struct cpu_backend *cpu, const struct op_call *call) \
    {                                                                                 \
        cpu_elements_run(cpu, call, name);                                            \
    }                                                                                 \
    const struct cpu_op CPU_NAME(cpu_##name) = {.run = name##_run};

/* Returns the floats in a row of `columns`, padded so that threads do not share cache lines in a
 * workspace. */
static inline size_t cpu_row_floats(int64_t columns)
{
    return size_round_up((size_t)columns, CPU_ALIGNMENT_BYTES / sizeof(float));
}

#define CPU_PART_COLUMNS 128 /* columns of a sum over parts, at a time */

/* Operand `slot` (+)= the sum of partial[parts], `stride` doubles apart, added in the order of the
 * parts.  Does nothing if it is absent. */
static inline void cpu_parts_add(const struct cpu_backend *cpu, const struct op_call *call,
                                 int32_t slot, const double *partial, int64_t stride, int64_t parts)
{
    const struct cpu_floats out = cpu_floats_of(cpu, call, slot);
    const bool accumulate = op_accumulates(call, slot);
    const int64_t columns = op_elements(call, slot);
    CPU_PARALLEL(first, columns, CPU_PART_COLUMNS, parts * columns) {
        double sum[CPU_PART_COLUMNS];
        float buffer[CPU_PART_COLUMNS];
        const int64_t count = min_i64(CPU_PART_COLUMNS, columns - first);
        float *to = accumulate ? cpu_floats_edit(out, first, count, buffer)
                               : cpu_floats_place(out, first, buffer);
        for (int64_t c = 0; c < count; c++)
            sum[c] = accumulate ? (double)to[c] : 0.0;
        for (int64_t part = 0; part < parts; part++) {
            const double *share = partial + part * stride + first;
            CPU_SIMD(c, count)
                sum[c] += share[c];
        }
        for (int64_t c = 0; c < count; c++)
            to[c] = (float)sum[c];
        cpu_floats_write(out, first, count, to);
    }
}

/* ---- sums of exponentials and maxima, which every compiler vectorises ---- */

/* values[count] = e^(value - largest); returns their sum. */
static inline float cpu_exp_sum(float *values, int64_t count, float largest)
{
    float sum = 0.0f;
    CPU_SIMD_SUM(i, count, sum) {
        const float e = cpu_exp(values[i] - largest);
        values[i] = e;
        sum += e;
    }
    return sum;
}

#define CPU_MAX_LANES 64 /* several vectors, so that comparisons do not wait for each other */

/* Returns the maximum of values[count], count >= 1; may ignore NaN.  Uses lanes, which every
 * compiler vectorises. */
static inline float cpu_max_of(const float *values, int64_t count)
{
    float lane[CPU_MAX_LANES];
    for (int64_t l = 0; l < CPU_MAX_LANES; l++)
        lane[l] = values[0];
    const int64_t whole = count - count % CPU_MAX_LANES;
    for (int64_t i = 0; i < whole; i += CPU_MAX_LANES) {
        for (int64_t l = 0; l < CPU_MAX_LANES; l++)
            lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
    }
    for (int64_t i = whole; i < count; i++)
        lane[0] = values[i] > lane[0] ? values[i] : lane[0];
    for (int64_t half = CPU_MAX_LANES / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    }
    return lane[0];
}

#endif
