/* The card's memory: the arena, and copies to and from it through pinned memory.
 *
 * A segment on the card is one cudaMalloc; a segment in host memory is mapped, touched and then
 * pinned, so that copies to it run at the link's full rate and while ops compute.  Where the driver
 * refuses to pin it, it stays pageable.
 *
 * The segments on the card together stay below what is free at that moment, by a margin: drivers
 * for Windows, including WSL2's, hand out host memory instead of failing, and a run in host memory
 * is many times slower. Every byte on the card is written once, so that the memory is really there.
 *
 * Copies go in pieces through two halves of one small pinned buffer, because pinned memory is
 * scarce under WSL2 and the driver would pin pageable memory piece by piece anyway.  Small copies
 * fill a half one after the other, so that none of them has to wait; a half is reused when the
 * event after its last copy has completed.
 *
 * Results of a few words, which are not needed at once, have their own slots; the next sync() hands
 * them over.
 */
#include "backends/cuda/cuda_memory.h"

#include "backend/backend_holders.h"
#include "backends/cuda/cuda_error.h"

/* Left free for the driver's needs during a run; more where the driver swaps to host memory. */
#define MARGIN_BYTES ((uint64_t)16 << 20)
#define MARGIN_BYTES_WSL ((uint64_t)256 << 20)
#define HOST_PAGE_BYTES ((size_t)4096)

enum gt_status cuda_memory_staging_create(struct cuda_backend *cuda)
{
    struct backend *backend = &cuda->base;
    const size_t results_bytes = (size_t)CUDA_RESULTS_MAX * CUDA_RESULT_BYTES;
    TRY(cuda_check(
        backend,
        cudaHostAlloc(&cuda->staging, 2 * CUDA_STAGING_BYTES + results_bytes, cudaHostAllocDefault),
        "allocating 4 MiB of pinned host memory"));
    cuda->result = (char *)cuda->staging + 2 * CUDA_STAGING_BYTES;
    for (int i = 0; i < 2; i++)
        TRY(cuda_check(backend, cudaEventCreateWithFlags(&cuda->copied[i], cudaEventDisableTiming),
                       "making an event"));
    return GT_OK;
}

enum gt_status cuda_memory_events_create(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const unsigned flags = cudaEventDisableTiming;
    if (cuda->forked != NULL)
        return GT_OK;
    for (int i = 0; i < CUDA_COPIES_MAX; i++)
        TRY(cuda_check(backend, cudaEventCreateWithFlags(&cuda->copy[i].done, flags),
                       "making an event"));
    return cuda_check(backend, cudaEventCreateWithFlags(&cuda->forked, flags), "making an event");
}

/* Creates the queues of asynchronous copies, and their events.  Errors: GT_DEVICE. */
static enum gt_status async_queues_create(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    for (int queue = QUEUE_IN; queue <= QUEUE_OUT; queue++)
        TRY(cuda_check(backend,
                       cudaStreamCreateWithFlags(&cuda->async[queue], cudaStreamNonBlocking),
                       "making a stream for offload"));
    return cuda_memory_events_create(backend);
}

static void async_queues_destroy(struct cuda_backend *cuda)
{
    for (int i = 0; i < CUDA_COPIES_MAX; i++)
        if (cuda->copy[i].done != NULL)
            (void)cudaEventDestroy(cuda->copy[i].done);
    if (cuda->forked != NULL)
        (void)cudaEventDestroy(cuda->forked);
    for (int queue = QUEUE_IN; queue <= QUEUE_OUT; queue++)
        if (cuda->async[queue] != NULL)
            (void)cudaStreamDestroy(cuda->async[queue]);
    memset(cuda->copy, 0, sizeof cuda->copy);
    memset(cuda->async, 0, sizeof cuda->async);
    cuda->forked = NULL;
}

static void segments_free(struct cuda_backend *cuda)
{
    for (int32_t i = 0; i < cuda->segments; i++) {
        struct cuda_segment *segment = &cuda->segment[i];
        if (segment->pinned)
            (void)cudaHostUnregister(segment->memory);
        if (segment->space == SPACE_DEVICE)
            (void)cudaFree(segment->memory);
        else
            free(segment->memory);
    }
    async_queues_destroy(cuda);
    cuda->segments = 0;
}

void cuda_memory_free(struct cuda_backend *cuda)
{
    segments_free(cuda);
    for (int i = 0; i < 2; i++)
        if (cuda->copied[i] != NULL)
            (void)cudaEventDestroy(cuda->copied[i]);
    if (cuda->staging != NULL)
        (void)cudaFreeHost(cuda->staging);
}

/* Reports that the arena does not fit: other processes took memory since the plan was made, or the
 * plan is larger than the card. */
static enum gt_status arena_refuse(const struct cuda_backend *cuda, uint64_t need_bytes,
                                   uint64_t free_bytes)
{
    char text[BACKEND_HOLDERS_TEXT_MAX];
    struct backend_holders holders = {.count = 0};
    nvml_holders(&cuda->nvml, &holders);
    return FAIL(GT_NO_FIT, "cuda: the arena takes %s, but only %s is free on %s now%s%s",
                LOG_BYTES(need_bytes), LOG_BYTES(free_bytes), cuda->name,
                holders.count > 0 ? "; other processes hold most: " : "",
                backend_holders_text(text, &holders));
}

static enum gt_status room_check(struct backend *backend, const struct backend_segment *segments,
                                 int32_t count)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const uint64_t margin = cuda->is_wsl ? MARGIN_BYTES_WSL : MARGIN_BYTES;
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t need = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint64_t bytes = segments[i].space == SPACE_DEVICE ? segments[i].size_bytes : 0;
        need = bytes > UINT64_MAX - need ? UINT64_MAX : need + bytes;
    }
    TRY(cuda_check(backend, cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
    if (free_bytes < margin || need > free_bytes - margin)
        return arena_refuse(cuda, need, free_bytes);
    return GT_OK;
}

static enum gt_status memory_allocate(struct backend *backend, size_t bytes, void **out)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const cudaError_t error = cudaMalloc(out, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return arena_refuse(cuda, bytes, free_bytes);
    }
    return cuda_check(backend, error, "allocating the arena");
}

/* Takes host memory of zeros, and pins it.  The zeros come first: pages that exist are pinned twice
 * as fast, and are near the processor that wrote them.  A refusal may spoil later ones, so it is
 * the last try. */
static enum gt_status host_allocate(struct backend *backend, struct cuda_segment *segment)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    segment->memory =
        aligned_alloc(HOST_PAGE_BYTES, size_round_up(segment->size_bytes, HOST_PAGE_BYTES));
    if (segment->memory == NULL)
        return FAIL(
            GT_NO_FIT,
            "cuda: no host memory for the %s that offload moves; offload = 'none' needs none",
            LOG_BYTES(segment->size_bytes));
    memset(segment->memory, 0, segment->size_bytes);
    if (cuda->pins_refused)
        return GT_OK;
    const cudaError_t error =
        cudaHostRegister(segment->memory, segment->size_bytes, cudaHostRegisterDefault);
    segment->pinned = error == cudaSuccess;
    cuda->pins_refused = error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported;
    if (!cuda->pins_refused)
        return cuda_check(backend, error, "pinning host memory");
    (void)cudaGetLastError();
    log_note(
        "cuda: the driver does not pin %s of host memory; what lives there is copied through a small buffer, "
        "at about half the rate, and not during computing",
        LOG_BYTES(segment->size_bytes));
    return GT_OK;
}

enum gt_status cuda_memory_clear(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    for (int32_t i = 0; i < cuda->segments; i++) {
        const struct cuda_segment *segment = &cuda->segment[i];
        if (segment->space == SPACE_DEVICE)
            TRY(cuda_check(backend,
                           cudaMemsetAsync(segment->memory, 0, segment->size_bytes, cuda->stream),
                           "clearing the arena"));
    }
    return GT_OK;
}

enum gt_status cuda_memory_arena(struct backend *backend, const struct backend_segment *segments,
                                 int32_t count)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    assert(cuda->segments == 0 && count >= 0 && count <= BACKEND_SEGMENTS_MAX);
    TRY(room_check(backend, segments, count));
    enum gt_status status;
    for (int32_t i = 0; i < count; i++) {
        struct cuda_segment *segment = &cuda->segment[i];
        *segment = (struct cuda_segment){.space = segments[i].space,
                                         .size_bytes = (size_t)segments[i].size_bytes};
        cuda->segments++;
        TRY_GOTO(status, free_segments,
                 segment->space == SPACE_HOST
                     ? host_allocate(backend, segment)
                     : memory_allocate(backend, segment->size_bytes, &segment->memory));
        if (segment->pinned && cuda->async[QUEUE_IN] == NULL)
            TRY_GOTO(status, free_segments, async_queues_create(backend));
    }
    TRY_GOTO(status, free_segments, cuda_memory_clear(backend)); /* every byte is written once */
    TRY_GOTO(status, free_segments,
             cuda_check(backend, cudaStreamSynchronize(cuda->stream), "touching the arena"));
    return GT_OK;
free_segments:
    segments_free(cuda);
    return status;
}

/* Returns the memory of the `bytes` bytes at an address. */
static void *range_at(const struct backend *backend, struct address at, size_t bytes)
{
    assert(bytes <= cuda_from(backend)->segment[at.segment].size_bytes - at.offset_bytes);
    return cuda_at(backend, at);
}

/* Takes `bytes`, at most a half, from the half that is being filled, or from the other one once its
 * copies have ended. */
static enum gt_status staging_acquire(struct backend *backend, size_t bytes, char **out)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    assert(bytes <= CUDA_STAGING_BYTES);
    if (bytes > CUDA_STAGING_BYTES - cuda->staging_used) {
        const int32_t other = 1 - cuda->staging_half;
        TRY(cuda_check(backend, cudaEventSynchronize(cuda->copied[other]), "waiting for a copy"));
        cuda->staging_half = other;
        cuda->staging_used = 0;
    }
    *out = (char *)cuda->staging + (size_t)cuda->staging_half * CUDA_STAGING_BYTES +
           cuda->staging_used;
    cuda->staging_used += size_round_up(bytes, CUDA_ALIGNMENT_BYTES);
    return GT_OK;
}

static enum gt_status copy_mark(struct backend *backend, cudaStream_t stream)
{
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    return cuda_check(backend, cudaEventRecord(cuda->copied[cuda->staging_half], stream),
                      "marking a copy");
}

/* Copies between the host and its own arena, after the ops that were enqueued before. */
static enum gt_status host_copy(struct backend *backend, void *to, const void *from, size_t bytes)
{
    TRY(backend->ops->sync(backend));
    memcpy(to, from, bytes);
    return GT_OK;
}

enum gt_status cuda_memory_upload(struct backend *backend, struct address to, const void *from,
                                  size_t bytes)
{
    const cudaStream_t stream = cuda_stream(backend);
    char *at = range_at(backend, to, bytes);
    if (to.space == SPACE_HOST)
        return host_copy(backend, at, from, bytes);
    for (size_t done = 0; done < bytes; done += CUDA_STAGING_BYTES) {
        const size_t piece = size_min(bytes - done, CUDA_STAGING_BYTES);
        char *staging;
        TRY(staging_acquire(backend, piece, &staging));
        memcpy(staging, (const char *)from + done, piece);
        TRY(cuda_check(backend,
                       cudaMemcpyAsync(at + done, staging, piece, cudaMemcpyDefault, stream),
                       "uploading"));
        TRY(copy_mark(backend, stream));
    }
    return GT_OK;
}

/* A piece in flight to the host; `arrived` is recorded after it. */
struct piece {
    const char *staging;
    char *to;
    size_t bytes;
    cudaEvent_t arrived;
};

static enum gt_status piece_receive(struct backend *backend, const struct piece *piece)
{
    if (piece->bytes == 0)
        return GT_OK;
    TRY(cuda_check(backend, cudaEventSynchronize(piece->arrived), "waiting for a download"));
    memcpy(piece->to, piece->staging, piece->bytes);
    return GT_OK;
}

/* While a piece is copied out of one half, the next one arrives in the other. */
enum gt_status cuda_memory_download(struct backend *backend, void *to, struct address from,
                                    size_t bytes)
{
    const cudaStream_t stream = cuda_stream(backend);
    struct piece last = {.bytes = 0};
    const char *at = range_at(backend, from, bytes);
    if (from.space == SPACE_HOST)
        return host_copy(backend, to, at, bytes);
    for (size_t done = 0; done < bytes; done += CUDA_STAGING_BYTES) {
        struct piece piece = {.to = (char *)to + done,
                              .bytes = size_min(bytes - done, CUDA_STAGING_BYTES)};
        char *staging;
        TRY(staging_acquire(backend, piece.bytes, &staging));
        piece.staging = staging;
        piece.arrived = cuda_backend_of(backend)->copied[cuda_backend_of(backend)->staging_half];
        TRY(cuda_check(backend,
                       cudaMemcpyAsync(staging, at + done, piece.bytes, cudaMemcpyDefault, stream),
                       "downloading"));
        TRY(copy_mark(backend, stream));
        TRY(piece_receive(backend, &last));
        last = piece;
    }
    return piece_receive(backend, &last);
}

void cuda_memory_results_give(struct cuda_backend *cuda)
{
    for (int32_t i = 0; i < cuda->results; i++)
        memcpy(cuda->waiting[i].to, cuda->result + (size_t)i * CUDA_RESULT_BYTES,
               cuda->waiting[i].bytes);
    cuda->results = 0;
}

enum gt_status cuda_memory_download_later(struct backend *backend, void *to, struct address from,
                                          size_t bytes)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (bytes > CUDA_RESULT_BYTES)
        return cuda_memory_download(backend, to, from, bytes);
    if (cuda->results == CUDA_RESULTS_MAX) {
        TRY(cuda_check(backend, cudaStreamSynchronize(cuda_stream(backend)),
                       "waiting for results"));
        cuda_memory_results_give(cuda);
    }
    TRY(cuda_check(backend,
                   cudaMemcpyAsync(cuda->result + (size_t)cuda->results * CUDA_RESULT_BYTES,
                                   range_at(backend, from, bytes), bytes, cudaMemcpyDeviceToHost,
                                   cuda_stream(backend)),
                   "downloading a result"));
    cuda->waiting[cuda->results++] = (struct cuda_result){.to = to, .bytes = bytes};
    return GT_OK;
}

enum gt_status cuda_memory_copy_fork(struct backend *backend, cudaStream_t stream)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    TRY(cuda_check(backend, cudaEventRecord(cuda->forked, cuda->stream), "starting a copy"));
    return cuda_check(backend, cudaStreamWaitEvent(stream, cuda->forked, 0), "starting a copy");
}

enum gt_status cuda_memory_copy_mark(struct backend *backend, const struct op_call *call,
                                     cudaStream_t stream)
{
    struct cuda_copy *const all = cuda_backend_of(backend)->copy, *copy = all;
    while (copy < all + CUDA_COPIES_MAX && copy->call != NULL)
        copy++;
    if (copy == all + CUDA_COPIES_MAX)
        return FAIL(GT_DEVICE,
                    "cuda: more than %d copies are under way at once; add --offload=none",
                    CUDA_COPIES_MAX);
    copy->call = call;
    return cuda_check(backend, cudaEventRecord(copy->done, stream), "marking a copy");
}

enum gt_status cuda_memory_copy_start(struct backend *backend, const struct op_call *call)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct operand *x = &call->operand[FETCH_X], *y = &call->operand[FETCH_Y];
    const struct cuda_segment *from = &cuda->segment[x->at.segment],
                              *to = &cuda->segment[y->at.segment];
    const char *what = op_declaration(call->kind)->name;
    void *source = cuda_at(backend, x->at), *target = cuda_at(backend, y->at);
    if (from->space == SPACE_HOST && !from->pinned)
        return cuda_memory_upload(backend, y->at, source, operand_bytes(x));
    if (to->space == SPACE_HOST && !to->pinned)
        return cuda_memory_download(backend, target, x->at, operand_bytes(x));
    const cudaStream_t stream = cuda->async[op_declaration(call->kind)->queue];
    if (stream == NULL) /* without a host arena, in tests of the op */
        return cuda_check(
            backend,
            cudaMemcpyAsync(target, source, operand_bytes(x), cudaMemcpyDefault, cuda->stream),
            what);
    TRY(cuda_memory_copy_fork(backend, stream));
    TRY(cuda_check(backend,
                   cudaMemcpyAsync(target, source, operand_bytes(x), cudaMemcpyDefault, stream),
                   what));
    return cuda_memory_copy_mark(backend, call, stream);
}

enum gt_status cuda_memory_copy_wait(struct backend *backend, const struct op_call *wait)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    for (struct cuda_copy *copy = cuda->copy; copy < cuda->copy + CUDA_COPIES_MAX; copy++) {
        if (copy->call == NULL || !op_waits_for(wait, copy->call))
            continue;
        copy->call = NULL;
        return cuda_check(backend, cudaStreamWaitEvent(cuda->stream, copy->done, 0),
                          "waiting for a copy");
    }
    return GT_OK; /* it has ended */
}
