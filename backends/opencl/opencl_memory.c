/* The arena on a device that may promise more memory than it has.
 *
 * clCreateBuffer() proves nothing: drivers allocate at first use, and some abort or skip kernels
 * when memory is short. Therefore every segment is filled, the queue is finished, one kernel writes
 * a word into each page, another collects the words, and the host compares them.
 */
#include "backends/opencl/opencl_memory.h"

#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_launch.h"
#include "backends/opencl/opencl_vendor.h"
#include "base/system_memory.h"

#define PAGE_WORDS 1024                /* 4 KiB */
#define SAMPLES_MAX ((int64_t)1 << 18) /* words compared at once */
#define SEED 0x6b43a9b5u
#define HEADROOM_BYTES ((uint64_t)400 << 20) /* if free memory is unknown: what a desktop takes */

extern const struct opencl_source opencl_source_probe;

enum gt_status opencl_memory_read(struct opencl_backend *cl, uint64_t *out_free_bytes,
                                  const char **out_basis)
{
    const uint64_t total = cl->device.global_bytes;
    uint64_t left = 0, host_total = 0, host_free = UINT64_MAX;
    const bool shares_host = cl->device.is_cpu || cl->device.is_host_memory;
    if (shares_host && !system_memory_read(&host_total, &host_free))
        return FAIL(GT_DEVICE, "opencl: the system does not report how much memory it has");
    if (cl->device.is_cpu) {
        *out_basis = "free: what the system has";
        left = host_free;
    } else if (opencl_vendor_free_bytes(cl, &left, out_basis)) {
        assert(*out_basis != NULL);
    } else {
        *out_basis = "free: all but 400 MiB, since its driver does not report it";
        left = total > HEADROOM_BYTES ? total - HEADROOM_BYTES : 0;
    }
    *out_free_bytes = size_min(size_min(left, host_free), total);
    return GT_OK;
}

static enum gt_status segment_make(struct opencl_backend *cl, const struct backend_segment *wanted)
{
    struct opencl_segment *segment = &cl->segment[cl->segments];
    cl_int code = CL_SUCCESS;
    *segment = (struct opencl_segment){.space = wanted->space, .size_bytes = wanted->size_bytes};
    if (wanted->size_bytes > cl->device.allocation_bytes)
        return FAIL(GT_NO_MEMORY,
                    "opencl: a segment needs %" PRIu64
                    " B; the largest allocation of %s is %" PRIu64 " B",
                    wanted->size_bytes, cl->device.name, cl->device.allocation_bytes);
    if (wanted->size_bytes > 0)
        segment->memory = cl->api.clCreateBuffer(
            cl->context,
            CL_MEM_READ_WRITE | (wanted->space == SPACE_HOST ? CL_MEM_ALLOC_HOST_PTR : 0),
            (size_t)wanted->size_bytes, NULL, &code);
    if (code != CL_SUCCESS) {
        char text[OPENCL_CODE_TEXT_MAX];
        return FAIL(GT_NO_MEMORY,
                    "opencl: cannot allocate a segment of %" PRIu64 " B on %s: clCreateBuffer: %s",
                    wanted->size_bytes, cl->device.name, opencl_code_text(text, code));
    }
    cl->segments++;
    return GT_OK;
}

#define PROBE_ITEMS 32

/* Writes to one word in each of `count` pages of a segment a hash of the page's number and the
 * segment's. */
static enum gt_status samples_write(struct opencl_backend *cl, int32_t index, int64_t first,
                                    int64_t count)
{
    struct opencl_launch launch;
    opencl_launch_begin(&launch, cl, &opencl_source_probe, "", "gt_probe_write");
    opencl_arg_memory(&launch, cl->segment[index].memory, 0);
    opencl_arg_values(&launch,
                      VALUES(I64(PAGE_WORDS), I64(first), I64(count), U32(SEED + (uint32_t)index)));
    return opencl_launch_run(&launch, size_ceil_div(count, PROBE_ITEMS), PROBE_ITEMS, 0.0);
}

/* Collects `count` samples from number `first` on and compares them. */
static enum gt_status samples_check(struct opencl_backend *cl, int32_t index, int64_t first,
                                    int64_t count, cl_mem collected, uint32_t *words)
{
    struct opencl_launch launch;
    opencl_launch_begin(&launch, cl, &opencl_source_probe, "", "gt_probe_read");
    opencl_arg_memory(&launch, cl->segment[index].memory, 0);
    opencl_arg_memory(&launch, collected, 0);
    opencl_arg_values(&launch, VALUES(I64(PAGE_WORDS), I64(first), I64(count)));
    TRY(opencl_launch_run(&launch, size_ceil_div(count, PROBE_ITEMS), PROBE_ITEMS, 0.0));
    CL_TRY(cl, "reading the arena back",
           cl->api.clEnqueueReadBuffer(cl->queue, collected, CL_TRUE, 0,
                                       (size_t)count * sizeof *words, words, 0, NULL, NULL));
    for (int64_t i = 0; i < count; i++) {
        if (words[i] == probe_hash((uint64_t)(first + i), SEED + (uint32_t)index))
            continue;
        return FAIL(GT_NO_MEMORY,
                    "opencl: %s does not hold what was written to byte %" PRIu64 " of %" PRIu64
                    " of segment %" PRId32 " of %" PRId32 "; it has less memory than it reports",
                    cl->device.name, (uint64_t)((first + i) * PAGE_WORDS) * sizeof *words,
                    cl->segment[index].size_bytes, index + 1, cl->segments);
    }
    return GT_OK;
}

/* Writes all segments before reading the first, so that two segments in the same memory are
 * detected. */
static enum gt_status segments_prove(struct opencl_backend *cl, cl_mem collected, uint32_t *words)
{
    const uint32_t zero = 0;
    for (int32_t i = 0; i < cl->segments; i++) {
        const size_t bytes = (size_t)(cl->segment[i].size_bytes / sizeof zero * sizeof zero);
        if (bytes > 0)
            CL_TRY(cl, "writing the arena",
                   cl->api.clEnqueueFillBuffer(cl->queue, cl->segment[i].memory, &zero, sizeof zero,
                                               0, bytes, 0, NULL, NULL));
    }
    CL_TRY(cl, "writing the arena", cl->api.clFinish(cl->queue));
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < cl->segments; i++) {
            const int64_t samples =
                size_ceil_div((int64_t)(cl->segment[i].size_bytes / sizeof zero), PAGE_WORDS);
            for (int64_t first = 0; first < samples; first += SAMPLES_MAX) {
                const int64_t count = min_i64(samples - first, SAMPLES_MAX);
                TRY(pass == 0 ? samples_write(cl, i, first, count)
                              : samples_check(cl, i, first, count, collected, words));
            }
        }
    }
    CL_TRY(cl, "writing the arena", cl->api.clFinish(cl->queue));
    return GT_OK;
}

enum gt_status opencl_memory_commit(struct opencl_backend *cl,
                                    const struct backend_segment *segments, int32_t count)
{
    enum gt_status status = GT_OK;
    cl_int code = CL_SUCCESS;
    uint32_t *words = malloc(SAMPLES_MAX * sizeof *words);
    cl_mem collected = cl->api.clCreateBuffer(cl->context, CL_MEM_READ_WRITE,
                                              SAMPLES_MAX * sizeof *words, NULL, &code);
    if (words == NULL || code != CL_SUCCESS)
        status = FAIL(GT_NO_MEMORY, "opencl: no memory for %zu B to check the arena with",
                      (size_t)(SAMPLES_MAX * sizeof *words));
    for (int32_t i = 0; i < count && status == GT_OK; i++)
        status = segment_make(cl, &segments[i]);
    THEN(status, segments_prove(cl, collected, words));
    if (code == CL_SUCCESS)
        (void)cl->api.clReleaseMemObject(collected);
    free(words);
    if (status != GT_OK)
        opencl_memory_release(cl);
    return status;
}

void opencl_memory_release(struct opencl_backend *cl)
{
    for (int32_t i = 0; i < cl->segments; i++)
        if (cl->segment[i].memory != NULL)
            (void)cl->api.clReleaseMemObject(cl->segment[i].memory);
    cl->segments = 0;
}
