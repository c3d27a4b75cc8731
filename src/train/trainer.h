/* The training loop.  Source of its semantics: nanoGPT train.py. */
#ifndef GPT_TRAIN_TRAIN_TRAINER_H
#define GPT_TRAIN_TRAIN_TRAINER_H

#include <stdio.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"

/* Trains (or evaluates, or prints the plan or the program) as the configuration says.  The last complete checkpoint is
 * intact in every case.  Errors: GT_STOPPED after a signal, with everything saved; GT_USAGE, GT_DATA, GT_NO_FIT before
 * the first step; others as they come. */
enum gt_status trainer_run(struct hostmem *mem, const struct config *config);

#endif
