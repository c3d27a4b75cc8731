/* The cuda backend's own state, and what the host side of every kernel family needs: pointers, streams, checks.
 *
 * A family is three files: cuda_FAMILY.c has supports(), workspace_bytes() and run() of its ops in plain C and ends in
 * one `const struct op_impl cuda_OP` for each; kernels/FAMILY.cu has the kernels and the functions that launch them;
 * cuda_FAMILY.h declares those to both.  No device code is seen here: this header, and all .c files, compile as C
 * against CUDA's own headers or against those of tests/cuda_on_cpu.
 *
 * run() enqueues on the queue's stream and returns; it allocates nothing, waits for nothing, and keeps no state.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_BACKEND_H
#define GPT_TRAIN_CUDA_CUDA_BACKEND_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "base/size.h"
#include "base/status.h"
#include "ops/op.h"

/* What cudaMalloc aligns to, and what 128-bit accesses and cuBLASLt's fastest kernels want; every tensor and every
 * workspace starts at a multiple of it. */
#define CUDA_ALIGNMENT_BYTES 256
#define CUDA_CAPABILITY_MIN 75
#define CUDA_CAPABILITY_BF16 80 /* first with bf16 arithmetic, cp.async and mma.m16n8k16 */
/* Shared memory that every block may have without asking, and the limit of the grid's y and z. */
#define CUDA_SHARED_DEFAULT_BYTES ((size_t)48 << 10)
#define CUDA_GRID_YZ_MAX 65535
#define CUDA_GRID_X_MAX INT32_MAX
#define CUDA_NAME_MAX 64
/* Programs that are kept as graphs; a run has fewer. */
#define CUDA_GRAPHS_MAX 16
/* Small results on their way to the host, see cuda_memory_download_later(). */
#define CUDA_RESULTS_MAX 256
#define CUDA_RESULT_BYTES 64

struct cuda_gemm_cache;
struct cuda_nvml;
struct cuda_shapes;
struct cuda_tuning;

struct cuda_segment {
    enum memory_space space;
    void *memory; /* of the device, or pinned memory of the host */
    size_t size_bytes;
};

/* A program as it is replayed, and what it is recognised by. */
struct cuda_graph {
    const struct op_call *calls;
    size_t count;
    struct op_call first, last;
    cudaGraphExec_t exec;
};

/* While a stream is captured errors are kept here, the first one, and not logged: launches do without the graph. */
struct cuda_capture {
    bool active, failed;
    const char *what, *why; /* static text */
};

struct cuda_result {
    void *to;
    size_t bytes;
};

struct cuda_backend {
    struct backend base; /* first */
    int32_t device;
    int32_t capability;       /* 10 major + minor: 75, 86, 120 */
    int32_t multiprocessors;  /* for kernels that spread a fixed amount of work: never for the order of a sum */
    size_t shared_bytes_max;  /* dynamic shared memory that a block may have after cudaFuncSetAttribute */
    int32_t driver, runtime;  /* 1000 major + 10 minor: 12040; what the driver supports, what this was built with */
    char name[CUDA_NAME_MAX]; /* "NVIDIA GeForce RTX 3060" */
    uint64_t context_bytes;   /* what was taken by opening, measured */
    cudaStream_t stream;      /* queue 0: ops, downloads, and uploads from `ahead` to their places */
    cudaStream_t copies;      /* uploads on their way to `ahead`, beside the ops; NULL: everything is on queue 0 */
    cudaEvent_t arrived;      /* the last upload has reached `ahead` */
    char *ahead;              /* the device's image of the staging buffer; NULL without an arena, or without `copies` */
    cudaEvent_t copied[2];    /* the last copy through each half of the staging buffer has ended */
    void *staging;            /* pinned: uploads and downloads pass through it */
    char *result;             /* pinned, behind it: [CUDA_RESULTS_MAX][CUDA_RESULT_BYTES], on their way to the host */
    int32_t results;          /* how many of them */
    size_t staging_used;      /* bytes of the half that is being filled */
    int32_t staging_half;     /* 0 or 1 */
    cudaError_t lost;         /* the error after which nothing works any more; cudaSuccess before */
    bool is_wsl;              /* pinned memory is scarce there, and beyond the card's memory the driver swaps */
    bool tf32;                /* products of fp32 may round their inputs to TF32 */
    bool graphs_off;          /* not wanted, or not to be had */
    bool has_copies;          /* uploads are to go beside the ops */
    int32_t graphs;
    struct cuda_gemm_cache *gemm; /* descriptors and algorithms of the products */
    struct cuda_tuning *tuning;   /* algorithms and shapes that were chosen */
    struct cuda_shapes *shapes;   /* of launches, as they were settled */
    struct cuda_nvml *nvml;       /* NULL where there is no such library */
    bool has_arena;
    int32_t segments;
    struct cuda_segment segment[BACKEND_SEGMENTS_MAX];
    struct cuda_graph graph[CUDA_GRAPHS_MAX];
    struct cuda_capture capture;
    struct cuda_result waiting[CUDA_RESULTS_MAX]; /* where the results go */
};

extern const struct backend_ops cuda_backend_ops;
/* The ops; each family's file defines its own. */
#define OP(KIND, name, ...) extern const struct op_impl cuda_##name;
#include "ops/ops.def"
#undef OP
extern const struct op_impl *const cuda_table[OP_KIND_COUNT];

/* GT_OK for cudaSuccess; else logs one line with `what`, the error's name and text, GPU, capability, driver and toolkit,
 * and returns GT_DEVICE (GT_NO_MEMORY for cudaErrorMemoryAllocation).  `what` says what was being done:
 * "layernorm_forward".  After an error that takes the context down every later call gets the same one; it is logged once.
 * While a stream is captured, other errors are kept (cuda_capture_fail) instead of logged. */
enum gt_status cuda_check(struct backend *backend, cudaError_t error, const char *what);

/* Keeps why a capture fails; false where none is under way, and the error is to be logged. */
static inline bool cuda_capture_fail(struct cuda_backend *cuda, const char *what, const char *why)
{
    struct cuda_capture *capture = &cuda->capture;
    if (capture->active && !capture->failed)
        *capture = (struct cuda_capture){.active = true, .failed = true, .what = what, .why = why};
    return capture->active;
}

static inline const struct cuda_backend *cuda_from(const struct backend *backend)
{
    return (const struct cuda_backend *)(const void *)backend;
}

/* The device pointer behind an address of the arena. */
static inline void *cuda_at(const struct backend *backend, struct address at)
{
    const struct cuda_backend *cuda = cuda_from(backend);
    assert(at.segment < cuda->segments && at.space == cuda->segment[at.segment].space);
    assert(at.offset_bytes <= cuda->segment[at.segment].size_bytes);
    return (char *)cuda->segment[at.segment].memory + at.offset_bytes;
}

/* The device memory of an operand; NULL when it is absent. */
static inline void *cuda_operand(const struct backend *backend, const struct op_call *call, int32_t slot)
{
    return call->operand[slot].present ? cuda_at(backend, call->operand[slot].at) : NULL;
}

/* The workspace, of which the plan has granted at least `need_bytes`. */
static inline void *cuda_workspace(const struct backend *backend, const struct op_call *call, size_t need_bytes)
{
    assert(call->workspace_bytes >= need_bytes);
    return need_bytes > 0 ? cuda_at(backend, call->workspace) : NULL;
}

static inline cudaStream_t cuda_stream(const struct backend *backend, int32_t queue)
{
    assert(queue == 0);
    (void)queue;
    return cuda_from(backend)->stream;
}

/* What this card stores floats as: fp32, fp16, and bf16 from CUDA_CAPABILITY_BF16 on. */
static inline bool cuda_dtype_is_float(const struct backend *backend, enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 ||
           (dtype == DTYPE_BF16 && cuda_from(backend)->capability >= CUDA_CAPABILITY_BF16);
}

/* The same of ops that convert and do not compute in it: memory may hold bf16 on every card. */
static inline bool cuda_dtype_is_converted(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* Every present operand is a float of any kind, or int32 where the op takes indices: for ops on states. */
static inline bool cuda_operands_converted(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && operand->dtype != DTYPE_I32 && !cuda_dtype_is_converted(operand->dtype))
            return false;
    }
    return true;
}

/* Every present operand is a float that this card stores, or int32 where the op takes indices. */
static inline bool cuda_operands_supported(const struct backend *backend, const struct op_call *call)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && operand->dtype != DTYPE_I32 && !cuda_dtype_is_float(backend, operand->dtype))
            return false;
    }
    return true;
}

static inline int64_t cuda_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cuda_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
