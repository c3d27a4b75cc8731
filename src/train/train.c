/* A run that trains, from its folder to its last line.
 *
 * start.c has what training shares with an evaluation; this file has what only training needs: the
 * folder that it locks, the comparison with the run that it resumes, saving, metrics.jsonl and the
 * report.
 */
#include "train/train.h"

#include <unistd.h>

#include "io/checkpoint_folder.h"
#include "report/run_record.h"
#include "session/stop.h"
#include "train/loop.h"
#include "train/run_log.h"
#include "train/run_metrics.h"
#include "train/start.h"

/* ---- the folder ---- */

struct out_dir {
    const char *path;
    int lock_fd;  /* -1: not locked */
    bool is_made; /* by this run */
};

/* Creates and locks the folder, and repairs what a killed run left. */
static enum gt_status out_dir_claim(struct out_dir *out_dir, const struct config *config)
{
    if (strcmp(config->init_from, "resume") == 0 && !file_is_folder(config->out_dir))
        return FAIL(GT_DATA,
                    ERROR_NO_CHECKPOINT "%s: no such folder, so there is nothing to resume",
                    config->out_dir);
    out_dir->is_made = !file_exists(config->out_dir);
    TRY(file_make_folders(config->out_dir));
    TRY(file_lock(FILE_IN(config->out_dir, "lock"), &out_dir->lock_fd));
    return checkpoint_repair(config->out_dir);
}

/* Releases the lock.  If the run never began, also removes a folder that it created. */
static void out_dir_release(const struct out_dir *out_dir, bool began)
{
    if (out_dir->is_made && !began) {
        if (out_dir->lock_fd >= 0)
            unlink(FILE_IN(out_dir->path, "lock")); /* while we own the lock */
        rmdir(out_dir->path); /* fails, as it should, if the folder is not empty */
    }
    file_unlock(out_dir->lock_fd);
}

/* ---- the run ---- */

/* If the run does not continue the existing checkpoint, logs that its first save will move it. */
static void earlier_note(const struct run *run)
{
    const char *out_dir = run->config->out_dir;
    char folder[FILE_PATH_MAX];
    if (run->source.in_place || !checkpoint_keep_earlier_next(out_dir, folder))
        return;
    if (run->source.branch)
        log_note("this run goes on from iteration %" PRId64
                 " of %s; its first save moves what came after that to %s",
                 run->state.iter, out_dir, folder);
    else
        log_note(
            "%s holds an earlier run, which --init_from=resume would continue; this run's first save moves it to %s",
            out_dir, folder);
}

/* Forgets the best loss if it is one of other validation data, so that the run saves the best of
 * these. */
static void best_check(struct run *run, const struct data_digests *digests)
{
    if (!resume_has_other_val(&run->source, digests) || !isfinite(run->state.best_val_loss))
        return;
    log_note("the best validation loss, %.4f, is one of other validation data, and is forgotten",
             run->state.best_val_loss);
    run->state.best_val_loss = INFINITY;
}

/* Compares data and keys with the run that is resumed, and the disk with what a save needs. */
static enum gt_status resume_check(struct runner *runner, struct data_digests *digests)
{
    struct run *run = &runner->run;
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++)
        TRY(feed_digest(&runner->feed, (enum token_split)split, digests->text[split]));
    TRY(resume_check_keys(run->config, &run->source));
    TRY(resume_check_data(run->config, &run->source, digests));
    best_check(run, digests);
    TRY(saver_room_check(&run->session, run->source.in_place));
    earlier_note(run);
    return GT_OK;
}

/* Opens what rank 0 writes: checkpoints and metrics. */
static enum gt_status files_open(struct trainer *t, const struct data_digests *digests)
{
    struct run *run = &t->runner.run;
    const bool in_place = run->source.in_place, goes_on = in_place || run->source.branch;
    TRY(saver_create(&run->session, t->runner.tokenizer, digests, &t->saver));
    if (in_place)
        TRY(saver_tokenizer_write(&t->saver, true));
    TRY(metrics_open(&t->metrics, run->config->out_dir, goes_on ? run->state.iter : 0,
                     run->state.evaluated, !in_place));
    t->began = true;
    TRY(run_metrics_start(t));
    t->saver.metrics = in_place ? NULL : t->metrics.kept;
    t->saver.after = run->source.branch ? run->state.iter : -1;
    return GT_OK;
}

/* A checkpoint that an evaluation saved, as all of nanoGPT's are, is the best.  One of ours that a
 * signal saved just after an evaluation also counts, which costs a second stop some work and no
 * bits. */
static bool begins_with_best(const struct run *run)
{
    return run->source.in_place && isfinite(run->state.best_val_loss) &&
           (run->state.evaluated || run->source.checkpoint->kind == CHECKPOINT_NANOGPT);
}

/* Prepares the loop and its files, once the plan is made. */
static enum gt_status prepare(struct trainer *t)
{
    struct runner *runner = &t->runner;
    struct run *run = &runner->run;
    struct session *session = &run->session;
    struct data_digests digests = {.text = {""}};
    TRY(start_data(runner));
    TRY(resume_check(runner, &digests));
    TRY(start_device(runner, &digests));
    if (begins_with_best(run))
        t->saved.best_iter = run->state.iter;
    TRY(start_weights(runner));
    if (ranks_first(session->dist)) {
        TRY(files_open(t, &digests));
        TRY(samples_open(&runner->samples, session, &runner->feed, runner->tokenizer));
    }
    t->diagnosis = (struct diagnosis){.session = session,
                                      .feed = &runner->feed,
                                      .ahead = &t->ahead,
                                      .progress = &runner->progress,
                                      .tokenizer = runner->tokenizer,
                                      .first_iter = run->state.iter};
    return steps_ahead_create(run->mem, model_micro_steps(&session->model->options), &t->ahead);
}

static enum gt_status train(struct trainer *t)
{
    TRY(prepare(t));
    start_work(&t->runner);
    const enum gt_status status = loop_train(t);
    start_end(&t->runner, status);
    run_metrics_report(t, false);
    if ((status == GT_OK || status == GT_STOPPED) &&
        t->runner.run.state.iter > t->course.first_iter)
        run_log_end(t, status == GT_STOPPED);
    return status;
}

static void trainer_close(struct trainer *t, enum gt_status status)
{
    hostmem_phase_set(t->runner.run.mem, HOSTMEM_CLOSE);
    metrics_close(&t->metrics);
    if (t->report)
        run_record_close(t->report);
    saver_destroy(&t->saver);
    start_close(&t->runner, status);
}

enum gt_status train_run(struct hostmem *mem, struct config *config, struct dist *dist)
{
    struct out_dir out_dir = {.path = config->out_dir, .lock_fd = -1};
    struct trainer t = {.runner.run = {.mem = mem, .config = config},
                        .metrics = {.fd = -1},
                        .course = {.evaluated_iter = ITER_NONE, .lowest_iter = ITER_NONE},
                        .saved = {.iter = ITER_NONE, .best_iter = ITER_NONE}};
    enum gt_status status = ranks_first(dist) ? out_dir_claim(&out_dir, config) : GT_OK;
    THEN(status, start_plan(&t.runner, mem, config, dist));
    THEN(status, train(&t));
    trainer_close(&t, status);
    out_dir_release(&out_dir, status == GT_OK || status == GT_STOPPED || t.began);
    return status;
}
