/* The runs of gpt-train.  trainer.c begins and ends a run, run_loop.c trains, saver.c saves, diagnose.c explains
 * unusual updates, watchdog.c ends a run whose device hangs, run_log.c prints; plan_answer.c, explain.c and answers.c
 * answer questions instead, judge.c measures a model. */
#ifndef GPT_TRAIN_TRAIN_RUN_H
#define GPT_TRAIN_TRAIN_RUN_H

#include "backend/backend_call.h"
#include "base/progress.h"
#include "base/thread.h"
#include "report/run_record.h"
#include "sample/generate.h"
#include "session/restore.h"
#include "train/feed.h"
#include "train/forecast.h"
#include "train/metrics.h"
#include "train/ranks.h"

/* ---- updates in flight ----
 *
 * If the device runs ahead (exec_runs_ahead), an update ends for the host when it is enqueued.  Its loss, its norm and
 * whether it was skipped are read when they are logged or needed, several updates at a time and in order.  Otherwise
 * they are read after each update. */

/* Maximum number of updates in flight: their results fit the backend's slots, and a signal is noticed in time. */
#define STEPS_AHEAD_MAX 16

/* One update: the values it was started with, and room for its results. */
struct step_result {
    int64_t iter;
    int64_t tokens; /* seen by the run, this update included */
    double learning_rate, loss_scale;
    double targets;                          /* that count: the loss is their mean */
    float *loss_sums;                        /* [micro_steps]: one sum per micro-step */
    union scalar_word scalars[SCALAR_WORDS]; /* after the update */
};

struct steps_ahead {
    int32_t micro_steps, count;
    int64_t since_ns; /* when the first of these updates began */
    struct step_result step[STEPS_AHEAD_MAX];
};

/* Errors: GT_NO_MEMORY. */
enum gt_status steps_ahead_create(struct hostmem *mem, int32_t micro_steps, struct steps_ahead *out);
/* Returns the place for the next update, and starts the clock at the first one.  The caller raises `count` once the
 * update is in flight. */
struct step_result *steps_ahead_next(struct steps_ahead *ahead);
/* Returns the average seconds per update until now.  There must be at least one. */
double steps_ahead_seconds(const struct steps_ahead *ahead);
/* Returns the sum of the losses of all micro-steps, in fp64. */
double steps_ahead_loss_sum(const struct steps_ahead *ahead, const struct step_result *result);

/* ---- unusual updates ----
 *
 * If the loss or the gradient of an update is not finite, the update is repeated op by op to name the first value that
 * is not finite.  A skipped update has left the weights unchanged.  A sudden rise of the loss or of the gradient's norm
 * is traced to its samples, which are named by their place in the token files, so that their text can be read. */

#define SPIKES_WINDOW 100

/* A window over the last updates that were not skipped, as logarithms. */
struct spikes {
    float loss[SPIKES_WINDOW], norm[SPIKES_WINDOW];
    int64_t count;      /* updates added so far */
    int64_t quiet_till; /* no spike is reported before this iteration; two reports are at least a window apart */
};

struct spike {
    double loss, norm, usual_loss, usual_norm;
};

/* Adds an update.  Returns true and fills `out` when the logarithm of its loss or norm is more than six standard
 * deviations above the mean of a full window, and the value exceeds the usual one by a tenth (loss) or a factor of
 * three (norm).  Returns false within a window of the last spike. */
bool spikes_add(struct spikes *spikes, int64_t iter, double loss, double norm, struct spike *out);

/* All pointers are borrowed and must outlive the struct. */
struct diagnosis {
    struct session *session;
    struct feed *feed;
    const struct steps_ahead *ahead;
    struct progress *progress;
    const struct tokenizer *tokenizer; /* may be NULL */
    struct spikes spikes;
    int64_t first_iter; /* of this process */
    bool was_bad;       /* the previous update was bad; only the first update of a burst is diagnosed */
    int32_t done;
};

/* Diagnoses update `index` of the `count` updates in `ahead`, all of which the device has finished.  `loss` is the mean
 * loss of the update.  If it is not finite, or the update was skipped and not because of float16's loss scale, repeats
 * the update and logs one line, at most a few times in a run.  A spike is logged too.  Weights, moments and the host's
 * scalars stay unchanged; gradients do not.  Nothing is allocated.  Errors: the device's. */
enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count, double loss);

/* ---- a device that hangs ---- */

struct watchdog {
    const struct backend_record *record; /* of the device's calls */
    const char *device;                  /* the backend's name */
    const char *out_dir;
    int64_t seconds;
    uint64_t number;       /* of the call that was pending at the last look */
    int64_t since_ns;      /* when that call was first seen, plus the time that the process was stopped */
    int64_t looked_ns;     /* time of the last look */
    struct ticker *ticker; /* NULL: not watching */
};

/* From now on, a call that `device` records and that takes longer than `seconds` ends the process: exit status 1 after
 * one line.  Closing the device counts too; time during which the process was stopped does not.  If `seconds` is 0,
 * nothing is watched.  The struct must not move, and the record and `out_dir` must live, until
 * ticker_stop(watchdog->ticker).  Errors: GT_NO_MEMORY, GT_FAILURE. */
enum gt_status watchdog_start(struct watchdog *watchdog, struct hostmem *mem, struct backend *device,
                              const char *out_dir, int64_t seconds);

/* ---- saving ---- */

/* Everything that a save needs besides the state.  It is created once, so that saving allocates nothing of ours. */
struct saver {
    struct session *session;
    struct model_config model; /* what is saved: of a run with adapters these alone */
    struct checkpoint_tensor *tensors;
    size_t tensor_count; /* the parameters as io/ sees them */
    json_t *configuration;
    json_t *plan;
    struct run_data data;
    char *tokens[TOKENIZER_FILES_OF_RUN]; /* tokenizer files to write next to the checkpoint; NULL = none */
    char tokenizer_hash[32];              /* "crc32c:89abcdef", or empty */
    bool tokens_written;
    bool replaces;       /* the first save replaces an earlier run, which got its own folder */
    const char *metrics; /* set-aside metrics of the run that this one replaces; NULL if it continues that run */
    int64_t after;       /* kept checkpoints beyond this iteration also belong to that run */
};
/* `tokenizer` may be NULL.  Errors: GT_NO_MEMORY. */
enum gt_status saver_create(struct session *session, const struct tokenizer *tokenizer, const struct run_data *data,
                            struct saver *out);
void saver_destroy(struct saver *saver);

/* Writes the tokenizer's files unless they already have this content.  With `repairs`, restores those of a run that
 * continues in its own folder, with a note: a kill between a save and the tokenizer may have left out_dir without some
 * of them, and 0.2.0 wrote only gpt_tokenizer.json.  Errors: GT_IO. */
enum gt_status saver_tokenizer_write(struct saver *saver, bool repairs);

/* Saves the run to out_dir.  First moves aside what another run left there, and keeps as many of this run's last
 * checkpoints as `keep` says.  After the first save of a run, writes the tokenizer next to it, for gpt-sample and
 * transformers. */
enum gt_status saver_save(struct saver *saver, const struct run_state *state);

/* What the other ranks do while rank 0 saves: send it the states that only they have.  Returns what saver_save() does
 * there. */
enum gt_status saver_serve(struct session *session);

/* To be called before the first step, once the session has a plan.  A save writes the new checkpoint next to the ones
 * that are kept.  Warns when the disk may become too full for that.  `own`: out_dir already contains checkpoints of
 * this run.  Errors: GT_IO when there is no room even for the first save. */
enum gt_status saver_room_check(const struct session *session, bool own);

/* ---- the run ---- */

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
    int32_t *prompt;       /* that samples begin with; NULL: a newline */
    int64_t prompt_count;  /* in tokens */
    char prompt_text[160]; /* its beginning */
    int lock_fd;
    bool made_out_dir;   /* this run created out_dir, so a failed start removes it */
    bool metrics_opened; /* metrics.jsonl was opened, so out_dir is not empty */
    bool unsaved;        /* the last attempt to save failed */
    int64_t skipped_in_a_row;
    int64_t skipped_in_vain;         /* those of them for which no smaller loss scale can help */
    int64_t targetless;              /* updates left out, because no target counted */
    bool stepped;                    /* the results of the first update were processed */
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
    double first_best;      /* best_val_loss where the run began; infinite: there was none */
};

/* Trains (or evaluates, or prints the plan or the program to `out`) as the configuration says; `dist` is NULL, or
 * this process is one of its ranks.  However the run ends, the last complete checkpoint stays intact.  Errors:
 * GT_STOPPED after a signal, with everything saved; GT_USAGE, GT_DATA, GT_NO_FIT before the first step; others as they
 * come. */
enum gt_status trainer_run(struct hostmem *mem, const struct config *config, struct dist *dist, FILE *out);

/* Loads the model that init_from names and prints the results that the configuration requests.  Errors: GT_USAGE (from
 * scratch; a context longer than the model's), GT_DATA, GT_IO, GT_NO_MEMORY, GT_NO_FIT, GT_STOPPED. */
enum gt_status judge_run(struct hostmem *mem, const struct config *config);
/* Sets *out to the mean loss of ids[count] in windows of `window` tokens, on the cpu in float32; what fills no window
 * does not count.  `model` is as for init_from.  Errors: as above. */
enum gt_status judge_ids(struct hostmem *mem, const char *model, int64_t window, const int32_t *ids, int64_t count,
                         double *out);

/* A page of doc/, of which config/embed.sh makes a C file. */
struct embedded_page {
    const char *name, *text;
    size_t length;
};
extern const struct embedded_page embedded_errors;

/* Prints what doc/errors.md says of an error: `id` is the word in "error[ID]".  Errors: GT_USAGE. */
enum gt_status error_explain(const char *id);

/* If the program or the device failed (GT_FAILURE, GT_DEVICE, GT_NO_MEMORY), prints a report to standard error, between
 * two marker lines.  Users paste it where they ask for help.  Otherwise prints nothing: a bad key or path, a full
 * disk, a model that does not fit or has diverged need the error line only.  `session` may be NULL, or may have failed
 * at any point of its opening, but session_close() must not have been called. */
void report_block_print(const struct config *config, const struct session *session, enum gt_status status);

/* ---- conversations (conversation.c) ---- */

/* Returns true if the first data set has conversations, which the tokenizer can show. */
bool conversation_is_data(const struct trainer *t);
/* Logs how many tokens are trained, and one conversation of the run's first sample, with marks around what the model
 * learns to write.  Overwrites the feed's tensors.  Errors: those of the data. */
enum gt_status conversation_log(struct trainer *t);
/* Sets t->prompt to the beginning of a conversation of the validation data, up to its first answer.  Overwrites the
 * feed's tensors.  Errors: those of the data, GT_NO_MEMORY. */
enum gt_status conversation_prompt_find(struct trainer *t);
/* Returns true if `token` ends the answer to the prompt. */
bool conversation_ends(const struct trainer *t, int32_t token);

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
/* Logs one line for each value that the schedule cannot reach in the rest of a run, from iteration `iter` on: a warm-up
 * that is longer than the run, a decay that does not begin or ended long ago.  Each names the key that changes it. */
void run_schedule_check(const struct config *config, int64_t iter);
double run_tokens_per_update(const struct trainer *t);
/* Trains from the first iteration to the last, or until a signal.  Errors: GT_STOPPED, and what ended the run. */
enum gt_status run_loop(struct trainer *t);

/* Writes the start lines of metrics.jsonl, and opens the report if one is asked for.  Errors: GT_NO_MEMORY. */
enum gt_status run_metrics_start(struct trainer *t);
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
/* Counts an update that is left out because no target counts; logs the first one. */
void run_log_targetless(struct trainer *t);
/* Logs one line for a skipped update.  It is not a warning while float16's loss scale is coming down, which makes
 * gradients finite again. */
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
