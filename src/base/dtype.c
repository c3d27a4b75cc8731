/* Element types: sizes, names, and conversions between fp32, bf16 and fp16.
 *
 * Except for one exact multiplication by a power of two, the conversions use integer arithmetic on the bits.  They do
 * not depend on the rounding mode or on whether the processor flushes subnormals to zero, and give the same bits on
 * every machine.  They are the reference for the faster conversions of the backends and are not tuned.
 */
#include "base/dtype.h"

#include <assert.h>
#include <string.h>

static const struct {
    size_t size_bytes;
    const char *name;
    const char *safetensors_name;
} dtypes[] = {
    [DTYPE_F32] = {4, "float32", "F32"}, [DTYPE_BF16] = {2, "bfloat16", "BF16"}, [DTYPE_F16] = {2, "float16", "F16"},
    [DTYPE_I32] = {4, "int32", "I32"},   [DTYPE_U8] = {1, "uint8", "U8"},        [DTYPE_F64] = {8, "float64", "F64"},
};

_Static_assert(sizeof dtypes / sizeof dtypes[0] == DTYPE_COUNT, "every dtype has a row");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "float and double are IEEE 754 binary32 and binary64");

size_t dtype_size_bytes(enum dtype dtype)
{
    assert((unsigned)dtype < DTYPE_COUNT);
    return dtypes[dtype].size_bytes;
}

const char *dtype_name(enum dtype dtype)
{
    assert((unsigned)dtype < DTYPE_COUNT);
    return dtypes[dtype].name;
}

const char *dtype_safetensors_name(enum dtype dtype)
{
    assert((unsigned)dtype < DTYPE_COUNT);
    return dtypes[dtype].safetensors_name;
}

bool dtype_from_name(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0 || strcmp(name, dtypes[i].safetensors_name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_value(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t bf16_from_f32(float value)
{
    const uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x0040u); /* stays NaN and becomes quiet, whatever bits are dropped */
    /* Add half a unit, less one when the kept part is even, so that a tie rounds to the even neighbour.  A carry out of
     * the fraction correctly moves to the next binade, and out of the largest one to infinity. */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float bf16_to_f32(uint16_t bits)
{
    return f32_value((uint32_t)bits << 16);
}

/* `value` >> `shift`, rounded to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t shift_right_nearest_even(uint32_t value, unsigned shift)
{
    const uint32_t half_less_one = (1u << (shift - 1)) - 1u;
    return (value + half_less_one + (value >> shift & 1u)) >> shift;
}

uint16_t f16_from_f32(float value)
{
    const uint32_t bits = f32_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x01ffu));
    if (magnitude >= 0x477ff000u) /* 65520, half way between the largest finite value and the next step */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* 2^-14: normal; the bias goes from 127 to 15 */
        return (uint16_t)(sign | shift_right_nearest_even(magnitude - (112u << 23), 13));
    if (magnitude < 0x33000000u) /* below 2^-25, half of the smallest subnormal */
        return (uint16_t)sign;
    /* Subnormal: the significand counts units of 2^(exponent - 150); the result counts units of 2^-24. */
    const unsigned shift = 126u - (magnitude >> 23);
    const uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    return (uint16_t)(sign | shift_right_nearest_even(significand, shift));
}

float f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude > 0x7c00u)
        return f32_value(sign | 0x7fc00000u | magnitude << 13);
    if (magnitude == 0x7c00u)
        return f32_value(sign | 0x7f800000u);
    if (magnitude >= 0x0400u)
        return f32_value(sign | ((magnitude << 13) + (112u << 23)));
    return f32_value(sign | f32_bits((float)magnitude * 0x1p-24f));
}

float dtype_value(enum dtype dtype, const void *values, size_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return dtype == DTYPE_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void dtype_convert(void *out, enum dtype out_dtype, const void *in, enum dtype in_dtype, size_t count)
{
    assert(out_dtype == DTYPE_F32 || out_dtype == DTYPE_BF16 || out_dtype == DTYPE_F16);
    assert(in_dtype == DTYPE_F32 || in_dtype == DTYPE_BF16 || in_dtype == DTYPE_F16);
    if (out_dtype == in_dtype) {
        if (out != in && count != 0)
            memcpy(out, in, count * dtype_size_bytes(in_dtype));
        return;
    }
    for (size_t i = 0; i < count; i++) { /* fp32 contains both halves, so this rounds once */
        const float value = dtype_value(in_dtype, in, i);
        if (out_dtype == DTYPE_F32)
            ((float *)out)[i] = value;
        else
            ((uint16_t *)out)[i] = out_dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
    }
}
