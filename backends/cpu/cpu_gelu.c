/* gelu_forward and gelu_backward, erf and tanh; swiglu_forward and swiglu_backward.
 *
 * y = x P(X <= x) for erf.  For tanh, y = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which equals x/2 (1 + tanh
 * u) without its cancellation.  Elementwise in blocks; gelu's y may be x, and its dx may be dy or x.
 */
#include "backends/cpu/cpu_half.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/cpu_math.h"

#define SQRT_2_OVER_PI 0.797884560802865f
#define INVERSE_SQRT_2PI 0.398942280401433f
#define CUBIC 0.044715f
#define EXPONENT_MAX 87.0f /* e^87 is finite in fp32 */

static void erf_forward(const float *x, float *y, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        float cdf, kernel;
        cpu_normal(x[i], &cdf, &kernel);
        y[i] = x[i] * cdf;
    }
}

static void erf_backward(const float *dy, const float *x, float *dx, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        float cdf, kernel;
        cpu_normal(x[i], &cdf, &kernel);
        dx[i] = dy[i] * (cdf + x[i] * INVERSE_SQRT_2PI * kernel);
    }
}

/* Returns e^(-2u), clamped before it overflows. */
static inline float tanh_exponential(float x)
{
    const float exponent = -2.0f * SQRT_2_OVER_PI * (x + CUBIC * x * x * x);
    return cpu_exp(exponent > EXPONENT_MAX ? EXPONENT_MAX : exponent);
}

static void tanh_forward(const float *x, float *y, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] / (1.0f + tanh_exponential(x[i]));
}

static void tanh_backward(const float *dy, const float *x, float *dx, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        const float e = tanh_exponential(x[i]);
        const float sigmoid = 1.0f / (1.0f + e);
        const float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x[i] * x[i]);
        dx[i] = dy[i] * (sigmoid + x[i] * slope * (sigmoid * (e * sigmoid)));
    }
}

static enum gt_status gelu_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, GELU_FORWARD_X);
    const struct cpu_floats y = cpu_floats_of(backend, call, GELU_FORWARD_Y);
    const int64_t elements = op_elements(call, GELU_FORWARD_X);
    const bool erf = call->attrs.gelu == GELU_ERF;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        float buffer[CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        const float *in = cpu_floats_read(x, begin, count, buffer);
        float *out = cpu_floats_place(y, begin, buffer);
        if (erf)
            erf_forward(in, out, count);
        else
            tanh_forward(in, out, count);
        cpu_floats_write(y, begin, count, out);
    }
    return GT_OK;
}

static enum gt_status gelu_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats dy = cpu_floats_of(backend, call, GELU_BACKWARD_DY);
    const struct cpu_floats x = cpu_floats_of(backend, call, GELU_BACKWARD_X);
    const struct cpu_floats dx = cpu_floats_of(backend, call, GELU_BACKWARD_DX);
    const int64_t elements = op_elements(call, GELU_BACKWARD_X);
    const bool erf = call->attrs.gelu == GELU_ERF;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, elements)))
    for (int64_t begin = 0; begin < elements; begin += CPU_BLOCK) {
        float buffer[2][CPU_BLOCK];
        const int64_t count = min_i64(CPU_BLOCK, elements - begin);
        const float *upstream = cpu_floats_read(dy, begin, count, buffer[0]);
        const float *in = cpu_floats_read(x, begin, count, buffer[1]);
        float *out = cpu_floats_place(dx, begin, buffer[0]);
        if (erf)
            erf_backward(upstream, in, out, count);
        else
            tanh_backward(upstream, in, out, count);
        cpu_floats_write(dx, begin, count, out);
    }
    return GT_OK;
}

/* Returns e^-a, clamped before it overflows. */
static inline float logistic_exponential(float a)
{
    return cpu_exp(-a > EXPONENT_MAX ? EXPONENT_MAX : -a);
}

static enum gt_status swiglu_forward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats x = cpu_floats_of(backend, call, SWIGLU_FORWARD_X);
    const struct cpu_floats y = cpu_floats_of(backend, call, SWIGLU_FORWARD_Y);
    const int64_t rows = op_rows(call, SWIGLU_FORWARD_Y), columns = op_columns(call, SWIGLU_FORWARD_Y);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * columns)))
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
            float buffer[2][CPU_BLOCK];
            const int64_t count = min_i64(CPU_BLOCK, columns - begin), at = 2 * n * columns + begin;
            const float *a = cpu_floats_read(x, at, count, buffer[0]);
            const float *b = cpu_floats_read(x, at + columns, count, buffer[1]);
            float *out = cpu_floats_place(y, n * columns + begin, buffer[0]);
            CPU_OMP(omp simd)
            for (int64_t i = 0; i < count; i++)
                out[i] = a[i] / (1.0f + logistic_exponential(a[i])) * b[i];
            cpu_floats_write(y, n * columns + begin, count, out);
        }
    }
    return GT_OK;
}

/* 1 - s(a) is computed as e^-a s(a), which does not cancel. */
static void swiglu_gradient(const float *dy, const float *a, const float *b, float *da, float *db, int64_t count)
{
    CPU_OMP(omp simd)
    for (int64_t i = 0; i < count; i++) {
        const float e = logistic_exponential(a[i]), s = 1.0f / (1.0f + e);
        const float gradient = dy[i] * b[i] * s * (1.0f + a[i] * (e * s));
        db[i] = dy[i] * (a[i] * s);
        da[i] = gradient;
    }
}

static enum gt_status swiglu_backward_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    (void)queue;
    const struct cpu_floats dy = cpu_floats_of(backend, call, SWIGLU_BACKWARD_DY);
    const struct cpu_floats x = cpu_floats_of(backend, call, SWIGLU_BACKWARD_X);
    const struct cpu_floats dx = cpu_floats_of(backend, call, SWIGLU_BACKWARD_DX);
    const int64_t rows = op_rows(call, SWIGLU_BACKWARD_DY), columns = op_columns(call, SWIGLU_BACKWARD_DY);
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(backend, rows * columns)))
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t begin = 0; begin < columns; begin += CPU_BLOCK) {
            float buffer[5][CPU_BLOCK];
            const int64_t count = min_i64(CPU_BLOCK, columns - begin), at = 2 * n * columns + begin;
            float *da = cpu_floats_place(dx, at, buffer[3]), *db = cpu_floats_place(dx, at + columns, buffer[4]);
            swiglu_gradient(cpu_floats_read(dy, n * columns + begin, count, buffer[0]),
                            cpu_floats_read(x, at, count, buffer[1]),
                            cpu_floats_read(x, at + columns, count, buffer[2]), da, db, count);
            cpu_floats_write(dx, at, count, da);
            cpu_floats_write(dx, at + columns, count, db);
        }
    }
    return GT_OK;
}

const struct op_impl CPU_NAME(cpu_gelu_forward) = {.run = gelu_forward_run};
const struct op_impl CPU_NAME(cpu_gelu_backward) = {.run = gelu_backward_run};
const struct op_impl CPU_NAME(cpu_swiglu_forward) = {.run = swiglu_forward_run};
const struct op_impl CPU_NAME(cpu_swiglu_backward) = {.run = swiglu_backward_run};
