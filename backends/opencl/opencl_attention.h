/* Shapes and build options shared by attention's host files; the options follow from the head size. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_ATTENTION_H
#define GPT_TRAIN_OPENCL_OPENCL_ATTENTION_H

#include "backends/opencl/opencl_kernels.h"

#define OPENCL_ATTENTION_ITEMS 64 /* work-items per group */
#define OPENCL_HEAD_SIZE_MAX 128

struct opencl_attention_shape {
    int64_t samples, time, heads, kv_heads;
    int64_t head_size, row; /* row: elements in a row of qkv */
    bool narrow;            /* head size up to 64; tiles are then larger */
    const char *options;    /* GT_SLICES: columns of a head per work-item */
};

static inline struct opencl_attention_shape opencl_attention_shape_of(const struct op_call *call, int32_t qkv)
{
    const int64_t *dims = call->operand[qkv].dims;
    const int64_t heads = call->attrs.heads, kv_heads = call->attrs.kv_heads;
    const int64_t size = dims[1] / (heads + 2 * kv_heads);
    return (struct opencl_attention_shape){
        .samples = dims[0] / call->attrs.time,
        .time = call->attrs.time,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_size = size,
        .row = dims[1],
        .narrow = size <= OPENCL_HEAD_SIZE_MAX / 2,
        .options = size <= OPENCL_HEAD_SIZE_MAX / 2 ? "-DGT_SLICES=8" : "-DGT_SLICES=16",
    };
}

/* The kernels' tiles take less than 30 KiB of local memory; every full-profile device has 32 KiB. */
#define OPENCL_ATTENTION_LOCAL_BYTES 30720
static inline bool opencl_attention_fits(const struct backend *backend, const struct op_call *call, int32_t qkv)
{
    const struct opencl_device *device = &opencl_from(backend)->device;
    return opencl_attention_shape_of(call, qkv).head_size <= OPENCL_HEAD_SIZE_MAX &&
           device->local_bytes >= OPENCL_ATTENTION_LOCAL_BYTES && device->work_group_max >= OPENCL_ATTENTION_ITEMS &&
           opencl_floats_supported(backend, call);
}

static inline enum gt_status opencl_attention_launch(struct opencl_launch *launch, int64_t groups, double flops)
{
    const struct opencl_range range = {.dims = 1,
                                       .global = {(size_t)groups * OPENCL_ATTENTION_ITEMS},
                                       .local = {OPENCL_ATTENTION_ITEMS},
                                       .flops = flops};
    return opencl_launch_run(launch, range);
}

#endif
