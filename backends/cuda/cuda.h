/* The cuda backend's state, and what the host side of every kernel family uses: pointers, streams,
 * error checks.
 *
 * kernels/FAMILY.cu has the kernels of a family of ops and the functions that launch them;
 * cuda_kernels.h declares these for both sides.  cuda_ops.c has supports(), workspace_bytes() and
 * run() of the ops in plain C, and one `const struct op_impl cuda_OP` for each; cuda_attention.c
 * and cuda_gemm.c have those of attention and products.  This header and all .c files contain no
 * device code: they compile as C against CUDA's own headers or against those of tests/cuda_on_cpu.
 *
 * run() enqueues on the stream and returns.  It allocates nothing, waits for nothing and keeps no
 * state.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_H
#define GPT_TRAIN_CUDA_CUDA_H

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "backend/backend_nvml.h"
#include "backends/cuda/cuda_kernels.h"
#include "base/size.h"

/* The alignment of cudaMalloc, which 128-bit accesses and cuBLASLt's fastest kernels need.  Every
 * tensor and every workspace starts at a multiple of it. */
#define CUDA_ALIGNMENT_BYTES 256
#define CUDA_MAJOR_MIN 11 /* of CUDA; configure needs 11.8 */
#define CUDA_CAPABILITY_MIN 75
#define CUDA_CAPABILITY_BF16 80   /* first with bf16 arithmetic, cp.async and mma.m16n8k16 */
#define CUDA_GRID_X_MAX INT32_MAX /* the limit of a grid's first dimension */
#define CUDA_NAME_MAX 64
/* "13.0" for 13000. */
#define CUDA_VERSION_TEXT(version) TEXT(16, "%d.%d", (version) / 1000, (version) % 1000 / 10)
/* Limit on the programs that are kept as graphs; a run has fewer.  Others are launched call by
 * call, with a note. */
/* Exchanges through the host divide two programs behind each matrix of a block. */
#define CUDA_GRAPHS_MAX 256
/* Limits on the small results in flight to the host; see cuda_memory_download_later(). */
#define CUDA_RESULTS_MAX 256
#define CUDA_RESULT_BYTES 64

/* Half of the staging buffer: the most that one copy moves. */
#define CUDA_STAGING_BYTES ((size_t)2 << 20)
/* A larger difference in used memory at opening is attributed to other processes. */
#define CUDA_CONTEXT_BYTES_MAX ((uint64_t)4 << 30)

struct cuda_gemm_cache;
struct cuda_nccl;
struct cuda_tuning;

struct cuda_segment {
    enum memory_space space;
    void *memory; /* of the device or the host */
    size_t size_bytes;
    bool pinned; /* host memory that the copy engines reach */
};

/* Limit on the asynchronous copies in flight at once: the update of a slice has five each way, and
 * two pieces have exchanges with all other ranks. */
#define CUDA_COPIES_MAX 160
/* An asynchronous copy from or to host memory, or another rank. */
struct cuda_copy {
    const struct op_call *call; /* that began it; NULL: free */
    cudaEvent_t done;
};

/* A recorded program, and the calls that identify it. */
struct cuda_graph {
    const struct op_call *calls;
    size_t count;
    struct op_call first, last;
    cudaGraphExec_t exec;
};

/* During a stream capture the first error is kept here and not logged, because the calls can also
 * be launched without a graph. */
struct cuda_capture {
    bool active, failed;
    const char *what, *why; /* static strings */
};

struct cuda_result {
    void *to;
    size_t bytes;
};

struct cuda_backend {
    struct backend base; /* first */
    int32_t device;
    int32_t capability;       /* 10 major + minor: 75, 86, 120 */
    int32_t multiprocessors;  /* sizes grids over a fixed amount of work; must not affect the order
                                 of a sum */
    size_t shared_bytes_max;  /* dynamic shared memory that a block may use after
                                 cudaFuncSetAttribute */
    int32_t driver, runtime;  /* 1000 major + 10 minor: 12040; what the driver supports, what this
                                 was built with */
    size_t lt_version;        /* of cuBLASLt: 130100 for 13.1.0 */
    char name[CUDA_NAME_MAX]; /* "NVIDIA GeForce RTX 3060" */
    uint64_t context_bytes;   /* memory that opening took, measured */
    cudaStream_t stream;      /* of ops, uploads and downloads */
    cudaStream_t async[QUEUE_COUNT]; /* of the copies that fetch and store begin; NULL without a
                                        host arena */
    cudaEvent_t
        forked; /* recorded in `stream` before such a copy, which waits for it; NULL: no events */
    struct cuda_copy copy[CUDA_COPIES_MAX];
    cudaEvent_t
        copied[2];   /* recorded after the last copy through each half of the staging buffer */
    void *staging;   /* pinned: uploads and downloads pass through it */
    char *result;    /* pinned, after `staging`: [CUDA_RESULTS_MAX][CUDA_RESULT_BYTES], in flight */
    int32_t results; /* number of results in flight */
    size_t staging_used;  /* bytes used in the half that is being filled */
    int32_t staging_half; /* 0 or 1 */
    cudaError_t lost;     /* the error that broke the context; cudaSuccess before */
    bool is_wsl; /* WSL2: pinned memory is scarce, and the driver swaps when the card is full */
    bool pins_refused; /* the driver has refused to pin host memory */
    bool is_warm;      /* the card has worked since it was opened */
    bool binding;    /* a program is launched for the first time: its products are the run's own */
    bool tf32;       /* products of fp32 may round their inputs to TF32 */
    bool half_sums;  /* products of fp16, attention's too, may have fp16 sums */
    bool graphs_off; /* turned off by an option, or after a failed recording */
    int32_t graphs;
    struct cuda_gemm_cache *gemm; /* descriptors and algorithms of the products */
    struct cuda_tuning *tuning;   /* chosen algorithms and launch shapes */
    struct cuda_nccl *nccl;       /* NULL before ranks meet */
    struct nvml nvml;
    int32_t segments;
    struct cuda_segment segment[BACKEND_SEGMENTS_MAX];
    struct cuda_graph graph[CUDA_GRAPHS_MAX];
    struct cuda_capture capture;
    struct cuda_result waiting[CUDA_RESULTS_MAX]; /* destinations of the results in flight */
};

extern const struct backend_ops cuda_backend_ops;
/* The ops; each family's file defines its own. */
#define OP(KIND, name, operands) extern const struct op_impl cuda_##name;
#include "ops/ops.def"
#undef OP
extern const struct op_impl *const cuda_table[OP_KIND_COUNT];

/* ---- for all ops ---- */

/* Records why a capture fails.  Returns false when no capture is active, so that the caller logs
 * the error. */
static inline bool cuda_capture_fail(struct cuda_backend *cuda, const char *what, const char *why)
{
    struct cuda_capture *capture = &cuda->capture;
    if (capture->active && !capture->failed)
        *capture = (struct cuda_capture){.active = true, .failed = true, .what = what, .why = why};
    return capture->active;
}

static inline struct cuda_backend *cuda_backend_of(struct backend *backend)
{
    return (struct cuda_backend *)(void *)backend;
}

static inline const struct cuda_backend *cuda_from(const struct backend *backend)
{
    return (const struct cuda_backend *)(const void *)backend;
}

/* Returns the device pointer for an address of the arena. */
static inline void *cuda_at(const struct backend *backend, struct address at)
{
    const struct cuda_backend *cuda = cuda_from(backend);
    assert(at.segment < cuda->segments && at.space == cuda->segment[at.segment].space);
    assert(at.offset_bytes <= cuda->segment[at.segment].size_bytes);
    return (char *)cuda->segment[at.segment].memory + at.offset_bytes;
}

/* Returns the device pointer of an operand, or NULL when it is absent. */
static inline void *cuda_operand(const struct backend *backend, const struct op_call *call,
                                 int32_t slot)
{
    return call->operand[slot].present ? cuda_at(backend, call->operand[slot].at) : NULL;
}

/* Returns the workspace, or NULL when `need_bytes` is 0.  The plan has granted at least
 * `need_bytes`. */
static inline void *cuda_workspace(const struct backend *backend, const struct op_call *call,
                                   size_t need_bytes)
{
    assert(call->workspace_bytes >= need_bytes);
    return need_bytes > 0 ? cuda_at(backend, call->workspace) : NULL;
}

static inline cudaStream_t cuda_stream(const struct backend *backend)
{
    return cuda_from(backend)->stream;
}

/* Returns true for the float dtypes that this card computes in: fp32, fp16, and bf16 from
 * CUDA_CAPABILITY_BF16 on. */
static inline bool cuda_dtype_is_float(const struct backend *backend, enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 ||
           (dtype == DTYPE_BF16 && cuda_from(backend)->capability >= CUDA_CAPABILITY_BF16);
}

/* Returns true when every present operand is of a float dtype that this card computes in, or int32
 * (indices). */
static inline bool cuda_operands_supported(const struct backend *backend,
                                           const struct op_call *call)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && operand->dtype != DTYPE_I32 &&
            !cuda_dtype_is_float(backend, operand->dtype))
            return false;
    }
    return true;
}

/* Returns true when every operand, scalars and indices aside, begins at a multiple of 16 bytes, so
 * that eight consecutive elements are one or two 128-bit accesses.  Views may not. */
static inline bool cuda_operands_aligned(const struct backend *backend, const struct op_call *call)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        if (call->operand[slot].dtype != DTYPE_I32 &&
            (uintptr_t)cuda_operand(backend, call, slot) % 16 != 0)
            return false;
    return true;
}

static inline struct cuda_floats cuda_floats_of(const struct backend *backend,
                                                const struct op_call *call, int32_t slot)
{
    return (struct cuda_floats){cuda_operand(backend, call, slot), call->operand[slot].dtype};
}

#endif
