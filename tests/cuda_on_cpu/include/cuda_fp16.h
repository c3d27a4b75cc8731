/* A stand-in for CUDA's cuda_fp16.h where no toolkit is installed: the type and its conversions, to
 * nearest, ties to even, with subnormals.  Overflow gives infinity; every NaN becomes the cards'
 * canonical NaN (0x7fff).  C gets only the type. */
#ifndef GPT_TRAIN_CUDA_ON_CPU_INCLUDE_CUDA_FP16_H
#define GPT_TRAIN_CUDA_ON_CPU_INCLUDE_CUDA_FP16_H

#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

typedef struct __half {
    uint16_t x;
} __half;

typedef struct __half2 {
    __half x, y;
} __half2;

#ifdef __cplusplus

static inline float __half2float(__half value)
{
    uint32_t sign = (uint32_t)(value.x & 0x8000u) << 16;
    uint32_t exponent = value.x >> 10 & 31u, fraction = value.x & 1023u, bits;
    float result;
    if (exponent == 0) {
        result = (float)fraction * 0x1p-24f;
        return sign != 0 ? -result : result;
    }
    /* The exponent's bias is 15 in fp16 and 127 in fp32. */
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline __half __float2half_rn(float value)
{
    uint32_t bits, magnitude;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return __half{0x7fff};
    if (magnitude >= 0x477ff000u) /* 65520, halfway between the largest number and the next step */
        return __half{(uint16_t)(sign | 0x7c00u)};
    if (magnitude <
        0x38800000u) { /* below 2^-14 the step is 2^-24, the last place of 1/2: adding 1/2 rounds */
        float shifted;
        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&magnitude, &shifted, sizeof magnitude);
        return __half{(uint16_t)(sign | (magnitude - 0x3f000000u))};
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return __half{(uint16_t)(sign | (magnitude - 0x38000000u) >> 13)};
}

static inline __half2 __floats2half2_rn(float low, float high)
{
    return __half2{__float2half_rn(low), __float2half_rn(high)};
}

#endif

#endif
