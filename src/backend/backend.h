/* The backend interface: memory, copies and op lists on one device.
 *
 * src/ names no vendor; a backend is one `const struct backend_ops` in backends/NAME/, and the way to any kernel is
 * trainer -> exec -> backend_ops.run -> op_impl.run -> the file named after the op.  The arena is the only allocation:
 * it is asked for once, committed (touched) before step 1 and given back at the end.
 */
#ifndef GPT_TRAIN_BACKEND_BACKEND_H
#define GPT_TRAIN_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "ops/op.h"

#define BACKEND_SEGMENTS_MAX 16
#define BACKEND_TEXT_MAX 128
#define BACKEND_REASON_MAX 256

/* A backend's own struct starts with this. */
struct backend {
    const struct backend_ops *ops;
};

/* What a backend finds to open. */
struct backend_devices {
    int32_t count;                   /* open() may be asked for the indices 0 .. count - 1 */
    int32_t first;                   /* the one that --backend=auto takes; -1: none, and `reason` says why */
    char reason[BACKEND_REASON_MAX]; /* one line: "no NVIDIA driver is loaded (CUDA 13.0 needs 580 or newer)" */
};

struct backend_open_options {
    int32_t device;   /* index of the device within the backend */
    const char *name; /* or a part of its name, in any case; NULL: by index */
    int32_t threads;  /* CPU: worker threads; 0 = all that this process may use */
    bool tf32;        /* CUDA: products of fp32 may round their operands to TF32's 10 bits of fraction */
    bool no_graphs;   /* CUDA: launch each kernel by itself instead of replaying a bound program as one graph */
    bool tune;        /* OpenCL, CUDA: time the kernels of products, and keep the fastest for later runs */
};

struct backend_info {
    char device[BACKEND_TEXT_MAX]; /* "AMD EPYC 7B13, 2 threads, AVX2" */
    char detail[BACKEND_TEXT_MAX]; /* libraries and versions: "OpenBLAS 0.3.21, 2 OpenMP threads" */
    char limits[BACKEND_TEXT_MAX]; /* what it lacks: "no bfloat16"; may be empty */
    uint64_t total_bytes;          /* memory of the device */
    uint64_t free_bytes;           /* what could be had now */
    uint64_t context_bytes;        /* what the backend itself holds beside the arena */
    uint64_t largest_allocation_bytes;
    uint32_t alignment_bytes; /* every tensor starts at a multiple of this */
    uint32_t dtypes;          /* bit per enum dtype that ops may use for storage */
    int32_t threads;
    bool host_memory; /* the device's memory is the host's: what the process holds beside the arena counts too */
};

/* Other processes that hold memory of the device, as far as this process may see: those with most, largest first. */
#define BACKEND_HOLDERS_MAX 4
#define BACKEND_HOLDER_NAME_MAX 32
struct backend_holder {
    char name[BACKEND_HOLDER_NAME_MAX]; /* of the program; control characters replaced */
    int64_t pid;
    uint64_t bytes;
};

struct backend_holders {
    struct backend_holder list[BACKEND_HOLDERS_MAX];
    int32_t count;
};

/* Keeps the largest ones, largest first, each process once; without a name as yet. */
void backend_holders_insert(struct backend_holders *holders, int64_t pid, uint64_t bytes);
/* A process chooses its own name, so that it may hold anything: cut, and control characters replaced; "?" for "". */
void backend_holder_name(struct backend_holder *holder, const char *name);
/* Names them by PROC/PID/comm ("/proc"). */
void backend_holders_name(struct backend_holders *holders, const char *proc);
/* "firefox (4711) 2.10 GiB, make (12) 3.1 MiB" into `text`; empty without holders.  Returns `text`. */
#define BACKEND_HOLDERS_TEXT_MAX 320
char *backend_holders_text(char text[static BACKEND_HOLDERS_TEXT_MAX], const struct backend_holders *holders);
/* The same of those that the backend finds now, which means a look at every process of the machine; and "not known" for none. */
char *backend_holders_read(char text[static BACKEND_HOLDERS_TEXT_MAX], struct backend *backend);
const char *backend_holders_known(char text[static BACKEND_HOLDERS_TEXT_MAX], struct backend *backend);

/* Which of several algorithms, of other last bits, a call has: identities that only the backend understands.  None is 0.
 * For tests: a choice of call 0 asks for the algorithm of that number for all calls that have so many, where a backend
 * numbers them. */
struct backend_choice {
    uint64_t call, algorithm;
};

/* What a call was found to take when algorithms were timed, with what it has to do; transposes are those of products. */
struct backend_timing {
    enum op_kind kind;
    enum dtype dtype;
    bool transpose_a, transpose_b;
    double flops, bytes, seconds;
};

struct backend_segment {
    enum memory_space space;
    uint64_t size_bytes;
};

/* One backend's implementation of one op: an entry of the table [OP_KIND_COUNT] that the backend keeps for itself.
 * supports() and workspace_bytes() are pure.  run() is only called with operands that supports() accepted. */
struct op_impl {
    /* NULL: all that the op's shape rule accepts. */
    bool (*supports)(const struct backend *backend, const struct op_call *call);
    /* NULL: none. */
    size_t (*workspace_bytes)(const struct backend *backend, const struct op_call *call);
    enum gt_status (*run)(struct backend *backend, int32_t queue, const struct op_call *call);
};

static inline bool op_impl_supports(const struct op_impl *impl, const struct backend *backend,
                                    const struct op_call *call)
{
    return impl->supports == NULL || impl->supports(backend, call);
}

static inline size_t op_impl_workspace_bytes(const struct op_impl *impl, const struct backend *backend,
                                             const struct op_call *call)
{
    return impl->workspace_bytes == NULL ? 0 : impl->workspace_bytes(backend, call);
}

struct backend_ops {
    const char *name; /* "cpu" */
    /* Looks, opens nothing, logs nothing.  `automatic`: asked for --backend=auto, which wants `first` only, and quickly; the
     * reason is then empty where having no device is the usual case. */
    void (*devices)(bool automatic, struct backend_devices *out);
    enum gt_status (*open)(const struct backend_open_options *options,
                           struct backend **out); /* GT_DEVICE, GT_NO_MEMORY */
    void (*close)(struct backend *backend);       /* accepts NULL */
    enum gt_status (*info)(struct backend *backend, struct backend_info *out);
    void (*holders)(struct backend *backend, struct backend_holders *out); /* `out` comes empty; NULL: not known */
    /* Allocates and commits all segments at once; a second call is an error.  Errors, with numbers: GT_NO_MEMORY; GT_NO_FIT
     * where others have taken what was free. */
    enum gt_status (*arena)(struct backend *backend, const struct backend_segment *segments, int32_t count);
    /* What an earlier run of this configuration chose, to be chosen again where it is still to be had; before bind().  And
     * what has been chosen, valid until the next call.  Both NULL: there is never a choice. */
    enum gt_status (*choose)(struct backend *backend, const struct backend_choice *choices, size_t count);
    const struct backend_choice *(*choices)(struct backend *backend, size_t *count);
    /* All that this device's calls were found to take, now and in earlier runs, valid as long as choices; NULL: never timed. */
    const struct backend_timing *(*timings)(struct backend *backend, size_t *count);
    /* Prepares what run() will need for these calls, so that it allocates and looks up nothing; NULL: nothing to prepare.
     * Called for every program after arena(), before the first run(); a call that was not announced may still be run.  The
     * calls stay where and what they are while they are run. */
    enum gt_status (*bind)(struct backend *backend, const struct op_call *calls, size_t count);
    /* Host memory to the device and back, in order on a queue; both return when the host memory may be reused. */
    enum gt_status (*upload)(struct backend *backend, int32_t queue, struct address to, const void *from, size_t bytes);
    enum gt_status (*download)(struct backend *backend, int32_t queue, void *to, struct address from, size_t bytes);
    /* The same, in order too, but waits for nothing: `to` is written by the end of the next sync() of the queue, and stays
     * the caller's until then.  NULL where run() has ended when it returns, so that nothing is gained. */
    enum gt_status (*download_later)(struct backend *backend, int32_t queue, void *to, struct address from,
                                     size_t bytes);
    /* Runs `count` calls in order on a queue. */
    enum gt_status (*run)(struct backend *backend, int32_t queue, const struct op_call *calls, size_t count);
    enum gt_status (*sync)(struct backend *backend, int32_t queue); /* waits until the queue is empty */
    /* Whether run() can compute the call, and how many bytes of workspace it needs for that.  Both are pure. */
    bool (*supports)(const struct backend *backend, const struct op_call *call);
    size_t (*workspace_bytes)(const struct backend *backend, const struct op_call *call);
};

/* Measures the rate of matrix products in a storage dtype, for MFU, FLOP/s, in about `seconds`; of fp32 where the device does
 * not multiply the dtype.  Needs the arena, which it overwrites from `scratch` for at most `scratch_bytes`.  Errors: GT_NO_FIT
 * (not logged) when not even a small product fits, and those of run(). */
enum gt_status backend_peak_flops(struct backend *backend, enum dtype dtype, struct address scratch,
                                  size_t scratch_bytes, double seconds, double *out);

/* The backends of this build, in the order that --backend=auto tries them; NULL at the end. */
const struct backend_ops *const *backend_registry(void);
/* By name; NULL when this build has none of that name. */
const struct backend_ops *backend_find(const char *name);

/* Counting and fault injection: wraps an open backend; closing the wrapper closes the inner one. */
struct backend_counters {
    uint64_t arena_calls, arena_bytes; /* bytes asked of the device */
    uint64_t upload_calls, upload_bytes;
    uint64_t download_calls, download_bytes;
    uint64_t run_calls, ops;
    uint64_t sync_calls;
};

enum backend_call {
    BACKEND_CALL_INFO,
    BACKEND_CALL_ARENA,
    BACKEND_CALL_UPLOAD,
    BACKEND_CALL_DOWNLOAD,
    BACKEND_CALL_RUN,
    BACKEND_CALL_SYNC,
    BACKEND_CALL_BIND,
    BACKEND_CALL_CHOOSE,
    BACKEND_CALL_CLOSE, /* from here on calls that have no status */
    BACKEND_CALL_HOLDERS,
    BACKEND_CALL_CHOICES,
    BACKEND_CALL_TIMINGS,
    BACKEND_CALL_COUNT
};

/* Errors: GT_NO_MEMORY (the inner backend is not closed then). */
enum gt_status backend_wrap(struct backend *inner, struct backend **out);
void backend_wrap_counters(const struct backend *wrapper, struct backend_counters *out);
/* From now on info() says that at most so many bytes are free, as if another program had taken the rest; 0 ends it. */
void backend_wrap_free_limit(struct backend *wrapper, uint64_t free_bytes);
/* The n-th call of that kind from now (1 = the next) fails with `status`, without reaching the inner backend; not those
 * that have no status. */
void backend_wrap_fail_at(struct backend *wrapper, enum backend_call call, uint64_t n, enum gt_status status);

/* A call that has not returned. */
struct backend_waiting {
    const char *call; /* "sync" */
    const char *op;   /* the one op that run() was given, or that sync() follows; NULL: none, or several */
    uint64_t number;  /* of the call; no two calls have the same */
};
/* What the wrapper waits for, seen from any thread; false when for nothing. */
bool backend_wrap_waiting(const struct backend *wrapper, struct backend_waiting *out);
/* For who watches while the wrapper is closed: what it waits for can be read until backend_wrap_drop(), after its close too. */
void backend_wrap_hold(struct backend *wrapper);
void backend_wrap_drop(struct backend *wrapper);

#endif
