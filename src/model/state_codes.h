/* 8-bit moments on the host, for conversions between state formats.  op.h, state_*, defines codes and exponents. */
#ifndef GPT_TRAIN_MODEL_STATE_CODES_H
#define GPT_TRAIN_MODEL_STATE_CODES_H

#include <stddef.h>
#include <stdint.h>

enum state_moment { STATE_MOMENT_M, STATE_MOMENT_V };

/* Decodes the codes of one block to out[count]. */
void state_codes_decode(enum state_moment moment, const uint8_t *codes, int8_t exponent, size_t count, float *out);
/* Encodes one block (count <= STATE_BLOCK), rounding to nearest, halves away from zero, and returns its exponent.  v
 * must not be negative; a positive v never becomes 0. */
int8_t state_codes_encode(enum state_moment moment, const float *values, size_t count, uint8_t *codes);

#endif
