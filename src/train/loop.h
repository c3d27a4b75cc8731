/* The training loop. */
#ifndef GPT_TRAIN_TRAIN_LOOP_H
#define GPT_TRAIN_TRAIN_LOOP_H

#include "train/trainer.h"

/* Trains from the first iteration to the last, or until a signal.  Errors: GT_STOPPED, and what
 * ended the run. */
enum gt_status loop_train(struct trainer *t);

#endif
