/* Matrices with known products: small integers, whose sums are exact in any order. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_KNOWN_H
#define GPT_TRAIN_OPENCL_OPENCL_KNOWN_H

#include <stdint.h>

/* Returns 32 bits that differ for each index and salt. */
static inline uint32_t opencl_known_bits(uint32_t index, uint32_t salt)
{
    uint32_t x = index * UINT32_C(2654435761) + salt;
    x ^= x >> 15;
    x *= UINT32_C(0x2c1b3c6d);
    return x ^ x >> 12;
}

/* Returns an integer from -4 to 4, which every dtype represents exactly. */
static inline float opencl_known_value(uint32_t index, uint32_t salt)
{
    return (float)(int32_t)(opencl_known_bits(index, salt) % 9) - 4.0f;
}

#endif
