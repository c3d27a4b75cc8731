/* The lines that a run prints while it trains, and at its end. */
#ifndef GPT_TRAIN_TRAIN_RUN_LOG_H
#define GPT_TRAIN_TRAIN_RUN_LOG_H

#include "train/trainer.h"

/* Logs the memory in use.  Call it after the first iteration, which has run every program: later
 * ones allocate nothing more. */
void run_log_memory(struct trainer *t);
void run_log_iteration(struct trainer *t, const struct step_result *result);
/* Logs the first update that is left out because no target counts. */
void run_log_targetless(struct trainer *t);
/* Logs one line for a skipped update.  It is not a warning while float16's loss scale is coming
 * down, which makes gradients finite again. */
void run_log_skipped(const struct trainer *t, int64_t iter);
/* Logs the last paragraph: a summary of the run, the model's folder, the next command. */
void run_log_end(const struct trainer *t, bool stopped);

#endif
