/* The defaults of fine-tuning, and the length of a run in epochs. */
#ifndef GPT_TRAIN_SESSION_FINETUNE_H
#define GPT_TRAIN_SESSION_FINETUNE_H

#include "base/hostmem.h"
#include "config/config.h"
#include "data/mixture.h"

/* Sets the keys of finetune.def that the user has not set to their defaults of fine-tuning.  Call
 * it for a fresh run that trains adapters, or a model with a chat template, before the model's
 * shape is filled in, and finetune_length_set() after.  Errors: those of the data, if there are
 * any. */
enum gt_status finetune_defaults(struct hostmem *mem, struct config *config,
                                 const struct mixture *mixture, bool adapters);

/* Sets max_iters, lr_decay_iters and warmup_iters from `epochs` and `warmup_ratio`, and the
 * defaults of fine-tuning that depend on them.  Logs both.  An epoch is as many rows as all data
 * sets have.  A resumed run keeps its length unless this invocation sets one of the two keys.
 * Without data, which only a plan allows, a run has FINETUNE_UPDATES_UNKNOWN updates.  Errors:
 * GT_USAGE for a run of 2^31 updates or more; those of the data. */
#define FINETUNE_UPDATES_UNKNOWN 1000
enum gt_status finetune_length_set(struct hostmem *mem, struct config *config, bool resumed);

#endif
