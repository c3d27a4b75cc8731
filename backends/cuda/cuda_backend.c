/* The cuda backend: opens a card, describes it, and runs ops on it.
 *
 * It uses one device, a stream of ops and two for offload's copies, CUDA's run-time API and
 * cuBLASLt.  The program does not link the driver, so it also starts on machines without one. run()
 * enqueues ops; only sync() and download() wait for them.
 *
 * Bound programs are replayed as graphs, which are recorded here.  Memory and copies are in
 * cuda_memory.c, errors in cuda_error.c.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cuda/cuda.h"
#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/cuda_cards.h"
#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_gemm.h"
#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_memory.h"
#include "backends/cuda/cuda_nccl.h"
#include "backends/cuda/cuda_ops.h"
#include "backends/cuda/cuda_trial.h"
#include "backends/cuda/cuda_tuning.h"

#define PCI_TEXT_MAX 32
#define GRAPH_CALLS_MIN 4 /* fewer are launched as fast one by one */

static enum gt_status stream_open(struct cuda_backend *cuda)
{
    struct backend *backend = &cuda->base;
    TRY(cuda_check(backend, cudaSetDevice(cuda->device), "taking the device"));
    TRY(cuda_check(backend, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                   "making a stream"));
    TRY(cuda_memory_staging_create(cuda));
    return cuda_gemm_cache_create(cuda);
}

/* Measures what the driver uses for this process, as the change in NVML's count of used memory. The
 * run-time API cannot be queried before opening.  The two counts cannot be mixed, because NVML's
 * includes hundreds of MiB that the card reserves for itself and the API's does not.  NVML also
 * counts processes that come or go meanwhile, hence the limits. */
static void context_measure(struct cuda_backend *cuda, uint64_t used_before)
{
    const uint64_t used = used_before > 0 ? nvml_memory_ask(&cuda->nvml).used : 0;
    if (used > used_before && used - used_before < CUDA_CONTEXT_BYTES_MAX)
        cuda->context_bytes = used - used_before;
}

static enum gt_status cuda_sync(struct backend *backend)
{
    if (cuda_backend_of(backend)->lost != cudaSuccess)
        return GT_DEVICE;
    TRY(cuda_check(backend, cudaStreamSynchronize(cuda_stream(backend)), "waiting for the device"));
    cuda_memory_results_give(cuda_backend_of(backend));
    return GT_OK;
}

static void cuda_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (cuda->stream != NULL)
        (void)cuda_sync(backend); /* ops and copies in flight use the memory */
    for (int32_t i = 0; i < cuda->graphs; i++)
        (void)cudaGraphExecDestroy(cuda->graph[i].exec);
    cuda_nccl_close(cuda);
    cuda_gemm_cache_destroy(cuda);
    free(cuda->tuning);
    cuda_memory_free(cuda);
    if (cuda->stream != NULL)
        (void)cudaStreamDestroy(cuda->stream);
    nvml_close(&cuda->nvml);
    free(cuda);
}

static enum gt_status device_fill(struct cuda_backend *cuda,
                                  const struct backend_open_options *options)
{
    char pci[PCI_TEXT_MAX] = "";
    cuda->base.ops = &cuda_backend_ops;
    cuda->device = options->device;
    cuda->tf32 = options->tf32;
    cuda->graphs_off = options->no_graphs;
    TRY(cuda_device_describe(cuda, options->name));
    if (cudaDeviceGetPCIBusId(pci, sizeof pci, cuda->device) == cudaSuccess)
        nvml_open(&cuda->nvml, pci);
    (void)cudaGetLastError();
    const uint64_t used_before = nvml_memory_ask(&cuda->nvml).used;
    TRY(stream_open(cuda));
    if (options->half_sums)
        cuda_gemm_half_sums_decide(cuda, options->half_sums_anywhere);
    TRY(cuda_tuning_create(cuda, options->tune));
    context_measure(cuda, used_before);
    return GT_OK;
}

static enum gt_status cuda_open(const struct backend_open_options *options, struct backend **out)
{
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B", sizeof *cuda);
    const enum gt_status status = device_fill(cuda, options);
    return FINISH(status, out, &cuda->base, cuda_close);
}

static enum gt_status cuda_info(struct backend *backend, struct backend_info *out)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    size_t free_bytes = 0, total_bytes = 0;
    int engines = 0;
    TRY(cuda_check(backend,
                   cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, cuda->device),
                   "counting copy engines"));
    TRY(cuda_check(backend, cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
    const bool has_bf16 = cuda->capability >= CUDA_CAPABILITY_BF16;
    struct backend_info info = {
        .total_bytes = total_bytes,
        /* Free for a later process, after this one has released its memory. */
        .free_bytes = free_bytes + cuda->context_bytes,
        .context_bytes = cuda->context_bytes,
        .largest_allocation_bytes = total_bytes,
        .copy_engines = cuda->pins_refused ? 0 : (int32_t)min_i64(engines, 2),
        .alignment_bytes = CUDA_ALIGNMENT_BYTES,
        .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_F16 | (has_bf16 ? 1u << DTYPE_BF16 : 0u),
    };
    snprintf(info.device, sizeof info.device,
             "%s, capability %" PRId32 ".%" PRId32 ", %" PRId32 " multiprocessors", cuda->name,
             cuda->capability / 10, cuda->capability % 10, cuda->multiprocessors);
    const size_t lt = cuda->lt_version;
    snprintf(info.detail, sizeof info.detail, "driver%s%s for CUDA %s, CUDA %s, cuBLASLt %zu.%zu%s",
             cuda->nvml.driver[0] != '\0' ? " " : "", cuda->nvml.driver,
             CUDA_VERSION_TEXT(cuda->driver), CUDA_VERSION_TEXT(cuda->runtime), lt / 10000,
             lt / 100 % 100, cuda->is_wsl ? ", WSL2" : "");
    snprintf(info.limits, sizeof info.limits, "%shead sizes up to %d",
             has_bf16 ? "" : "no bfloat16 (from capability 8.0 on), ",
             CUDA_ATTENTION_HEAD_SIZE_MAX);
    *out = info;
    return GT_OK;
}

static void cuda_holders(struct backend *backend, struct backend_holders *out)
{
    nvml_holders(&cuda_backend_of(backend)->nvml, out);
}

/* Enqueues the calls, one kernel or product after the other. */
static enum gt_status calls_launch(struct backend *backend, const struct op_call *calls,
                                   size_t count)
{
    for (size_t i = 0, alike; i < count; i += alike) {
        assert((unsigned)calls[i].kind < OP_KIND_COUNT);
        alike = cuda_calls_alike(backend, &calls[i], count - i);
        TRY(alike > 1 ? cuda_alike_start(backend, &calls[i], alike)
                      : cuda_table[calls[i].kind]->run(backend, &calls[i]));
    }
    return GT_OK;
}

/* ---- graphs: a bound program is captured once.  Everything that changes from run to run is in
 * device memory (the block of scalars, the batch), so that a replay has no arguments.
 *
 * The copies of offload fork from the stream of ops and join it again, so that one graph holds all
 * three branches.
 *
 * A program is identified by the address and the number of its calls; its first and its last call
 * are compared as well.  Nothing runs during a capture.  Errors are kept and not logged, because
 * the calls can be launched without a graph; only a lost card is an error.  A graph is uploaded to
 * the device when it is recorded, so that the first replay allocates nothing there. ---- */

/* Returns the graph of these calls, or NULL when there is none. */
static cudaGraphExec_t graph_find(const struct cuda_backend *cuda, const struct op_call *calls,
                                  size_t count)
{
    const size_t size = sizeof calls[0];
    for (const struct cuda_graph *graph = cuda->graph;
         graph < cuda->graph + cuda->graphs && count > 0; graph++)
        if (graph->calls == calls && graph->count == count &&
            memcmp(&graph->first, &calls[0], size) == 0 &&
            memcmp(&graph->last, &calls[count - 1], size) == 0)
            return graph->exec;
    return NULL;
}

/* Captures the calls.  Only the first error of a capture is kept: the others follow from it.  The
 * capture has to be ended in any case, to release the stream. */
static enum gt_status calls_capture(struct cuda_backend *cuda, const struct op_call *calls,
                                    size_t count, cudaGraph_t *out)
{
    struct backend *backend = &cuda->base;
    TRY(cuda_check(backend, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal),
                   "beginning a capture"));
    const enum gt_status status = calls_launch(backend, calls, count);
    for (int i = 0; i < CUDA_COPIES_MAX; i++)
        cuda->copy[i].call = NULL; /* a failed recording leaves some */
    const enum gt_status ended =
        cuda_check(backend, cudaStreamEndCapture(cuda->stream, out), "ending a capture");
    return status != GT_OK ? status : ended;
}

/* Makes a graph of the calls; after an error *out is what has to be destroyed, or NULL. */
static enum gt_status graph_make(struct cuda_backend *cuda, const struct op_call *calls,
                                 size_t count, cudaGraphExec_t *out)
{
    struct backend *backend = &cuda->base;
    cudaGraph_t graph = NULL;
    enum gt_status status = calls_capture(cuda, calls, count, &graph);
    /* cudaGraphInstantiateWithFlags has had these arguments since 11.4; cudaGraphInstantiate's
     * changed with 12.0. */
    THEN(status,
         cuda_check(backend, cudaGraphInstantiateWithFlags(out, graph, 0), "making a graph"));
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    THEN(status, cuda_check(backend, cudaGraphUpload(*out, cuda->stream), "uploading a graph"));
    return status;
}

/* Returns true if the host has a part in the program's copies, because the memory is not pinned. */
static bool copies_pageable(const struct cuda_backend *cuda, const struct op_call *calls,
                            size_t count)
{
    size_t i = 0;
    while (i < count && !op_is_async_copy(calls[i].kind))
        i++;
    return cuda->pins_refused && i < count;
}

/* Records what the calls enqueue, which have run before.  When that fails, logs it once; these
 * calls and all programs after them are then launched call by call.  Errors: GT_DEVICE where the
 * card is lost. */
static enum gt_status graph_record(struct cuda_backend *cuda, const struct op_call *calls,
                                   size_t count)
{
    struct cuda_capture *capture = &cuda->capture;
    cudaGraphExec_t exec = NULL;
    const bool has_room = cuda->graphs < CUDA_GRAPHS_MAX;
    if (cuda->graphs_off || count < GRAPH_CALLS_MIN || copies_pageable(cuda, calls, count))
        return GT_OK;
    *capture = (struct cuda_capture){.active = true,
                                     .what = "capturing",
                                     .why = has_room ? "unknown" : "the table of graphs is full"};
    const bool made = has_room && graph_make(cuda, calls, count, &exec) == GT_OK;
    capture->active = false;
    if (made) {
        cuda->graph[cuda->graphs++] = (struct cuda_graph){.calls = calls,
                                                          .count = count,
                                                          .first = calls[0],
                                                          .last = calls[count - 1],
                                                          .exec = exec};
        return GT_OK;
    }
    if (exec != NULL)
        (void)cudaGraphExecDestroy(exec);
    if (cuda->lost != cudaSuccess)
        return GT_DEVICE;
    cuda->graphs_off = true;
    log_note(
        "cuda: a program cannot be kept as a graph (%s: %s); its kernels are launched one by one",
        capture->what, capture->why);
    return GT_OK;
}

static enum gt_status calls_start(struct backend *backend, const struct op_call *calls,
                                  size_t count)
{
    const cudaGraphExec_t graph = graph_find(cuda_backend_of(backend), calls, count);
    if (graph == NULL)
        return calls_launch(backend, calls, count);
    return cuda_check(backend, cudaGraphLaunch(graph, cuda_stream(backend)), "starting a program");
}

static enum gt_status cuda_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    if (cuda_backend_of(backend)->lost != cudaSuccess)
        return GT_DEVICE;
    return cuda_nccl_together(backend, calls, count, calls_start);
}

/* Settles shapes and, while tuning is on, times calls without a choice. */
static enum gt_status calls_first_launch(struct backend *backend, const struct op_call *calls,
                                         size_t count)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    enum gt_status status = GT_OK;
    cuda->binding = true;
    for (size_t i = 0; i < count && status == GT_OK; i++) {
        status = cuda_launch_shape_resolve(cuda, &calls[i], count - i);
        THEN(status, calls_launch(&cuda->base, &calls[i], 1));
    }
    cuda->binding = false;
    return status;
}

/* CUDA and cuBLASLt load a kernel into the card's memory at its first launch.  So every program
 * runs once, on an arena of zeros, which are valid operands of all ops.  (Programs share memory,
 * and what one leaves there may not be a valid index for another.)  Everything that has to be
 * loaded is then there before anything is uploaded, and a card that cannot run a kernel fails now.
 * Then the same launches are recorded. */
static enum gt_status cuda_bind(struct backend *backend, const struct op_call *calls, size_t count)
{
    TRY(cuda_memory_clear(backend));
    TRY(cuda_nccl_together(backend, calls, count, calls_first_launch));
    TRY(cuda_sync(backend));
    cuda_tuning_store(cuda_backend_of(backend));
    TRY(graph_record(cuda_backend_of(backend), calls, count));
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

/* backend_ops.algorithms: of launch shapes and of products. */
static const struct backend_algorithm *cuda_algorithms(struct backend *backend, size_t *count)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    struct cuda_algorithms *reported = &cuda->tuning->reported;
    reported->count = 0;
    cuda_gemm_algorithms(cuda, reported);
    cuda_launch_algorithms(cuda, reported);
    *count = (size_t)reported->count;
    return reported->at;
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
    .algorithms = cuda_algorithms,
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
