/* Reads and writes the parts of parameters.
 *
 * Data that the file has in the dtype of the device's tensor are copied unchanged, so that a resumed run has every bit.
 * Otherwise the state format changes: codes are decoded with the exponents that came before them, and values are
 * encoded block by block, rounded to nearest once.  Pieces begin at a multiple of a block, because the staging buffer
 * is one.
 */
#include "train/restore_parts.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "model/state_codes.h"
#include "train/values.h"

#define PIECE_BLOCKS 32
#define PIECE_ELEMENTS ((size_t)PIECE_BLOCKS * STATE_BLOCK)

static int32_t part_tensor(const struct session *session, enum checkpoint_part part, int32_t index)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    switch (part) {
    case CHECKPOINT_M:
        return parameter->m;
    case CHECKPOINT_V:
        return parameter->v;
    case CHECKPOINT_SCALES:
        return parameter->scales;
    default:
        return model_parameter_home(parameter);
    }
}

enum gt_status restore_part_read(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                 void *out)
{
    struct session *session = context;
    return exec_download(session->exec, part_tensor(session, part, index), (int64_t)first, out, (int64_t)count);
}

static enum state_moment moment_of(enum checkpoint_part part)
{
    return part == CHECKPOINT_M ? STATE_MOMENT_M : STATE_MOMENT_V;
}

static size_t blocks_of(const struct session *session, int32_t index)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    return (size_t)state_blocks(graph_tensor_elements(session->model->graph, parameter->tensor));
}

/* Stores the exponents for the codes that follow. */
static enum gt_status exponents_keep(struct restore_parts *parts, int32_t index, size_t first, size_t count,
                                     const int8_t *values)
{
    const size_t needed = 2 * blocks_of(parts->session, index);
    if (needed > parts->capacity) {
        void *array;
        hostmem_free(parts->session->mem, parts->exponents);
        parts->exponents = NULL;
        parts->capacity = 0;
        TRY(hostmem_alloc(parts->session->mem, needed, 1, "exponents", &array));
        parts->exponents = array;
        parts->capacity = needed;
    }
    assert(first + count <= needed);
    memcpy(parts->exponents + first, values, count);
    return GT_OK;
}

/* Decodes codes from a file into a tensor of floats. */
static enum gt_status codes_expand(const struct restore_parts *parts, enum checkpoint_part part, int32_t index,
                                   size_t first, size_t count, const uint8_t *codes)
{
    const struct session *session = parts->session;
    const int8_t *exponents = parts->exponents + (part == CHECKPOINT_V ? blocks_of(session, index) : 0);
    float values[PIECE_ELEMENTS];
    assert(parts->exponents != NULL && first % STATE_BLOCK == 0);
    for (size_t done = 0; done < count; done += PIECE_ELEMENTS) {
        const size_t piece = size_min(count - done, PIECE_ELEMENTS);
        for (size_t k = 0; k < piece; k += STATE_BLOCK)
            state_codes_decode(moment_of(part), codes + done + k, exponents[(first + done + k) / STATE_BLOCK],
                               size_min(piece - k, STATE_BLOCK), values + k);
        TRY(values_upload(session->exec, session->model->graph, part_tensor(session, part, index),
                          (int64_t)(first + done), values, (int64_t)piece));
    }
    return GT_OK;
}

/* Encodes floats from a file as codes and exponents. */
static enum gt_status codes_make(const struct session *session, enum checkpoint_part part, int32_t index, size_t first,
                                 size_t count, const float *values)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    const size_t row = part == CHECKPOINT_V ? blocks_of(session, index) : 0;
    uint8_t codes[PIECE_ELEMENTS];
    int8_t exponents[PIECE_BLOCKS];
    assert(first % STATE_BLOCK == 0);
    for (size_t done = 0; done < count; done += PIECE_ELEMENTS) {
        const size_t piece = size_min(count - done, PIECE_ELEMENTS), block = (first + done) / STATE_BLOCK;
        for (size_t k = 0; k < piece; k += STATE_BLOCK)
            exponents[k / STATE_BLOCK] =
                state_codes_encode(moment_of(part), values + done + k, size_min(piece - k, STATE_BLOCK), codes + k);
        TRY(exec_upload(session->exec, part_tensor(session, part, index), (int64_t)(first + done), codes,
                        (int64_t)piece));
        TRY(exec_upload(session->exec, parameter->scales, (int64_t)(row + block), exponents,
                        (int64_t)state_blocks((int64_t)piece)));
    }
    return GT_OK;
}

enum gt_status restore_part_write(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                  const void *values, enum dtype dtype)
{
    struct restore_parts *parts = context;
    const struct session *session = parts->session;
    const struct graph *graph = session->model->graph;
    const int32_t tensor = part_tensor(session, part, index);
    if (tensor != TENSOR_NONE && graph->tensors[tensor].dtype == dtype)
        return exec_upload(session->exec, tensor, (int64_t)first, values, (int64_t)count);
    if (part == CHECKPOINT_SCALES)
        return exponents_keep(parts, index, first, count, values);
    if (dtype == DTYPE_U8)
        return codes_expand(parts, part, index, first, count, values);
    assert(dtype == DTYPE_F32);
    if (graph->tensors[tensor].dtype == DTYPE_U8)
        return codes_make(session, part, index, first, count, values);
    return values_upload(session->exec, graph, tensor, (int64_t)first, values, (int64_t)count);
}
