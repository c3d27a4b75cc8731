/* A session: a model, its plan, a device and the executor, created from a configuration.
 *
 * gpt-train and gpt-sample both open one.  First session_open() opens the device, then session_plan() makes the plan
 * without allocating device memory, then session_start() takes the arena.  A plan or a program can be printed between
 * the last two.  session_plan.c makes the plan, session_rates.c the rates with which its times are modelled.
 */
#ifndef GPT_TRAIN_SESSION_SESSION_H
#define GPT_TRAIN_SESSION_SESSION_H

#include "backend/backend_call.h"
#include "base/hostmem.h"
#include "config/config.h"
#include "dist/dist.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/device_profile.h"
#include "plan/plan.h"
#include "plan/plan_search.h"

/* The most updates of a run: max_iters is at most one less. */
#define RUN_LENGTH_MAX INT32_MAX
/* Size of the staging buffer through which weights move, in floats: 4 MiB. */
#define SESSION_STAGING_FLOATS ((int64_t)1 << 20)
/* Maximum length of the prefill program, in tokens. */
#define SESSION_PREFILL_TIME_MAX 64
/* Memory that the process may use besides the arena and the backend's memory: code, stacks, the C library, BLAS
 * buffers, the staging buffer and the host's tables.  Measured: 12 to 20 MiB from 0.8M to 124M parameters. */
#define SESSION_HEADROOM_BYTES ((uint64_t)64 << 20)

struct session_device {
    struct backend *backend;
    struct backend_record record; /* of the calls to the backend */
    struct backend_info info;
    int32_t sharers;  /* ranks that use the device, this one among them; 0: it is a profile */
    enum dtype dtype; /* of weights and activations: as configured, or the nearest that the device supports */
    bool has_profile; /* only a profile exists: a session can plan for the device, not use it */
    struct device_profile profile; /* valid with has_profile */
    bool has_budget;               /* memory_budget gives the budget */
    uint64_t host_budget_bytes;    /* for the arena in host memory */
    uint64_t budget_bytes;         /* for the process: memory_budget, or the free memory at the start less a margin */
};

/* The rates for modelling times. */
struct session_timing {
    struct plan_rates rates;
    bool is_timed;     /* `rates` come from timings of every kind of op */
    bool is_recalled;  /* this session has looked for rates in the cache */
    bool is_tiny;      /* too small a model to be timed: its ops take longer to start than to run */
    double ranks_rate; /* bytes/s each way with the slowest peer, as measured; 0 = unknown */
    double peak_flops; /* best known rate of this device, FLOP/s: of timed products, or of a step; 0 = unknown */
};

/* The search for the plan of a training session. */
struct session_search {
    struct search_memo memo; /* shared by the searches of one configuration */
    struct search_request request;
    struct search_result result;
};

struct session {
    struct hostmem *mem;
    const struct config *config;
    struct dist *dist; /* the other ranks, or NULL */
    struct session_device device;
    struct session_timing timing;
    struct session_search search;
    struct model *model;
    struct plan *plan;
    struct exec *exec;                       /* NULL before session_start() */
    float *staging;                          /* [SESSION_STAGING_FLOATS] */
    char base[FILE_PATH_MAX];                /* the model that the adapters, if there are any, are made for, */
    uint32_t base_crc32c;                    /* and its checksum */
    union scalar_word scalars[SCALAR_WORDS]; /* the host's copy of the device block */
};

/* Opens the device that the configuration names, and sets the budget and the dtype.  On failure there is nothing to
 * close.  Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out);

/* As above, for a card that only a profile describes.  Reads no file.  Errors: GT_USAGE, GT_NO_MEMORY. */
enum gt_status session_open_profile(struct hostmem *mem, const struct config *config,
                                    const struct device_profile *profile, struct session *out);
/* Sets the budgets and the dtype of an open device.  The host's memory is 0 if it is unknown.  Errors: GT_USAGE. */
enum gt_status session_device_settle(struct session *session, uint64_t host_total_bytes, uint64_t host_free_bytes);
/* Returns the default budget if `free_bytes` are free: it leaves a margin to other programs. */
uint64_t session_free_budget(uint64_t free_bytes);

/* Takes the arena.  If the device now has less free memory than the plan of a training session needs, plans again for
 * the memory that is left.  The session then has a new model and plan, with the same samples and mathematics.  Errors:
 * GT_NO_MEMORY, GT_NO_FIT, GT_DEVICE. */
enum gt_status session_start(struct session *session);
/* Replaces the plan by one for the budgets as they are now.  Errors: those of session_plan(), GT_NO_FIT. */
enum gt_status session_replan(struct session *session, const struct model_options *options);
void session_close(struct session *session);

/* Copy the host's scalars to the device, and back. */
enum gt_status session_scalars_upload(struct session *session);
enum gt_status session_scalars_download(struct session *session);
/* Uploads only the scalars that the host decides.  Leaves the ones that the update computes as they are on the device,
 * because the device may have run more updates than the host has read. */
enum gt_status session_scalars_set(struct session *session);

/* Returns the dtype, or the nearest that ops of the device can store: float16 for bfloat16, else float32. */
enum dtype session_device_dtype(const struct session_device *device, enum dtype dtype);

/* Copy values[count] to the elements of `tensor` from `first` on, and back.  An fp32 tensor gets the values unchanged;
 * the upload to a 16-bit tensor rounds them to nearest, in a buffer on the stack.  Errors: those of exec_upload() and
 * exec_download(). */
enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                             const float *values, int64_t count);
enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                               float *values, int64_t count);

/* ---- the plan ---- */

/* Sets the shape of the new model that the configuration describes, with `vocab_size` if it leaves that open.  The keys
 * that were left open become those of the model and its `arch`. */
void session_model_settle(struct config *config, int64_t vocab_size, struct model_config *out);
/* The choices that a checkpoint stores.  A 0 in a field of `plan` means that no run has chosen it yet. */
struct session_choices {
    struct plan_choice plan;
    bool states_chosen; /* the checkpoint's states have the format `states` */
    enum state_format states;
};

#define SESSION_PINS_TEXT_MAX 512
/* After a refused search, writes the memory_budget that is enough without each key that the user set, if the key makes
 * the smallest plan larger: "84MiB without micro_batch=30, 90MiB without recompute=none, 30MiB without all of these".
 * "": there is none.  Errors: those of plan_search(). */
enum gt_status session_pins_text(const struct session *session, char text[static SESSION_PINS_TEXT_MAX]);

/* Returns the format that the configuration names, which must not be auto. */
enum state_format session_state_format(const struct config *config);

/* Sets how the samples of an update are split into micro-steps, and the sizes of the other programs, for this session's
 * device and dtype.  A key that the configuration sets takes precedence over `choices`, which take precedence over the
 * default. */
void session_train_options(const struct session *session, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out);

/* Creates the model and its plan; for a training session, the fastest plan that fits the budget.  Errors: GT_USAGE,
 * GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (logged with the bytes that are short). */
enum gt_status session_plan(struct session *session, const struct model_options *options);
/* As above, but does not log a search without a plan that fits. */
enum gt_status session_plan_make(struct session *session, const struct model_options *options);
/* Plans a session that only evaluates (and samples), with an evaluation batch as large as the budget allows.  If not
 * even one sequence fits, makes the loss chunks smaller.  Never changes a key that the user set. */
enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options);

/* Return the memory_budget that an arena of `arena_bytes` on each rank needs, and the part of it reserved for each
 * process itself: SESSION_HEADROOM_BYTES and its share of what ranks exchange; 0 if the device has its own memory. */
uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes);
uint64_t session_headroom_bytes(const struct session *session);
/* Returns how many ranks share the device's memory: all of the machine if it is the host's. */
uint64_t session_sharers(const struct session *session);
/* Returns the part of the budget that the arena of each rank may take. */
uint64_t session_arena_budget(const struct session *session);
/* Returns GT_OK when the plan fits the budget; otherwise GT_NO_FIT, logged. */
enum gt_status session_fits(const struct session *session);

/* ---- the rates with which times are modelled ---- */

/* Returns the rates with which the search compares candidates: the profile's, or those of a nominal cpu.  They never
 * depend on timings, so two fresh runs of a configuration get the same plan. */
struct plan_rates session_rates_nominal(const struct session *session);
/* Sets the rates of a session whose device is a profile, and logs what they rest on. */
void session_rates_profile(struct session *session);

/* Sets rates before session_start(): those of an earlier run, or a guess from the number of threads.  Returns false for
 * a card that no run has timed: the guess from threads means nothing for it. */
bool session_rates_guess(struct session *session);
/* Times the device's ops in the arena, whose content is lost, unless the cache has their times.  Takes a second or
 * two, or up to four if other programs disturb it.  Call it between session_start() and the first upload.
 * Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status session_rates_calibrate(struct session *session);
/* Corrects timed rates, here and in the cache, if a step takes at most half of its modelled seconds, or at least twice
 * as many. */
void session_rates_correct(struct session *session, double modelled, double measured);

/* Measures the device's matrix rates (in 20 to 60 ms for each dtype on a cpu, 50 to 150 ms on a card).  Before
 * session_start() it takes a small arena of its own; after that, session_start() must not be called.  After
 * session_start() it uses the session's arena, whose content is lost.  The rates stay unknown if the arena is too small
 * even for a small product. */
enum gt_status session_peak_measure(struct session *session);

/* ---- answers that need neither a device nor a file (plan_answer.c, explain.c) ---- */

typedef enum gt_status plan_print_fn(const struct session *session, const struct plan_report_facts *facts, FILE *out);

/* Passes the plan of a session to `print`, with the configuration, the forecast, choices if the plan does not fit, and
 * the front of memory against time if config->plan shows it.  Call it after session_plan() and before session_start().
 * Errors: GT_NO_MEMORY, and those of print(). */
enum gt_status plan_answer(struct session *session, const struct forecast *forecast, plan_print_fn *print, FILE *out);

/* Prints what the numbers of the message in text[count] mean for this configuration; `name` names the text in log
 * lines.  Then sets the keys that the user left open: the budget becomes the memory that was available according to the
 * message, the device profile that of `card`, and the dtype nanoGPT's default.  If card->memory_bytes is 0, it becomes
 * a card of the message's size.  The caller answers with a plan under these assumptions.
 * Errors: GT_DATA for a text without such a message. */
enum gt_status explain_oom_text(const char *name, const char *text, size_t count, struct config *config,
                                const struct model_config *model, struct device_profile *card);

#endif
