/* A stand-in for CUDA's cuda_bf16.h where no toolkit is installed: the type and its conversions, to
 * nearest, ties to even.  Every NaN becomes the cards' canonical NaN (0x7fff).  C gets only the
 * type. */
#ifndef GPT_TRAIN_CUDA_ON_CPU_INCLUDE_CUDA_BF16_H
#define GPT_TRAIN_CUDA_ON_CPU_INCLUDE_CUDA_BF16_H

#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

typedef struct __nv_bfloat16 {
    uint16_t x;
} __nv_bfloat16;

typedef struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
} __nv_bfloat162;

#ifdef __cplusplus

static inline float __bfloat162float(__nv_bfloat16 value)
{
    uint32_t bits = (uint32_t)value.x << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return __nv_bfloat16{0x7fff};
    /* Half of the last place, minus one if the last kept bit is even. */
    bits += 0x7fffu + (bits >> 16 & 1u);
    return __nv_bfloat16{(uint16_t)(bits >> 16)};
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high)
{
    return __nv_bfloat162{__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}

#endif

#endif
