/* What changes from update to update besides the weights: the learning rate and Muon's momentum.
 *
 * They depend on the configuration and the iteration only.  What a schedule cannot reach before the
 * run ends, and updates that change nothing, are logged once.
 */
#include "train/schedule.h"

#include <math.h>

#include "base/size.h"
#include "config/config_key.h"

#define PI 3.14159265358979323846
#define MUON_MOMENTUM_FIRST 0.85
#define CLIP_LEAST 1e4  /* times adam_epsilon */
#define WARMUP_SHARE 20 /* of the run: the warm-up that is suggested instead of a longer one */

/* If lr_decay_iters equals warmup_iters, nanoGPT divides by zero at that iteration.  This function
 * returns min_lr. */
double schedule_learning_rate(const struct config *config, int64_t iter)
{
    if (config->lr_schedule == CONFIG_LR_CONSTANT)
        return config->learning_rate;
    if (iter < config->warmup_iters)
        return config->learning_rate * (double)(iter + 1) / (double)(config->warmup_iters + 1);
    if (config->lr_schedule == CONFIG_LR_CONSTANT_WITH_WARMUP)
        return config->learning_rate;
    if (iter > config->lr_decay_iters)
        return config->min_lr;
    int64_t begin = config->warmup_iters;
    if (config->lr_schedule == CONFIG_LR_WSD) {
        int64_t cooldown =
            config->cooldown_iters > 0 ? config->cooldown_iters : config->lr_decay_iters / 5;
        begin = max_i64(begin, config->lr_decay_iters - cooldown);
        if (iter < begin)
            return config->learning_rate;
    }
    int64_t span = config->lr_decay_iters - begin;
    double done = span > 0 ? (double)(iter - begin) / (double)span : 1.0;
    double left =
        config->lr_schedule == CONFIG_LR_COSINE ? 0.5 * (1.0 + cos(PI * done)) : 1.0 - done;
    return config->min_lr + left * (config->learning_rate - config->min_lr);
}

double schedule_muon_momentum(const struct config *config, int64_t iter)
{
    const double first = fmin(MUON_MOMENTUM_FIRST, config->muon_momentum);
    if (iter >= config->muon_momentum_warmup)
        return config->muon_momentum;
    return first +
           (config->muon_momentum - first) * (double)iter / (double)config->muon_momentum_warmup;
}

/* ---- schedules that never arrive ---- */

#define DESCRIBED CONFIG_KEY_DESCRIBED

/* Writes a value that a run ends with.  It gets four digits if it is so near the goal that two
 * could not tell them apart. */
#define VALUE_TEXT(value, goal) TEXT(32, "%.*g", (value) > 0.9 * (goal) ? 4 : 2, value)

static void momentum_check(const struct config *config)
{
    if (config->optimizer != CONFIG_OPTIMIZER_MUON ||
        config->max_iters >= config->muon_momentum_warmup)
        return;
    const double last = schedule_muon_momentum(config, config->max_iters),
                 goal = config->muon_momentum;
    if (last < goal)
        log_warning("the run ends inside the warm-up of Muon's momentum (max_iters=%" PRId64
                    ", muon_momentum_warmup=%" PRId64
                    "): it reaches %s of %g; --muon_momentum_warmup=%" PRId64
                    " would let it reach that",
                    config->max_iters, config->muon_momentum_warmup, VALUE_TEXT(last, goal), goal,
                    config->max_iters / WARMUP_SHARE);
}

/* Returns true if a file sets lr_decay_iters, and the command line sets max_iters alone. */
static bool end_is_typed(const struct config *config)
{
    return config->origin[CONFIG_KEY_max_iters].line == 0 &&
           config->origin[CONFIG_KEY_lr_decay_iters].line > 0;
}

/* Logs a note if the rest of a resumed run, or all that a larger max_iters adds to it or to a
 * file's run, stays at min_lr. */
static void extension_check(const struct config *config, int64_t iter)
{
    const bool extends =
        config_key_was_set(config, CONFIG_KEY_max_iters) &&
        (iter > 0 ? !config_key_was_set(config, CONFIG_KEY_lr_decay_iters) : end_is_typed(config));
    if (iter > config->lr_decay_iters)
        log_note("iter %" PRId64 " is beyond lr_decay_iters=%" PRId64
                 ": the learning rate stays at min_lr=%g; --lr_decay_iters=%" PRId64
                 " decays until the end",
                 iter, config->lr_decay_iters, config->min_lr, config->max_iters);
    else if (extends && config->max_iters > config->lr_decay_iters)
        log_note("from iter %" PRId64
                 " on, the learning rate stays at min_lr=%g; --lr_decay_iters=%" PRId64
                 " decays until the end",
                 config->lr_decay_iters, config->min_lr, config->max_iters);
}

/* Returns true if max_iters alone was set, or set again on the command line, so that lr_decay_iters
 * is hardly intended. */
static bool ends_before_decay(const struct config *config)
{
    const bool unset = config->origin[CONFIG_KEY_lr_decay_iters].source == NULL;
    return config_key_was_set(config, CONFIG_KEY_max_iters) && (unset || end_is_typed(config)) &&
           config->max_iters < config->lr_decay_iters;
}

/* Warns of updates that change nothing: because the rate is 0, or because gradients are scaled down
 * so far that AdamW's epsilon exceeds their root mean square in any model of 10^8 parameters or
 * more. */
static void update_check(const struct config *config)
{
    const bool muon = config->optimizer == CONFIG_OPTIMIZER_MUON;
    if (config->learning_rate == 0.0 && config->max_iters > 0 &&
        schedule_learning_rate(config, config->max_iters) == 0.0 &&
        config->embedding_learning_rate == 0.0 && config->head_learning_rate == 0.0 &&
        config->scalar_learning_rate == 0.0 && !muon)
        log_warning("%s: no update changes a weight", DESCRIBED(config, CONFIG_KEY_learning_rate));
    if (config->grad_clip > 0.0 && config->grad_clip < CLIP_LEAST * config->adam_epsilon && !muon)
        log_warning(
            "%s scales gradients so far down that updates change little, since adam_epsilon "
            "is %g; 1 is usual, and 0 turns clipping off",
            DESCRIBED(config, CONFIG_KEY_grad_clip), config->adam_epsilon);
}

void schedule_check(const struct config *config, int64_t iter)
{
    const double last = schedule_learning_rate(config, config->max_iters),
                 goal = config->learning_rate;
    if (config->eval_only || iter > config->max_iters)
        return;
    update_check(config);
    momentum_check(config);
    if (config->lr_schedule == CONFIG_LR_CONSTANT)
        return;
    const double warmed =
        schedule_learning_rate(config, min_i64(config->max_iters, config->warmup_iters - 1));
    if (config->max_iters < config->warmup_iters ||
        (config->max_iters == config->warmup_iters && config->warmup_iters > 0 && last < goal)) {
        log_warning("the run ends inside the warm-up (max_iters=%" PRId64 ", warmup_iters=%" PRId64
                    "): the learning rate reaches %s of %g; --warmup_iters=%" PRId64
                    " would let it reach that",
                    config->max_iters, config->warmup_iters, VALUE_TEXT(warmed, goal), goal,
                    config->max_iters / WARMUP_SHARE);
        return;
    }
    if (config->min_lr == goal || config->lr_schedule == CONFIG_LR_CONSTANT_WITH_WARMUP)
        return;
    if (config->min_lr > goal)
        log_warning("%s is above %s: the learning rate will rise instead of decaying",
                    DESCRIBED(config, CONFIG_KEY_min_lr),
                    DESCRIBED(config, CONFIG_KEY_learning_rate));
    if (iter <= config->warmup_iters && config->lr_decay_iters <= config->warmup_iters &&
        config->max_iters > config->lr_decay_iters)
        log_warning("%s is not above %s: %s", DESCRIBED(config, CONFIG_KEY_lr_decay_iters),
                    DESCRIBED(config, CONFIG_KEY_warmup_iters),
                    config->warmup_iters > 0 ? "after the warm-up the rate drops to min_lr at once"
                                             : "the rate is min_lr from the start");
    else if (ends_before_decay(config) && last > 1.1 * config->min_lr)
        log_note("the run ends before the learning rate has decayed (max_iters=%" PRId64
                 ", lr_decay_iters=%" PRId64
                 "): it ends at %s, not at min_lr=%g; --lr_decay_iters=%" PRId64
                 " decays until the end",
                 config->max_iters, config->lr_decay_iters, VALUE_TEXT(last, goal), config->min_lr,
                 config->max_iters);
    else
        extension_check(config, iter);
}
