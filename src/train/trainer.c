/* The training loop.
 *
 * One iteration: evaluate and save where it is due, run the micro-steps (first, next ..., remainder), run the update, look
 * at the results, log.  Where the device runs ahead, the results of several updates are looked at together (settle): when
 * one is logged, evaluated, saved, or needed for the next one.  The loop holds no state of its own beyond what a checkpoint stores: which samples a step sees
 * and which elements dropout drops follow from (seed, iter, sample), the learning rate from iter.
 */
#include "train/trainer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/progress.h"
#include "base/size.h"
#include "data/tokenizer.h"
#include "io/checkpoint_keep.h"
#include "train/diagnose.h"
#include "train/disk_room.h"
#include "train/evaluate.h"
#include "train/explain.h"
#include "train/feed.h"
#include "train/forecast.h"
#include "train/generate.h"
#include "train/metrics.h"
#include "train/plan_answer.h"
#include "train/report_block.h"
#include "train/restore.h"
#include "train/restore_algorithms.h"
#include "train/schedule.h"
#include "train/session.h"
#include "train/session_rates.h"
#include "train/steps_ahead.h"
#include "train/stop.h"
#include "train/watchdog.h"

/* So many skipped updates in a row end the run: the model has diverged, and more steps only cost time.  Those that float16
 * skips while its loss scale is above 1 do not count. */
#define SKIPPED_IN_A_ROW_MAX 10
/* Samples that are printed while training are drawn as sample.py does by default. */
#define SAMPLE_TEMPERATURE 0.8
#define SAMPLE_TOP_K 200
#define LONG_SECONDS (31.0 * 86400.0) /* nobody waits for a run that takes longer */

struct trainer {
    struct hostmem *mem;
    struct config *config;
    struct session session;
    struct feed feed;
    struct run_state state; /* what a checkpoint stores beside tensors */
    struct forecast forecast;
    struct metrics metrics;
    struct progress progress;
    struct watchdog watchdog;
    struct steps_ahead ahead; /* updates whose results have not been looked at */
    struct diagnosis diagnosis;
    struct restore_source source; /* where the weights come from */
    struct restore_saver saver;
    struct tokenizer *tokenizer; /* with sample_tokens: of the samples that are printed */
    struct generator *generator;
    int lock_fd;
    bool made_out_dir;   /* by this run: a failed start takes it away again */
    bool metrics_opened; /* the run has left something in it */
    bool unsaved;        /* the last attempt to save failed */
    int64_t skipped_in_a_row;
    bool left_course;     /* outside expected_losses, and said so */
    bool evaluated_badly; /* the last evaluation's losses were not finite */
    double step_seconds;  /* of the last iteration that was looked at */
    double loss;          /* of that iteration */
    double loss_scale;    /* that it was computed with */
    int64_t start_ns;     /* of the loop */
    bool advised;         /* what to do about a run that takes months was said */
    int64_t first_iter;
    int64_t evaluated_iter; /* the last iteration that was evaluated, -1 = none */
    int64_t saved_iter;     /* the last iteration that was saved, -1 = none */
    int64_t best_iter;      /* of this run's checkpoint, where an evaluation had it saved; -1 = none in place */
    int64_t lowest_iter;    /* the evaluation that found state.best_val_loss; -1 = none of this process */
};

static double tokens_per_update(const struct trainer *t)
{
    const struct config *config = t->config;
    return (double)(config->batch_size * config->gradient_accumulation_steps * config->block_size);
}

static enum gt_status evaluate(struct trainer *t, double *train_loss, double *val_loss)
{
    struct evaluation evaluation = {&t->session, &t->feed, &t->progress, t->state.iter};
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = evaluation_split_loss(&evaluation, TOKEN_TRAIN, train_loss);
    if (status == GT_OK)
        status = evaluation_split_loss(&evaluation, TOKEN_VAL, val_loss);
    progress_clear(&t->progress);
    TRY(status);
    forecast_evaluation_measured(&t->forecast, (double)(clock_monotonic_ns() - start_ns) / 1e9);
    t->evaluated_iter = t->state.iter;
    /* One more at the end of a run that is then extended is none of the run in one go. */
    t->state.evaluations += t->state.iter % t->config->eval_interval == 0;
    log_result("step %" PRId64 ": train loss %.4f, val loss %.4f", t->state.iter, *train_loss, *val_loss);
    return GT_OK;
}

/* A model that has diverged must not replace the last good checkpoint: why it is taken to have, or NULL.  One skipped update
 * says nothing of the weights, which are those of before. */
static const char *divergence(const struct trainer *t)
{
    if (t->evaluated_badly || !isfinite(t->loss))
        return "the loss is not finite";
    return t->skipped_in_a_row > 1 ? "updates are being skipped" : NULL;
}

#define NOT_SAVED "iter %" PRId64 " is not saved: %s; %s"
#define KEPT_TEXT_MAX (FILE_PATH_MAX + 64)

/* What there is to go back to. */
static char *kept_text(char text[static KEPT_TEXT_MAX], const struct trainer *t)
{
    const int64_t kept = t->saved_iter < 0 && t->source.own ? t->first_iter : t->saved_iter;
    if (kept < 0)
        snprintf(text, KEPT_TEXT_MAX, "this run has saved no checkpoint");
    else
        snprintf(text, KEPT_TEXT_MAX, "the checkpoint of iter %" PRId64 " stays in %s", kept, t->config->out_dir);
    return text;
}

static enum gt_status save(struct trainer *t)
{
    int64_t start_ns = clock_monotonic_ns();
    char duration[32];
    t->state.evaluated = t->evaluated_iter == t->state.iter;
    t->state.adam_step = t->session.scalars[SCALAR_ADAM_STEP].i;
    metrics_sync(&t->metrics);
    TRY(restore_save(&t->saver, &t->state));
    metrics_saved(&t->metrics);
    t->saved_iter = t->state.iter;
    log_result("saving checkpoint to %s (iter %" PRId64 ", %s)", t->config->out_dir, t->state.iter,
               clock_duration(duration, (double)(clock_monotonic_ns() - start_ns) / 1e9));
    return GT_OK;
}

/* Prints what the model writes by now, after a newline (or what id 0 stands for, where the vocabulary has none). */
static enum gt_status sample_print(struct trainer *t)
{
    struct tokenizer_stream stream = {0};
    char text[TOKENIZER_TEXT_MAX];
    int32_t token = tokenizer_id_of(t->tokenizer, '\n');
    token = token < 0 ? 0 : token;
    TRY(generator_begin(t->generator, t->state.iter, &token, 1));
    printf("--- sample after %" PRId64 " iterations\n", t->state.iter);
    for (int64_t i = 0; i < t->config->sample_tokens && !stop_requested(); i++) {
        TRY(generator_next(t->generator, &token));
        size_t length = tokenizer_stream_push(t->tokenizer, &stream, token, text);
        fwrite(text, 1, length, stdout);
    }
    fwrite(text, 1, tokenizer_stream_end(&stream, text), stdout);
    printf("\n---\n");
    fflush(stdout);
    return GT_OK;
}

/* A disk that is full now may have room at the next evaluation: the run goes on, and the last checkpoint is intact. */
static enum gt_status save_or_go_on(struct trainer *t)
{
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX];
    if (why) {
        log_warning(NOT_SAVED, t->state.iter, why, kept_text(kept, t));
        return GT_OK;
    }
    enum gt_status status = save(t);
    t->unsaved = status == GT_IO;
    if (!t->unsaved)
        return status;
    if (t->state.iter <= t->config->max_iters)
        log_warning("iter %" PRId64 " could not be saved; training continues and tries again in %" PRId64
                    " iteration%s",
                    t->state.iter, t->config->eval_interval, t->config->eval_interval == 1 ? "" : "s");
    return GT_OK;
}

/* After an evaluation.  Where only the best is saved, one that was lost is not it: what comes next is compared with the best
 * that is there.  Nothing is saved at iteration 0, as in nanoGPT; where a run was resumed the weights are saved already, but
 * not as the best. */
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

/* Says once that the run is not on the course that its configuration states. */
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

/* What is due before the updates of an iteration. */
static enum gt_status evaluate_and_save(struct trainer *t)
{
    double train_loss, val_loss;
    TRY(evaluate(t, &train_loss, &val_loss));
    (void)metrics_evaluation_write(&t->metrics, t->state.iter, train_loss, val_loss);
    if (t->generator)
        TRY(sample_print(t));
    t->evaluated_badly = !isfinite(train_loss) || !isfinite(val_loss);
    expected_check(t, val_loss);
    return t->config->eval_only ? GT_OK : save_where_due(t, val_loss);
}

static void scalars_set(struct trainer *t, double learning_rate)
{
    union scalar_word *scalars = t->session.scalars;
    const double loss_scale = t->state.loss_scaler.scale;
    scalars[SCALAR_LEARNING_RATE].f = (float)learning_rate;
    scalars[SCALAR_LOSS_GRADIENT].f = (float)(loss_scale / tokens_per_update(t));
    scalars[SCALAR_UNSCALE].f = (float)(1.0 / loss_scale);
    scalars[SCALAR_LOSS_SUM].f = 0.0f;
    scalars[SCALAR_STEP].i = (int32_t)t->state.iter;
    scalars[SCALAR_SEED_LO].u = (uint32_t)((uint64_t)t->config->seed & 0xffffffffu);
    scalars[SCALAR_SEED_HI].u = (uint32_t)((uint64_t)t->config->seed >> 32);
    scalars[SCALAR_POSITION].i = 0;
}

static enum gt_status update(struct trainer *t, double learning_rate)
{
    struct session *session = &t->session;
    struct step_result *result = steps_ahead_next(&t->ahead);
    int32_t scalars = session->model->scalars;
    result->iter = t->state.iter;
    result->learning_rate = learning_rate;
    result->loss_scale = t->state.loss_scaler.scale;
    scalars_set(t, learning_rate);
    for (int32_t k = 0; k < session->model->options.micro_steps; k++) {
        if (stop_requested())
            return GT_STOPPED; /* nothing was applied yet: the iteration is done again at the resume */
        TRY(feed_micro_step(&t->feed, session, t->state.iter, k));
        TRY(exec_download_later(session->exec, scalars, SCALAR_LOSS_SUM, &result->loss_sums[k], 1));
    }
    TRY(exec_start(session->exec, session->model->update.program));
    TRY(exec_download_later(session->exec, scalars, 0, result->scalars, SCALAR_WORDS));
    steps_ahead_add(&t->ahead);
    return GT_OK;
}

/* One line for a skipped update.  While the loss scale comes down from where float16 overflows nothing is wrong. */
static void skipped_log(const struct trainer *t, int64_t iter)
{
    if (t->state.loss_scaler.dynamic)
        log_note("iter %" PRId64 ": the gradient overflows float16 at loss scale %g (loss %g); this update is skipped, "
                 "and the scale lowered to %g",
                 iter, t->loss_scale, t->loss, t->state.loss_scaler.scale);
    else
        log_warning("iter %" PRId64 ": the gradient is not finite (loss %g); this update is skipped", iter, t->loss);
}

/* Counts skipped updates and keeps the loss scale; too many in a row are the end. */
static enum gt_status skipped_check(struct trainer *t, int64_t iter)
{
    bool skipped = t->session.scalars[SCALAR_FOUND_INF].i != 0;
    loss_scaler_update(&t->state.loss_scaler, skipped);
    if (!skipped) {
        t->skipped_in_a_row = 0;
        return GT_OK;
    }
    t->state.skipped++;
    t->skipped_in_a_row += t->loss_scale <= 1.0;
    progress_clear(&t->progress);
    skipped_log(t, iter);
    if (t->skipped_in_a_row < SKIPPED_IN_A_ROW_MAX)
        return GT_OK;
    char kept[KEPT_TEXT_MAX];
    log_error("the model has diverged: %d updates in a row were skipped; try a smaller learning_rate (now %g); %s",
              SKIPPED_IN_A_ROW_MAX, t->config->learning_rate, kept_text(kept, t));
    return GT_FAILURE;
}

static void iteration_log(struct trainer *t, const struct step_result *result)
{
    double rate = tokens_per_update(t) / t->step_seconds;
    double mfu = t->session.peak_flops > 0
                     ? rate * model_flops_per_token(&t->session.model->options.config) / t->session.peak_flops
                     : -1.0;
    if (result->iter % t->config->log_interval == 0) {
        struct backend_counters counters;
        backend_wrap_counters(t->session.device, &counters);
        struct metrics_step step = {
            .iter = result->iter,
            .loss = t->loss,
            .lr = result->learning_rate,
            .grad_norm = (double)t->session.scalars[SCALAR_GRAD_NORM].f,
            .time_ms = 1e3 * t->step_seconds,
            .tokens_per_s = rate,
            .mfu = mfu,
            .skipped = t->state.skipped,
            .loss_scale = t->state.loss_scaler.dynamic ? t->loss_scale : 0.0,
            .planned_bytes = t->session.plan->arena_bytes,
            .allocated_bytes = counters.arena_bytes,
        };
        progress_clear(&t->progress);
        log_result("iter %" PRId64 ": loss %.4f, time %.2fms, mfu %.2f%%", result->iter, t->loss, step.time_ms,
                   100.0 * mfu);
        (void)metrics_step_write(&t->metrics, &step);
    }
    char note[64];
    snprintf(note, sizeof note, "loss %.4f  %.0f tok/s", t->loss, rate);
    progress_show(&t->progress, "train", result->iter + 1, t->config->max_iters + 1, note,
                  forecast_seconds_left(&t->forecast));
}

/* The time left, and what to do where nobody would wait for that. */
static void forecast_tell(struct trainer *t)
{
    forecast_log(&t->forecast);
    if (t->advised || forecast_seconds_left(&t->forecast) < LONG_SECONDS)
        return;
    log_note("this takes more than a month; what takes less: a smaller model (n_layer, n_embd), fewer iterations "
             "(max_iters), fewer tokens per update (batch_size, gradient_accumulation_steps)");
    t->advised = true;
}

/* Once the first iteration has run everything, memory is frozen. */
static void memory_freeze(struct trainer *t)
{
    char planned[24], allocated[24], process[24];
    struct backend_counters counters;
    backend_wrap_counters(t->session.device, &counters);
    log_result("memory: %s planned, %s allocated (process %s); nothing more will be allocated",
               log_bytes(planned, (double)t->session.plan->arena_bytes),
               log_bytes(allocated, (double)counters.arena_bytes), log_bytes(process, (double)process_rss_bytes()));
    forecast_tell(t);
}

/* The results of one update. */
static enum gt_status step_settle(struct trainer *t, const struct step_result *result)
{
    t->loss = steps_ahead_loss_sum(&t->ahead, result) / tokens_per_update(t);
    t->loss_scale = result->loss_scale;
    memcpy(t->session.scalars, result->scalars, sizeof result->scalars);
    TRY(skipped_check(t, result->iter));
    forecast_step_measured(&t->forecast, t->step_seconds);
    iteration_log(t, result);
    if (forecast_is_tested(&t->forecast)) {
        progress_clear(&t->progress);
        forecast_test_log(&t->forecast);
    }
    if (result->iter == t->first_iter) {
        progress_clear(&t->progress);
        memory_freeze(t);
    }
    return GT_OK;
}

/* Waits for the updates that are under way, and looks at their results. */
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
        TRY(diagnose_step(&t->diagnosis, i, count, t->loss));
    }
    return GT_OK;
}

/* The results are to be seen, or the next update depends on them: float16's loss scale does. */
static bool must_settle(const struct trainer *t)
{
    return !exec_runs_ahead(t->session.exec) || t->ahead.count == STEPS_AHEAD_MAX || t->state.loss_scaler.dynamic ||
           t->state.iter % t->config->log_interval == 0 || t->state.iter == t->first_iter || stop_requested();
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
    TRY(update(t, schedule_learning_rate(config, t->state.iter)));
    t->state.samples_seen += config->batch_size * config->gradient_accumulation_steps;
    if (must_settle(t))
        TRY(settle(t));
    t->state.iter++;
    return GT_OK;
}

/* At the end of a run, which has failed where this is refused. */
static enum gt_status save_at_end(struct trainer *t)
{
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX];
    if (!why)
        return save(t);
    log_error(NOT_SAVED, t->state.iter, why, kept_text(kept, t));
    return GT_FAILURE;
}

/* Only the best is saved, and this run has one.  Anything else in its place would be lost to the resumed run, whose next best
 * must beat a model that is gone. */
static bool keeps_best(const struct trainer *t)
{
    return !t->config->always_save_checkpoint && t->best_iter >= 0;
}

/* After a signal.  Where only the best is saved and there is none yet, nothing is lost by saving what there is: the resumed
 * run replaces it by what the uninterrupted one would save first, since best_val_loss is the same. */
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

/* After the last iteration.  Where only the best is saved, what was trained since the last evaluation may be better; one update
 * is not worth another evaluation. */
static enum gt_status finish(struct trainer *t)
{
    const bool always = t->config->always_save_checkpoint;
    if (t->state.iter == t->first_iter) {
        log_note("nothing to do: %s is at iter %" PRId64 " already; a max_iters above %" PRId64 " continues the run",
                 t->config->out_dir, t->state.iter, t->config->max_iters);
        return GT_OK;
    }
    if (!always && t->evaluated_iter < t->state.iter - 1)
        TRY(evaluate_and_save(t));
    if (t->unsaved && keeps_best(t)) {
        log_error("%s: a better model than that of iter %" PRId64 ", which stays, could not be saved and is lost",
                  t->config->out_dir, t->best_iter);
        return GT_IO;
    }
    if ((always || t->unsaved) && t->saved_iter != t->state.iter)
        return save_at_end(t);
    return GT_OK;
}

/* From the first iteration to the last, or to a signal. */
static enum gt_status loop(struct trainer *t)
{
    enum gt_status status = GT_OK;
    t->first_iter = t->state.iter;
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
    if (status == GT_OK)
        status = stop_requested() != 0 ? GT_STOPPED : finish(t);
    return status == GT_STOPPED ? stop(t) : status;
}

/* Where the time went, by kind of op. */
static void profile_log(const struct trainer *t)
{
    struct exec_timing timing;
    double total = 0.0;
    exec_timing_get(t->session.exec, &timing);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        total += timing.seconds[kind];
    log_result("%-20s %10s %10s %7s %10s %8s", "op", "runs", "seconds", "share", "GFLOP/s", "GB/s");
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        double seconds = timing.seconds[kind];
        if (timing.runs[kind] == 0 || seconds <= 0.0)
            continue;
        log_result("%-20s %10" PRIu64 " %10.3f %5.1f %% %10.1f %8.1f", op_declaration((enum op_kind)kind)->name,
                   timing.runs[kind], seconds, 100.0 * seconds / total, timing.flops[kind] / seconds / 1e9,
                   timing.bytes[kind] / seconds / 1e9);
    }
}

/* What the arena held at its peak, by category: what is known beforehand is also the most that ever lived at once. */
static void categories_log(const struct trainer *t)
{
    const struct plan *plan = t->session.plan;
    char line[512] = "";
    size_t used = 0;
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        char text[24];
        if (plan->category_bytes[c] == 0)
            continue;
        int length =
            snprintf(line + used, sizeof line - used, "%s%s %s", used > 0 ? ", " : "",
                     tensor_category_name((enum tensor_category)c), log_bytes(text, (double)plan->category_bytes[c]));
        used += length > 0 && (size_t)length < sizeof line - used ? (size_t)length : 0;
    }
    log_result("memory at the peak (%s): %s", t->session.device->ops->name, line);
}

/* What is free on the device now, and who else holds most of it. */
static void others_log(const struct trainer *t)
{
    char left[24], total[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    struct backend *device = t->session.device;
    struct backend_info info;
    if (device->ops->info(device, &info) != GT_OK)
        return;
    log_result("memory of the device (%s): %s of %s are free; other processes: %s", device->ops->name,
               log_bytes(left, (double)info.free_bytes), log_bytes(total, (double)info.total_bytes),
               backend_holders_known(holders, device));
}

/* Which model the folder holds, and the command that goes on from there. */
static void folder_log(const struct trainer *t, bool stopped)
{
    char folder[FILE_PATH_MAX];
    const int64_t held = t->saved_iter < 0 && t->source.own ? t->first_iter : t->saved_iter;
    const int64_t since = t->state.iter - held;
    if (held < 0) {
        log_result("Nothing was saved%s.", stopped ? ""
                                                   : ": always_save_checkpoint=False, and no evaluation found a lower "
                                                     "validation loss than the first");
        return;
    }
    log_result("%s holds the model of iteration %" PRId64 ".", t->config->out_dir, held);
    if (since > 0)
        log_result("%" PRId64 " later update%s not kept: always_save_checkpoint=False keeps the best model only.",
                   since, since == 1 ? " is" : "s are");
    log_result("%s --out_dir=%s", stopped ? "Continue: gpt-train --init_from=resume" : "Try it: gpt-sample",
               file_shell_quote(folder, sizeof folder, t->config->out_dir));
}

/* What the run was, what is left of it, and what to do next. */
static void end_log(const struct trainer *t, bool stopped)
{
    char duration[32], planned[24], allocated[24], most[24], best[64] = "";
    struct backend_counters counters;
    const int64_t updates = t->state.iter - t->first_iter;
    backend_wrap_counters(t->session.device, &counters);
    if (isfinite(t->state.best_val_loss))
        snprintf(best, sizeof best, "; best validation loss %.4f", t->state.best_val_loss);
    if (best[0] != '\0' && t->lowest_iter >= 0)
        snprintf(best + strlen(best), sizeof best - strlen(best), " at iteration %" PRId64, t->lowest_iter);
    log_result("%s", "");
    log_result("%s: %" PRId64 " update%s in %s%s.", stopped ? "Stopped" : "Done", updates, updates == 1 ? "" : "s",
               clock_duration(duration, (double)(clock_monotonic_ns() - t->start_ns) / 1e9), best);
    log_result("Memory: %s planned, %s allocated, process at most %s.",
               log_bytes(planned, (double)t->session.plan->arena_bytes),
               log_bytes(allocated, (double)counters.arena_bytes), log_bytes(most, (double)process_rss_bytes_max()));
    folder_log(t, stopped);
}

static enum gt_status weights_load(struct trainer *t)
{
    TRY(session_corrections_upload(&t->session));
    memset(t->session.scalars, 0, sizeof t->session.scalars);
    TRY(restore_loss_scaler(&t->source, t->session.dtype, &t->state.loss_scaler));
    TRY(restore_weights(&t->session, &t->source, (uint64_t)t->config->seed));
    restore_close(&t->source); /* open files would keep the room of the generation that the next save removes */
    t->session.scalars[SCALAR_ADAM_STEP].i = (int32_t)t->state.adam_step;
    return session_scalars_upload(&t->session);
}

/* What sample_tokens needs. */
static enum gt_status samples_prepare(struct trainer *t, const char *folder)
{
    const struct config *config = t->config;
    struct generate_options options = {
        .seed = (uint64_t)config->seed, .temperature = SAMPLE_TEMPERATURE, .top_k = SAMPLE_TOP_K};
    if (config->sample_tokens == 0)
        return GT_OK;
    if (t->tokenizer)
        return generator_create(t->mem, &t->session, &options, config->sample_tokens + 2, &t->generator);
    log_note("sample_tokens has no effect: %s has no %s", folder, TOKENIZER_FILE_NAME);
    return GT_OK;
}

/* Sequences at once, at most: of this plan, or of one that session_start() makes for less memory. */
static int64_t largest_batch(const struct session *session)
{
    const struct model_options *options = &session->request.options;
    if (options->choice.micro_batch < session->model->options.choice.micro_batch)
        options = &session->model->options;
    return options->choice.micro_batch > options->choice.evaluate_batch ? options->choice.micro_batch
                                                                        : options->choice.evaluate_batch;
}

/* The checkpoint that the run goes on from is one that an evaluation had saved: all of nanoGPT's are.  One of ours that a signal
 * had saved just after an evaluation is taken for one, which costs a second stop some work and no bits. */
static bool begins_at_best(const struct trainer *t)
{
    return t->source.own && (t->state.evaluated || t->source.checkpoint->kind == CHECKPOINT_NANOGPT);
}

/* What the plan changed to make the configuration fit, and what that costs. */
static void change_log(const struct trainer *t)
{
    const struct search_result *search = &t->session.search;
    char text[192], asked[24], budget[24];
    if (search->candidates <= 1)
        return;
    log_result("plan: changed to fit a budget of %s (as configured it needs %s%s): %s; %+.1f %% time (estimated), same "
               "samples, %s",
               log_bytes(budget, (double)t->session.budget_bytes), search->bytes_request_least ? "at least " : "",
               log_bytes(asked, (double)search->bytes_request), search_options_text(text, &search->options),
               100.0 * (search->seconds / search->seconds_request - 1.0),
               search->options.states == t->session.request.options.states
                   ? "same mathematics"
                   : "leaner optimizer states with stochastic rounding");
}

static void plan_log(const struct trainer *t)
{
    const struct model_options *options = &t->session.model->options;
    const int32_t steps = options->micro_steps, block = options->config.block_size;
    char arena[24];
    log_bytes(arena, (double)t->session.plan->arena_bytes);
    if (!options->train)
        log_result("plan: %s; %" PRId32 " sequence%s of %" PRId32 " tokens at once", arena,
                   options->choice.evaluate_batch, options->choice.evaluate_batch == 1 ? "" : "s",
                   t->session.model->evaluate.time);
    else if (steps == 1)
        log_result("plan: %s; all %" PRId32 " sequence%s of %" PRId32 " tokens in one step", arena,
                   options->choice.micro_batch, options->choice.micro_batch == 1 ? "" : "s", block);
    else
        log_result("plan: %s; %" PRId32 " steps of %s%" PRId32 " sequence%s of %" PRId32 " tokens per update", arena,
                   steps, options->choice.remainder_batch > 0 ? "up to " : "", options->choice.micro_batch,
                   options->choice.micro_batch == 1 ? "" : "s", block);
    if (options->train && state_format_is_lean(options->states))
        log_result("optimizer states: %s, %.2f bytes per parameter with its gradient, rounded stochastically",
                   state_format_name(options->states), model_bytes_per_parameter(t->session.model));
    change_log(t);
}

static void start_log(const struct trainer *t)
{
    const struct model_options *options = &t->session.model->options;
    log_result("number of parameters: %.2fM", (double)model_parameter_count_no_positions(&options->config) / 1e6);
    log_result("tokens per iteration will be: %.0f", tokens_per_update(t));
    log_result("device: %s (%s)", t->session.info.device, t->session.info.detail);
    plan_log(t);
    if (t->session.model->evaluate.time < options->config.block_size)
        log_note("eval_block_size=%" PRId32 ": evaluations give tokens that much context at most, so their losses "
                 "cannot be compared with those at block_size=%" PRId32,
                 t->session.model->evaluate.time, options->config.block_size);
}

/* Runs of the evaluation program for both whole splits. */
static int64_t whole_split_runs(const struct trainer *t)
{
    int64_t batch = t->session.model->options.choice.evaluate_batch;
    return size_ceil_div(sampler_window_count(t->feed.evaluate_sampler[TOKEN_TRAIN], true), batch) +
           size_ceil_div(sampler_window_count(t->feed.evaluate_sampler[TOKEN_VAL], true), batch);
}

/* The run goes on with the keys and the data of the run so far, or says what is not as it was. */
static enum gt_status run_so_far_check(struct trainer *t, struct restore_data *out)
{
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++)
        TRY(feed_digest(&t->feed, (enum token_split)split, out->text[split]));
    TRY(restore_keys_check(t->config, &t->source));
    return restore_data_check(t->config, &t->source, out);
}

/* A run that does not go on from what is there says so before its first save moves that. */
static void earlier_note(const struct trainer *t)
{
    const char *out_dir = t->config->out_dir;
    char folder[FILE_PATH_MAX];
    if (t->source.own || !checkpoint_keep_earlier_next(out_dir, folder))
        return;
    if (t->source.branch)
        log_note("this run goes on from iteration %" PRId64 " of %s; its first save moves what came after that to %s",
                 t->state.iter, out_dir, folder);
    else
        log_note(
            "%s holds an earlier run, which --init_from=resume would continue; this run's first save moves it to %s",
            out_dir, folder);
}

static void forecast_make(struct trainer *t)
{
    forecast_model(&t->session, t->state.iter, &t->forecast);
    if (t->config->eval_iters == 0)
        forecast_evaluation_runs(&t->session, whole_split_runs(t), &t->forecast);
}

/* Takes the arena, which may last half a minute: what is known before is said before. */
static enum gt_status device_start(struct trainer *t)
{
    struct session *session = &t->session;
    const uint64_t planned = session->plan->arena_bytes;
    const bool known = session_rates_guess(session);
    start_log(t);
    forecast_make(t);
    if (known)
        forecast_tell(t);
    TRY(session_start(session));
    if (session->plan->arena_bytes != planned)
        plan_log(t); /* there was less memory */
    if (!t->config->eval_only)
        TRY(session_rates_calibrate(session));
    TRY(session_peak_measure(session));
    const double guessed = forecast_seconds_left(&t->forecast);
    forecast_make(t);
    const double ratio = forecast_seconds_left(&t->forecast) / guessed;
    if (!known || !(ratio > 0.5 && ratio < 2.0))
        forecast_tell(t);
    return GT_OK;
}

/* Everything that needs the arena and the data. */
static enum gt_status run(struct trainer *t, const char *folder)
{
    struct session *session = &t->session;
    const struct config *config = t->config;
    struct restore_data data = {0};
    TRY(tokenizer_open_dataset(t->mem, folder, &t->tokenizer));
    if (t->source.resume)
        TRY(restore_tokenizer_check(&t->source, t->tokenizer, folder));
    TRY(feed_open(t->mem, config, folder, session->model->options.config.vocab_size, largest_batch(session), &t->feed));
    TRY(feed_manifest_check(&t->feed, folder, t->tokenizer));
    if (!config->eval_only) {
        TRY(run_so_far_check(t, &data));
        TRY(disk_room_check(session, t->source.own));
        earlier_note(t);
    }
    TRY(watchdog_start(&t->watchdog, t->mem, session->device, config->out_dir, config->watchdog));
    TRY(device_start(t));
    TRY(restore_differences_check(session, &t->source));
    t->best_iter = begins_at_best(t) ? t->state.iter : -1;
    TRY(weights_load(t));
    if (!config->eval_only) {
        TRY(restore_saver_create(session, t->tokenizer, &data, &t->saver));
        if (t->source.own)
            TRY(restore_tokenizer_repair(&t->saver));
        const bool own = t->source.own, goes_on = own || t->source.branch;
        TRY(metrics_open(&t->metrics, config->out_dir, goes_on ? t->state.iter : 0, t->state.evaluated, !own));
        t->metrics_opened = true;
        t->saver.metrics = own ? NULL : t->metrics.kept;
        t->saver.after = t->source.branch ? t->state.iter : -1;
    }
    TRY(samples_prepare(t, folder));
    if (!config->eval_only)
        TRY(steps_ahead_create(t->mem, session->model->options.micro_steps, &t->ahead));
    t->diagnosis = (struct diagnosis){
        .session = session, .feed = &t->feed, .ahead = &t->ahead, .progress = &t->progress, .tokenizer = t->tokenizer};
    stop_install();
    exec_timing_set(session->exec, config->profile || config->watchdog > 0); /* op by op, so that one can be named */
    hostmem_phase_set(t->mem, HOSTMEM_RUN);
    enum gt_status status = loop(t);
    hostmem_phase_set(t->mem, HOSTMEM_CLOSE);
    if (config->profile)
        profile_log(t);
    if (status != GT_OK && status != GT_STOPPED)
        return status;
    if (config->verbose || session->search.candidates > 1) { /* memory is of interest, or short */
        categories_log(t);
        others_log(t);
    }
    if (t->state.iter > t->first_iter)
        end_log(t, status == GT_STOPPED);
    return status;
}

static enum gt_status answer(struct trainer *t)
{
    const struct model *model = t->session.model;
    if (t->config->print_program) {
        for (int32_t p = 0; p < model->graph->program_count; p++)
            graph_print(model->graph, p, stdout);
        return GT_OK;
    }
    TRY(watchdog_start(&t->watchdog, t->mem, t->session.device, t->config->out_dir, t->config->watchdog));
    TRY(session_peak_measure(&t->session));
    forecast_model(&t->session, t->state.iter, &t->forecast);
    return plan_answer(&t->session, &t->forecast, stdout);
}

/* Makes the folder ours, and puts in order what a killed run left. */
static enum gt_status out_dir_claim(struct trainer *t)
{
    char path[FILE_PATH_MAX];
    if (strcmp(t->config->init_from, "resume") == 0 && !file_is_folder(t->config->out_dir)) {
        log_error("%s: no such folder, so there is nothing to resume", t->config->out_dir);
        return GT_DATA;
    }
    t->made_out_dir = !file_exists(t->config->out_dir);
    TRY(file_make_folders(t->config->out_dir));
    TRY(file_join(path, t->config->out_dir, "lock"));
    enum gt_status status = file_lock(path, &t->lock_fd);
    if (status != GT_OK && t->made_out_dir)
        rmdir(t->config->out_dir); /* fails, as it should, when something is in it */
    TRY(status);
    return checkpoint_repair(t->config->out_dir);
}

/* Gives the lock back; where the run never began, a folder that it made goes too. */
static void out_dir_release(const struct trainer *t, enum gt_status status)
{
    char path[FILE_PATH_MAX];
    const bool began = status == GT_OK || status == GT_STOPPED || t->metrics_opened;
    if (t->made_out_dir && !began && file_join(path, t->config->out_dir, "lock") == GT_OK) {
        unlink(path); /* while it is ours */
        rmdir(t->config->out_dir);
    }
    file_unlock(t->lock_fd);
}

/* A profile is no device. */
static enum gt_status profile_check(const struct config *config, bool answers)
{
    if (config->device_profile[0] == '\0' || answers)
        return GT_OK;
    log_error("device_profile='%s' is only for planning; add --plan, or leave it out to train", config->device_profile);
    return GT_USAGE;
}

/* What the run so far computed with, where the device still has it; what it says of its libraries follows. */
static enum gt_status algorithms_choose(struct trainer *t)
{
    struct backend *device = t->session.device;
    const struct checkpoint *checkpoint = t->source.checkpoint;
    struct backend_info info;
    TRY(restore_algorithms_choose(device, checkpoint->record.state.plan, checkpoint->source));
    TRY(device->ops->info(device, &info));
    memcpy(t->session.info.detail, info.detail, sizeof info.detail);
    return GT_OK;
}

enum gt_status trainer_run(struct hostmem *mem, struct config *config)
{
    struct trainer t = {.mem = mem,
                        .config = config,
                        .lock_fd = -1,
                        .metrics = {.fd = -1},
                        .evaluated_iter = -1,
                        .saved_iter = -1,
                        .best_iter = -1,
                        .lowest_iter = -1};
    bool answers = config->print_program || config->plan != CONFIG_PLAN_OFF;
    char folder[FILE_PATH_MAX];
    struct model_config model;
    struct model_options options;
    enum gt_status status;
    progress_init(&t.progress);
    TRY(profile_check(config, answers));
    if (!answers && !config->eval_only)
        TRY_GOTO(status, close, out_dir_claim(&t));
    TRY_GOTO(status, close, feed_folder(config, folder));
    TRY_GOTO(status, close, restore_open(mem, config, folder, &t.source, &t.state, &model));
    TRY_GOTO(status, close, feed_folder(config, folder)); /* the checkpoint may have named another dataset */
    if (config->explain_oom[0] != '\0')
        TRY_GOTO(status, close, explain_oom(config, &model));
    TRY_GOTO(status, close, session_open(mem, config, &t.session));
    if (t.source.resume)
        TRY_GOTO(status, close, algorithms_choose(&t));
    session_train_options(&t.session, &t.state.choices, &model, &options);
    TRY_GOTO(status, close,
             options.train ? session_plan(&t.session, &options) : session_plan_evaluation(&t.session, &options));
    status = answers ? answer(&t) : run(&t, folder);
close:
    report_block_print(config, &t.session, status, stderr);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    metrics_close(&t.metrics);
    steps_ahead_destroy(&t.ahead);
    generator_destroy(t.generator);
    tokenizer_destroy(t.tokenizer);
    restore_saver_destroy(&t.saver);
    feed_close(&t.feed);
    if (t.session.mem)
        session_close(&t.session);
    watchdog_stop(&t.watchdog);
    restore_close(&t.source);
    if (t.lock_fd >= 0)
        out_dir_release(&t, status);
    return status;
}
