/* Sudden rises of the loss or of the gradient's norm, and the samples behind them.
 *
 * An update is compared with the hundred before it.  Where it stands out, it is repeated, and the samples with the highest losses
 * are named by their place in the token files, so that their text can be looked at.
 */
#ifndef GPT_TRAIN_TRAIN_SPIKES_H
#define GPT_TRAIN_TRAIN_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"
#include "train/replay.h"

#define SPIKES_WINDOW 100

/* Of the last updates that were not skipped, as logarithms. */
struct spikes {
    float loss[SPIKES_WINDOW], norm[SPIKES_WINDOW];
    int64_t count;      /* of all that were added */
    int64_t quiet_till; /* an iteration: two lines are a window apart */
};

struct spike {
    double loss, norm, usual_loss, usual_norm;
};

/* Adds an update.  Whether the logarithm of its loss or norm is more than six standard deviations above the mean of a full
 * window, and by no less than a tenth (loss) or a factor of three (norm).  Then fills `out`.  Not within a window of another one. */
bool spikes_add(struct spikes *spikes, int64_t iter, double loss, double norm, struct spike *out);

/* One line of a spike and one for each of its three samples with the highest losses, by the weights of now.  `replay` has
 * session, feed and result; `tokenizer` may be NULL, and then no text is shown.  Errors: those of replay_run(). */
enum gt_status spike_log(const struct spike *spike, struct replay *replay, const struct tokenizer *tokenizer);

#endif
