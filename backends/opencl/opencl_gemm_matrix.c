/* gemm on matrix units: chooses the products and the tile shapes, and launches the kernel.
 *
 * The largest tile is fastest for a product that occupies the whole device with it; smaller products use smaller tiles.
 * The choice depends only on the product's shape and on the device, so sums have one order on one device: every tile
 * adds in increasing k, in steps of the unit.  The layouts of a and b, and whether 16-byte reads are possible, are
 * compiled in: one program for each combination.  opencl_matrix.c decides whether a unit can be used at all.
 */
#include "backends/opencl/opencl_gemm.h"

#include <inttypes.h>
#include <stdio.h>

#define LANES 32
#define PITCH_WORDS 20            /* GT_PITCH of the kernel */
#define EMULATED_REGISTERS_MAX 24 /* for a work-item that emulates a unit */

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

static int64_t tiles_of(const struct opencl_matrix_shape *shape, const struct opencl_product *product)
{
    return size_ceil_div(product->m, shape->tile) * size_ceil_div(product->n, shape->tile);
}

/* The first shape, from the tuned one on, that fits the device and occupies all of its units; else the last shape that
 * fits. */
const struct opencl_matrix_shape *opencl_matrix_shape_choose(const struct opencl_backend *cl,
                                                             const struct opencl_product *product)
{
    const struct opencl_matrix_shape *chosen = NULL;
    for (int32_t i = 0; i < opencl_matrix_shape_count && (cl->matrix.dtypes >> product->dtype & 1u) != 0; i++) {
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
                         const struct opencl_matrix_shape *shape, const struct opencl_product *product)
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
                                 const struct opencl_product *product)
{
    const int64_t tiles = tiles_of(shape, product);
    opencl_arg_values(launch, VALUES(I32(product->accumulate), I64(product->m), I64(product->n), I64(product->k)));
    return opencl_launch_run(launch, tiles, (size_t)items_of(shape),
                             2.0 * (double)tiles * (double)shape->tile * (double)shape->tile * (double)product->k);
}
