/* 8-bit moments on the host: what a change of state format converts from and to.  Codes and exponents are op.h's, state_*.
 */
#ifndef GPT_TRAIN_MODEL_STATE_CODES_H
#define GPT_TRAIN_MODEL_STATE_CODES_H

#include <stddef.h>
#include <stdint.h>

enum state_moment { STATE_MOMENT_M, STATE_MOMENT_V };

/* out[count] = the values of the codes of one block. */
void state_codes_decode(enum state_moment moment, const uint8_t *codes, int8_t exponent, size_t count, float *out);
/* codes[count] = the values of one block (count <= STATE_BLOCK), rounded to nearest, halves away from zero; v is not
 * negative, and does not become 0 where it is not.  Returns the block's exponent. */
int8_t state_codes_encode(enum state_moment moment, const float *values, size_t count, uint8_t *codes);

#endif
