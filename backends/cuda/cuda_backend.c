/* The cuda backend: opens a card, describes it, runs ops on it, and reports what fails.
 *
 * It uses one device, a stream of ops and two for offload's copies, CUDA's run-time API and cuBLASLt.  The
 * program does not link the driver, so it also starts on machines without one.  run() enqueues ops; only sync() and
 * download() wait for them.
 *
 * Bound programs are replayed as graphs.  An error that takes the context down (a kernel's fault, a lost card) shows at
 * some later call: it is logged once, with the card and the versions, and every call after it fails without a message.
 * Memory and copies are in cuda_memory.c.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cuda/cuda.h"

#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_shapes.h"
#include "backends/cuda/cuda_tuning.h"

#define PCI_TEXT_MAX 32
/* In this range the run-time API reports a fault of a kernel or of the card: the context is lost. */
#define ERROR_LOST_FIRST cudaErrorIllegalAddress
#define ERROR_LOST_LAST cudaErrorLaunchFailure

/* Returns true for errors after which nothing in this process works on the card any more.  A launch that needs too many
 * resources does no harm. */
static bool is_lost(cudaError_t error)
{
    /* Contained errors, a leak of tensor memory, a terminated MPS client, an external device: 11.8's header lacks
     * names. */
    static const int more[] = {226, 721, 810, 911};
    if (error == cudaErrorLaunchOutOfResources)
        return false;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if ((int)error == more[i])
            return true;
    return (error >= ERROR_LOST_FIRST && error <= ERROR_LOST_LAST) || error == cudaErrorECCUncorrectable ||
           error == cudaErrorUnknown || error == cudaErrorDevicesUnavailable;
}

enum gt_status cuda_check(struct backend *backend, cudaError_t error, const char *what)
{
    struct cuda_backend *cuda = cuda_own(backend);
    if (error == cudaSuccess)
        return GT_OK;
    (void)cudaGetLastError(); /* else the next launch would report it again */
    if (cuda->lost != cudaSuccess)
        return GT_DEVICE;
    if (is_lost(error))
        cuda->lost = error;
    else if (cuda_capture_fail(cuda, what, cudaGetErrorString(error)))
        return GT_DEVICE;
    log_error("cuda: %s: %s: %s (%s, capability %" PRId32 ".%" PRId32 ", driver for CUDA %" PRId32 ".%" PRId32
              ", built with CUDA %" PRId32 ".%" PRId32 ")%s",
              what, cudaGetErrorName(error), cudaGetErrorString(error), cuda->name, cuda->capability / 10,
              cuda->capability % 10, cuda->driver / 1000, cuda->driver % 1000 / 10, cuda->runtime / 1000,
              cuda->runtime % 1000 / 10,
              is_lost(error) ? ": the card is lost to this process; the kernel's log (Xid) may say why" : "");
    return error == cudaErrorMemoryAllocation ? GT_NO_MEMORY : GT_DEVICE;
}

static enum gt_status stream_open(struct cuda_backend *cuda)
{
    struct backend *backend = &cuda->base;
    TRY(cuda_check(backend, cudaSetDevice(cuda->device), "taking the device"));
    TRY(cuda_check(backend, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "making a stream"));
    TRY(cuda_memory_staging_create(cuda));
    return cuda_gemm_cache_create(cuda);
}

/* Measures what the driver uses for this process, as the change in NVML's count of used memory.  The run-time API
 * cannot be queried before opening.  The two counts cannot be mixed, because NVML's includes hundreds of MiB that the
 * card reserves for itself and the API's does not.  NVML also counts processes that come or go meanwhile, hence the
 * limits. */
static void context_measure(struct cuda_backend *cuda, uint64_t used_before)
{
    const uint64_t used = used_before > 0 ? nvml_memory_ask(&cuda->nvml).used : 0;
    if (used > used_before && used - used_before < CUDA_CONTEXT_BYTES_MAX)
        cuda->context_bytes = used - used_before;
}

static void cuda_close(struct backend *backend);
static enum gt_status cuda_sync(struct backend *backend);

static enum gt_status device_fill(struct cuda_backend *cuda, const struct backend_open_options *options)
{
    char pci[PCI_TEXT_MAX] = "";
    cuda->base.ops = &cuda_backend_ops;
    cuda->device = options->device;
    cuda->tf32 = options->tf32;
    cuda->graphs_off = options->no_graphs;
    TRY(cuda_tuning_create(cuda));
    TRY(cuda_device_describe(cuda, options->name));
    if (cudaDeviceGetPCIBusId(pci, sizeof pci, cuda->device) == cudaSuccess)
        nvml_open(&cuda->nvml, pci);
    (void)cudaGetLastError();
    const uint64_t used_before = nvml_memory_ask(&cuda->nvml).used;
    TRY(stream_open(cuda));
    cuda->tuning->on = options->tune;
    if (options->half_sums)
        cuda_gemm_half_sums_decide(cuda, options->half_sums_anywhere);
    cuda_tuning_load(cuda);
    context_measure(cuda, used_before);
    return GT_OK;
}

static enum gt_status cuda_open(const struct backend_open_options *options, struct backend **out)
{
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B", sizeof *cuda);
    const enum gt_status status = device_fill(cuda, options);
    if (status != GT_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return GT_OK;
}

static void cuda_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    struct cuda_backend *cuda = cuda_own(backend);
    if (cuda->stream != NULL)
        (void)cuda_sync(backend); /* ops and copies in flight use the memory */
    cuda_graphs_destroy(cuda);
    cuda_nccl_close(cuda);
    cuda_gemm_cache_destroy(cuda);
    free(cuda->tuning);
    free(cuda->shapes);
    cuda_memory_free(cuda);
    if (cuda->stream != NULL)
        (void)cudaStreamDestroy(cuda->stream);
    nvml_close(&cuda->nvml);
    free(cuda);
}

static enum gt_status cuda_info(struct backend *backend, struct backend_info *out)
{
    struct cuda_backend *cuda = cuda_own(backend);
    size_t free_bytes = 0, total_bytes = 0;
    int engines = 0;
    TRY(cuda_check(backend, cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, cuda->device),
                   "counting copy engines"));
    TRY(cuda_check(backend, cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
    struct backend_info info = {
        .total_bytes = total_bytes,
        /* Free for a later process, after this one has released its memory. */
        .free_bytes = free_bytes + cuda->context_bytes,
        .context_bytes = cuda->context_bytes,
        .largest_allocation_bytes = total_bytes,
        .copy_engines = cuda->pins_refused ? 0
                        : engines > 2      ? 2
                                           : engines,
        .alignment_bytes = CUDA_ALIGNMENT_BYTES,
        .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_F16,
    };
    const bool has_bf16 = cuda->capability >= CUDA_CAPABILITY_BF16;
    if (has_bf16)
        info.dtypes |= 1u << DTYPE_BF16;
    snprintf(info.device, sizeof info.device, "%s, capability %" PRId32 ".%" PRId32 ", %" PRId32 " multiprocessors",
             cuda->name, cuda->capability / 10, cuda->capability % 10, cuda->multiprocessors);
    const size_t lt = cuda_gemm_library_version(cuda);
    snprintf(info.detail, sizeof info.detail,
             "driver%s%s for CUDA %" PRId32 ".%" PRId32 ", CUDA %" PRId32 ".%" PRId32 ", cuBLASLt %zu.%zu%s",
             cuda->nvml.driver[0] != '\0' ? " " : "", cuda->nvml.driver, cuda->driver / 1000, cuda->driver % 1000 / 10,
             cuda->runtime / 1000, cuda->runtime % 1000 / 10, lt / 10000, lt / 100 % 100, cuda->is_wsl ? ", WSL2" : "");
    snprintf(info.limits, sizeof info.limits, "%shead sizes up to %d",
             has_bf16 ? "" : "no bfloat16 (from capability 8.0 on), ", CUDA_ATTENTION_HEAD_SIZE_MAX);
    *out = info;
    return GT_OK;
}

static void cuda_holders(struct backend *backend, struct backend_holders *out)
{
    nvml_holders(&cuda_own(backend)->nvml, out);
}

#define OP(KIND, name, ...) [OP_##KIND] = &cuda_##name,
const struct op_impl *const cuda_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP

enum gt_status cuda_calls_launch(struct backend *backend, const struct op_call *calls, size_t count)
{
    for (size_t i = 0, alike; i < count; i += alike) {
        assert((unsigned)calls[i].kind < OP_KIND_COUNT);
        alike = cuda_calls_alike(backend, &calls[i], count - i);
        TRY(alike > 1 ? cuda_alike_start(backend, &calls[i], alike)
                      : cuda_table[calls[i].kind]->run(backend, &calls[i]));
    }
    return GT_OK;
}

static enum gt_status calls_start(struct backend *backend, const struct op_call *calls, size_t count)
{
    const cudaGraphExec_t graph = cuda_graph_find(cuda_own(backend), calls, count);
    if (graph == NULL)
        return cuda_calls_launch(backend, calls, count);
    return cuda_check(backend, cudaGraphLaunch(graph, cuda_stream(backend)), "starting a program");
}

static enum gt_status cuda_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    if (cuda_own(backend)->lost != cudaSuccess)
        return GT_DEVICE;
    return cuda_nccl_together(backend, calls, count, calls_start);
}

static enum gt_status cuda_sync(struct backend *backend)
{
    if (cuda_own(backend)->lost != cudaSuccess)
        return GT_DEVICE;
    TRY(cuda_check(backend, cudaStreamSynchronize(cuda_stream(backend)), "waiting for the device"));
    cuda_memory_results_give(cuda_own(backend));
    return GT_OK;
}

/* Settles shapes and, while tuning is on, times calls without a choice. */
static enum gt_status calls_first_launch(struct backend *backend, const struct op_call *calls, size_t count)
{
    struct cuda_backend *cuda = cuda_own(backend);
    enum gt_status status = GT_OK;
    cuda->tuning->now = cuda->tuning->on;
    for (size_t i = 0; i < count && status == GT_OK; i++) {
        status = cuda_shape_settle(cuda, &calls[i]);
        THEN(status, cuda_calls_launch(&cuda->base, &calls[i], 1));
    }
    cuda->tuning->now = false;
    return status;
}

/* CUDA and cuBLASLt load a kernel into the card's memory at its first launch.  So every program runs once, on an arena
 * of zeros, which are valid operands of all ops.  (Programs share memory, and what one leaves there may not be a valid
 * index for another.)  Everything that has to be loaded is then there before anything is uploaded, and a card that
 * cannot run a kernel fails now.  Then the same launches are recorded. */
static enum gt_status cuda_bind(struct backend *backend, const struct op_call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (calls[i].kind == OP_GEMM)
            TRY(cuda_gemm_bind(cuda_own(backend), &calls[i]));
    TRY(cuda_memory_clear(backend));
    TRY(cuda_nccl_together(backend, calls, count, calls_first_launch));
    TRY(cuda_sync(backend));
    cuda_tuning_store(cuda_own(backend));
    TRY(cuda_graph_record(cuda_own(backend), calls, count));
    return cuda_sync(backend);
}

static bool cuda_supports(const struct backend *backend, const struct op_call *call)
{
    return op_impl_supports(cuda_table[call->kind], backend, call);
}

static size_t cuda_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    return op_impl_workspace_bytes(cuda_table[call->kind], backend, call);
}

const struct backend_ops cuda_backend_ops = {
    .name = "cuda",
    .devices = cuda_devices,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .holders = cuda_holders,
    .join = cuda_nccl_join,
    .pass = cuda_nccl_pass,
    .arena = cuda_memory_arena,
    .choose = cuda_tuning_choose,
    .choices = cuda_tuning_choices,
    .timings = cuda_tuning_timings,
    .bind = cuda_bind,
    .upload = cuda_memory_upload,
    .download = cuda_memory_download,
    .download_later = cuda_memory_download_later,
    .run = cuda_run,
    .sync = cuda_sync,
    .run_timed = cuda_run_timed,
    .supports = cuda_supports,
    .workspace_bytes = cuda_workspace_bytes,
};
