/* The runs of gpt-train.  trainer.c begins and ends a run, run_loop.c trains, run_log.c prints; plan_answer.c,
 * explain.c and answers.c answer questions instead, judge.c measures a model, report_block.c reports a failure. */
#ifndef GPT_TRAIN_TRAIN_RUN_H
#define GPT_TRAIN_TRAIN_RUN_H

#include "base/contention.h"
#include "base/progress.h"
#include "train/diagnose.h"
#include "train/feed.h"
#include "train/forecast.h"
#include "train/generate.h"
#include "train/metrics.h"
#include "train/plan_answer.h"
#include "train/ranks.h"
#include "train/saver.h"
#include "train/steps_ahead.h"
#include "train/watchdog.h"

struct trainer {
    struct hostmem *mem;
    const struct config *config; /* the user's; later `settled`, once the run knows the model */
    struct config settled;       /* the user's, completed by the checkpoint and the data */
    struct mixture mixture;      /* of the data sets in config->dataset */
    struct session session;
    struct feed feed;
    double val_losses[MIXTURE_MAX]; /* of the last evaluation, by data set */
    struct run_state state;         /* counters and choices, saved in each checkpoint */
    struct forecast forecast;
    struct contention before_test; /* of the forecast's model: at the end of the first step */
    struct metrics metrics;
    struct run_record *report; /* what report.html shows; NULL: none is written */
    struct progress progress;
    struct watchdog watchdog;
    struct ranks_life life;
    struct steps_ahead ahead; /* updates whose results the host has not read yet */
    struct diagnosis diagnosis;
    struct restore_source source; /* the source of the weights */
    struct saver saver;
    struct tokenizer *tokenizer; /* decodes the samples that sample_tokens prints */
    struct generator *generator;
    int lock_fd;
    bool made_out_dir;   /* this run created out_dir, so a failed start removes it */
    bool metrics_opened; /* metrics.jsonl was opened, so out_dir is not empty */
    bool unsaved;        /* the last attempt to save failed */
    int64_t skipped_in_a_row;
    bool left_course;                /* a loss was outside expected_losses, and a warning was logged */
    bool evaluated_badly;            /* the last evaluation's losses were not finite */
    char sample[METRICS_SAMPLE_MAX]; /* the beginning of the last one, for metrics.jsonl */
    double step_seconds;             /* of the last iteration whose results were read */
    double loss;                     /* of the same iteration */
    double loss_scale;               /* used by that iteration */
    int64_t start_ns;                /* of the loop */
    bool advised;                    /* the advice for a run that takes months was logged */
    int64_t first_iter;
    int64_t evaluated_iter; /* the last iteration that was evaluated, -1 = none */
    int64_t saved_iter;     /* the last iteration that was saved, -1 = none */
    int64_t best_iter;      /* iteration of the checkpoint in out_dir, if an evaluation saved it; -1 = not so */
    int64_t lowest_iter;    /* iteration whose evaluation found state.best_val_loss; -1 = an earlier process did */
};

/* Trains (or evaluates, or prints the plan or the program to `out`) as the configuration says; `dist` is NULL, or
 * this process is one of its ranks.  However the run ends, the last complete checkpoint stays intact.  Errors:
 * GT_STOPPED after a signal, with everything saved; GT_USAGE, GT_DATA, GT_NO_FIT before the first step; others as they
 * come. */
enum gt_status trainer_run(struct hostmem *mem, const struct config *config, struct dist *dist, FILE *out);

/* Loads the model that init_from names and prints the results that the configuration requests.  Errors: GT_USAGE (from
 * scratch; a context longer than the model's), GT_DATA, GT_IO, GT_NO_MEMORY, GT_NO_FIT, GT_STOPPED. */
enum gt_status judge_run(struct hostmem *mem, const struct config *config);

/* Prints what an error means and what to do: `id` is the word in "error[ID]".  Errors: GT_USAGE. */
enum gt_status error_explain(const char *id);

#define REPORT_BLOCK_BEGIN "---- gpt-train report, to be pasted where you ask for help ----"
#define REPORT_BLOCK_END "---- end of report ----"

/* If `status` ends the process with 1 or 3, prints a report on the failure to standard error, between two marker lines.
 * Users paste it where they ask for help.  Otherwise prints nothing: a bad key or file needs no help.  `session` may be
 * NULL, or may have failed at any point of its opening, but session_close() must not have been called. */
void report_block_print(const struct config *config, const struct session *session, enum gt_status status);

/* --explain-oom: explain_oom_text() of the text that config->explain_oom names ("-": standard input).  Errors: GT_IO;
 * those of explain_oom_text() and device_profile_find(). */
enum gt_status explain_oom(struct config *config, const struct model_config *model);
/* --compare: plans `config` and the file that it compares with, and prints a table.  Errors: those of both plans,
 * GT_NO_FIT if one does not fit. */
enum gt_status compare_run(const struct config *config);

/* Returns the learning rate of an iteration; it depends on nothing but `config` and `iter`.  The rate first grows
 * linearly, as (iter + 1) / (warmup_iters + 1) of learning_rate.  Then it falls to min_lr at lr_decay_iters, and stays
 * there: along a cosine, as nanoGPT's get_lr (train.py), or along a line, which `wsd` begins cooldown_iters before the
 * end.  A constant rate is learning_rate from the beginning. */
double run_learning_rate(const struct config *config, int64_t iter);
/* Returns the decay rate of Muon's momentum.  In the warm-up it grows linearly from 0.85 (modded-nanogpt). */
double run_muon_momentum(const struct config *config, int64_t iter);
/* Sets max_iters and lr_decay_iters to a run of `length` updates, and scales cooldown_iters as lr_decay_iters. */
void run_length_set(struct config *config, int64_t length);
double run_tokens_per_update(const struct trainer *t);
/* Trains from the first iteration to the last, or until a signal.  Errors: GT_STOPPED, and what ended the run. */
enum gt_status run_loop(struct trainer *t);

/* Writes the start lines of metrics.jsonl. */
void run_metrics_start(struct trainer *t);
/* Writes report.html again, if it is asked for.  A failure is logged, and the run goes on. */
void run_report_write(struct trainer *t, bool goes_on);
/* Logs parameters, device and plan, before the arena is taken. */
void run_log_start(const struct trainer *t);
void run_log_plan(const struct trainer *t);
/* Logs the time left; once, also how to shorten a run that takes more than a month. */
void run_log_forecast(struct trainer *t);
/* Logs the memory in use.  Call it after the first iteration, which has run every program: later ones allocate nothing
 * more. */
void run_log_memory(struct trainer *t);
void run_log_iteration(struct trainer *t, const struct step_result *result);
/* Logs one line for a skipped update.  It is not a warning while the loss scale is still coming down because float16
 * overflowed. */
void run_log_skipped(const struct trainer *t, int64_t iter);
#define KEPT_TEXT_MAX (FILE_PATH_MAX + 64)
/* Describes the checkpoint that remains.  Returns `text`. */
char *run_log_kept(char text[static KEPT_TEXT_MAX], const struct trainer *t);
/* Logs the time of each kind of op. */
void run_log_profile(const struct trainer *t);
/* Logs the arena at its peak, by category; the device's free memory, and the processes that use most of the rest. */
void run_log_use(const struct trainer *t);
/* Logs the last paragraph: a summary of the run, the model's folder, the next command. */
void run_log_end(const struct trainer *t, bool stopped);

#endif
