/* State formats: how gradients, moments and masters are stored.
 *
 * Parameters, plan, checkpoint and reports all use the one table.  Layernorms' gains and biases are
 * few, so they are fp32 with fp32 states in every format.  doc/states.md lists the loss that each
 * format costs.
 */
#ifndef GPT_TRAIN_MODEL_STATE_FORMAT_H
#define GPT_TRAIN_MODEL_STATE_FORMAT_H

#include "base/dtype.h"

/* In decreasing size.  All but the first round stochastically, have no master and require bfloat16.
 */
enum state_format {
    STATE_MASTER,       /* fp32 gradients and moments; an fp32 master for each 16-bit weight */
    STATE_SR,           /* bf16 weights without a master; fp32 gradients and moments */
    STATE_SR_BF16,      /* bf16 weights, gradients and moments */
    STATE_SR_8BIT,      /* bf16 weights and gradients; 8-bit moments, bf16 for embeddings */
    STATE_SR_8BIT_FULL, /* the same, with 8-bit moments for embeddings too */
    STATE_FORMATS
};

/* The storage types of a parameter's states. */
struct state_dtypes {
    bool master;
    enum dtype gradient, moment; /* DTYPE_U8: codes with an exponent per block and moment */
};

/* Returns "master", "sr", "sr_bf16", "sr_8bit" or "sr_8bit_full". */
const char *state_format_name(enum state_format format);
bool state_format_from_name(const char *name, enum state_format *out);
/* Returns true if the format rounds stochastically, which requires bfloat16. */
bool state_format_is_lean(enum state_format format);
/* Returns the dtypes of the states of a parameter stored as `dtype`. */
struct state_dtypes state_format_dtypes(enum state_format format, enum dtype dtype, bool embedding);
/* Returns the next leaner format for the planner, in order of loss per byte saved; STATE_FORMATS:
 * none. */
enum state_format state_format_next(enum state_format format);

/* 8-bit moments, for conversions between state formats; op.h, state_*, defines codes and exponents.
 */
enum state_moment { STATE_MOMENT_M, STATE_MOMENT_V };
/* Decodes the codes of one block to out[count]. */
void state_codes_decode(enum state_moment moment, const uint8_t *codes, int8_t exponent,
                        size_t count, float *out);
/* Encodes one block (count <= STATE_BLOCK), rounding to nearest, halves away from zero, and returns
 * its exponent.  v must not be negative; a positive v never becomes 0. */
int8_t state_codes_encode(enum state_moment moment, const float *values, size_t count,
                          uint8_t *codes);

#endif
