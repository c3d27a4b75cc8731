/* Offload: what a run has in host memory and copies to the device for the ops that use it.
 *
 * The ops and their order are those of a run without offload, so the results are the same bits.
 */
#ifndef GPT_TRAIN_BASE_OFFLOAD_H
#define GPT_TRAIN_BASE_OFFLOAD_H

#include "base/status.h"

enum offload_class {
    OFFLOAD_STATES,    /* masters, moments and their exponents: copied in each update */
    OFFLOAD_GRADIENTS, /* copied in each micro-step and each update */
    OFFLOAD_WEIGHTS,   /* the same; frozen ones in each micro-step */
    OFFLOAD_CLASSES
};

#define OFFLOAD_ALL 4

/* For each class, the number of quarters of the blocks, 0 .. OFFLOAD_ALL, whose matrices are in
 * host memory. */
struct offload_mix {
    int32_t quarters[OFFLOAD_CLASSES];
};

/* What the key offload lists. */
struct offload_list {
    bool is_auto;                /* as much as makes the run fit */
    bool all;                    /* whatever can move */
    bool moves[OFFLOAD_CLASSES]; /* all of a class */
    bool residuals;              /* the inputs of blocks that recompute everything */
};

/* Returns how many blocks, from the first on, have a class of their matrices in host memory.  If
 * any has, so have the embeddings and the output layer. */
static inline int32_t offload_blocks(int32_t quarters, int32_t layers)
{
    return (int32_t)(((int64_t)layers * quarters + OFFLOAD_ALL - 1) / OFFLOAD_ALL);
}

/* Returns the sum of the quarters of all classes. */
int32_t offload_quarters(const struct offload_mix *mix);

bool offload_equal(const struct offload_mix *a, const struct offload_mix *b);

#define OFFLOAD_TEXT_MAX 96
/* Writes "none", "states", "states, 1/2 of gradients", or "frozen weights" if `lora`.  Returns
 * `text`. */
char *offload_text(char text[static OFFLOAD_TEXT_MAX], const struct offload_mix *mix, bool lora);

/* Reads "auto", "none", "all", or a list such as "states,weights,residuals".  If a word is unknown,
 * points *bad to it and returns false. */
bool offload_read(const char *text, struct offload_list *out, const char **bad);

#endif
