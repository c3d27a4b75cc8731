/* The learning-rate schedule: a pure function of the iteration, so that a resumed run needs no state.
 *
 * If lr_decay_iters <= warmup_iters, nanoGPT divides by zero; here the decay ends at once.
 */
#include "train/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double schedule_learning_rate(const struct config *config, int64_t iter)
{
    if (!config->decay_lr)
        return config->learning_rate;
    if (iter < config->warmup_iters)
        return config->learning_rate * (double)(iter + 1) / (double)(config->warmup_iters + 1);
    if (iter > config->lr_decay_iters)
        return config->min_lr;
    int64_t span = config->lr_decay_iters - config->warmup_iters;
    double done = span > 0 ? (double)(iter - config->warmup_iters) / (double)span : 1.0;
    return config->min_lr + 0.5 * (1.0 + cos(PI * done)) * (config->learning_rate - config->min_lr);
}
