/* A session: a model, its plan, a device and the executor, from a configuration.
 *
 * gpt-train and gpt-sample both open one.  session_open() opens the device (session_device.h), session_plan() plans without asking it
 * for memory (session_plan.h), session_start() takes the arena.  Between the last two a plan or a program can be printed.
 */
#ifndef GPT_TRAIN_TRAIN_SESSION_H
#define GPT_TRAIN_TRAIN_SESSION_H

#include <stdint.h>
#include <stdio.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/plan_search.h"
#include "train/session_device.h"

/* Rows of the staging buffer through which weights move, in floats: 4 MiB. */
#define SESSION_STAGING_FLOATS ((int64_t)1 << 20)
/* Longest run of the prefill program, in tokens. */
#define SESSION_PREFILL_TIME_MAX 64
/* What the process may hold beside the arena and the backend's own: code, stacks, the C library, BLAS buffers, the staging
 * buffer and the host's tables.  Measured: 12 to 20 MiB from 0.8M to 124M parameters. */
#define SESSION_HEADROOM_BYTES ((uint64_t)64 << 20)

/* What times are modelled with; see session_rates.h. */
struct session_timing {
    struct plan_rates rates;
    bool is_timed;     /* `rates` come from timing every kind of op */
    bool is_recalled;  /* the cache was asked for them */
    double peak_flops; /* the device's measured rate of products in the session's dtype, FLOP/s; 0: not known */
};

/* How the plan of a training session was found. */
struct session_search {
    struct search_memo memo; /* what searches of one configuration share */
    struct search_request request;
    struct search_result result;
};

struct session {
    struct hostmem *mem;
    const struct config *config;
    struct session_device device;
    struct session_timing timing;
    struct session_search search;
    struct model *model;
    struct plan *plan;
    struct exec *exec;                       /* NULL before session_start() */
    float *staging;                          /* [SESSION_STAGING_FLOATS] */
    union scalar_word scalars[SCALAR_WORDS]; /* the host's copy of the device block */
};

/* Opens the device that the configuration names, finds the budget and the dtype.  On failure there is nothing to close.
 * Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out);

/* Takes the arena.  Where less is free on the device than when the plan of a training session was made, and less than it
 * needs, plans once more for what is left: session->model and plan are then new ones, of the same samples and
 * mathematics.  Errors: GT_NO_MEMORY, GT_NO_FIT, GT_DEVICE. */
enum gt_status session_start(struct session *session);
void session_close(struct session *session);

/* Host's copy of the scalars to the device and back. */
enum gt_status session_scalars_upload(struct session *session);
enum gt_status session_scalars_download(struct session *session);
/* Of the host's copy only what the host decides; what the update computes stays as the device has it, which may be ahead. */
enum gt_status session_scalars_set(struct session *session);

/* Initial weights: a pure function of the seed.  Moments become zero. */
enum gt_status session_weights_init(struct session *session, uint64_t seed);
/* Makes the 16-bit weights that the ops read from their masters, after those were given values. */
enum gt_status session_weights_refresh(struct session *session);
/* m, v and scales of a parameter, those that it has, become zero. */
enum gt_status session_moments_zero(struct session *session, const struct parameter *parameter);
/* The table of Adam's bias corrections. */
enum gt_status session_corrections_upload(struct session *session);

#endif
