/* The training loop.
 *
 * One iteration: evaluate and save if due, run the micro-steps (first, next ..., remainder), run
 * the update, read the results, log.  If the device runs ahead, results_read() reads those of
 * several updates together: when the loop must log, evaluate or save, or when the next update needs
 * them.  The loop has no state beyond what a checkpoint stores: the samples of a step and the
 * elements that dropout drops follow from (seed, iter, sample), the learning rate from iter.
 */
#include "train/loop.h"

#include <math.h>

#include "base/clock.h"
#include "base/size.h"
#include "session/session_rates.h"
#include "session/stop.h"
#include "train/evaluate.h"
#include "train/run_log.h"
#include "train/run_metrics.h"
#include "train/save.h"
#include "train/schedule.h"

/* This many updates in a row that were skipped in vain end the run: the model has diverged, and
 * more steps only cost time.  Those that float16 skips at a loss scale above 1 do not count, since
 * a smaller scale may help, unless the loss itself is not finite. */
#define SKIPPED_IN_VAIN_MAX 10

/* ---- evaluation ---- */

static void evaluation_write(struct trainer *t, const struct evaluation_losses *losses)
{
    const struct run *run = &t->runner.run;
    const struct mixture *mixture = &run->mixture;
    struct json_put *line = metrics_line(&t->metrics, run->state.iter, NULL);
    json_put(line, "train_loss:f val_loss:f tokens:i time:f", losses->train, losses->val,
             run->state.samples_seen * run->config->block_size, clock_wall_seconds());
    line->text_max = SAMPLES_TEXT_MAX;
    if (t->runner.samples.generator)
        json_put(line, "sample:s", t->runner.samples.last);
    (void)metrics_line_write(&t->metrics);
    for (int i = 0; i < mixture->count && mixture->count > 1; i++) {
        const struct mixture_source *part = &mixture->parts[i];
        json_put(metrics_line(&t->metrics, run->state.iter, NULL), "dataset:s dataset_val_loss:f",
                 TEXT(METRICS_TEXT_MAX, "%.*s", part->name_length, part->name),
                 losses->val_of_part[i]);
        (void)metrics_line_write(&t->metrics);
    }
}

/* Evaluates, samples and saves before the updates of an iteration. */
static enum gt_status evaluate_and_save(struct trainer *t)
{
    struct run *run = &t->runner.run;
    struct evaluation_losses losses;
    TRY(evaluate(&t->runner, false, &losses));
    t->course.evaluated_iter = run->state.iter;
    /* finish() may evaluate at other iterations, which an uninterrupted longer run would not do. So
     * this counts only the evaluations that are due. */
    run->state.evaluations += run->state.iter % run->config->eval_interval == 0;
    const enum gt_status sampled =
        t->runner.samples.generator ? samples_print(&t->runner.samples, run->state.iter) : GT_OK;
    evaluation_write(t, &losses);
    TRY(sampled);
    t->course.evaluated_badly = !isfinite(losses.train) || !isfinite(losses.val);
    if (!t->course.left_band) /* once */
        t->course.left_band = evaluate_is_off_course(run, losses.val);
    TRY(save_after_evaluation(t, losses.val));
    run_metrics_report(t, true);
    return GT_OK;
}

/* ---- an update ---- */

static void scalars_set(struct run *run, double learning_rate, double targets)
{
    union scalar_word *scalars = run->session.scalars;
    const struct config *config = run->config;
    const double loss_scale = run->state.loss_scaler.scale;
    scalars[SCALAR_LEARNING_RATE].f = (float)learning_rate;
    scalars[SCALAR_LOSS_GRADIENT].f = (float)(loss_scale / targets);
    scalars[SCALAR_UNSCALE].f = (float)(1.0 / loss_scale);
    scalars[SCALAR_LOSS_SUM].f = 0.0f;
    scalars[SCALAR_STEP].i = (int32_t)run->state.iter;
    scalars[SCALAR_SEED_LO].u = (uint32_t)((uint64_t)config->seed & 0xffffffffu);
    scalars[SCALAR_SEED_HI].u = (uint32_t)((uint64_t)config->seed >> 32);
    scalars[SCALAR_POSITION].i = 0;
    scalars[SCALAR_MUON_MOMENTUM].f = (float)schedule_muon_momentum(config, run->state.iter);
}

/* Starts an update.  Its results are read later, by results_read(). */
static enum gt_status update(struct trainer *t, int64_t targets)
{
    struct run *run = &t->runner.run;
    struct session *session = &run->session;
    struct feed *feed = &t->runner.feed;
    struct step_result *result = steps_ahead_next(&t->ahead);
    const int32_t scalars = session->model->scalars;
    result->iter = run->state.iter;
    result->tokens = (run->state.samples_seen + feed->samples_per_step) * run->config->block_size;
    result->learning_rate = schedule_learning_rate(run->config, run->state.iter);
    result->loss_scale = run->state.loss_scaler.scale;
    result->targets = (double)targets;
    scalars_set(run, result->learning_rate, result->targets);
    for (int32_t k = 0; k < model_micro_steps(&session->model->options); k++) {
        if (stop_requested())
            return GT_STOPPED; /* the weights are unchanged: the resumed run repeats the iteration
                                */
        TRY(feed_micro_step(feed, session, run->state.iter, k));
        if (ranks_computes(session, k))
            TRY(exec_download_later(session->exec, scalars, SCALAR_LOSS_SUM, &result->loss_sums[k],
                                    1));
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

/* ---- the results of updates ---- */

/* Counts skipped updates and adjusts the loss scale.  Fails after too many skipped updates in a
 * row. */
static enum gt_status skipped_check(struct trainer *t, int64_t iter)
{
    struct run *run = &t->runner.run;
    struct course *course = &t->course;
    const bool skipped = run->session.scalars[SCALAR_FOUND_INF].i != 0;
    loss_scaler_update(&run->state.loss_scaler, skipped);
    if (!skipped) {
        course->skipped_in_a_row = course->skipped_in_vain = 0;
        return GT_OK;
    }
    run->state.skipped++;
    course->skipped_in_a_row++;
    course->skipped_in_vain += course->loss_scale <= 1.0 || !isfinite(course->loss);
    progress_clear(&t->runner.progress);
    run_log_skipped(t, iter);
    if (course->skipped_in_vain < SKIPPED_IN_VAIN_MAX)
        return GT_OK;
    char kept[KEPT_TEXT_MAX];
    return FAIL(GT_DIVERGED,
                ERROR_DIVERGED
                "the model has diverged: %" PRId64
                " updates in a row were skipped; try a smaller learning_rate (now %g); %s",
                course->skipped_in_a_row, run->config->learning_rate, save_kept_text(kept, t));
}

/* Sets the length of a run with `hours` from the time of its first steps. */
static void length_decide(struct runner *runner)
{
    struct run *run = &runner->run;
    struct config *config = run->config;
    double means[DIST_RANKS_MAX] = {forecast_tested_mean(&runner->forecast)}, mean = means[0];
    if (run_length_is_known(run))
        return;
    ranks_gather(run->session.dist, &mean, 1, means);
    mean = means[0]; /* rank 0's */
    const double updates = config->hours * 3600.0 / mean;
    run->state.length =
        (int64_t)fmin(fmax(updates, (double)run->state.iter + 2.0), (double)RUN_LENGTH_MAX);
    run_length_set(config, run->state.length);
    runner->forecast.steps = config->max_iters - run->state.iter;
    runner->forecast.evaluations = forecast_evaluations(config, run->state.iter + 1);
    log_result("hours=%g at %s an update: max_iters=%" PRId64 ", which the checkpoints keep",
               config->hours, CLOCK_DURATION(mean), config->max_iters);
    if (ranks_first(run->session.dist))
        schedule_check(config, run->state.iter);
}

/* Compares the first steps with the model.  Rates are corrected only by steps that no other program
 * slowed. */
static void forecast_test(struct trainer *t)
{
    struct session *session = &t->runner.run.session;
    const struct forecast *forecast = &t->runner.forecast;
    struct contention now;
    contention_read(&now);
    const bool on_host = session->device.info.host_memory;
    const double disturbed =
        on_host ? contention_share(&t->course.before_test, &now, thread_count_available()) : 0.0;
    progress_clear(&t->runner.progress);
    forecast_test_log(forecast, disturbed);
    length_decide(&t->runner);
    if (disturbed < CONTENTION_DISTURBED && ranks_first(session->dist))
        session_rates_correct(session, forecast->modelled_seconds, forecast_tested_mean(forecast));
}

/* Processes the results of one update. */
static enum gt_status result_process(struct trainer *t, const struct step_result *result)
{
    struct course *course = &t->course;
    struct session *session = &t->runner.run.session;
    course->loss = log_number(steps_ahead_loss_sum(&t->ahead, result) / result->targets);
    course->loss_scale = result->loss_scale;
    memcpy(session->scalars, result->scalars, sizeof result->scalars);
    TRY(skipped_check(t, result->iter));
    forecast_step_measured(&t->runner.forecast, course->step_seconds);
    run_log_iteration(t, result);
    if (forecast_is_tested(&t->runner.forecast))
        forecast_test(t);
    if (!course->has_results) {
        course->has_results = true;
        contention_read(&course->before_test);
        progress_clear(&t->runner.progress);
        run_log_memory(t);
    }
    return GT_OK;
}

/* Waits for the updates in flight and processes their results. */
static enum gt_status results_read(struct trainer *t)
{
    struct session *session = &t->runner.run.session;
    const int32_t count = t->ahead.count;
    TRY(exec_wait(session->exec));
    if (count == 0)
        return GT_OK;
    t->course.step_seconds = steps_ahead_seconds(&t->ahead);
    t->ahead.count = 0;
    for (int32_t i = 0; i < count; i++) {
        TRY(result_process(t, &t->ahead.step[i]));
        if (ranks_first(session->dist))
            TRY(diagnose_step(&t->diagnosis, i, count, t->course.loss));
    }
    return GT_OK;
}

/* Returns true when the host must read the results now: to log, to stop, or because the next update
 * depends on them, as it does with float16's loss scale. */
static bool must_read(const struct trainer *t)
{
    const struct run *run = &t->runner.run;
    return !exec_runs_ahead(run->session.exec) || t->ahead.count == STEPS_AHEAD_MAX ||
           run->state.loss_scaler.dynamic || run->state.iter % run->config->log_interval == 0 ||
           !t->course.has_results || stop_requested();
}

/* ---- the loop ---- */

static enum gt_status iteration(struct trainer *t)
{
    struct run_state *state = &t->runner.run.state;
    const struct session *session = &t->runner.run.session;
    const bool resumed_here =
        state->evaluated && state->iter == t->course.first_iter && t->course.first_iter > 0;
    if (state->iter % session->config->eval_interval == 0 && !resumed_here) {
        TRY(results_read(t));
        TRY(evaluate_and_save(t));
    }
    if (session->dist != NULL)
        dist_iter_set(session->dist, state->iter);
    /* Without a target there is no gradient, and weight decay alone would shrink the weights. */
    const int64_t targets = feed_targets(&t->runner.feed, state->iter);
    if (targets > 0) {
        TRY(update(t, targets));
    } else {
        t->course.targetless++;
        run_log_targetless(t);
    }
    state->samples_seen += t->runner.feed.samples_per_step;
    if (targets > 0 && must_read(t))
        TRY(results_read(t));
    state->iter++;
    return GT_OK;
}

/* Ends the run after a signal.  Saves the current model if the run saves only the best one but has
 * none yet.  This leaves best_val_loss unchanged, so the resumed run replaces that model when the
 * uninterrupted run would save its first. */
static enum gt_status stop(struct trainer *t)
{
    const struct run *run = &t->runner.run;
    const int number = stop_requested();
    const bool began = run->state.iter > t->course.first_iter;
    if (t->saved.iter == run->state.iter || (!began && run->source.in_place)) {
        log_note("stopped by signal %d; iter %" PRId64 " is saved already", number,
                 run->state.iter);
    } else if (!began) {
        log_note("stopped by signal %d before the first update; nothing is saved", number);
    } else if (save_keeps_best(t)) {
        log_note(
            "stopped by signal %d; always_save_checkpoint=False: the checkpoint of iter %" PRId64
            " stays, and a resume repeats what came after it",
            number, t->saved.best_iter);
    } else {
        log_note("stopped by signal %d; saving", number);
        TRY(save_at_end(t));
    }
    return GT_STOPPED;
}

/* Ends the run after the last iteration.  If the run saves only the best model, evaluates the last
 * one too, which may be better, unless at most one update followed the last evaluation. */
static enum gt_status finish(struct trainer *t)
{
    const struct run *run = &t->runner.run;
    const struct config *config = run->config;
    const bool always = config->always_save_checkpoint;
    if (run->state.iter == t->course.first_iter) {
        log_note("nothing to do: %s is at iter %" PRId64 " already; --max_iters=%" PRId64
                 " or more continues the run%s",
                 run->source.in_place || run->source.branch ? config->out_dir : config->init_from,
                 run->state.iter, run->state.iter,
                 config->hours > 0.0 ? ", and so does a larger --hours" : "");
        return GT_OK;
    }
    if (!always && t->course.evaluated_iter < run->state.iter - 1)
        TRY(evaluate_and_save(t));
    if (t->saved.failed && save_keeps_best(t))
        return FAIL(GT_IO,
                    "%s: a better model than that of iter %" PRId64
                    ", which stays, could not be saved and is lost",
                    config->out_dir, t->saved.best_iter);
    if ((always || t->saved.failed) && t->saved.iter != run->state.iter)
        return save_at_end(t);
    return GT_OK;
}

enum gt_status loop_train(struct trainer *t)
{
    const struct run *run = &t->runner.run;
    enum gt_status status = GT_OK;
    t->course.first_iter = run->state.iter;
    t->course.first_best_loss = run->state.best_val_loss;
    t->course.start_ns = clock_monotonic_ns();
    t->course.evaluated_iter = run->state.evaluated ? run->state.iter : ITER_NONE;
    while (status == GT_OK && run->state.iter <= run->config->max_iters && !stop_requested())
        status = iteration(t);
    if (status == GT_OK || status == GT_STOPPED) {
        const enum gt_status last = results_read(t);
        status = last != GT_OK ? last : status;
    }
    progress_clear(&t->runner.progress);
    THEN(status, stop_requested() != 0 ? GT_STOPPED : finish(t));
    return status == GT_STOPPED ? stop(t) : status;
}
