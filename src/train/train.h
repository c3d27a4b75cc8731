/* Trains. */
#ifndef GPT_TRAIN_TRAIN_TRAIN_H
#define GPT_TRAIN_TRAIN_TRAIN_H

#include "base/hostmem.h"
#include "config/config.h"
#include "dist/dist.h"

/* Trains as the configuration says, and completes it; `dist` is NULL, or this process is one of its
 * ranks.  However the run ends, the last complete checkpoint stays intact.  Errors: GT_STOPPED
 * after a signal, with everything saved; GT_USAGE, GT_DATA, GT_NO_FIT before the first step; others
 * as they come. */
enum gt_status train_run(struct hostmem *mem, struct config *config, struct dist *dist);

#endif
