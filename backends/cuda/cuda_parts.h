/* Sums over rows in two stages: each part of the rows is summed into a row of the workspace, and those rows are summed
 * in order into the result.
 *
 * A row of the workspace ("strip") stores its columns in tile order.  In a tile of 256 columns, lane l of a warp has
 * the group 8 l .. 8 l + 7; strips are laid out as [tile][element of the group][lane], so that neither shared memory
 * nor the workspace is accessed with a stride.  A strip is a whole number of tiles.  Elements beyond the last column
 * are never read.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_PARTS_H
#define GPT_TRAIN_CUDA_CUDA_PARTS_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"

#define CUDA_TILE_COLUMNS (32 * CUDA_GROUP)
#define CUDA_PARTS_SUMS_MAX 2 /* sums that a part may have */

struct cuda_parts_args {
    const float *strips;
    int64_t parts, columns, strip_floats;
    int32_t strips_per_part, sums; /* a part's strips are adjacent; strip k has sum k */
    struct cuda_floats out[CUDA_PARTS_SUMS_MAX];
    bool accumulate[CUDA_PARTS_SUMS_MAX];
};

/* Columns rounded up to whole tiles. */
static inline int64_t cuda_strip_floats(int64_t columns)
{
    return (columns + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS * CUDA_TILE_COLUMNS;
}

/* The number of parts for a number of rows.  It depends on the shape only, and the workspace never exceeds
 * CUDA_STRIPS_MAX rows of `columns` floats, which is what the plan grants for a card that is not present. */
#define CUDA_STRIPS_MAX 256
#define CUDA_STRIP_ROWS 16

static inline int64_t cuda_strip_parts(int64_t rows, int64_t columns)
{
    const int64_t fitting = CUDA_STRIPS_MAX * columns / cuda_strip_floats(columns);
    const int64_t wanted = (rows + CUDA_STRIP_ROWS - 1) / CUDA_STRIP_ROWS;
    return wanted < fitting ? wanted : fitting;
}

#ifdef __cplusplus
extern "C" {
#endif
/* out[k][columns] (+)= the sum of strip k over the parts. */
cudaError_t cuda_launch_parts_sum(cudaStream_t stream, const struct cuda_parts_args *args);
#ifdef __cplusplus
}
#endif

#endif
