/* --explain-oom: explains a PyTorch out-of-memory message, and shows what would have been possible. */
#ifndef GPT_TRAIN_TRAIN_EXPLAIN_H
#define GPT_TRAIN_TRAIN_EXPLAIN_H

#include "train/session.h"

/* Reads the message that config->explain_oom names ("-": standard input) and prints what its numbers mean for this
 * configuration.  Then fills `out`, which must be zeroed, for the keys that the user left open: the budget is the memory
 * that was available according to the message, the device profile a card of that size, the dtype nanoGPT's default.  The
 * plan that follows is then the answer.  Errors: GT_IO; GT_DATA for a text without such a message; those of
 * device_profile_find(). */
enum gt_status explain_oom(const struct config *config, const struct model_config *model,
                           struct session_assumption *out);

#endif
