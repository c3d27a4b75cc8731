/* The opencl backend: one device of any ICD, an in-order queue, two queues for the copies of
 * offload, and kernels in OpenCL C 1.2.
 *
 * open() lets a child process open the device, then does the same here.  arena() lets another
 * child, forked before any driver was loaded, commit the whole arena before this process does.
 * Copies block.  Op lists are enqueued; sync() waits for them, and a driver reports their errors
 * there.
 */
#include "backends/opencl/opencl.h"

#include <time.h>
#include <unistd.h>

#include "backends/opencl/opencl_child.h"
#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_device.h"
#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_launch.h"
#include "backends/opencl/opencl_matrix.h"
#include "backends/opencl/opencl_memory.h"
#include "backends/opencl/opencl_open.h"
#include "backends/opencl/opencl_tune.h"
#include "backends/opencl/opencl_vendor.h"
#include "base/clock.h"
#include "base/system_memory.h"

#define LIST_SECONDS 30
#define OPEN_SECONDS 120   /* a driver may first compile its own library */
#define COMMIT_SECONDS 300 /* for a large arena, over a slow bus */
#define RETURN_SECONDS 5   /* until a driver reclaims the memory of a process that ended */
/* The activity of other processes hides smaller arenas. */
#define NOTICED_BYTES ((uint64_t)256 << 20)

/* Creates the queues for the copies of offload, if the driver has more than one queue. */
static void async_queues_create(struct opencl_backend *cl)
{
    for (int i = QUEUE_IN; i <= QUEUE_OUT && !cl->has_one_queue; i++) {
        const cl_command_queue own =
            cl->api.clCreateCommandQueue(cl->context, cl->device.id, 0, NULL);
        cl->has_one_queue = own == NULL;
        cl->async[i] = own != NULL ? own : cl->queue;
    }
    if (cl->has_one_queue)
        log_note(
            "opencl: %s has no queue for each direction, so offload cannot copy while it computes",
            cl->device.name);
}

static void opencl_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    opencl_child_end(&opencl_backend_of(backend)->committer);
    opencl_release(opencl_backend_of(backend));
}

/* --backend=auto wants a GPU: if none is present, no driver is loaded to find that out. */
static void opencl_devices(bool automatic, struct backend_devices *out)
{
    const struct opencl_request request = {.task = OPENCL_TASK_LIST};
    struct opencl_answer answer;
    struct opencl_child child;
    *out = (struct backend_devices){.first = -1};
    if (automatic && !opencl_card_is_present())
        return;
    opencl_child_start(&child);
    opencl_child_ask(&child, &request, LIST_SECONDS, &answer);
    snprintf(out->reason, sizeof out->reason, "%s", answer.reason);
    out->count = answer.status == GT_OK ? answer.listing.count : 0;
    out->first = out->count > 0 ? opencl_card_choose(&answer.listing) : -1;
    if (out->count > 0 && out->first < 0)
        snprintf(out->reason, sizeof out->reason,
                 "no usable GPU; for processors the cpu backend is faster");
}

/* Returns the requested name.  GPT_TRAIN_OPENCL_DEVICE overrides the default device for programs
 * that open the first device, such as the tests. */
static const char *name_wanted(const struct backend_open_options *options)
{
    const char *name = getenv("GPT_TRAIN_OPENCL_DEVICE");
    if (options->name != NULL || options->device != 0)
        return options->name;
    return name != NULL && *name != '\0' ? name : NULL;
}

/* Lets a child open the device and try its matrix units, whose compiler may kill the process.
 * Writes the units that it proved to *out.  Without a child, *out is unchanged. */
static enum gt_status open_rehearse(struct opencl_child *opener,
                                    const struct backend_open_options *options, const char *name,
                                    struct opencl_matrix *out)
{
    struct opencl_request request = {.task = OPENCL_TASK_OPEN, .device = options->device};
    struct opencl_answer answer;
    if (opener->pid == 0)
        return GT_OK;
    if (name != NULL)
        snprintf(request.name, sizeof request.name, "%s", name);
    opencl_child_ask(opener, &request, OPEN_SECONDS, &answer);
    *out = answer.matrix;
    if (answer.status == GT_OK)
        return GT_OK;
    if (!answer.has_opened)
        return FAIL(answer.status, "opencl: %s", answer.reason);
    snprintf(out->lost, sizeof out->lost, "%s", answer.reason); /* the units killed it */
    return GT_OK;
}

static enum gt_status opencl_open(const struct backend_open_options *options, struct backend **out)
{
    const char *name = name_wanted(options);
    struct opencl_child opener, committer;
    struct opencl_matrix tried = {.dtypes = OPENCL_MATRIX_ALL};
    opencl_child_start(&opener);
    opencl_child_start(&committer);
    enum gt_status status = open_rehearse(&opener, options, name, &tried);
    THEN(status, opencl_open_here(options->device, name, out));
    if (status == GT_OK)
        opencl_matrix_open(opencl_backend_of(*out), tried.dtypes, tried.lost);
    if (status == GT_OK && options->tune)
        status = opencl_tuning_measure(opencl_backend_of(*out));
    if (status == GT_OK)
        opencl_backend_of(*out)->committer = committer;
    else
        opencl_child_end(&committer);
    return status;
}

static enum gt_status opencl_info(struct backend *backend, struct backend_info *out)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    struct backend_info info = {
        .total_bytes = cl->device.global_bytes,
        .context_bytes = cl->context_bytes,
        .largest_allocation_bytes = cl->device.allocation_bytes,
        .alignment_bytes = cl->device.alignment_bytes,
        .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
        .threads = 1,
        .copy_engines = cl->has_one_queue ? 0 : 2,
        .host_memory = cl->device.is_cpu,
    };
    const char *basis = "";
    TRY(opencl_memory_read(cl, &info.free_bytes, &basis));
    /* This process already owns the context. */
    info.free_bytes = size_min(info.free_bytes + info.context_bytes, info.total_bytes);
    opencl_device_texts(cl, &info);
    *out = info;
    return GT_OK;
}

static void opencl_holders(struct backend *backend, struct backend_holders *out)
{
    opencl_vendor_holders(opencl_backend_of(backend), "/proc", getpid(), out);
}

/* Waits until `need` bytes are free: some drivers reclaim memory only some time after a process
 * ends. */
static void memory_await(struct opencl_backend *cl, uint64_t need)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const int64_t deadline_ns = clock_monotonic_ns() + RETURN_SECONDS * INT64_C(1000000000);
    uint64_t left = 0;
    const char *basis = "";
    while (opencl_memory_read(cl, &left, &basis) == GT_OK && left < need &&
           clock_monotonic_ns() < deadline_ns)
        (void)nanosleep(&pause, NULL);
}

/* The child commits first, and frees the memory by ending.  If it could not even open the device (a
 * card may be set to serve only one process), the rehearsal is skipped. */
static enum gt_status arena_rehearse(struct opencl_backend *cl,
                                     const struct backend_segment *segments, int32_t count,
                                     uint64_t need)
{
    struct opencl_request request = {
        .task = OPENCL_TASK_COMMIT, .device = cl->device.number, .segments = count};
    struct opencl_answer answer;
    if (cl->committer.pid == 0)
        return GT_OK;
    for (int32_t i = 0; i < count; i++)
        request.segment[i] = segments[i];
    opencl_child_ask(&cl->committer, &request, COMMIT_SECONDS, &answer);
    if (answer.status != GT_OK && !answer.has_opened && !answer.is_dead) {
        log_note("opencl: the arena is not tried in a child process first: %s", answer.reason);
        return GT_OK;
    }
    if (answer.status != GT_OK)
        return FAIL(answer.status, "opencl: %s", answer.reason);
    memory_await(cl, need);
    return GT_OK;
}

/* A driver may silently place memory that does not fit on the card in system memory (ROCm).  The
 * card's free memory then does not decrease. */
static void placement_notice(struct opencl_backend *cl, uint64_t before, uint64_t need)
{
    uint64_t left = 0;
    const char *basis = "";
    char bytes[24], fell[24];
    if (cl->device.is_cpu || cl->device.is_host_memory || need < NOTICED_BYTES ||
        !opencl_vendor_free_bytes(cl, &left, &basis))
        return;
    left = size_min(left, cl->device.global_bytes); /* as in opencl_memory_read() */
    const uint64_t less = left < before ? before - left : 0;
    if (less < need / 2)
        log_warning(
            "opencl: the arena takes %s, but free memory of %s fell by only %s (%s); the driver seems to keep it in system "
            "memory, which is many times slower",
            log_bytes(bytes, (double)need), cl->device.name, log_bytes(fell, (double)less), basis);
}

static enum gt_status opencl_arena(struct backend *backend, const struct backend_segment *segments,
                                   int32_t count)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    uint64_t left = 0, need = 0;
    const char *basis = "";
    assert(cl->segments == 0 && count >= 0 && count <= BACKEND_SEGMENTS_MAX);
    for (int32_t i = 0; i < count; i++)
        need =
            segments[i].size_bytes > UINT64_MAX - need ? UINT64_MAX : need + segments[i].size_bytes;
    TRY(opencl_memory_read(cl, &left, &basis));
    if (need > left)
        return FAIL(GT_NO_FIT,
                    "opencl: the arena needs %" PRIu64 " B, but only %" PRIu64 " B of %" PRIu64
                    " B are free on %s (%s)",
                    need, left, cl->device.global_bytes, cl->device.name, basis);
    TRY(arena_rehearse(cl, segments, count, need));
    opencl_clblast_prove(cl);
    TRY(opencl_memory_commit(cl, segments, count));
    if (count > 0 && segments[count - 1].space == SPACE_HOST)
        async_queues_create(cl);
    placement_notice(cl, left, need);
    return GT_OK;
}

static enum gt_status opencl_upload(struct backend *backend, struct address to, const void *from,
                                    size_t bytes)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    if (bytes == 0)
        return GT_OK;
    CL_TRY(cl, "copying to the device",
           cl->api.clEnqueueWriteBuffer(cl->queue, opencl_segment_at(cl, to, bytes)->memory,
                                        CL_TRUE, (size_t)to.offset_bytes, bytes, from, 0, NULL,
                                        NULL));
    return GT_OK;
}

static enum gt_status opencl_download(struct backend *backend, void *to, struct address from,
                                      size_t bytes)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    if (bytes == 0)
        return GT_OK;
    CL_TRY(cl, "copying from the device",
           cl->api.clEnqueueReadBuffer(cl->queue, opencl_segment_at(cl, from, bytes)->memory,
                                       CL_TRUE, (size_t)from.offset_bytes, bytes, to, 0, NULL,
                                       NULL));
    return GT_OK;
}

#define OP(KIND, name, operands) [OP_##KIND] = &opencl_##name,
static const struct opencl_op *const opencl_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP

static enum gt_status opencl_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    for (size_t i = 0; i < count; i++)
        TRY(opencl_table[calls[i].kind]->run(cl, &calls[i]));
    CL_TRY(cl, "clFlush", cl->api.clFlush(cl->queue));
    return GT_OK;
}

/* Does everything except run the kernels: builds programs and creates memory objects before the
 * first step. */
static enum gt_status opencl_bind(struct backend *backend, const struct op_call *calls,
                                  size_t count)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    enum gt_status status = GT_OK;
    cl->is_dry = true;
    for (size_t i = 0; i < count && status == GT_OK; i++)
        status = opencl_table[calls[i].kind]->run(cl, &calls[i]);
    cl->is_dry = false;
    return status;
}

static enum gt_status opencl_sync(struct backend *backend)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    CL_TRY(cl, "waiting for kernels", cl->api.clFinish(cl->queue));
    opencl_copies_release(cl); /* in tests of the op, no other op waits for the copies */
    return GT_OK;
}

static bool opencl_supports(const struct backend *backend, const struct op_call *call)
{
    const struct opencl_op *op = opencl_table[call->kind];
    return op->run != NULL && (op->supports == NULL || op->supports(opencl_from(backend), call));
}

static size_t opencl_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct opencl_op *op = opencl_table[call->kind];
    return op->workspace_bytes == NULL ? 0 : op->workspace_bytes(opencl_from(backend), call);
}

const struct backend_ops opencl_backend_ops = {
    .name = "opencl",
    .devices = opencl_devices,
    .open = opencl_open,
    .close = opencl_close,
    .info = opencl_info,
    .holders = opencl_holders,
    .arena = opencl_arena,
    .choose = opencl_tuning_choose,
    .algorithms = opencl_tuning_algorithms,
    .bind = opencl_bind,
    .upload = opencl_upload,
    .download = opencl_download,
    .run = opencl_run,
    .sync = opencl_sync,
    .supports = opencl_supports,
    .workspace_bytes = opencl_workspace_bytes,
};
