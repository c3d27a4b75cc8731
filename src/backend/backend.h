/* The backend interface: memory, copies and op lists on one device.
 *
 * src/ names no vendor; a backend is one `const struct backend_ops` in backends/NAME/.  The path to
 * any kernel is trainer -> exec -> backend_ops.run -> the op's run(), in the file of its family.
 * The arena is the only allocation: it is allocated once, committed (touched) before step 1 and
 * released at the end.
 */
#ifndef GPT_TRAIN_BACKEND_BACKEND_H
#define GPT_TRAIN_BACKEND_BACKEND_H

#include "base/dtype.h"
#include "base/module.h"
#include "ops/op.h"

/* Of both memories together: enough for 256 GiB where a device allows 2 GiB per allocation, as
 * OpenCL does on a card of 8 GB. */
#define BACKEND_SEGMENTS_MAX 128
#define BACKEND_TEXT_MAX 128
#define BACKEND_REASON_MAX 256

/* The first member of each backend's own struct. */
struct backend {
    const struct backend_ops *ops;
    struct backend_record *record; /* of the calls; see backend_call.h; NULL: nobody reads it */
};

/* The devices that a backend found. */
struct backend_devices {
    int32_t count; /* open() accepts the indices 0 .. count - 1 */
    int32_t first; /* the one that --backend=auto uses; -1: none, and `reason` says why */
    char reason[BACKEND_REASON_MAX]; /* one line: "no driver is loaded (version 580 or newer is
                                        needed)" */
};

struct backend_open_options {
    int32_t device;   /* index of the device within the backend */
    const char *name; /* part of the device's name, case-insensitive; NULL: use the index */
    /* A backend ignores the options below that do not apply to it. */
    int32_t threads; /* worker threads; 0 = all processors that this process may use */
    bool tf32;       /* fp32 products may round their operands to TF32's 10 fraction bits */
    bool half_sums; /* fp16 products may have fp16 sums on a card that is known to gain from them */
    bool half_sums_anywhere; /* on other cards too; a note says where they have no effect */
    /* Launch kernels one by one instead of replaying a bound program as one graph. */
    bool no_graphs;
    bool tune; /* time the kernels of products, and keep the fastest for later runs */
};

struct backend_info {
    char device[BACKEND_TEXT_MAX]; /* "AMD EPYC 7B13, 2 threads, AVX2" */
    char detail[BACKEND_TEXT_MAX]; /* libraries and versions: "OpenBLAS 0.3.21, 2 OpenMP threads" */
    char limits[BACKEND_TEXT_MAX]; /* missing features: "no bfloat16"; may be empty */
    uint64_t total_bytes;          /* memory of the device */
    uint64_t free_bytes;           /* currently available */
    uint64_t context_bytes;        /* used by the backend itself, outside the arena */
    uint64_t largest_allocation_bytes;
    uint32_t alignment_bytes; /* every tensor starts at a multiple of this */
    uint32_t dtypes;          /* bit per enum dtype that ops may use for storage */
    int32_t threads;
    int32_t copy_engines; /* copies during computing: 2 = each way, 1 = one at a time, 0 = none */
    bool host_memory; /* device memory is host memory: the process's other allocations count too */
};

/* The processes that use most of the device's memory, largest first, as far as this process may see
 * them. */
#define BACKEND_HOLDERS_MAX 4
#define BACKEND_HOLDER_NAME_MAX 32
struct backend_holder {
    char name[BACKEND_HOLDER_NAME_MAX]; /* of the program; unprintable characters replaced */
    int64_t pid;
    uint64_t bytes;
};

struct backend_holders {
    struct backend_holder list[BACKEND_HOLDERS_MAX];
    int32_t count;
};

/* The algorithm that a backend chose for a call, where several give results that differ in the last
 * bits.  Both numbers are nonzero identities that only the backend understands.  For tests: with
 * call 0, `algorithm` is a number instead, and selects that algorithm for every call that has as
 * many, in backends that number them. */
struct backend_algorithm {
    uint64_t call, algorithm;
};

/* A measured time of a call from the timing of algorithms, and its work; the transposes are those
 * of products, 0 or 1. It is stored byte by byte and has no padding. */
struct backend_timing {
    enum op_kind kind;
    enum dtype dtype;
    int32_t transpose_a, transpose_b;
    double flops, bytes, seconds;
};

/* Bytes to one rank and from another, at once. */
struct backend_pass {
    int32_t to, from;
    const void *out;
    void *in;
    size_t sent, received;
};

struct dist;

struct backend_segment {
    enum memory_space space;
    uint64_t size_bytes;
};

/* One backend's implementation of one op: an entry in the backend's private table [OP_KIND_COUNT].
 * supports() and workspace_bytes() are pure.  run() is only called with operands that supports()
 * accepted. */
struct op_impl {
    /* NULL: everything that the op's shape rule accepts. */
    bool (*supports)(const struct backend *backend, const struct op_call *call);
    /* NULL: none. */
    size_t (*workspace_bytes)(const struct backend *backend, const struct op_call *call);
    enum gt_status (*run)(struct backend *backend,
                          const struct op_call *call); /* NULL: not supported */
};

static inline bool op_impl_supports(const struct op_impl *impl, const struct backend *backend,
                                    const struct op_call *call)
{
    return impl->run != NULL && (impl->supports == NULL || impl->supports(backend, call));
}

static inline size_t op_impl_workspace_bytes(const struct op_impl *impl,
                                             const struct backend *backend,
                                             const struct op_call *call)
{
    return impl->workspace_bytes == NULL ? 0 : impl->workspace_bytes(backend, call);
}

struct backend_ops {
    const char *name; /* "cpu" */
    /* Lists the devices without opening any, and logs nothing.  `automatic` is set for
     * --backend=auto, which needs only `first`, and quickly; the reason is then empty in backends
     * that usually find no device. */
    void (*devices)(bool automatic, struct backend_devices *out);
    enum gt_status (*open)(const struct backend_open_options *options,
                           struct backend **out); /* GT_DEVICE, GT_NO_MEMORY */
    void (*close)(struct backend *backend);       /* accepts NULL */
    enum gt_status (*info)(struct backend *backend, struct backend_info *out);
    void (*holders)(struct backend *backend,
                    struct backend_holders *out); /* `out` starts empty; NULL: unknown */
    /* Makes exchange ops move bytes directly between the ranks' devices, if these can.  Otherwise
     * logs why not, and supports() refuses such ops.  All ranks call it, before arena().  Errors:
     * GT_DEVICE; GT_USAGE where the ranks' libraries differ.  NULL: the program moves the bytes
     * through host memory. */
    enum gt_status (*join)(struct backend *backend, struct dist *dist);
    /* If ranks are joined, passes bytes of the host from device to device, as a proof, and times
     * it. */
    enum gt_status (*pass)(struct backend *backend, const struct backend_pass *pass,
                           double *seconds);
    /* Allocates and commits all segments at once; a second call is an error.  Errors, with numbers:
     * GT_NO_MEMORY; GT_NO_FIT when other processes have taken the free memory meanwhile. */
    enum gt_status (*arena)(struct backend *backend, const struct backend_segment *segments,
                            int32_t count);
    /* choose() requests an earlier run's algorithms, which are used where they are still available;
     * call it before bind().  algorithms() returns the algorithms so far, valid until the next
     * call.  Both NULL: there is never a choice. */
    enum gt_status (*choose)(struct backend *backend, const struct backend_algorithm *algorithms,
                             size_t count);
    const struct backend_algorithm *(*algorithms)(struct backend *backend, size_t *count);
    /* Returns the times measured on this device, also by earlier runs; valid as long as
     * algorithms(). NULL: no timing. */
    const struct backend_timing *(*timings)(struct backend *backend, size_t *count);
    /* Prepares these calls, so that run() neither allocates nor looks anything up; NULL: nothing to
     * prepare.  Called for every program after arena(), before the first run().  Calls that were
     * never bound may still be run.  The caller must not move or change bound calls while they are
     * in use. */
    enum gt_status (*bind)(struct backend *backend, const struct op_call *calls, size_t count);
    /* Copy host memory to the device and back, in the order of calls.  Both return when the host
     * memory may be reused. */
    enum gt_status (*upload)(struct backend *backend, struct address to, const void *from,
                             size_t bytes);
    enum gt_status (*download)(struct backend *backend, void *to, struct address from,
                               size_t bytes);
    /* Returns the host's address of `bytes` bytes of device memory; NULL in backends where the host
     * has none. */
    void *(*memory)(struct backend *backend, struct address at, size_t bytes);
    /* As download(), but does not wait: `to` is written by the end of the next sync(), and must
     * stay valid until then.  NULL in backends whose run() is synchronous, where it would gain
     * nothing. */
    enum gt_status (*download_later)(struct backend *backend, void *to, struct address from,
                                     size_t bytes);
    /* Runs `count` calls in order. */
    enum gt_status (*run)(struct backend *backend, const struct op_call *calls, size_t count);
    enum gt_status (*sync)(struct backend *backend); /* waits until all calls have ended */
    /* As run() and sync(), and sets seconds[i] to the device's time of call i, without a wait
     * between calls; if `whole`, seconds[0] to that of all calls as run() starts them.  NULL: the
     * caller waits after each call. */
    enum gt_status (*run_timed)(struct backend *backend, const struct op_call *calls, size_t count,
                                bool whole, double *seconds);
    /* Whether run() supports the call, and the bytes of workspace that it needs.  Both are pure. */
    bool (*supports)(const struct backend *backend, const struct op_call *call);
    size_t (*workspace_bytes)(const struct backend *backend, const struct op_call *call);
};

/* A backend as a module: gpt-train-cuda.so.  It calls those functions of the program that
 * module_symbols.list names. */
struct backend_module {
    struct module_head head; /* `abi` is BACKEND_MODULE_ABI when the object was compiled */
    const struct backend_ops *ops;
};

/* Changes when the structs that both sides use change, or the list of ops. */
#define BACKEND_MODULE_ABI                                                                 \
    ((uint64_t)sizeof(struct op_call) << 40 ^ (uint64_t)sizeof(struct backend_ops) << 24 ^ \
     (uint64_t)sizeof(struct backend_info) << 8 ^ (uint64_t)sizeof(struct dist) ^          \
     (uint64_t)OP_KIND_COUNT)

#endif
