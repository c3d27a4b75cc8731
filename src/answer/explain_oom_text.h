/* What a PyTorch out-of-memory message means. */
#ifndef GPT_TRAIN_ANSWER_EXPLAIN_OOM_TEXT_H
#define GPT_TRAIN_ANSWER_EXPLAIN_OOM_TEXT_H

#include "config/config.h"
#include "model/model.h"
#include "plan/device_profile.h"

/* Prints what the numbers of the message in text[count] mean for this configuration; `name` names
 * the text in log lines.  Then sets the keys that the user left open: the budget becomes the memory
 * that was available according to the message, the device profile that of `card`, and the dtype
 * nanoGPT's default.  If card->memory_bytes is 0, it becomes a card of the message's size.  The
 * caller answers with a plan under these assumptions. Errors: GT_DATA for a text without such a
 * message. */
enum gt_status explain_oom_text(const char *name, const char *text, size_t count,
                                struct config *config, const struct model_config *model,
                                struct device_profile *card);

#endif
