/* Sums over rows in two stages: parts of the rows into rows of the workspace, and those, in their order, into the result.
 *
 * A row of the workspace ("strip") holds its columns in tile order: tiles of 256 columns, of which lane l of a warp has the
 * group 8 l .. 8 l + 7, lie as [tile][element of the group][lane], so that neither shared memory nor the workspace is
 * accessed with a stride.  A strip is a whole number of tiles.  What lies beyond the last column is never read.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_PARTS_H
#define GPT_TRAIN_CUDA_CUDA_PARTS_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"

#define CUDA_TILE_COLUMNS (32 * CUDA_GROUP)
#define CUDA_PARTS_SUMS_MAX 2 /* sums that strips may hold beside each other */

struct cuda_parts_args {
    const float *strips;
    int64_t parts, columns, strip_floats;
    int32_t strips_per_part, sums; /* a part's strips follow each other; sum k is in the k-th */
    struct cuda_floats out[CUDA_PARTS_SUMS_MAX];
    bool accumulate[CUDA_PARTS_SUMS_MAX];
};

/* Columns rounded up to whole tiles. */
static inline int64_t cuda_strip_floats(int64_t columns)
{
    return (columns + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS * CUDA_TILE_COLUMNS;
}

/* How many parts so many rows make: fixed by the shape, and never more than CUDA_STRIPS_MAX rows of `columns` floats in the
 * workspace, which is what a plan for a card that is not there grants. */
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
