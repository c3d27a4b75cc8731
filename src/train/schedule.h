/* The learning rate of an iteration.  Source: nanoGPT train.py get_lr. */
#ifndef GPT_TRAIN_TRAIN_SCHEDULE_H
#define GPT_TRAIN_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "config/config.h"

/* Returns learning_rate if decay_lr is off.  Otherwise linear warm-up, (iter + 1) / (warmup_iters + 1) of
 * learning_rate, then a cosine from learning_rate down to min_lr at lr_decay_iters, then min_lr. */
double schedule_learning_rate(const struct config *config, int64_t iter);

#endif
