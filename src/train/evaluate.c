/* An evaluation of a run: the losses of both splits of each data set, and of the mixture.
 *
 * Scripts parse the line that begins with `step`, so its format must not change.
 */
#include "train/evaluate.h"

#include "base/clock.h"
#include "config/config_text.h"

/* Adds up the losses of each data set by its share. */
static enum gt_status losses_sum(struct evaluation *evaluation, const struct mixture *mixture,
                                 struct evaluation_losses *out)
{
    struct evaluation_sum train, val;
    *out = (struct evaluation_losses){.train = 0.0};
    for (; evaluation->part < mixture->count; evaluation->part++) {
        const double share = mixture->parts[evaluation->part].share;
        TRY(evaluation_split_sum(evaluation, TOKEN_TRAIN, "evaluate train", &train));
        TRY(evaluation_split_sum(evaluation, TOKEN_VAL, "evaluate val", &val));
        out->val_of_part[evaluation->part] = val.loss / (double)val.targets;
        out->train += share * (train.loss / (double)train.targets);
        out->val += share * out->val_of_part[evaluation->part];
    }
    return GT_OK;
}

/* Logs the losses, with those that the configuration expects. */
static void losses_log(const struct run *run, const struct evaluation_losses *losses)
{
    const struct mixture *mixture = &run->mixture;
    const int64_t iter = run->state.iter;
    char expected[80] = "";
    struct config_band band;
    if (config_expected_source(run->config) != NULL &&
        config_expected_losses(run->config, iter, &band))
        snprintf(expected, sizeof expected, "; expected %g to %g after %.3g M tokens", band.low,
                 band.high, (double)iter * run_tokens_per_update(run->config) / 1e6);
    log_result("step %" PRId64 ": train loss %.4f, val loss %.4f%s", iter, losses->train,
               losses->val, expected);
    for (int i = 0; i < mixture->count && mixture->count > 1; i++)
        log_result("dataset %.*s: val loss %.4f", mixture->parts[i].name_length,
                   mixture->parts[i].name, losses->val_of_part[i]);
}

enum gt_status evaluate(struct runner *runner, bool must_be_finite, struct evaluation_losses *out)
{
    struct run *run = &runner->run;
    struct evaluation evaluation = {.session = &run->session,
                                    .feed = &runner->feed,
                                    .progress = &runner->progress,
                                    .samples = run->config->eval_iters * run->config->batch_size,
                                    .iter = run->state.iter,
                                    .must_be_finite = must_be_finite};
    const int64_t start_ns = clock_monotonic_ns();
    const enum gt_status status = losses_sum(&evaluation, &run->mixture, out);
    progress_clear(&runner->progress);
    TRY(status);
    forecast_evaluation_measured(&runner->forecast,
                                 (double)(clock_monotonic_ns() - start_ns) / 1e9);
    losses_log(run, out);
    return GT_OK;
}

bool evaluate_is_off_course(const struct run *run, double val_loss)
{
    struct config_band band;
    const char *source = config_expected_source(run->config);
    if (source == NULL || !config_expected_losses(run->config, run->state.iter, &band) ||
        (val_loss >= band.low && val_loss <= band.high))
        return false;
    log_warning(
        "step %" PRId64
        ": val loss %.4f is outside %g to %g, which %s expects of its own data; what to look at: "
        "doc/when_training_goes_wrong.md",
        run->state.iter, val_loss, band.low, band.high, source);
    return true;
}
