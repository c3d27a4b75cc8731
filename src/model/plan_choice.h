/* The part of a plan that may vary without changing what is trained: how an update is computed.
 *
 * Recompute and offload change no bit.  The others change the order of sums, and with it the last
 * bits, so a checkpoint stores the choice, except offload, and a resumed run uses it again.
 */
#ifndef GPT_TRAIN_MODEL_PLAN_CHOICE_H
#define GPT_TRAIN_MODEL_PLAN_CHOICE_H

#include "base/offload.h"
#include "base/recompute.h"
#include "base/status.h"

/* All 0: not chosen yet. */
struct plan_choice {
    int32_t micro_batch;     /* sequences of a micro-step */
    int32_t remainder_batch; /* sequences of the last micro-step if micro_batch does not divide the
                                samples; 0 = none */
    int32_t loss_chunk_rows; /* rows of logits that exist at once in training */
    int32_t evaluate_batch;  /* sequences that are evaluated at once */
    struct offload_mix offload;
    struct recompute_mix recompute;
};

bool plan_choice_equal(const struct plan_choice *a, const struct plan_choice *b);

#define PLAN_CHOICE_TEXT_MAX 432
/* Writes "micro-batch 8, recompute mlp in 7 of 12 blocks, gelu in the others, loss in chunks of 512
 * rows".  If `lora`, the offloaded weights are called frozen.  Returns `text`. */
char *plan_choice_text(char text[static PLAN_CHOICE_TEXT_MAX], const struct plan_choice *choice,
                       int32_t layers, bool lora);

#endif
