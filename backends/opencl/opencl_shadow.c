/* One cl_mem per tensor while an op runs.
 *
 * Before an op, overlapping ranges of its operands and workspace are merged.  Each range is copied to a memory object
 * of its own size, and copied back after the op.  Only for checks: it creates and releases memory objects in every op.
 */
#include "backends/opencl/opencl_shadow.h"

#include <stdlib.h>
#include <string.h>

#define RANGES_MAX (OP_OPERANDS_MAX + 1)

struct range {
    uint8_t segment;
    uint64_t begin, end;
    cl_mem memory;
};

struct opencl_shadow {
    int32_t count;
    struct range range[RANGES_MAX];
};

struct opencl_shadow *opencl_shadow_create(void)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_BUFFER_PER_TENSOR");
    if (wanted == NULL || strcmp(wanted, "1") != 0)
        return NULL;
    return calloc(1, sizeof(struct opencl_shadow));
}

void opencl_shadow_destroy(struct opencl_shadow *shadow)
{
    free(shadow);
}

/* Adds a range, merged with those that overlap it. */
static void range_add(struct opencl_shadow *shadow, struct address at, uint64_t bytes)
{
    struct range range = {.segment = at.segment, .begin = at.offset_bytes, .end = at.offset_bytes + bytes};
    int32_t kept = 0;
    if (bytes == 0)
        return;
    for (int32_t i = 0; i < shadow->count; i++) {
        const struct range *other = &shadow->range[i];
        if (other->segment == range.segment && other->begin < range.end && range.begin < other->end) {
            range.begin = other->begin < range.begin ? other->begin : range.begin;
            range.end = other->end > range.end ? other->end : range.end;
        } else {
            shadow->range[kept++] = *other;
        }
    }
    assert(kept < RANGES_MAX);
    shadow->range[kept++] = range;
    shadow->count = kept;
}

static void ranges_release(struct opencl_backend *cl)
{
    struct opencl_shadow *shadow = cl->shadow;
    for (int32_t i = 0; i < shadow->count; i++) {
        if (shadow->range[i].memory != NULL)
            (void)cl->api.clReleaseMemObject(shadow->range[i].memory);
    }
    shadow->count = 0;
}

static enum gt_status range_open(struct opencl_backend *cl, struct range *range)
{
    cl_int code = CL_SUCCESS;
    const size_t bytes = (size_t)(range->end - range->begin);
    range->memory = cl->api.clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    CL_TRY(cl, "clCreateBuffer of a tensor's copy", code);
    CL_TRY(cl, "clEnqueueCopyBuffer to a tensor's copy",
           cl->api.clEnqueueCopyBuffer(cl->queue, cl->segment[range->segment].memory, range->memory,
                                       (size_t)range->begin, 0, bytes, 0, NULL, NULL));
    return GT_OK;
}

enum gt_status opencl_shadow_begin(struct opencl_backend *cl, const struct op_call *call)
{
    struct opencl_shadow *shadow = cl->shadow;
    assert(shadow->count == 0);
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        if (call->operand[slot].present)
            range_add(shadow, call->operand[slot].at, operand_bytes(&call->operand[slot]));
    }
    range_add(shadow, call->workspace, call->workspace_bytes);
    for (int32_t i = 0; i < shadow->count; i++) {
        const enum gt_status status = range_open(cl, &shadow->range[i]);
        if (status != GT_OK) {
            ranges_release(cl);
            return status;
        }
    }
    return GT_OK;
}

enum gt_status opencl_shadow_end(struct opencl_backend *cl)
{
    const struct opencl_shadow *shadow = cl->shadow;
    cl_int code = CL_SUCCESS;
    for (int32_t i = 0; i < shadow->count && code == CL_SUCCESS; i++) {
        const struct range *range = &shadow->range[i];
        code = cl->api.clEnqueueCopyBuffer(cl->queue, range->memory, cl->segment[range->segment].memory, 0,
                                           (size_t)range->begin, (size_t)(range->end - range->begin), 0, NULL, NULL);
    }
    if (code == CL_SUCCESS)
        code = cl->api.clFinish(cl->queue);
    ranges_release(cl);
    return code == CL_SUCCESS ? GT_OK : opencl_failure(cl, "copying tensors back", code);
}

struct opencl_place opencl_shadow_place(const struct opencl_shadow *shadow, struct address at, size_t bytes)
{
    for (int32_t i = 0; i < shadow->count; i++) {
        const struct range *range = &shadow->range[i];
        if (range->segment == at.segment && range->begin <= at.offset_bytes && at.offset_bytes + bytes <= range->end)
            return (struct opencl_place){range->memory, at.offset_bytes - range->begin};
    }
    assert(!"the address is not of an operand of this call");
    return (struct opencl_place){NULL, 0};
}
