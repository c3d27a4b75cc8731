/* State of the opencl backend, and the interface that every op's host file needs: device limits,
 * operands, launches.
 *
 * Ops run in one in-order queue on one device; the copies of offload run in two others.  Each
 * segment of the arena is a cl_mem; our kernels receive a segment and a 64-bit offset in elements,
 * never a sub-buffer.  Nothing here is a global: the entry points of the ICD loader are part of the
 * state.  The loader is opened at run time: a build needs only the headers, and a program with this
 * backend also starts on a machine without OpenCL.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_H
#define GPT_TRAIN_OPENCL_OPENCL_H

#include <sys/types.h>

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#ifndef CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#endif
#include <CL/cl.h>

#include "backend/backend.h"
#include "base/size.h"
#include "base/user_cache.h"
#include "ops/op.h"

#define OPENCL_NAME_MAX 128
#define OPENCL_OPTIONS_MAX 256
#define OPENCL_ALIGNMENT_BYTES_MIN 512
#define OPENCL_PROGRAMS_MAX 192
#define OPENCL_KERNELS_MAX 512

/* One file of kernels/, embedded by config/embed.sh as opencl_source_NAME; the text of common.clh
 * is prepended. */
struct opencl_source {
    const char *name; /* "layernorm" for kernels/layernorm.cl */
    const char *text;
    size_t length;
};
extern const struct opencl_source opencl_source_common;

/* The loader's functions.  api->clFinish(queue) calls one.  Types are taken from CL/cl.h, so the
 * compiler checks calls.
 */
struct opencl_api {
#define OPENCL_FUNCTION(name) __typeof__(&name) name;
#include "backends/opencl/opencl_api.def"
#undef OPENCL_FUNCTION
};

/* Properties of the device; constant after open(). */
struct opencl_device {
    cl_platform_id platform;
    cl_device_id id;
    int32_t number; /* in the list of all devices */
    char platform_name[OPENCL_NAME_MAX], name[OPENCL_NAME_MAX], version[OPENCL_NAME_MAX],
        driver[OPENCL_NAME_MAX];
    char board[OPENCL_NAME_MAX]; /* "Radeon RX 7900 XTX" if `name` is "gfx1100"; "" if unknown */
    char lacks[OPENCL_NAME_MAX]; /* why the device cannot be used; "" if it can */
    uint64_t global_bytes;
    uint64_t allocation_bytes; /* the largest cl_mem that we request: the device's limit, but below
                                  4 GiB on Intel */
    uint64_t local_bytes;      /* per work-group */
    size_t work_group_max;     /* work-items per group; a kernel may allow fewer */
    uint32_t compute_units, clock_mhz, alignment_bytes;
    bool is_cpu; /* local memory is ordinary memory; no watchdog; slow to compile */
    bool is_gpu; /* with neither is_cpu nor is_gpu: an accelerator, or an emulation of one */
    bool is_host_memory;     /* CL_DEVICE_HOST_UNIFIED_MEMORY */
    bool has_narrow_units;   /* compute_units counts units of 8 lanes (Intel's driver) instead of 64
                                or more */
    bool has_exact_division; /* -cl-fp32-correctly-rounded-divide-sqrt is worth giving */
    bool has_fp16_arithmetic;  /* cl_khr_fp16 is advertised */
    bool has_subnormals;       /* CL_FP_DENORM of fp32 */
    bool has_fma;              /* CL_FP_FMA of fp32 */
    int32_t nvidia_capability; /* 86 for 8.6; 0 when the driver does not report it */
};

/* The instructions for matrix units; GT_UNIT_... of kernels/gemm_matrix.cl. */
enum opencl_unit { OPENCL_UNIT_NONE, OPENCL_UNIT_MMA_16, OPENCL_UNIT_MMA_8, OPENCL_UNIT_WMMA };

struct opencl_matrix {
    enum opencl_unit unit;
    bool is_emulated; /* tests: local memory and barriers stand in for the unit */
    int32_t tile;     /* tests and --tune: use only tiles of this size; 0: any size */
    /* One bit per enum dtype whose products the units compute; proven after open(). */
    uint32_t dtypes;
    char lost[BACKEND_REASON_MAX]; /* why other 16-bit dtypes are missing; else "" */
};

/* Results of --tune, or the defaults for the kind of device; the indices are by dtype.  Stored in
 * the user's cache. */
struct opencl_tuning {
    int32_t gemm_shape[DTYPE_COUNT];   /* in opencl_gemm_shapes */
    int32_t matrix_shape[DTYPE_COUNT]; /* the largest of opencl_matrix_shapes to use */
    int32_t gemm_clblast; /* 1: CLBlast computes the fp32 products that it supports; else 0 */
};

struct opencl_segment {
    enum memory_space space;
    cl_mem memory;
    uint64_t size_bytes;
};

/* A built program: one source with one set of options. */
struct opencl_program {
    const struct opencl_source *source;
    char options[OPENCL_OPTIONS_MAX];
    cl_program program;
};

struct opencl_kernel {
    int32_t program;
    const char *name; /* the caller's pointer, to a literal */
    cl_kernel kernel;
};

struct opencl_clblast;  /* opencl_clblast.h */
struct opencl_exchange; /* opencl_child.c */

struct opencl_child {
    pid_t pid; /* 0: no child */
    int wake_fd[2];
    struct opencl_exchange *exchange; /* shared with the child */
};

/* A copy that fetch or store began. */
struct opencl_copy {
    const struct op_call *call; /* NULL: free */
    cl_event done;
};
#define OPENCL_COPIES_MAX 32 /* in flight at once; the update of a slice has five each way */

struct opencl_backend {
    struct backend base;           /* must be first */
    struct opencl_child committer; /* commits the arena first */
    uint64_t context_bytes;
    struct opencl_api api;
    struct opencl_device device;
    struct opencl_tuning tuning;
    struct backend_algorithm choice; /* the last result of opencl_tuning_algorithms() */
    struct opencl_matrix matrix;
    char *trying; /* receives errors (BACKEND_REASON_MAX bytes) during an attempt that may fail;
                     else NULL */
    cl_context context;
    cl_command_queue queue;
    cl_command_queue async[QUEUE_COUNT]; /* of the copies of fetch and store; or `queue` */
    struct opencl_copy copy[OPENCL_COPIES_MAX];
    bool has_one_queue; /* the driver makes no other */
    bool is_dry;        /* launches do everything except run: for bind() */
    bool is_lost; /* set by an error after which the driver returns nothing useful; reported once */
    int32_t segments;
    struct opencl_segment segment[BACKEND_SEGMENTS_MAX];
    int32_t programs, kernels;
    struct opencl_program program[OPENCL_PROGRAMS_MAX];
    struct opencl_kernel kernel[OPENCL_KERNELS_MAX];
    bool is_clblast_proven;         /* or needs no proof */
    struct opencl_clblast *clblast; /* NULL: not installed, or not usable on this device */
    double dispatch_flops; /* limit for one dispatch, so that no watchdog kills it; 0: no limit */
    int32_t compiled;      /* programs built from source */
    double compile_seconds;
    int64_t progress_ns; /* time of the last progress line */
};

extern const struct backend_ops opencl_backend_ops;

static inline struct opencl_backend *opencl_backend_of(struct backend *backend)
{
    return (struct opencl_backend *)(void *)backend;
}

static inline const struct opencl_backend *opencl_from(const struct backend *backend)
{
    return (const struct opencl_backend *)(const void *)backend;
}

/* Returns the segment of `bytes` bytes at an address. */
static inline const struct opencl_segment *opencl_segment_at(const struct opencl_backend *cl,
                                                             struct address at, uint64_t bytes)
{
    const struct opencl_segment *segment = &cl->segment[at.segment];
    assert(at.segment < cl->segments && at.space == segment->space);
    assert(at.offset_bytes <= segment->size_bytes &&
           bytes <= segment->size_bytes - at.offset_bytes);
    return segment;
}

/* The implementation of an op.  run() is only called with operands that supports() accepted. */
struct opencl_op {
    bool (*supports)(const struct opencl_backend *cl,
                     const struct op_call *call); /* NULL: all that its rule accepts */
    size_t (*workspace_bytes)(const struct opencl_backend *cl,
                              const struct op_call *call); /* NULL: none */
    enum gt_status (*run)(struct opencl_backend *cl, const struct op_call *call);
};

/* The ops; each family's file defines its own. */
#define OP(KIND, name, operands) extern const struct opencl_op opencl_##name;
#include "ops/ops.def"
#undef OP

#define OPENCL_PLATFORM_NOT_FOUND (-1001) /* CL_PLATFORM_NOT_FOUND_KHR of the loader */

#endif
