/* A session: a model, its plan, a device and the executor, created from a configuration.
 *
 * gpt-train and gpt-sample both open one: session_open() opens the device, or
 * session_open_profile() (session_device.c) one that only a profile describes.  session_plan()
 * (session_start.c) makes the plan without allocating device memory, then session_start() allocates
 * the arena.  A plan or a program can be printed between the last two. session_budget.c says what
 * fits, session_plan.c makes the plan, session_rates.c has the rates with which its times are
 * modelled.
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
/* Memory that the process may use besides the arena and the backend's memory: code, stacks, the C
 * library, BLAS buffers, the staging buffer and the host's tables.  Measured: 12 to 20 MiB from
 * 0.8M to 124M parameters. */
#define SESSION_HEADROOM_BYTES ((uint64_t)64 << 20)

struct session_device {
    struct backend *backend;
    struct backend_record record; /* of the calls to the backend */
    struct backend_info info;
    int32_t sharers;  /* ranks that use the device, this one among them; 0: it is a profile */
    enum dtype dtype; /* of weights and activations: as configured, or the nearest that the device
                         supports */
    bool has_profile; /* only a profile exists: a session can plan for the device, not use it */
    struct device_profile profile; /* valid with has_profile */
    bool has_budget;               /* memory_budget gives the budget */
    /* What all ranks that share the device's memory may use: memory_budget, or the free memory at
     * the start less a margin.  session_share() divides it. */
    uint64_t machine_budget_bytes;
    uint64_t host_share_bytes; /* what the arena of this rank in host memory may use */
};

/* The rates for modelling times. */
struct session_timing {
    struct plan_rates rates;
    bool is_timed;     /* `rates` come from timings of every kind of op */
    bool is_recalled;  /* this session has looked for rates in the cache */
    bool is_tiny;      /* too small a model to be timed: its ops take longer to start than to run */
    double ranks_rate; /* bytes/s each way with the slowest peer, as measured; 0 = unknown */
    double peak_flops; /* best known rate of this device, FLOP/s: of timed products, or of a step; 0
                          = unknown */
};

/* The search for the plan of a training session. */
struct session_search {
    struct search_memo memo; /* shared by the searches of one configuration */
    struct search_request request;
    struct search_result result;
};

/* The choices that a checkpoint stores.  A 0 in a field of `plan` means that no run has chosen it
 * yet. */
struct session_saved {
    struct plan_choice plan;
    bool states_chosen; /* the checkpoint's states have the format `states` */
    enum state_format states;
};

struct session {
    struct hostmem *mem;
    const struct config *config;
    struct dist *dist; /* the other ranks, or NULL */
    struct session_device device;
    struct session_timing timing;
    struct session_search search;
    struct plan_choice agreed; /* the sizes that ranks agreed on, if micro_batch is not 0: they
                                  override the keys */
    struct model *model;
    struct plan *plan;
    struct exec *exec;        /* NULL before session_start() */
    float *staging;           /* [SESSION_STAGING_FLOATS] */
    char base[FILE_PATH_MAX]; /* the model that the adapters, if there are any, are made for */
    uint32_t base_crc32c;     /* the checksum of that model */
    union scalar_word scalars[SCALAR_WORDS]; /* the host's copy of the device block */
};

/* Releases what the functions below and those of the other files have made; any of it may be
 * missing. */
void session_close(struct session *session);
/* Releases model and plan, before another plan is made. */
void session_plan_release(struct session *session);

/* Copy the host's scalars to the device, and back. */
enum gt_status session_scalars_upload(struct session *session);
enum gt_status session_scalars_download(struct session *session);
/* Uploads only the scalars that the host decides.  Leaves the ones that the update computes as they
 * are on the device, because the device may have run more updates than the host has read. */
enum gt_status session_scalars_set(struct session *session);

#endif
