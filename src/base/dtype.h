/* Element types and their conversions.
 *
 * bf16 and fp16 are stored as uint16_t bit patterns.  Conversion from fp32 rounds to nearest, ties to even.  NaN stays
 * NaN (quiet); infinities and signed zeros are preserved.  fp16 has subnormals and overflows to infinity as IEEE 754
 * requires.
 */
#ifndef GPT_TRAIN_BASE_DTYPE_H
#define GPT_TRAIN_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_U8, DTYPE_F64, DTYPE_COUNT };

/* Bytes per element. */
size_t dtype_size_bytes(enum dtype dtype);
/* PyTorch's names, which the configuration uses: "float32", "bfloat16", "float16", "int32", "uint8", "float64". */
const char *dtype_name(enum dtype dtype);
/* The safetensors names: "F32", "BF16", "F16", "I32", "U8", "F64". */
const char *dtype_safetensors_name(enum dtype dtype);
/* Looks up a name of either kind.  Returns false when `name` is unknown. */
bool dtype_from_name(const char *name, enum dtype *out);

uint16_t bf16_from_f32(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f16_from_f32(float value);
float f16_to_f32(uint16_t bits);

/* Returns element i of an array of DTYPE_F32, DTYPE_BF16 or DTYPE_F16. */
float dtype_value(enum dtype dtype, const void *values, size_t i);
/* out[count] = convert(in[count]) between DTYPE_F32, DTYPE_BF16 and DTYPE_F16.  `in` and `out` may overlap only if
 * address and dtype are equal. */
void dtype_convert(void *out, enum dtype out_dtype, const void *in, enum dtype in_dtype, size_t count);

#endif
