/* The training loop.
 *
 * One iteration: evaluate and save if due, run the micro-steps (first, next ..., remainder), run the update, read the
 * results, log.  If the device runs ahead, settle() reads the results of several updates together: when the loop must
 * log, evaluate or save, or when the next update needs them.  The loop has no state beyond what a checkpoint stores:
 * the samples of a step and the elements that dropout drops follow from (seed, iter, sample), the learning rate from
 * iter.  The losses of micro-steps are added in their order, so that a loss does not depend on when it is read.
 */
#include "train/run.h"

#include <math.h>

#include "base/clock.h"
#include "base/size.h"
#include "session/stop.h"

/* This many updates in a row that were skipped in vain end the run: the model has diverged, and more steps only cost
 * time.  Those that float16 skips at a loss scale above 1 do not count, since a smaller one may help, unless the loss
 * itself is not finite. */
#define SKIPPED_IN_VAIN_MAX 10
#define NOT_SAVED "iter %" PRId64 " is not saved: %s; %s"

/* ---- updates in flight ---- */

enum gt_status steps_ahead_create(struct hostmem *mem, int32_t micro_steps, struct steps_ahead *out)
{
    assert(micro_steps > 0);
    *out = (struct steps_ahead){.micro_steps = micro_steps};
    TRY(HOSTMEM_NEW(mem, (size_t)micro_steps * STEPS_AHEAD_MAX, "losses of micro-steps", &out->step[0].loss_sums));
    for (int32_t i = 1; i < STEPS_AHEAD_MAX; i++)
        out->step[i].loss_sums = out->step[0].loss_sums + (int64_t)i * micro_steps;
    return GT_OK;
}

struct step_result *steps_ahead_next(struct steps_ahead *ahead)
{
    assert(ahead->count < STEPS_AHEAD_MAX);
    if (ahead->count == 0)
        ahead->since_ns = clock_monotonic_ns();
    return &ahead->step[ahead->count];
}

double steps_ahead_seconds(const struct steps_ahead *ahead)
{
    assert(ahead->count > 0);
    return (double)(clock_monotonic_ns() - ahead->since_ns) / 1e9 / ahead->count;
}

double steps_ahead_loss_sum(const struct steps_ahead *ahead, const struct step_result *result)
{
    double sum = 0.0;
    for (int32_t k = 0; k < ahead->micro_steps; k++)
        sum += (double)result->loss_sums[k];
    return sum;
}

/* ---- evaluation and saving ---- */

static enum gt_status evaluate(struct trainer *t, double *train_loss, double *val_loss)
{
    const struct mixture *mixture = &t->mixture;
    struct evaluation evaluation = {.session = &t->session,
                                    .feed = &t->feed,
                                    .progress = &t->progress,
                                    .samples = t->config->eval_iters * t->config->batch_size,
                                    .iter = t->state.iter,
                                    .must_be_finite = t->config->eval_only};
    struct evaluation_sum train, val;
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = GT_OK;
    *train_loss = *val_loss = 0.0;
    for (; evaluation.part < mixture->count && status == GT_OK; evaluation.part++) {
        status = evaluation_split_sum(&evaluation, TOKEN_TRAIN, "evaluate train", &train);
        THEN(status, evaluation_split_sum(&evaluation, TOKEN_VAL, "evaluate val", &val));
        if (status != GT_OK)
            break;
        t->val_losses[evaluation.part] = val.loss / (double)val.targets;
        *train_loss += mixture->parts[evaluation.part].share * (train.loss / (double)train.targets);
        *val_loss += mixture->parts[evaluation.part].share * t->val_losses[evaluation.part];
    }
    progress_clear(&t->progress);
    TRY(status);
    forecast_evaluation_measured(&t->forecast, (double)(clock_monotonic_ns() - start_ns) / 1e9);
    t->evaluated_iter = t->state.iter;
    /* finish() may evaluate at other iterations, which an uninterrupted longer run would not do.  So this counts only
     * the evaluations that are due. */
    t->state.evaluations += t->state.iter % t->config->eval_interval == 0;
    char expected[80] = "";
    struct config_band band;
    if (config_expected_source(t->config) != NULL && config_expected_losses(t->config, t->state.iter, &band))
        snprintf(expected, sizeof expected, "; expected %g to %g after %.3g M tokens", band.low, band.high,
                 (double)t->state.iter * run_tokens_per_update(t) / 1e6);
    log_result("step %" PRId64 ": train loss %.4f, val loss %.4f%s", t->state.iter, *train_loss, *val_loss, expected);
    for (int i = 0; i < mixture->count && mixture->count > 1; i++)
        log_result("dataset %.*s: val loss %.4f", mixture->parts[i].name_length, mixture->parts[i].name,
                   t->val_losses[i]);
    return GT_OK;
}

/* Returns why the model is considered to have diverged, or NULL.  The caller must not let such a model
 * replace the last good checkpoint.  One skipped update is no sign of divergence: it leaves the weights unchanged. */
static const char *divergence(const struct trainer *t)
{
    if (t->evaluated_badly || !isfinite(t->loss))
        return "the loss is not finite";
    return t->skipped_in_vain > 1 ? "updates are being skipped" : NULL;
}

/* Says what a failed save left.  Returns `text`. */
static const char *unsaved_text(char text[static KEPT_TEXT_MAX + 64], const struct trainer *t)
{
    char kept[KEPT_TEXT_MAX];
    if (t->saved_iter == t->state.iter)
        snprintf(text, KEPT_TEXT_MAX + 64,
                 "the checkpoint of iter %" PRId64 " is complete, but not all files beside it", t->state.iter);
    else
        snprintf(text, KEPT_TEXT_MAX + 64, "iter %" PRId64 " could not be saved; %s", t->state.iter,
                 run_log_kept(kept, t));
    return text;
}

/* Returns true if the folder holds a complete checkpoint of this iteration: a save may fail at what comes after it. */
static bool holds_this(const struct trainer *t)
{
    struct checkpoint_record record;
    if (!file_exists(FILE_IN(t->config->out_dir, CHECKPOINT_RECORD_NAME)) ||
        checkpoint_record_read(t->config->out_dir, &record) != GT_OK)
        return false;
    const bool same = record.state.iter == t->state.iter && record.state.samples_seen == t->state.samples_seen &&
                      record.state.best_val_loss == t->state.best_val_loss;
    checkpoint_record_release(&record);
    return same;
}

static enum gt_status save(struct trainer *t)
{
    int64_t start_ns = clock_monotonic_ns();
    if (!ranks_first(t->session.dist)) {
        TRY(saver_serve(&t->session));
        t->saved_iter = t->state.iter;
        return GT_OK;
    }
    t->state.evaluated = t->evaluated_iter == t->state.iter;
    t->state.adam_step = t->session.scalars[SCALAR_ADAM_STEP].i;
    metrics_sync(&t->metrics);
    const enum gt_status status = saver_save(&t->saver, &t->state);
    if (status == GT_IO && holds_this(t))
        t->saved_iter = t->state.iter;
    TRY(status);
    metrics_saved(&t->metrics);
    t->saved_iter = t->state.iter;
    log_result("saving checkpoint to %s (iter %" PRId64 ", %s)", t->config->out_dir, t->state.iter,
               CLOCK_DURATION((double)(clock_monotonic_ns() - start_ns) / 1e9));
    return GT_OK;
}

static void sample_put(struct trainer *t, const char *text, size_t count)
{
    const size_t used = strlen(t->sample);
    fwrite(text, 1, count, stdout);
    snprintf(t->sample + used, sizeof t->sample - used, "%.*s", (int)count, text);
}

/* Prints the answer to the prompt, or a sample of the model after a newline (or after token 0 if the vocabulary has no
 * newline). */
static enum gt_status sample_print(struct trainer *t)
{
    struct tokenizer_stream stream = {0};
    char text[TOKENIZER_TEXT_MAX];
    int32_t token = tokenizer_id_of(t->tokenizer, '\n');
    token = token < 0 ? 0 : token;
    t->sample[0] = '\0';
    if (t->prompt_count > 0)
        log_result("--- answer after %" PRId64 " iterations to: %s", t->state.iter, t->prompt_text);
    else
        log_result("--- sample after %" PRId64 " iterations", t->state.iter);
    generator_begin(t->generator, t->state.iter, t->prompt_count > 0 ? t->prompt : &token, max_i64(t->prompt_count, 1));
    for (int64_t i = 0; i < t->config->sample_tokens && !stop_requested(); i++) {
        TRY(generator_next(t->generator, &token));
        if (conversation_ends(t, token))
            break;
        size_t length = tokenizer_stream_push(t->tokenizer, &stream, token, text);
        sample_put(t, text, length);
    }
    sample_put(t, text, tokenizer_stream_end(&stream, text));
    printf("\n---\n");
    fflush(stdout);
    return GT_OK;
}

/* Saves unless the model has diverged.  Returns GT_OK after a failure to write (GT_IO), such as a full disk: there may
 * be room at the next evaluation, and the last checkpoint is intact. */
static enum gt_status save_or_go_on(struct trainer *t)
{
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX], unsaved[KEPT_TEXT_MAX + 64];
    if (why) {
        log_warning(NOT_SAVED, t->state.iter, why, run_log_kept(kept, t));
        return GT_OK;
    }
    enum gt_status status = save(t);
    t->unsaved = status == GT_IO;
    if (!t->unsaved)
        return status;
    const int64_t left = min_i64(t->config->eval_interval, t->config->max_iters + 1 - t->state.iter);
    if (left > 0)
        log_warning("%s; training continues and tries again in %" PRId64 " iteration%s", unsaved_text(unsaved, t), left,
                    left == 1 ? "" : "s");
    return GT_OK;
}

/* Saves after an evaluation if due.  If the run saves only the best model and this save fails, restores the previous
 * best loss, so that the run compares the next model with the best one on disk.  Like nanoGPT, saves nothing at
 * iteration 0.  At the first iteration of a resumed run, the checkpoint has these weights already, so saves them only
 * as a new best. */
static enum gt_status save_where_due(struct trainer *t, double val_loss)
{
    const double best_before = t->state.best_val_loss;
    const bool best = val_loss < best_before, always = t->config->always_save_checkpoint;
    if (best) {
        t->state.best_val_loss = val_loss;
        t->lowest_iter = t->state.iter;
    }
    if (t->state.iter == 0 || !(best || (always && t->state.iter != t->first_iter)))
        return GT_OK;
    TRY(save_or_go_on(t));
    if (t->saved_iter == t->state.iter)
        t->best_iter = t->state.iter;
    else if (!always)
        t->state.best_val_loss = best_before;
    return GT_OK;
}

/* Warns once when the loss leaves the band that the configuration expects. */
static void expected_check(struct trainer *t, double val_loss)
{
    struct config_band band;
    const char *source = t->left_course ? NULL : config_expected_source(t->config);
    if (!source || !config_expected_losses(t->config, t->state.iter, &band) ||
        (val_loss >= band.low && val_loss <= band.high))
        return;
    t->left_course = true;
    log_warning("step %" PRId64
                ": val loss %.4f is outside %g to %g, which %s expects of its own data; what to look at: "
                "doc/when_training_goes_wrong.md",
                t->state.iter, val_loss, band.low, band.high, source);
}

/* Evaluates, samples and saves before the updates of an iteration. */
static enum gt_status evaluate_and_save(struct trainer *t)
{
    double train_loss, val_loss;
    TRY(evaluate(t, &train_loss, &val_loss));
    const enum gt_status sampled = t->generator ? sample_print(t) : GT_OK;
    struct json_put *line = metrics_line(&t->metrics, t->state.iter, NULL);
    json_put(line, "train_loss:f val_loss:f tokens:i time:f", train_loss, val_loss,
             t->state.samples_seen * t->config->block_size, clock_wall_seconds());
    line->text_max = METRICS_SAMPLE_MAX;
    if (t->generator)
        json_put(line, "sample:s", t->sample);
    (void)metrics_line_write(&t->metrics);
    for (int i = 0; i < t->mixture.count && t->mixture.count > 1; i++) {
        const struct mixture_part *part = &t->mixture.parts[i];
        json_put(metrics_line(&t->metrics, t->state.iter, NULL), "dataset:s dataset_val_loss:f",
                 TEXT(METRICS_TEXT_MAX, "%.*s", part->name_length, part->name), t->val_losses[i]);
        (void)metrics_line_write(&t->metrics);
    }
    TRY(sampled);
    t->evaluated_badly = !isfinite(train_loss) || !isfinite(val_loss);
    expected_check(t, val_loss);
    if (t->config->eval_only)
        return GT_OK;
    TRY(save_where_due(t, val_loss));
    run_report_write(t, true);
    return GT_OK;
}

/* ---- an update ---- */

static void scalars_set(struct trainer *t, double learning_rate, double targets)
{
    union scalar_word *scalars = t->session.scalars;
    const double loss_scale = t->state.loss_scaler.scale;
    scalars[SCALAR_LEARNING_RATE].f = (float)learning_rate;
    scalars[SCALAR_LOSS_GRADIENT].f = (float)(loss_scale / targets);
    scalars[SCALAR_UNSCALE].f = (float)(1.0 / loss_scale);
    scalars[SCALAR_LOSS_SUM].f = 0.0f;
    scalars[SCALAR_STEP].i = (int32_t)t->state.iter;
    scalars[SCALAR_SEED_LO].u = (uint32_t)((uint64_t)t->config->seed & 0xffffffffu);
    scalars[SCALAR_SEED_HI].u = (uint32_t)((uint64_t)t->config->seed >> 32);
    scalars[SCALAR_POSITION].i = 0;
    scalars[SCALAR_MUON_MOMENTUM].f = (float)run_muon_momentum(t->config, t->state.iter);
}

static enum gt_status update(struct trainer *t, double learning_rate, int64_t targets)
{
    struct session *session = &t->session;
    struct step_result *result = steps_ahead_next(&t->ahead);
    int32_t scalars = session->model->scalars;
    result->iter = t->state.iter;
    result->tokens = (t->state.samples_seen + t->feed.samples_per_step) * t->config->block_size;
    result->learning_rate = learning_rate;
    result->loss_scale = t->state.loss_scaler.scale;
    result->targets = (double)targets;
    scalars_set(t, learning_rate, result->targets);
    for (int32_t k = 0; k < model_micro_steps(&session->model->options); k++) {
        if (stop_requested())
            return GT_STOPPED; /* the weights are unchanged: the resumed run repeats the iteration */
        TRY(feed_micro_step(&t->feed, session, t->state.iter, k));
        if (ranks_computes(session, k))
            TRY(exec_download_later(session->exec, scalars, SCALAR_LOSS_SUM, &result->loss_sums[k], 1));
    }
    if (session->dist != NULL) {
        TRY(exec_wait(session->exec));
        ranks_losses_gather(session, result->loss_sums);
    }
    TRY(ranks_update(session));
    TRY(exec_download_later(session->exec, scalars, 0, result->scalars, SCALAR_WORDS));
    t->ahead.count++;
    return GT_OK;
}

/* Counts skipped updates and adjusts the loss scale.  Fails after too many skipped updates in a row. */
static enum gt_status skipped_check(struct trainer *t, int64_t iter)
{
    bool skipped = t->session.scalars[SCALAR_FOUND_INF].i != 0;
    loss_scaler_update(&t->state.loss_scaler, skipped);
    if (!skipped) {
        t->skipped_in_a_row = t->skipped_in_vain = 0;
        return GT_OK;
    }
    t->state.skipped++;
    t->skipped_in_a_row++;
    t->skipped_in_vain += t->loss_scale <= 1.0 || !isfinite(t->loss);
    progress_clear(&t->progress);
    run_log_skipped(t, iter);
    if (t->skipped_in_vain < SKIPPED_IN_VAIN_MAX)
        return GT_OK;
    char kept[KEPT_TEXT_MAX];
    return FAIL(GT_DIVERGED,
                ERROR_DIVERGED "the model has diverged: %" PRId64
                               " updates in a row were skipped; try a smaller learning_rate (now %g); %s",
                t->skipped_in_a_row, t->config->learning_rate, run_log_kept(kept, t));
}

/* Sets the length of a run with `hours` from the time of its first steps. */
static void hours_settle(struct trainer *t)
{
    double means[DIST_RANKS_MAX] = {forecast_tested_mean(&t->forecast)}, mean = means[0];
    if (t->config->hours <= 0.0 || t->state.length > 0)
        return;
    ranks_gather(t->session.dist, &mean, 1, means);
    mean = means[0]; /* rank 0's */
    const double updates = t->config->hours * 3600.0 / mean;
    t->state.length = (int64_t)fmin(fmax(updates, (double)t->state.iter + 2.0), (double)RUN_LENGTH_MAX);
    run_length_set(&t->settled, t->state.length);
    t->forecast.steps = t->config->max_iters - t->state.iter;
    t->forecast.evaluations = forecast_evaluations(t->config, t->state.iter + 1);
    log_result("hours=%g at %s an update: max_iters=%" PRId64 ", which the checkpoints keep", t->config->hours,
               CLOCK_DURATION(mean), t->config->max_iters);
    if (ranks_first(t->session.dist))
        run_schedule_check(t->config, t->state.iter);
}

/* Compares the first steps with the model.  Rates are corrected only by steps that no other program slowed. */
static void forecast_test(struct trainer *t)
{
    struct contention now;
    contention_read(&now);
    const bool on_host = t->session.device.info.host_memory;
    const double disturbed = on_host ? contention_share(&t->before_test, &now, thread_count_available()) : 0.0;
    progress_clear(&t->progress);
    forecast_test_log(&t->forecast, disturbed);
    hours_settle(t);
    if (disturbed < CONTENTION_DISTURBED && ranks_first(t->session.dist))
        session_rates_correct(&t->session, t->forecast.modelled_seconds, forecast_tested_mean(&t->forecast));
}

/* Processes the results of one update. */
static enum gt_status step_settle(struct trainer *t, const struct step_result *result)
{
    t->loss = log_number(steps_ahead_loss_sum(&t->ahead, result) / result->targets);
    t->loss_scale = result->loss_scale;
    memcpy(t->session.scalars, result->scalars, sizeof result->scalars);
    TRY(skipped_check(t, result->iter));
    forecast_step_measured(&t->forecast, t->step_seconds);
    run_log_iteration(t, result);
    if (forecast_is_tested(&t->forecast))
        forecast_test(t);
    if (!t->stepped) {
        t->stepped = true;
        contention_read(&t->before_test);
        progress_clear(&t->progress);
        run_log_memory(t);
    }
    return GT_OK;
}

/* Waits for the updates in flight and processes their results. */
static enum gt_status settle(struct trainer *t)
{
    const int32_t count = t->ahead.count;
    TRY(exec_wait(t->session.exec));
    if (count == 0)
        return GT_OK;
    t->step_seconds = steps_ahead_seconds(&t->ahead);
    t->ahead.count = 0;
    for (int32_t i = 0; i < count; i++) {
        TRY(step_settle(t, &t->ahead.step[i]));
        if (ranks_first(t->session.dist))
            TRY(diagnose_step(&t->diagnosis, i, count, t->loss));
    }
    return GT_OK;
}

/* Returns true when the host must read the results now: to log, to stop, or because the next update depends on them, as
 * it does with float16's loss scale. */
static bool must_settle(const struct trainer *t)
{
    return !exec_runs_ahead(t->session.exec) || t->ahead.count == STEPS_AHEAD_MAX || t->state.loss_scaler.dynamic ||
           t->state.iter % t->config->log_interval == 0 || !t->stepped || stop_requested();
}

static enum gt_status iteration(struct trainer *t)
{
    const struct config *config = t->config;
    bool resumed_here = t->state.evaluated && t->state.iter == t->first_iter && t->first_iter > 0;
    if (config->eval_only || (t->state.iter % config->eval_interval == 0 && !resumed_here)) {
        TRY(settle(t));
        TRY(evaluate_and_save(t));
    }
    if (config->eval_only)
        return GT_OK;
    if (t->session.dist != NULL)
        dist_iter_set(t->session.dist, t->state.iter);
    /* Without a target there is no gradient, and weight decay alone would shrink the weights. */
    const int64_t targets = feed_targets(&t->feed, t->state.iter);
    if (targets > 0)
        TRY(update(t, run_learning_rate(config, t->state.iter), targets));
    else
        run_log_targetless(t);
    t->state.samples_seen += t->feed.samples_per_step;
    if (targets > 0 && must_settle(t))
        TRY(settle(t));
    t->state.iter++;
    return GT_OK;
}

/* Saves at the end of a run.  Returns GT_DIVERGED, logged, if the model has diverged. */
static enum gt_status save_at_end(struct trainer *t)
{
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX], unsaved[KEPT_TEXT_MAX + 64];
    if (why == NULL) {
        const enum gt_status status = save(t);
        if (status == GT_IO)
            log_warning("%s", unsaved_text(unsaved, t));
        return status;
    }
    return FAIL(GT_DIVERGED, ERROR_DIVERGED NOT_SAVED, t->state.iter, why, run_log_kept(kept, t));
}

/* Returns true when the run saves only the best model and out_dir has one.  Saving another model would overwrite it,
 * and a resumed run would then compare its models with one that no longer exists. */
static bool keeps_best(const struct trainer *t)
{
    return !t->config->always_save_checkpoint && t->best_iter >= 0;
}

/* Ends the run after a signal.  Saves the current model if the run saves only the best one but has none yet.  This
 * leaves best_val_loss unchanged, so the resumed run replaces that model when the uninterrupted run would save its
 * first. */
static enum gt_status stop(struct trainer *t)
{
    const int number = stop_requested();
    const bool began = t->state.iter > t->first_iter;
    if (t->saved_iter == t->state.iter || (!began && t->source.own)) {
        log_note("stopped by signal %d; iter %" PRId64 " is saved already", number, t->state.iter);
    } else if (!began) {
        log_note("stopped by signal %d before the first update; nothing is saved", number);
    } else if (keeps_best(t)) {
        log_note("stopped by signal %d; always_save_checkpoint=False: the checkpoint of iter %" PRId64
                 " stays, and a resume repeats what came after it",
                 number, t->best_iter);
    } else {
        log_note("stopped by signal %d; saving", number);
        TRY(save_at_end(t));
    }
    return GT_STOPPED;
}

/* Ends the run after the last iteration.  If the run saves only the best model, evaluates the last one too, which may
 * be better, unless at most one update followed the last evaluation. */
static enum gt_status finish(struct trainer *t)
{
    const bool always = t->config->always_save_checkpoint;
    if (t->state.iter == t->first_iter) {
        log_note("nothing to do: %s is at iter %" PRId64 " already; --max_iters=%" PRId64 " or more continues the run",
                 t->source.own || t->source.branch ? t->config->out_dir : t->config->init_from, t->state.iter,
                 t->state.iter);
        return GT_OK;
    }
    if (!always && t->evaluated_iter < t->state.iter - 1)
        TRY(evaluate_and_save(t));
    if (t->unsaved && keeps_best(t))
        return FAIL(GT_IO,
                    "%s: a better model than that of iter %" PRId64 ", which stays, could not be saved and is lost",
                    t->config->out_dir, t->best_iter);
    if ((always || t->unsaved) && t->saved_iter != t->state.iter)
        return save_at_end(t);
    return GT_OK;
}

enum gt_status run_loop(struct trainer *t)
{
    enum gt_status status = GT_OK;
    t->first_iter = t->state.iter;
    t->first_best = t->state.best_val_loss;
    t->start_ns = clock_monotonic_ns();
    t->evaluated_iter = t->state.evaluated ? t->state.iter : -1;
    if (t->config->eval_only)
        return iteration(t);
    while (status == GT_OK && t->state.iter <= t->config->max_iters && !stop_requested())
        status = iteration(t);
    if (status == GT_OK || status == GT_STOPPED) {
        const enum gt_status settled = settle(t);
        status = settled != GT_OK ? settled : status;
    }
    progress_clear(&t->progress);
    THEN(status, stop_requested() != 0 ? GT_STOPPED : finish(t));
    return status == GT_STOPPED ? stop(t) : status;
}
