/* A session: a model, its plan, a device and the executor, from a configuration.
 *
 * gpt-train and gpt-sample both open one.  session_open() opens the device, session_plan() plans without asking it for
 * memory, session_start() takes the arena.  Between the last two a plan or a program can be printed.
 */
#ifndef GPT_TRAIN_TRAIN_SESSION_H
#define GPT_TRAIN_TRAIN_SESSION_H

#include <stdint.h>
#include <stdio.h>

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_search.h"

/* Rows of the staging buffer through which weights move, in floats: 4 MiB. */
#define SESSION_STAGING_FLOATS ((int64_t)1 << 20)
/* Longest run of the prefill program, in tokens. */
#define SESSION_PREFILL_TIME_MAX 64
/* What the process may hold beside the arena and the backend's own: code, stacks, the C library, BLAS buffers, the staging
 * buffer and the host's tables.  Measured: 12 to 20 MiB from 0.8M to 124M parameters. */
#define SESSION_HEADROOM_BYTES ((uint64_t)64 << 20)

struct session {
    struct hostmem *mem;
    const struct config *config;
    struct model *model;
    struct backend *device; /* the counting wrapper around the backend */
    struct backend_info info;
    enum dtype dtype; /* storage of weights and activations: the configuration's, or the nearest that the device has */
    struct plan *plan;
    struct exec *exec;                       /* NULL before session_start() */
    float *staging;                          /* [SESSION_STAGING_FLOATS] */
    union scalar_word scalars[SCALAR_WORDS]; /* the host's copy of the device block */
    bool has_profile;                        /* the device is only planned for */
    struct device_profile profile;           /* then: what is known of it */
    struct plan_rates rates; /* that times are modelled with, after session_peak_measure() or a calibration */
    bool rates_timed;        /* they come from timing every kind of op */
    bool rates_recalled;     /* the cache was asked for them */
    double peak_flops;       /* the device's measured rate of products in `dtype`, FLOP/s; 0: not known */
    uint64_t budget_bytes;   /* what the process may take: memory_budget, or what was free at the start less a margin */
    struct search_memo memo; /* what searches of one configuration share */
    struct search_request request; /* what a training session's plan was searched for */
    struct search_result search;   /* how it was found */
};

/* The shape of the model that the configuration asks for; `vocab_size` where the configuration leaves it open. */
void session_model_config(const struct config *config, int64_t vocab_size, struct model_config *out);
/* What a checkpoint says of how the run goes on; a field of the plan that is 0 is not chosen yet. */
struct session_choices {
    struct plan_choice plan;
    bool states_chosen; /* a checkpoint's states are in this format */
    enum state_format states;
};

/* The format that the configuration names; not for auto. */
enum state_format session_state_format(const struct config *config);

/* Opens the device that the configuration names, finds the budget and the dtype.  On failure there is nothing to close.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out);

/* How the samples of an update are cut into micro-steps, and the sizes of the other programs, on this session's device
 * and in its dtype.  A key that the configuration sets wins over `choices`, which win over the default. */
void session_train_options(const struct session *session, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out);

/* Makes the model and its plan; of a training session, the fastest plan that fits the budget.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_NO_MEMORY, GT_NO_FIT (logged with the bytes that are short). */
enum gt_status session_plan(struct session *session, const struct model_options *options);
/* The same for a session that only evaluates (and samples): its batch is made to fit. */
enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options);
/* How plans of this session's device are made, and what the arena may take of the budget. */
void session_plan_options(const struct session *session, struct plan_options *out);
uint64_t session_arena_budget(const struct session *session);
/* The memory_budget that an arena of so many bytes needs. */
uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes);
/* Whether the plan fits the budget; else GT_NO_FIT, logged. */
enum gt_status session_fits(const struct session *session);
/* Takes the arena.  Where less is free on the device than when the plan of a training session was made, and less than it
 * needs, plans once more for what is left: session->model and plan are then new ones, of the same samples and
 * mathematics.  Errors: GT_NO_MEMORY, GT_NO_FIT, GT_DEVICE. */
enum gt_status session_start(struct session *session);
void session_close(struct session *session);

/* Measures the device's matrix rate (in 20 to 60 ms).  Before session_start() it takes a small arena for that, after
 * which session_start() is no longer possible; after it, it uses the arena, whose content is lost.  The rate of an arena that
 * holds not even a small product is not known. */
enum gt_status session_peak_measure(struct session *session);

/* Host's copy of the scalars to the device and back. */
enum gt_status session_scalars_upload(struct session *session);
enum gt_status session_scalars_download(struct session *session);
/* Of the host's copy only what the host decides; what the update computes stays as the device has it, which may be ahead. */
enum gt_status session_scalars_set(struct session *session);

/* What is left of the budget for the process itself: SESSION_HEADROOM_BYTES, nothing where the device has its own memory. */
uint64_t session_headroom_bytes(const struct session *session);

/* Initial weights: a pure function of the seed.  Moments become zero. */
enum gt_status session_weights_init(struct session *session, uint64_t seed);
/* Makes the 16-bit weights that the ops read from their masters, after those were given values. */
enum gt_status session_weights_refresh(struct session *session);
/* m, v and scales of a parameter, those that it has, become zero. */
enum gt_status session_moments_zero(struct session *session, const struct parameter *parameter);
/* The table of Adam's bias corrections. */
enum gt_status session_corrections_upload(struct session *session);

#endif
