/* The lines that a run prints for each iteration and at its end.
 *
 * Scripts parse the lines that begin with `iter`, so their format must not change.  An iteration's
 * line in metrics.jsonl has the same values in full precision.
 */
#include "train/run_log.h"

#include <math.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "config/config_key.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_report.h"
#include "plan/plan_search.h"
#include "report/report_page.h"
#include "report/run_record.h"
#include "train/conversation.h"
#include "train/save.h"
#include "train/start_log.h"

void run_log_skipped(const struct trainer *t, int64_t iter)
{
    const struct loss_scaler *scaler = &t->runner.run.state.loss_scaler;
    const double loss = t->course.loss;
    if (!isfinite(loss))
        log_warning("iter %" PRId64 ": the loss is not finite (%g); this update is skipped", iter,
                    loss);
    else if (scaler->dynamic)
        log_note(
            "iter %" PRId64
            ": the gradient overflows float16 at loss scale %g (loss %g); this update is skipped, "
            "and the scale lowered to %g",
            iter, t->course.loss_scale, loss, scaler->scale);
    else
        log_warning("iter %" PRId64
                    ": the gradient is not finite (loss %g); this update is skipped",
                    iter, loss);
}

void run_log_targetless(struct trainer *t)
{
    if (t->course.targetless > 1)
        return;
    progress_clear(&t->runner.progress);
    log_warning(
        "iter %" PRId64
        ": no target of its samples counts, because their rows hold no answers; such updates are "
        "left out (gpt-prepare makes data without such rows)",
        t->runner.run.state.iter);
}

/* Returns the share of the device's best known rate that the run achieves, or -1 if that is
 * unknown.  A faster run raises the best known rate, which was timed at a slower moment. */
static double utilization(struct run *run, double tokens_per_second)
{
    const double achieved =
        tokens_per_second * model_flops_per_token(&run->session.model->options.config);
    double *peak = &run->session.timing.peak_flops;
    if (*peak > 0.0 && achieved > *peak)
        *peak = achieved;
    return *peak > 0.0 ? achieved / (*peak * (double)run->config->ranks) : -1.0;
}

static void iteration_log(struct trainer *t, const struct step_result *result, double rate,
                          double mfu)
{
    const struct run *run = &t->runner.run;
    const struct session *session = &run->session;
    const double milliseconds = 1e3 * t->course.step_seconds;
    struct json_put *line = metrics_line(&t->metrics, result->iter, NULL);
    json_put(line, "loss:f lr:f grad_norm:f time_ms:f tokens_per_s:f mfu:f skipped:i",
             t->course.loss, result->learning_rate, (double)session->scalars[SCALAR_GRAD_NORM].f,
             milliseconds, rate, mfu, run->state.skipped);
    if (run->state.loss_scaler.dynamic)
        json_put(line, "loss_scale:f", t->course.loss_scale);
    if (t->runner.feed.parts[0].source[TOKEN_TRAIN]->row > 0)
        json_put(line, "trained_tokens:i", (int64_t)result->targets);
    json_put(line, "planned_bytes:u allocated_bytes:u tokens:i time:f",
             plan_requested_bytes(session->plan), session->device.record.arena_bytes,
             result->tokens, clock_wall_seconds());
    progress_clear(&t->runner.progress);
    log_result("iter %" PRId64 ": loss %.4f, time %.2fms, mfu %.2f%%", result->iter, t->course.loss,
               milliseconds, 100.0 * mfu);
    (void)metrics_line_write(&t->metrics);
}

void run_log_iteration(struct trainer *t, const struct step_result *result)
{
    struct run *run = &t->runner.run;
    const double rate = run_tokens_per_update(run->config) / t->course.step_seconds;
    const double mfu = utilization(run, rate);
    if (result->iter % run->config->log_interval == 0)
        iteration_log(t, result, rate, mfu);
    progress_show(&t->runner.progress, "train", result->iter + 1, run->config->max_iters + 1,
                  TEXT(64, "loss %.4f  %.0f tok/s", t->course.loss, rate),
                  forecast_seconds_left(&t->runner.forecast));
}

void run_log_memory(struct trainer *t)
{
    const struct session *session = &t->runner.run.session;
    log_result("memory: %s planned, %s allocated (process %s); nothing more will be allocated",
               LOG_BYTES(plan_requested_bytes(session->plan)),
               LOG_BYTES(session->device.record.arena_bytes), LOG_BYTES(process_rss_bytes()));
    start_log_forecast(&t->runner);
}

#define NOT_BETTER \
    "Nothing was saved: always_save_checkpoint=False, and no evaluation found a lower validation loss than "

/* Logs why out_dir has no model.  A run that continues another folder's model must beat that
 * folder's best loss. */
static void nothing_log(const struct trainer *t, bool stopped)
{
    const struct run *run = &t->runner.run;
    if (stopped)
        log_result("Nothing was saved.");
    else if (isfinite(t->course.first_best_loss))
        log_result(NOT_BETTER "%.4f, the best of %s.", t->course.first_best_loss,
                   run->source.branch ? run->config->out_dir : run->config->init_from);
    else
        log_result(NOT_BETTER "the first.");
}

/* Logs which model the folder contains, and the command that continues from it. */
static void folder_log(const struct trainer *t, bool stopped)
{
    char folder[FILE_PATH_MAX];
    const char *out_dir = t->runner.run.config->out_dir;
    const int64_t held = save_held_iter(t), since = t->runner.run.state.iter - held;
    if (held == ITER_NONE) {
        nothing_log(t, stopped);
        return;
    }
    log_result("%s holds the model of iteration %" PRId64 ".", out_dir, held);
    if (since > 0)
        log_result(
            "%" PRId64
            " later update%s not kept: always_save_checkpoint=False keeps the best model only.",
            since, since == 1 ? " is" : "s are");
    if (t->runner.run.config->keep > 1 && t->course.lowest_iter > 0 &&
        t->course.lowest_iter < t->course.evaluated_iter)
        log_result("The best, of iteration %" PRId64 ", is there too: --checkpoint=best.",
                   t->course.lowest_iter);
    const bool talks = conversation_is_data(&t->runner.feed, t->runner.tokenizer);
    log_result("%s --out_dir=%s%s",
               stopped ? "Continue: gpt-train --init_from=resume" : "Try it: gpt-sample",
               file_shell_quote(folder, sizeof folder, out_dir),
               talks && !stopped ? " --chat" : "");
}

void run_log_end(const struct trainer *t, bool stopped)
{
    const struct run *run = &t->runner.run;
    const struct course *course = &t->course;
    const int64_t updates = run->state.iter - course->first_iter - course->targetless;
    const double lowest = run->state.best_val_loss;
    const bool is_ours = isfinite(lowest) && course->lowest_iter != ITER_NONE;
    const char *best = isfinite(lowest) ? TEXT(64, "; best validation loss %.4f", lowest) : "";
    const char *at = is_ours ? TEXT(48, " at iteration %" PRId64, course->lowest_iter) : "";
    log_result("%s", "");
    log_result("%s: %" PRId64 " update%s in %s%s%s.", stopped ? "Stopped" : "Done", updates,
               updates == 1 ? "" : "s",
               CLOCK_DURATION((double)(clock_monotonic_ns() - course->start_ns) / 1e9), best, at);
    log_result("Memory: %s planned, %s allocated, process at most %s.",
               LOG_BYTES(plan_requested_bytes(run->session.plan)),
               LOG_BYTES(run->session.device.record.arena_bytes),
               LOG_BYTES(process_rss_bytes_max()));
    folder_log(t, stopped);
}
