/* --explain-oom: explains a PyTorch out-of-memory message, and shows what would have been possible. */
#ifndef GPT_TRAIN_TRAIN_EXPLAIN_H
#define GPT_TRAIN_TRAIN_EXPLAIN_H

#include <stdio.h>

#include "base/status.h"
#include "config/config.h"
#include "model/model.h"
#include "plan/oom_message.h"

/* Reads the message that config->explain_oom names ("-": standard input) and prints what its numbers mean for this
 * configuration.  Then settles the keys that the user left open: memory_budget to the memory that was available
 * according to the message, device_profile to a card of that size, dtype to nanoGPT's default.  The plan that follows
 * is then the answer.  Errors: GT_IO; GT_DATA for a text without such a message; those of device_profile_find(). */
enum gt_status explain_oom(struct config *config, const struct model_config *model);

/* Prints only the explanation of a message. */
void explain_print(const struct oom_message *message, const struct config *config, const struct model_config *model,
                   FILE *out);

#endif
