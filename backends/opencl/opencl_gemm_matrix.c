/* gemm on matrix units: chooses the products and the tile shapes, and launches the kernel.
 *
 * The largest tile is fastest for a product that occupies the whole device with it; smaller products use smaller tiles.
 * The choice depends only on the product's shape and on the device, so sums have one order on one device: every tile
 * adds in increasing k, in steps of the unit.  The layouts of a and b, and whether 16-byte reads are possible, are
 * compiled in: one program for each combination.  opencl_matrix.c decides whether a unit can be used at all.
 */
#include "backends/opencl/opencl_gemm_matrix.h"

#include <inttypes.h>
#include <stdio.h>

#define LANES 32
#define PITCH_WORDS 20            /* GT_PITCH of the kernel */
#define EMULATED_REGISTERS_MAX 24 /* for a work-item that emulates a unit */
#define WIDE_BYTES 16
#define WIDE_ELEMENTS 8

const struct opencl_matrix_shape opencl_matrix_shapes[] = {
    {"128x128 by 256", 128, 2, 4}, {"64x64 by 128", 64, 2, 2}, {"32x32 by 32", 32, 1, 1}};
const int32_t opencl_matrix_shape_count = sizeof opencl_matrix_shapes / sizeof opencl_matrix_shapes[0];

static int32_t items_of(const struct opencl_matrix_shape *shape)
{
    return shape->warps_down * shape->warps_across * LANES;
}

bool opencl_matrix_shape_fits(const struct opencl_backend *cl, const struct opencl_matrix_shape *shape)
{
    const size_t items = (size_t)items_of(shape);
    size_t words = 2 * (size_t)shape->tile * PITCH_WORDS;
    if (cl->matrix.is_emulated)
        words += items * EMULATED_REGISTERS_MAX;
    if (cl->matrix.tile != 0 && cl->matrix.tile != shape->tile)
        return false;
    return items <= cl->device.work_group_max && words * sizeof(uint32_t) <= cl->device.local_bytes;
}

static int64_t tiles_of(const struct opencl_matrix_shape *shape, const struct opencl_matrix_product *product)
{
    const int64_t tile = shape->tile;
    return (product->m + tile - 1) / tile * ((product->n + tile - 1) / tile);
}

/* Returns the first shape, from the tuned one on, that fits the device and occupies all of its units; else the last
 * shape that fits, or NULL. */
static const struct opencl_matrix_shape *shape_choose(const struct opencl_backend *cl,
                                                      const struct opencl_matrix_product *product)
{
    const struct opencl_matrix_shape *chosen = NULL;
    for (int32_t i = 0; i < opencl_matrix_shape_count; i++) {
        const struct opencl_matrix_shape *shape = &opencl_matrix_shapes[i];
        if ((i < cl->tuning.matrix_shape[product->dtype] && cl->matrix.tile == 0) ||
            !opencl_matrix_shape_fits(cl, shape))
            continue;
        chosen = shape;
        if (tiles_of(shape, product) >= cl->device.compute_units)
            break;
    }
    return chosen;
}

void opencl_matrix_begin(struct opencl_launch *launch, struct opencl_backend *cl,
                         const struct opencl_matrix_shape *shape, const struct opencl_matrix_product *product)
{
    char options[OPENCL_OPTIONS_MAX];
    snprintf(options, sizeof options,
             "-DGT_UNIT=%d -DGT_UNIT_DTYPE=%d -DGT_TILE=%" PRId32 " -DGT_WARPS_DOWN=%" PRId32
             " -DGT_WARPS_ACROSS=%" PRId32 " -DGT_TURNED_A=%d -DGT_TURNED_B=%d -DGT_WIDE=%d%s",
             (int)cl->matrix.unit, (int)product->dtype, shape->tile, shape->warps_down, shape->warps_across,
             product->transpose_a, !product->transpose_b, product->is_wide,
             cl->matrix.is_emulated ? " -DGT_EMULATED" : "");
    opencl_launch_begin(launch, &cl->base, &opencl_source_gemm_matrix, options, "gt_gemm_matrix");
}

enum gt_status opencl_matrix_end(struct opencl_launch *launch, const struct opencl_matrix_shape *shape,
                                 const struct opencl_matrix_product *product)
{
    const size_t items = (size_t)items_of(shape);
    const int64_t tiles = tiles_of(shape, product);
    opencl_arg_i32(launch, product->accumulate);
    opencl_arg_i64(launch, product->m);
    opencl_arg_i64(launch, product->n);
    opencl_arg_i64(launch, product->k);
    return opencl_launch_run(launch, (struct opencl_range){.dims = 1,
                                                           .global = {(size_t)tiles * items},
                                                           .local = {items},
                                                           .flops = 2.0 * (double)tiles * (double)shape->tile *
                                                                    (double)shape->tile * (double)product->k});
}

static bool rows_wide(const struct operand *operand)
{
    return operand->dims[1] % WIDE_ELEMENTS == 0 && operand->at.offset_bytes % WIDE_BYTES == 0;
}

static struct opencl_matrix_product product_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *b = &call->operand[GEMM_B], *d = &call->operand[GEMM_D];
    return (struct opencl_matrix_product){.dtype = a->dtype,
                                          .m = d->dims[0],
                                          .n = d->dims[1],
                                          .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1],
                                          .transpose_a = call->attrs.transpose_a,
                                          .transpose_b = call->attrs.transpose_b,
                                          .accumulate = op_accumulates(call, GEMM_D),
                                          .is_wide = rows_wide(a) && rows_wide(b)};
}

bool opencl_matrix_takes(const struct opencl_backend *cl, const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *b = &call->operand[GEMM_B];
    const struct opencl_matrix_product product = product_of(call);
    return a->dtype == b->dtype && (cl->matrix.dtypes >> a->dtype & 1u) != 0 && shape_choose(cl, &product) != NULL;
}

enum gt_status opencl_matrix_run(struct backend *backend, const struct op_call *call)
{
    struct opencl_backend *cl = opencl_own(backend);
    struct opencl_launch launch;
    const struct opencl_matrix_product product = product_of(call);
    const struct opencl_matrix_shape *shape = shape_choose(cl, &product);
    assert(shape != NULL);
    opencl_matrix_begin(&launch, cl, shape, &product);
    opencl_arg_operand(&launch, call, GEMM_A);
    opencl_arg_operand(&launch, call, GEMM_B);
    opencl_arg_tensor(&launch, call, GEMM_BIAS);
    opencl_arg_tensor(&launch, call, GEMM_D);
    return opencl_matrix_end(&launch, shape, &product);
}
