/* Sums of exponentials and maxima, which every compiler vectorises. */
#ifndef GPT_TRAIN_CPU_CPU_MATH_H
#define GPT_TRAIN_CPU_CPU_MATH_H

#include "backends/cpu/cpu.h"
#include "backends/gelu.h"

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

/* Returns the maximum of values[count], count >= 1; may ignore NaN.  Uses lanes, which every compiler vectorises. */
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
