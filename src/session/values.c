/* Values of any float dtype.
 *
 * An fp32 tensor gets them unchanged; those of a 16-bit tensor are converted piece by piece, in a
 * buffer on the stack. Nothing is allocated.
 */
#include "session/values.h"

#include "base/size.h"

#define PIECE_ELEMENTS 8192 /* of a buffer on the stack */

enum gt_status values_upload(struct exec *exec, const struct graph *graph, int32_t tensor,
                             int64_t first, const float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_upload(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = min_i64(count - done, PIECE_ELEMENTS);
        dtype_convert(halves, dtype, values + done, DTYPE_F32, (size_t)part);
        TRY(exec_upload(exec, tensor, first + done, halves, part));
    }
    return GT_OK;
}

enum gt_status values_download(struct exec *exec, const struct graph *graph, int32_t tensor,
                               int64_t first, float *values, int64_t count)
{
    enum dtype dtype = graph->tensors[tensor].dtype;
    uint16_t halves[PIECE_ELEMENTS];
    if (dtype == DTYPE_F32)
        return exec_download(exec, tensor, first, values, count);
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (int64_t done = 0; done < count; done += PIECE_ELEMENTS) {
        int64_t part = min_i64(count - done, PIECE_ELEMENTS);
        TRY(exec_download(exec, tensor, first + done, halves, part));
        dtype_convert(values + done, DTYPE_F32, halves, dtype, (size_t)part);
    }
    return GT_OK;
}
