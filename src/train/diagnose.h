/* Unusual updates.
 *
 * If the loss or the gradient of an update is not finite, the update is repeated op by op to name
 * the first value that is not finite.  A skipped update has left the weights unchanged.  A sudden
 * rise of the loss or of the gradient's norm is traced to its samples, which are named by their
 * place in the token files, so that their text can be read. */
#ifndef GPT_TRAIN_TRAIN_DIAGNOSE_H
#define GPT_TRAIN_TRAIN_DIAGNOSE_H

#include "train/feed.h"
#include "train/steps_ahead.h"

#define SPIKES_WINDOW 100

/* A window over the last updates that were not skipped, as logarithms. */
struct spikes {
    float loss[SPIKES_WINDOW], norm[SPIKES_WINDOW];
    int64_t count;      /* updates added so far */
    int64_t quiet_till; /* no spike is reported before this iteration; two reports are at least a
                           window apart */
};

struct spike {
    double loss, norm, usual_loss, usual_norm;
};

/* Adds an update.  Returns true and fills `out` when the logarithm of its loss or norm is more than
 * six standard deviations above the mean of a full window, and the value exceeds the usual one by a
 * tenth (loss) or a factor of three (norm).  Returns false within a window of the last spike. */
bool spikes_add(struct spikes *spikes, int64_t iter, double loss, double norm, struct spike *out);

/* All pointers are borrowed and must outlive the struct. */
struct diagnosis {
    struct session *session;
    struct feed *feed;
    const struct steps_ahead *ahead;
    struct progress *progress;
    const struct tokenizer *tokenizer; /* may be NULL */
    struct spikes spikes;
    int64_t first_iter; /* of this process */
    bool was_bad; /* the previous update was bad; only the first update of a burst is diagnosed */
    int32_t done;
};

/* Diagnoses update `index` of the `count` updates in `ahead`, all of which the device has finished.
 * `loss` is the mean loss of the update.  If it is not finite, or the update was skipped and not
 * because of float16's loss scale, repeats the update and logs one line, at most a few times in a
 * run.  A spike is logged too.  Weights, moments and the host's scalars stay unchanged; gradients
 * do not.  Nothing is allocated.  Errors: the device's. */
enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count,
                             double loss);

#endif
