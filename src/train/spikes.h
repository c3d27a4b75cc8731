/* Finds sudden rises of the loss or of the gradient's norm, and the samples behind them.
 *
 * An update is compared with the hundred before it.  One that stands out is repeated, and the samples with the highest
 * losses are named by their place in the token files, so that their text can be read.
 */
#ifndef GPT_TRAIN_TRAIN_SPIKES_H
#define GPT_TRAIN_TRAIN_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"
#include "train/replay.h"

#define SPIKES_WINDOW 100

/* A window over the last updates that were not skipped, as logarithms. */
struct spikes {
    float loss[SPIKES_WINDOW], norm[SPIKES_WINDOW];
    int64_t count;      /* updates added so far */
    int64_t quiet_till; /* no spike is reported before this iteration; two reports are at least a window apart */
};

struct spike {
    double loss, norm, usual_loss, usual_norm;
};

/* Adds an update.  Returns true and fills `out` when the logarithm of its loss or norm is more than six standard
 * deviations above the mean of a full window, and the value exceeds the usual one by a tenth (loss) or a factor of
 * three (norm).  Returns false within a window of the last spike. */
bool spikes_add(struct spikes *spikes, int64_t iter, double loss, double norm, struct spike *out);

/* Logs one line for the spike and one for each of the three samples with the highest losses under the current weights.
 * `replay` has session, feed and result.  `tokenizer` may be NULL; then no text is shown.  Errors: those of
 * replay_run(). */
enum gt_status spike_log(const struct spike *spike, struct replay *replay, const struct tokenizer *tokenizer);

#endif
