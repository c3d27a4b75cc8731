/* --explain-oom: what a PyTorch out-of-memory message says, and what would have been possible. */
#ifndef GPT_TRAIN_TRAIN_EXPLAIN_H
#define GPT_TRAIN_TRAIN_EXPLAIN_H

#include <stdio.h>

#include "base/status.h"
#include "config/config.h"
#include "model/model.h"
#include "plan/oom_message.h"

/* Reads the message that config->explain_oom names ("-": standard input), prints what its numbers mean for this
 * configuration, and sets what the user left open: memory_budget to the memory that it shows there was, device_profile to a
 * card of that size, dtype to nanoGPT's default.  The plan that follows is then the answer.
 * Errors: GT_IO; GT_DATA for a text without such a message; those of device_profile_find(). */
enum gt_status explain_oom(struct config *config, const struct model_config *model);

/* The first part alone, for any message. */
void explain_print(const struct oom_message *message, const struct config *config, const struct model_config *model,
                   FILE *out);

#endif
