/* Element types and their conversions.
 *
 * bf16 and fp16 are stored as uint16_t bit patterns.  Conversion from fp32 rounds to nearest, ties
 * to even.  NaN stays NaN (quiet); infinities and signed zeros are preserved.  fp16 has subnormals
 * and overflows to infinity as IEEE 754 requires.
 */
#ifndef GPT_TRAIN_BASE_DTYPE_H
#define GPT_TRAIN_BASE_DTYPE_H

#include <stddef.h>

#include "base/bits.h"

/* Bytes per element. */
size_t dtype_size_bytes(enum dtype dtype);
/* PyTorch's names, which the configuration uses: "float32", "bfloat16", "float16", "int32",
 * "uint8", "float64". */
const char *dtype_name(enum dtype dtype);
/* The safetensors names: "F32", "BF16", "F16", "I32", "U8", "F64". */
const char *dtype_safetensors_name(enum dtype dtype);
/* Looks up a name of either kind.  Returns false when `name` is unknown. */
bool dtype_from_name(const char *name, enum dtype *out);

/* Branch-free, for the vectoriser.  Compares magnitudes as signed numbers, for which SSE2 has an
 * instruction. */
BITS_FUNCTION float f16_to_f32(uint16_t bits)
{
    const int32_t magnitude = bits & 0x7fff;
    const uint32_t fraction = (uint32_t)magnitude << 13;
    const uint32_t normal = fraction + (112u << 23); /* changes the bias from 15 to 127 */
    const uint32_t subnormal = bits_of_float((float)magnitude * 0x1p-24f);
    const uint32_t special = 0x7f800000u | fraction | (magnitude > 0x7c00 ? 0x400000u : 0u);
    const uint32_t finite = magnitude < 0x0400 ? subnormal : normal;
    return float_of_bits((uint32_t)(bits & 0x8000) << 16 |
                         (magnitude >= 0x7c00 ? special : finite));
}

BITS_FUNCTION uint16_t f16_from_f32(float value)
{
    const uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    /* The last bit of 0.5 is worth 2^-24, as is that of an fp16 subnormal, so the addition rounds.
     */
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
    const uint32_t finite = (int32_t)magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t infinite = (int32_t)magnitude > 0x7f800000 ? nan : 0x7c00u;
    return (uint16_t)((bits >> 16 & 0x8000u) |
                      ((int32_t)magnitude >= 0x477ff000 ? infinite : finite));
}

/* Returns element i of an array of DTYPE_F32, DTYPE_BF16 or DTYPE_F16. */
float dtype_value(enum dtype dtype, const void *values, size_t i);
/* out[count] = convert(in[count]) between DTYPE_F32, DTYPE_BF16 and DTYPE_F16.  `in` and `out` may
 * overlap only if address and dtype are equal. */
void dtype_convert(void *out, enum dtype out_dtype, const void *in, enum dtype in_dtype,
                   size_t count);

#endif
