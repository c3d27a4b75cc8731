/* Copies floats from the host to tensors of any float dtype, and back.
 *
 * fp32 tensors take the values unchanged; 16-bit ones take them in pieces that fit a buffer on the stack, so that no
 * caller needs memory for it.
 */
#include "train/values.h"

#include <assert.h>

#include "base/dtype.h"

#define PIECE_ELEMENTS 8192

static int64_t piece(int64_t count)
{
    return count < PIECE_ELEMENTS ? count : PIECE_ELEMENTS;
}

enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                             const float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_upload(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = piece(count - done);
        dtype_convert(halves, dtype, values + done, DTYPE_F32, (size_t)part);
        TRY(exec_upload(exec, tensor, first + done, halves, part));
    }
    return GT_OK;
}

enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor, int64_t first,
                               float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_download(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = piece(count - done);
        TRY(exec_download(exec, tensor, first + done, halves, part));
        dtype_convert(values + done, DTYPE_F32, halves, dtype, (size_t)part);
    }
    return GT_OK;
}
