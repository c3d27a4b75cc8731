/* A session: a model, its plan, a device and the executor, created from a configuration.
 *
 * gpt-train and gpt-sample both open one.  First session_open() opens the device (session_device.h), then
 * session_plan() makes the plan without allocating device memory (session_plan.h), then session_start() takes the
 * arena.  A plan or a program can be printed between the last two.
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

/* Size of the staging buffer through which weights move, in floats: 4 MiB. */
#define SESSION_STAGING_FLOATS ((int64_t)1 << 20)
/* Maximum length of the prefill program, in tokens. */
#define SESSION_PREFILL_TIME_MAX 64
/* Memory that the process may use besides the arena and the backend's own: code, stacks, the C library, BLAS buffers,
 * the staging buffer and the host's tables.  Measured: 12 to 20 MiB from 0.8M to 124M parameters. */
#define SESSION_HEADROOM_BYTES ((uint64_t)64 << 20)

/* The rates for modelling times; see session_rates.h. */
struct session_timing {
    struct plan_rates rates;
    bool is_timed;     /* `rates` come from timing every kind of op */
    bool is_recalled;  /* the cache has been searched */
    double peak_flops; /* measured rate of products in the session's dtype, FLOP/s; 0 = unknown */
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
    struct session_device device;
    struct session_timing timing;
    struct session_search search;
    struct model *model;
    struct plan *plan;
    struct exec *exec;                       /* NULL before session_start() */
    float *staging;                          /* [SESSION_STAGING_FLOATS] */
    union scalar_word scalars[SCALAR_WORDS]; /* the host's copy of the device block */
};

/* Opens the device that the configuration names, and sets the budget and the dtype.  On failure there is nothing to
 * close.  Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out);

/* Takes the arena.  If the device now has less free memory than when the plan of a training session was made, and less
 * than the plan needs, plans again for what is left.  The session then has a new model and plan, with the same samples
 * and mathematics.  Errors: GT_NO_MEMORY, GT_NO_FIT, GT_DEVICE. */
enum gt_status session_start(struct session *session);
void session_close(struct session *session);

/* Copy the host's scalars to the device, and back. */
enum gt_status session_scalars_upload(struct session *session);
enum gt_status session_scalars_download(struct session *session);
/* Uploads only the scalars that the host decides.  The ones that the update computes stay as they are on the device,
 * which may be ahead. */
enum gt_status session_scalars_set(struct session *session);

/* Sets the initial weights, a pure function of the seed, and zeroes the moments. */
enum gt_status session_weights_init(struct session *session, uint64_t seed);
/* Recomputes the 16-bit weights that the ops read from their masters.  To be called after the masters were set. */
enum gt_status session_weights_refresh(struct session *session);
/* Zeroes m, v and scales of a parameter, as far as it has them. */
enum gt_status session_moments_zero(struct session *session, const struct parameter *parameter);
/* Uploads the table of Adam's bias corrections. */
enum gt_status session_corrections_upload(struct session *session);

#endif
