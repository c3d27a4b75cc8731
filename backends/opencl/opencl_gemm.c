/* gemm: d (+)= op(a) op(b) + bias, in one of four ways.
 *
 * Few rows, as in decoding: a kernel that reads b once.  fp32, if CLBlast is installed and chosen: CLBlast, with its
 * temporary buffer in our workspace.  16 bits, if the device has matrix units: opencl_gemm_matrix.c.  Everything else:
 * our own tiles, which convert each storage dtype to fp32 and accumulate in fp32, in groups (kernels/gemm.cl) or, on
 * CPUs, in single work-items (kernels/gemm_single.cl).  The shape of our own tiles affects speed but not bits: each
 * element is one sum in increasing k.
 */
#include "backends/opencl/opencl_gemm.h"

#include <inttypes.h>
#include <stdio.h>

#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_gemm_matrix.h"

#define FEW_ROWS 8    /* GT_FEW_ROWS, GT_FEW_COLUMNS and GT_FEW_ITEMS in the kernel */
#define FEW_COLUMNS 4 /* per group */
#define FEW_ITEMS 64

const struct opencl_gemm_shape opencl_gemm_shapes[] = {
    {"64x64 by 1", 1, 64, 64},   {"128x128 by 1", 1, 128, 64}, {"32x32 by 1", 1, 32, 64},
    {"64x64 by 256", 16, 4, 16}, {"128x128 by 256", 16, 8, 8}, {"64x64 by 64", 8, 8, 8},
    {"32x32 by 64", 8, 4, 16},   {"16x16 by 16", 4, 4, 16}, /* fits everywhere */
};
const int32_t opencl_gemm_shape_count = sizeof opencl_gemm_shapes / sizeof opencl_gemm_shapes[0];

static int32_t tile_of(const struct opencl_gemm_shape *shape)
{
    return shape->side * shape->each;
}

bool opencl_gemm_shape_fits(const struct opencl_backend *cl, const struct opencl_gemm_shape *shape)
{
    const size_t tile = (size_t)tile_of(shape), inner = (size_t)shape->inner;
    if (shape->side == 1)
        return cl->device.is_cpu && sizeof(float) * tile * (2 * inner + tile) <= cl->device.local_bytes;
    return (size_t)shape->side * (size_t)shape->side <= cl->device.work_group_max &&
           2 * sizeof(float) * inner * (tile + 1) <= cl->device.local_bytes;
}

struct product {
    int64_t m, n, k;
};

static struct product product_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *d = &call->operand[GEMM_D];
    return (struct product){.m = d->dims[0], .n = d->dims[1], .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1]};
}

/* Returns the tuned shape, or the first after it that fits. */
static const struct opencl_gemm_shape *shape_choose(const struct opencl_backend *cl, enum dtype dtype)
{
    int32_t index = cl->tuning.gemm_shape[dtype];
    if (index < 0 || index >= opencl_gemm_shape_count)
        index = 0;
    while (index + 1 < opencl_gemm_shape_count && !opencl_gemm_shape_fits(cl, &opencl_gemm_shapes[index]))
        index++;
    return &opencl_gemm_shapes[index];
}

static void operands_arg(struct opencl_launch *launch, const struct op_call *call)
{
    opencl_arg_tensor(launch, call, GEMM_A);
    opencl_arg_tensor(launch, call, GEMM_B);
    opencl_arg_tensor(launch, call, GEMM_BIAS);
    opencl_arg_tensor(launch, call, GEMM_D);
}

static void sizes_arg(struct opencl_launch *launch, const struct product *product)
{
    opencl_arg_i64(launch, product->m);
    opencl_arg_i64(launch, product->n);
    opencl_arg_i64(launch, product->k);
}

static enum gt_status groups_run(struct opencl_launch *launch, int64_t groups, size_t items, double flops)
{
    const struct opencl_range range = {.dims = 1, .global = {(size_t)groups * items}, .local = {items}, .flops = flops};
    return opencl_launch_run(launch, range);
}

static void tiles_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_gemm_shape *shape)
{
    char options[OPENCL_OPTIONS_MAX];
    if (shape->side == 1) {
        snprintf(options, sizeof options, "-DGT_TILE=%" PRId32 " -DGT_INNER=%" PRId32, shape->each, shape->inner);
        opencl_launch_begin(launch, backend, &opencl_source_gemm_single, options, "gt_gemm_single");
        return;
    }
    snprintf(options, sizeof options, "-DGT_SIDE=%" PRId32 " -DGT_EACH=%" PRId32 " -DGT_INNER=%" PRId32, shape->side,
             shape->each, shape->inner);
    opencl_launch_begin(launch, backend, &opencl_source_gemm, options, "gt_gemm");
}

static enum gt_status tiles_run(struct backend *backend, const struct op_call *call, const struct product *product)
{
    struct opencl_launch launch;
    const struct opencl_gemm_shape *shape = shape_choose(opencl_from(backend), call->operand[GEMM_A].dtype);
    const int64_t tile = tile_of(shape);
    const int64_t groups = (product->m + tile - 1) / tile * ((product->n + tile - 1) / tile);
    tiles_begin(&launch, backend, shape);
    operands_arg(&launch, call);
    opencl_arg_i32(&launch, call->attrs.transpose_a);
    opencl_arg_i32(&launch, call->attrs.transpose_b);
    opencl_arg_i32(&launch, op_accumulates(call, GEMM_D));
    sizes_arg(&launch, product);
    return groups_run(&launch, groups, (size_t)shape->side * (size_t)shape->side,
                      2.0 * (double)groups * (double)(tile * tile) * (double)product->k);
}

static bool is_few(const struct backend *backend, const struct op_call *call)
{
    return call->operand[GEMM_D].dims[0] <= FEW_ROWS && !call->attrs.transpose_a && call->attrs.transpose_b &&
           opencl_from(backend)->device.work_group_max >= FEW_ITEMS;
}

static enum gt_status few_run(struct backend *backend, const struct op_call *call, const struct product *product)
{
    struct opencl_launch launch;
    opencl_launch_begin(&launch, backend, &opencl_source_gemm_few, "", "gt_gemm_few");
    operands_arg(&launch, call);
    opencl_arg_i32(&launch, op_accumulates(call, GEMM_D));
    sizes_arg(&launch, product);
    return groups_run(&launch, (product->n + FEW_COLUMNS - 1) / FEW_COLUMNS, FEW_ITEMS,
                      2.0 * (double)product->m * (double)product->n * (double)product->k);
}

static enum gt_status clblast_run(struct backend *backend, const struct op_call *call, const struct product *product)
{
    struct opencl_launch launch;
    if (!call->operand[GEMM_BIAS].present)
        return opencl_clblast_run(backend, call, op_accumulates(call, GEMM_D));
    opencl_launch_begin(&launch, backend, &opencl_source_gemm_few, "", "gt_gemm_bias");
    opencl_arg_tensor(&launch, call, GEMM_BIAS);
    opencl_arg_tensor(&launch, call, GEMM_D);
    opencl_arg_i64(&launch, product->n);
    TRY(opencl_run_columns(&launch, product->n, product->m, 0.0));
    return opencl_clblast_run(backend, call, true);
}

static size_t gemm_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    if (is_few(backend, call) || !opencl_clblast_usable(backend, call))
        return 0;
    return opencl_clblast_workspace_bytes(backend, call);
}

static enum gt_status gemm_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct product product = product_of(call);
    (void)queue;
    if (is_few(backend, call))
        return few_run(backend, call, &product);
    if (opencl_clblast_usable(backend, call))
        return clblast_run(backend, call, &product);
    if (opencl_matrix_takes(opencl_from(backend), call))
        return opencl_matrix_run(backend, call);
    return tiles_run(backend, call, &product);
}

const struct op_impl opencl_gemm = {
    .supports = opencl_floats_supported,
    .workspace_bytes = gemm_workspace_bytes,
    .run = gemm_run,
};
