/* When a run saves.
 *
 * saver.c writes checkpoints; this file decides whether a model may replace the last one.  A model
 * that has diverged never does.  A failure to write is only a warning: the run goes on, and tries
 * again at the next evaluation.
 */
#include "train/save.h"

#include <math.h>

#include "base/clock.h"
#include "base/size.h"
#include "io/checkpoint_record.h"

#define NOT_SAVED "iter %" PRId64 " is not saved: %s; %s"

int64_t save_held_iter(const struct trainer *t)
{
    return t->saved.iter == ITER_NONE && t->runner.run.source.in_place ? t->course.first_iter
                                                                       : t->saved.iter;
}

char *save_kept_text(char text[static KEPT_TEXT_MAX], const struct trainer *t)
{
    const int64_t held = save_held_iter(t);
    if (held == ITER_NONE)
        snprintf(text, KEPT_TEXT_MAX, "this run has saved no checkpoint");
    else
        snprintf(text, KEPT_TEXT_MAX, "the checkpoint of iter %" PRId64 " stays in %s", held,
                 t->runner.run.config->out_dir);
    return text;
}

bool save_keeps_best(const struct trainer *t)
{
    return !t->runner.run.config->always_save_checkpoint && t->saved.best_iter != ITER_NONE;
}

/* Returns why the model is considered to have diverged, or NULL.  One skipped update is no sign of
 * divergence: it leaves the weights unchanged. */
static const char *divergence(const struct trainer *t)
{
    if (t->course.evaluated_badly || !isfinite(t->course.loss))
        return "the loss is not finite";
    return t->course.skipped_in_vain > 1 ? "updates are being skipped" : NULL;
}

/* Says what a failed save left.  Returns `text`. */
static const char *unsaved_text(char text[static KEPT_TEXT_MAX + 64], const struct trainer *t)
{
    const int64_t iter = t->runner.run.state.iter;
    char kept[KEPT_TEXT_MAX];
    if (t->saved.iter == iter)
        snprintf(text, KEPT_TEXT_MAX + 64,
                 "the checkpoint of iter %" PRId64
                 " is complete, but not all files that go with it",
                 iter);
    else
        snprintf(text, KEPT_TEXT_MAX + 64, "iter %" PRId64 " could not be saved; %s", iter,
                 save_kept_text(kept, t));
    return text;
}

/* Returns true if the folder holds a complete checkpoint of this iteration: a save may fail at what
 * comes after it. */
static bool holds_this(const struct run *run)
{
    const char *out_dir = run->config->out_dir;
    const struct run_state *state = &run->state;
    struct checkpoint_record record;
    if (!file_exists(FILE_IN(out_dir, CHECKPOINT_RECORD_NAME)) ||
        checkpoint_record_read(out_dir, &record) != GT_OK)
        return false;
    const bool same = record.state.iter == state->iter &&
                      record.state.samples_seen == state->samples_seen &&
                      record.state.best_val_loss == state->best_val_loss;
    checkpoint_record_release(&record);
    return same;
}

static enum gt_status save(struct trainer *t)
{
    struct run *run = &t->runner.run;
    const int64_t start_ns = clock_monotonic_ns();
    if (!ranks_first(run->session.dist)) {
        TRY(saver_serve(&run->session));
        t->saved.iter = run->state.iter;
        return GT_OK;
    }
    run->state.evaluated = t->course.evaluated_iter == run->state.iter;
    run->state.adam_step = run->session.scalars[SCALAR_ADAM_STEP].i;
    metrics_sync(&t->metrics);
    const enum gt_status status = saver_save(&t->saver, &run->state);
    if (status == GT_OK || (status == GT_IO && holds_this(run)))
        t->saved.iter = run->state.iter;
    TRY(status);
    metrics_saved(&t->metrics);
    log_result("saving checkpoint to %s (iter %" PRId64 ", %s)", run->config->out_dir,
               run->state.iter, CLOCK_DURATION((double)(clock_monotonic_ns() - start_ns) / 1e9));
    return GT_OK;
}

/* Saves unless the model has diverged.  A failure to write is logged, with the time of the next
 * attempt. */
static enum gt_status save_or_go_on(struct trainer *t)
{
    const struct config *config = t->runner.run.config;
    const int64_t iter = t->runner.run.state.iter;
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX], unsaved[KEPT_TEXT_MAX + 64];
    if (why) {
        log_warning(NOT_SAVED, iter, why, save_kept_text(kept, t));
        return GT_OK;
    }
    enum gt_status status = save(t);
    t->saved.failed = status == GT_IO;
    if (!t->saved.failed)
        return status;
    const int64_t left = min_i64(config->eval_interval, config->max_iters + 1 - iter);
    if (left > 0)
        log_warning("%s; training continues and tries again in %" PRId64 " iteration%s",
                    unsaved_text(unsaved, t), left, left == 1 ? "" : "s");
    return GT_OK;
}

/* If the run saves only the best model and this save fails, restores the previous best loss, so
 * that the run compares the next model with the best one on disk.  Like nanoGPT, saves nothing at
 * iteration 0.  At the first iteration of a resumed run, the checkpoint has these weights already,
 * so saves them only as a new best. */
enum gt_status save_after_evaluation(struct trainer *t, double val_loss)
{
    struct run_state *state = &t->runner.run.state;
    const double best_before = state->best_val_loss;
    const bool best = val_loss < best_before, always = t->runner.run.config->always_save_checkpoint;
    if (best) {
        state->best_val_loss = val_loss;
        t->course.lowest_iter = state->iter;
    }
    if (state->iter == 0 || !(best || (always && state->iter != t->course.first_iter)))
        return GT_OK;
    TRY(save_or_go_on(t));
    if (t->saved.iter == state->iter)
        t->saved.best_iter = state->iter;
    else if (!always)
        state->best_val_loss = best_before;
    return GT_OK;
}

enum gt_status save_at_end(struct trainer *t)
{
    const char *why = divergence(t);
    char kept[KEPT_TEXT_MAX], unsaved[KEPT_TEXT_MAX + 64];
    if (why != NULL)
        return FAIL(GT_DIVERGED, ERROR_DIVERGED NOT_SAVED, t->runner.run.state.iter, why,
                    save_kept_text(kept, t));
    const enum gt_status status = save(t);
    if (status == GT_IO)
        log_warning("%s", unsaved_text(unsaved, t));
    return status;
}
