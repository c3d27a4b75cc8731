/* Evaluation: the mean loss of random batches of a split (nanoGPT train.py estimate_loss), or of the whole split. */
#ifndef GPT_TRAIN_TRAIN_EVALUATE_H
#define GPT_TRAIN_TRAIN_EVALUATE_H

#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "config/config.h"
#include "train/feed.h"
#include "train/session.h"

/* Returns how often the evaluation program runs per split: eval_iters * batch_size samples in batches of
 * eval_batch_size.  Returns 0 with eval_iters = 0, when the size of the split decides. */
int64_t evaluation_runs(const struct config *config, const struct model *model);

/* Runs the evaluation program on the ids and targets that are on the device, and adds its sum of losses to *sum. */
enum gt_status evaluation_batch_add(struct session *session, double *sum);

struct evaluation {
    struct session *session;
    struct feed *feed;
    struct progress *progress;
    int64_t samples; /* 0: every token of the split that has a context, once */
    int64_t iter;    /* selects the random draw of `samples` */
};

struct evaluation_sum {
    double loss; /* in fp64 over fp32 row losses */
    int64_t targets;
};

/* Adds up the losses of a split's targets; `what` names the evaluation in the progress line.  Errors: GT_STOPPED when a
 * signal came; those of the data and the device. */
enum gt_status evaluation_split_sum(const struct evaluation *evaluation, enum token_split split, const char *what,
                                    struct evaluation_sum *out);

#endif
