/* The run of gpt-train, as its files share it: trainer.c begins and ends it, run_loop.c trains, run_log.c prints. */
#ifndef GPT_TRAIN_TRAIN_RUN_H
#define GPT_TRAIN_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"
#include "train/diagnose.h"
#include "train/feed.h"
#include "train/forecast.h"
#include "train/generate.h"
#include "train/metrics.h"
#include "train/saver.h"
#include "train/steps_ahead.h"
#include "train/watchdog.h"

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
    struct saver saver;
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

double run_tokens_per_update(const struct trainer *t);
/* From the first iteration to the last, or to a signal.  Errors: GT_STOPPED, and what ended the run. */
enum gt_status run_loop(struct trainer *t);

/* Before the arena is taken: parameters, device and plan. */
void run_log_start(const struct trainer *t);
void run_log_plan(const struct trainer *t);
/* The time left; once, what to change in a run that nobody would wait for. */
void run_log_forecast(struct trainer *t);
/* After the first iteration, which has run everything: nothing more will be allocated. */
void run_log_memory(struct trainer *t);
void run_log_iteration(struct trainer *t, const struct step_result *result);
/* One line for a skipped update.  It is no warning while the loss scale comes down from where float16 overflows. */
void run_log_skipped(const struct trainer *t, int64_t iter);
#define KEPT_TEXT_MAX (FILE_PATH_MAX + 64)
/* The checkpoint that there is to go back to.  Returns `text`. */
char *run_log_kept(char text[static KEPT_TEXT_MAX], const struct trainer *t);
/* The time of each kind of op. */
void run_log_profile(const struct trainer *t);
/* The arena at its peak, by category. */
void run_log_categories(const struct trainer *t);
/* The device's free memory, and the processes that use most of the rest. */
void run_log_others(const struct trainer *t);
/* The last paragraph: what the run was, the model's folder, the next command. */
void run_log_end(const struct trainer *t, bool stopped);

#endif
