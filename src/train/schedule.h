/* The schedules of the learning rate and of Muon's momentum. */
#ifndef GPT_TRAIN_TRAIN_SCHEDULE_H
#define GPT_TRAIN_TRAIN_SCHEDULE_H

#include "config/config.h"

/* Returns the learning rate of an iteration; it depends on nothing but `config` and `iter`.  The
 * rate first grows linearly, as (iter + 1) / (warmup_iters + 1) of learning_rate.  Then it falls to
 * min_lr at lr_decay_iters, and stays there: along a cosine, as nanoGPT's get_lr (train.py), or
 * along a line, which `wsd` begins cooldown_iters before the end.  A constant rate is learning_rate
 * from the beginning. */
double schedule_learning_rate(const struct config *config, int64_t iter);
/* Returns the decay rate of Muon's momentum.  In the warm-up it grows linearly from 0.85
 * (modded-nanogpt). */
double schedule_muon_momentum(const struct config *config, int64_t iter);
/* Logs one line for each value that the schedule cannot reach in the rest of a run, from iteration
 * `iter` on: a warm-up that is longer than the run, a decay that does not begin or ended long ago.
 * Each names the key that changes it. */
void schedule_check(const struct config *config, int64_t iter);

#endif
