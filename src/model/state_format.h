/* State formats: what is kept of a parameter between updates, and in how many bytes.
 *
 * The table is the only place that knows; parameters, plan, checkpoint and reports ask it.  Layernorms' gains and biases are
 * fp32 with fp32 states in every format: they are few.  doc/states.md says what each format costs in loss.
 */
#ifndef GPT_TRAIN_MODEL_STATE_FORMAT_H
#define GPT_TRAIN_MODEL_STATE_FORMAT_H

#include <stdbool.h>

#include "base/dtype.h"

/* From the widest to the leanest.  All but the first round stochastically, keep no master and need bfloat16. */
enum state_format {
    STATE_MASTER,       /* fp32 gradients and moments; beside a 16-bit weight an fp32 master */
    STATE_SR,           /* bf16 weights alone; fp32 gradients and moments */
    STATE_SR_BF16,      /* bf16 weights, gradients and moments */
    STATE_SR_8BIT,      /* bf16 weights and gradients; 8-bit moments, but bf16 ones of the embeddings */
    STATE_SR_8BIT_FULL, /* 8-bit moments of the embeddings too */
    STATE_FORMATS
};

/* How the states of one kind of parameter are stored. */
struct state_dtypes {
    bool master;
    enum dtype gradient, moment; /* DTYPE_U8: codes with an exponent per block and moment */
};

/* "master", "sr", "sr_bf16", "sr_8bit", "sr_8bit_full". */
const char *state_format_name(enum state_format format);
bool state_format_from_name(const char *name, enum state_format *out);
/* Whether the format needs bfloat16 and rounds stochastically. */
bool state_format_is_lean(enum state_format format);
/* The states of a parameter that is stored as `dtype`. */
struct state_dtypes state_format_dtypes(enum state_format format, enum dtype dtype, bool embedding);
/* Bytes of weight, master, gradient and both moments, exponents of blocks included, per parameter of a large matrix in a
 * block; with `muon` there is one moment. */
double state_format_bytes(enum state_format format, enum dtype dtype, bool muon);
/* The next leaner format that a planner may try after `format`, by what they cost in loss per byte; STATE_FORMATS: none. */
enum state_format state_format_next(enum state_format format);

#endif
