/* The part of a gpt-train run that training, judging and answering share: where it begins, its
 * model and its session.
 *
 * run_resolve() completes the configuration once; from then on it is the run's.  run_open() opens
 * the device, and run_plan() makes the plan.  Between these calls, the caller may change keys or
 * the session's budgets. */
#ifndef GPT_TRAIN_SESSION_RUN_H
#define GPT_TRAIN_SESSION_RUN_H

#include "data/mixture.h"
#include "session/restore.h"
#include "session/watchdog.h"

struct run {
    struct hostmem *mem;
    struct config *config;        /* the user's, completed by the checkpoint and the data */
    struct mixture mixture;       /* of the data sets in config->dataset */
    struct restore_source source; /* of the weights */
    struct run_state state;       /* counters and choices, saved in each checkpoint */
    struct model_config model;
    struct session session;
    struct watchdog watchdog;
};

/* Decides where the run begins and completes `config`, which the caller owns and which must outlive
 * the run, as must `mem`.  `trains`: the data are needed, so their absence is refused first.
 * Errors: those of restore_open(), GT_USAGE. */
enum gt_status run_resolve(struct run *run, struct hostmem *mem, struct config *config,
                           bool trains);
/* Returns false while the length of a run with `hours` is not known, because its first updates are
 * still being timed. */
bool run_length_is_known(const struct run *run);
/* Sets max_iters and lr_decay_iters to a run of `length` updates, and scales cooldown_iters as
 * lr_decay_iters. */
void run_length_set(struct config *config, int64_t length);
double run_tokens_per_update(const struct config *config);

/* Opens the device.  Errors: those of session_open(). */
enum gt_status run_open(struct run *run);
/* Plans training, or the evaluation of an eval_only run.  Errors: those of session_plan(). */
enum gt_status run_plan(struct run *run);
/* Starts the watchdog.  Errors: GT_NO_MEMORY, GT_FAILURE. */
enum gt_status run_watch(struct run *run);
/* Closes what is open.  Any of the calls above may have failed or not been made; `run` must have
 * been zeroed before them. */
void run_close(struct run *run);

#endif
