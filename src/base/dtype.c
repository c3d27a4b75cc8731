/* Element types: sizes, names, and conversions between fp32, bf16 and fp16.
 *
 * Except for one exact multiplication by a power of two, the conversions use integer arithmetic on
 * the bits.  They do not depend on the rounding mode or on whether the processor flushes subnormals
 * to zero, and give the same bits on every machine.  They are the reference for the faster
 * conversions of the backends and are not tuned.
 */
#include "base/dtype.h"

#include <assert.h>
#include <string.h>

static const struct {
    size_t size_bytes;
    const char *name;
    const char *safetensors_name;
} dtypes[] = {
    [DTYPE_F32] = {4, "float32", "F32"}, [DTYPE_BF16] = {2, "bfloat16", "BF16"},
    [DTYPE_F16] = {2, "float16", "F16"}, [DTYPE_I32] = {4, "int32", "I32"},
    [DTYPE_U8] = {1, "uint8", "U8"},     [DTYPE_F64] = {8, "float64", "F64"},
};

_Static_assert(sizeof dtypes / sizeof dtypes[0] == DTYPE_COUNT, "every dtype has a row");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8,
               "float and double are IEEE 754 binary32 and binary64");

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

float dtype_value(enum dtype dtype, const void *values, size_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return dtype == DTYPE_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void dtype_convert(void *out, enum dtype out_dtype, const void *in, enum dtype in_dtype,
                   size_t count)
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
            ((uint16_t *)out)[i] =
                out_dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
    }
}
