/* What to train on a data set: a size of model, how long, and the command. */
#ifndef GPT_TRAIN_CLI_PREPARE_SUGGEST_H
#define GPT_TRAIN_CLI_PREPARE_SUGGEST_H

#include "data/prepare.h"

/* Prints the model that goes with so much text and with the processors of this machine, an estimate of the time, and a
 * gpt-train command that a shell takes as it stands. */
void prepare_suggest(const char *out_dir, const struct prepare_result *result);

#endif
