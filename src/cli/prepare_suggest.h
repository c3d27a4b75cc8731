/* Suggests a model for a data set: its size, the duration and the command. */
#ifndef GPT_TRAIN_CLI_PREPARE_SUGGEST_H
#define GPT_TRAIN_CLI_PREPARE_SUGGEST_H

#include "data/prepare.h"

/* Prints a model size that suits the amount of text and this machine's processors, an estimate of the training time,
 * and a gpt-train command that can be pasted into a shell. */
void prepare_suggest(const char *out_dir, const struct prepare_result *result);

#endif
