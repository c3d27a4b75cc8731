/* gemm: d (+)= op(a) op(b) + bias, in one of four ways.
 *
 * Few rows, as in decoding: a kernel that reads b once.  fp32, if CLBlast is installed and chosen:
 * CLBlast, with its temporary buffer in our workspace.  16 bits, if the device has matrix units:
 * kernels/gemm_matrix.cl.  Everything else: our own tiles, which convert each storage dtype to fp32
 * and accumulate in fp32, in groups (kernels/gemm.cl) or, on CPUs, in single work-items
 * (kernels/gemm_single.cl).  The shape of our own tiles affects speed but not bits: each element is
 * one sum in increasing k.
 */
#include "backends/opencl/opencl_gemm.h"

#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_known.h"
#include "backends/opencl/opencl_launch.h"

#define FEW_ROWS 8    /* GT_FEW_ROWS, GT_FEW_COLUMNS and GT_FEW_ITEMS in the kernel */
#define FEW_COLUMNS 4 /* per group */
#define FEW_ITEMS 64
#define LANES 32
#define PITCH_WORDS 20            /* GT_PITCH of the kernel */
#define EMULATED_REGISTERS_MAX 24 /* for a work-item that emulates a unit */
#define WIDE_BYTES 16             /* that matrix units' kernel reads at once */

/* The tile, side, each and inner. */
const struct opencl_shape opencl_gemm_shapes[] = {
    {"64x64 by 1", 64, 1, 64, 64, 0, 0},
    {"128x128 by 1", 128, 1, 128, 64, 0, 0},
    {"32x32 by 1", 32, 1, 32, 64, 0, 0},
    {"64x64 by 256", 64, 16, 4, 16, 0, 0},
    {"128x128 by 256", 128, 16, 8, 8, 0, 0},
    {"64x64 by 64", 64, 8, 8, 8, 0, 0},
    {"32x32 by 64", 32, 8, 4, 16, 0, 0},
    {"16x16 by 16", 16, 4, 4, 16, 0, 0}, /* fits everywhere */
};
const int32_t opencl_gemm_shape_count = sizeof opencl_gemm_shapes / sizeof opencl_gemm_shapes[0];

/* The tile, and the warps down and across. */
const struct opencl_shape opencl_matrix_shapes[] = {{"128x128 by 256", 128, 0, 0, 0, 2, 4},
                                                    {"64x64 by 128", 64, 0, 0, 0, 2, 2},
                                                    {"32x32 by 32", 32, 0, 0, 0, 1, 1}};
const int32_t opencl_matrix_shape_count =
    sizeof opencl_matrix_shapes / sizeof opencl_matrix_shapes[0];

static size_t items_of(const struct opencl_shape *shape)
{
    return (size_t)(shape->side > 0 ? shape->side * shape->side
                                    : shape->down * shape->across * LANES);
}

bool opencl_shape_fits(const struct opencl_backend *cl, const struct opencl_shape *shape)
{
    const size_t tile = (size_t)shape->tile, inner = (size_t)shape->inner, items = items_of(shape);
    size_t words = 2 * inner * (tile + 1);
    if (shape->side == 1)
        words = tile * (2 * inner + tile);
    if (shape->side == 0)
        words =
            2 * tile * PITCH_WORDS + (cl->matrix.is_emulated ? items * EMULATED_REGISTERS_MAX : 0);
    if ((shape->side == 1 && !cl->device.is_cpu) ||
        (shape->side == 0 && cl->matrix.tile != 0 && cl->matrix.tile != shape->tile))
        return false;
    return items <= cl->device.work_group_max && words * sizeof(float) <= cl->device.local_bytes;
}

static int64_t tiles_of(const struct opencl_shape *shape, const struct opencl_product *product)
{
    return size_ceil_div(product->m, shape->tile) * size_ceil_div(product->n, shape->tile);
}

/* Returns the operations of whole tiles, for the limit of a dispatch. */
static double flops_of(const struct opencl_shape *shape, const struct opencl_product *product)
{
    return 2.0 * (double)tiles_of(shape, product) * (double)(shape->tile * shape->tile) *
           (double)product->k;
}

static bool rows_wide(const struct operand *operand)
{
    return operand->dims[1] * (int64_t)dtype_size_bytes(operand->dtype) % WIDE_BYTES == 0 &&
           operand->at.offset_bytes % WIDE_BYTES == 0;
}

static struct opencl_product product_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *b = &call->operand[GEMM_B],
                         *d = &call->operand[GEMM_D];
    return (struct opencl_product){.dtype = a->dtype,
                                   .m = d->dims[0],
                                   .n = d->dims[1],
                                   .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1],
                                   .transpose_a = call->attrs.transpose_a,
                                   .transpose_b = call->attrs.transpose_b,
                                   .accumulate = op_accumulates(call, GEMM_D),
                                   .is_wide = rows_wide(a) && rows_wide(b)};
}

/* Returns the tuned shape, or the first after it that fits. */
static const struct opencl_shape *shape_choose(const struct opencl_backend *cl, enum dtype dtype)
{
    int32_t index = cl->tuning.gemm_shape[dtype];
    if (index < 0 || index >= opencl_gemm_shape_count)
        index = 0;
    while (index + 1 < opencl_gemm_shape_count &&
           !opencl_shape_fits(cl, &opencl_gemm_shapes[index]))
        index++;
    return &opencl_gemm_shapes[index];
}

static void tiles_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                        const struct opencl_shape *shape)
{
    char options[OPENCL_OPTIONS_MAX];
    if (shape->side == 1) {
        snprintf(options, sizeof options, "-DGT_TILE=%" PRId32 " -DGT_INNER=%" PRId32, shape->each,
                 shape->inner);
        opencl_launch_begin(launch, cl, &opencl_source_gemm_single, options, "gt_gemm_single");
        return;
    }
    snprintf(options, sizeof options,
             "-DGT_SIDE=%" PRId32 " -DGT_EACH=%" PRId32 " -DGT_INNER=%" PRId32, shape->side,
             shape->each, shape->inner);
    opencl_launch_begin(launch, cl, &opencl_source_gemm, options, "gt_gemm");
}

static enum gt_status tiles_run(struct opencl_backend *cl, const struct op_call *call,
                                const struct opencl_product *product)
{
    struct opencl_launch launch;
    const struct opencl_shape *shape = shape_choose(cl, product->dtype);
    tiles_begin(&launch, cl, shape);
    opencl_arg_operands(&launch, call, "tttt");
    opencl_arg_values(&launch, VALUES(I32(product->transpose_a), I32(product->transpose_b),
                                      I32(product->accumulate), I64(product->m), I64(product->n),
                                      I64(product->k)));
    return opencl_launch_run(&launch, tiles_of(shape, product), items_of(shape),
                             flops_of(shape, product));
}

static bool is_few(const struct opencl_backend *cl, const struct op_call *call)
{
    return call->operand[GEMM_D].dims[0] <= FEW_ROWS && !call->attrs.transpose_a &&
           call->attrs.transpose_b && cl->device.work_group_max >= FEW_ITEMS;
}

static enum gt_status few_run(struct opencl_backend *cl, const struct op_call *call,
                              const struct opencl_product *product)
{
    struct opencl_launch launch;
    opencl_launch_begin(&launch, cl, &opencl_source_gemm_few, "", "gt_gemm_few");
    opencl_arg_operands(&launch, call, "tttt");
    opencl_arg_values(&launch, VALUES(I32(product->accumulate), I64(product->m), I64(product->n),
                                      I64(product->k)));
    return opencl_launch_run(&launch, size_ceil_div(product->n, FEW_COLUMNS), FEW_ITEMS,
                             2.0 * (double)product->m * (double)product->n * (double)product->k);
}

static enum gt_status clblast_run(struct opencl_backend *cl, const struct op_call *call,
                                  const struct opencl_product *product)
{
    struct opencl_launch launch;
    if (!call->operand[GEMM_BIAS].present)
        return opencl_clblast_run(cl, call, product->accumulate);
    opencl_launch_begin(&launch, cl, &opencl_source_gemm_few, "", "gt_gemm_bias");
    opencl_arg_operands(&launch, call, "--tt");
    opencl_arg_values(&launch, VALUES(I64(product->n)));
    TRY(opencl_launch_columns(&launch, product->n, product->m, 0.0));
    return opencl_clblast_run(cl, call, true);
}

/* ---- on matrix units ----
 *
 * The largest tile is fastest for a product that occupies the whole device with it; smaller
 * products use smaller tiles. The choice depends only on the product's shape and on the device, so
 * sums have one order on one device: every tile adds in increasing k, in steps of the unit.  The
 * layouts of a and b, and whether 16-byte reads are possible, are compiled in: one program for each
 * combination.  opencl_matrix.c decides whether a unit can be used at all.
 */

/* The first shape, from the tuned one on, that fits the device and occupies all of its units; else
 * the last shape that fits. */
static const struct opencl_shape *matrix_shape_choose(const struct opencl_backend *cl,
                                                      const struct opencl_product *product)
{
    const struct opencl_shape *chosen = NULL;
    for (int32_t i = 0;
         i < opencl_matrix_shape_count && (cl->matrix.dtypes >> product->dtype & 1u) != 0; i++) {
        const struct opencl_shape *shape = &opencl_matrix_shapes[i];
        if ((i < cl->tuning.matrix_shape[product->dtype] && cl->matrix.tile == 0) ||
            !opencl_shape_fits(cl, shape))
            continue;
        chosen = shape;
        if (tiles_of(shape, product) >= cl->device.compute_units)
            break;
    }
    return chosen;
}

enum gt_status opencl_matrix_run(struct opencl_backend *cl, const struct op_call *call,
                                 const struct opencl_shape *shape,
                                 const struct opencl_product *product)
{
    struct opencl_launch launch;
    char options[OPENCL_OPTIONS_MAX];
    snprintf(options, sizeof options,
             "-DGT_UNIT=%d -DGT_UNIT_IS_BF16=%d -DGT_TILE=%" PRId32 " -DGT_WARPS_DOWN=%" PRId32
             " -DGT_WARPS_ACROSS=%" PRId32 " -DGT_TURNED_A=%d -DGT_TURNED_B=%d -DGT_WIDE=%d%s",
             (int)cl->matrix.unit, product->dtype == DTYPE_BF16, shape->tile, shape->down,
             shape->across, product->transpose_a, !product->transpose_b, product->is_wide,
             cl->matrix.is_emulated ? " -DGT_EMULATED" : "");
    opencl_launch_begin(&launch, cl, &opencl_source_gemm_matrix, options, "gt_gemm_matrix");
    opencl_arg_operands(&launch, call, "aatt");
    opencl_arg_values(&launch, VALUES(I32(product->accumulate), I64(product->m), I64(product->n),
                                      I64(product->k)));
    return opencl_launch_run(&launch, tiles_of(shape, product), items_of(shape),
                             flops_of(shape, product));
}

static size_t gemm_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    if (is_few(cl, call) || !opencl_clblast_usable(cl, call))
        return 0;
    return opencl_clblast_workspace_bytes(cl, call);
}

static enum gt_status gemm_run(struct opencl_backend *cl, const struct op_call *call)
{
    const struct opencl_product product = product_of(call);
    if (is_few(cl, call))
        return few_run(cl, call, &product);
    if (opencl_clblast_usable(cl, call))
        return clblast_run(cl, call, &product);
    const struct opencl_shape *shape = matrix_shape_choose(cl, &product);
    if (shape != NULL && call->operand[GEMM_B].dtype == product.dtype)
        return opencl_matrix_run(cl, call, shape, &product);
    return tiles_run(cl, call, &product);
}

const struct opencl_op opencl_gemm = {
    .workspace_bytes = gemm_workspace_bytes,
    .run = gemm_run,
};
