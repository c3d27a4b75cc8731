/* The lines that a run prints before its first step. */
#ifndef GPT_TRAIN_TRAIN_START_LOG_H
#define GPT_TRAIN_TRAIN_START_LOG_H

#include "train/runner.h"

/* Logs parameters, device and plan, before the arena is allocated. */
void start_log(const struct runner *runner);
void start_log_plan(const struct runner *runner);
/* Logs the time left; once, also how to shorten a run that takes more than a month. */
void start_log_forecast(struct runner *runner);
/* Logs what --tune would cost a fresh run on a card that nobody has tuned, if the run is so long
 * that the least expected gain pays for it.  Follows session_start(). */
void start_log_tune(const struct runner *runner);

#endif
