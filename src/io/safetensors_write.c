/* Writes safetensors.
 *
 * The same function makes the header twice, first to measure it and then to write it, so that memory does not grow with
 * the number of tensors.  The data is streamed through the caller's staging buffer into a temporary file, which
 * replaces the target in one rename; checksums are computed on the way.  The source determines the order of the tensors
 * and we that of the fields, so equal weights give equal files.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "io/safetensors.h"

#define PIECE_BYTES 512 /* one tensor's part of the header: a name of 127, eight sizes and two offsets of 20 digits */
#define ALIGNMENT 8
#define METADATA "{\"__metadata__\":{\"format\":\"pt\"}" /* transformers rejects a file without "format" */

/* The state while the header is made. */
struct header {
    const char *path;
    struct file_replacement *file; /* NULL: only measure */
    size_t length_bytes;
    size_t data_bytes;
};

static enum gt_status header_emit(struct header *header, const char *text, size_t count)
{
    header->length_bytes += count;
    return header->file != NULL ? file_replacement_write(header->file, text, count) : GT_OK;
}

static enum gt_status refuse(const char *path, const char *name, const char *why)
{
    log_error("%s: tensor %s cannot be written: %s", path, name, why);
    return GT_UNSUPPORTED;
}

static enum gt_status tensor_elements(const char *path, const struct safetensors_tensor *tensor, size_t *out)
{
    if (!safetensors_name_valid(tensor->name))
        return refuse(path, tensor->name, "the name is empty, too long, or has characters outside of [A-Za-z0-9._-]");
    if (tensor->rank < 0 || tensor->rank > SAFETENSORS_RANK_MAX || tensor->dtype >= DTYPE_COUNT)
        return refuse(path, tensor->name, "no such rank or dtype");
    for (int32_t i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] < 0)
            return refuse(path, tensor->name, "a size is negative");
    }
    if (!size_product(tensor->dims, (size_t)tensor->rank, out))
        return refuse(path, tensor->name, "the product of the sizes does not fit 64 bits");
    return GT_OK;
}

static enum gt_status header_tensor(struct header *header, const struct safetensors_tensor *tensor)
{
    size_t elements, bytes, end;
    TRY(tensor_elements(header->path, tensor, &elements));
    if (!size_mul(elements, dtype_size_bytes(tensor->dtype), &bytes) || !size_add(header->data_bytes, bytes, &end) ||
        end > INT64_MAX)
        return refuse(header->path, tensor->name, "the file would be longer than 2^63 bytes");
    char shape[SAFETENSORS_SHAPE_TEXT_MAX], piece[PIECE_BYTES];
    int length = snprintf(piece, sizeof piece, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                          tensor->name, dtype_safetensors_name(tensor->dtype),
                          safetensors_shape_text(shape, tensor->dims, tensor->rank), header->data_bytes, end);
    assert(length > 0 && (size_t)length < sizeof piece);
    header->data_bytes = end;
    return header_emit(header, piece, (size_t)length);
}

static enum gt_status header_make(struct header *header, const struct safetensors_source *source)
{
    TRY(header_emit(header, METADATA, sizeof METADATA - 1));
    for (size_t i = 0; i < source->count; i++) {
        struct safetensors_tensor tensor = {.dtype = DTYPE_COUNT};
        source->describe(source->context, i, &tensor);
        TRY(header_tensor(header, &tensor));
    }
    static const char end[ALIGNMENT + 1] = "}       ";
    return header_emit(header, end, ALIGNMENT - header->length_bytes % ALIGNMENT);
}

static enum gt_status header_measure(const char *path, const struct safetensors_source *source, size_t *out_bytes)
{
    if (source->count > SAFETENSORS_TENSORS_MAX) {
        log_error("%s: %zu tensors are to be written, but at most %d can be read back", path, source->count,
                  SAFETENSORS_TENSORS_MAX);
        return GT_UNSUPPORTED;
    }
    struct header header = {.path = path};
    TRY(header_make(&header, source));
    if (header.length_bytes > SAFETENSORS_HEADER_BYTES_MAX) {
        log_error("%s: the header would have %zu bytes, but at most %zu can be read back", path, header.length_bytes,
                  SAFETENSORS_HEADER_BYTES_MAX);
        return GT_UNSUPPORTED;
    }
    assert(header.length_bytes % ALIGNMENT == 0);
    *out_bytes = header.length_bytes;
    return GT_OK;
}

static enum gt_status header_write(struct file_replacement *file, const char *path,
                                   const struct safetensors_source *source, size_t header_bytes)
{
    const uint64_t length = header_bytes;
    TRY(file_replacement_write(file, &length, sizeof length));
    struct header header = {.path = path, .file = file};
    TRY(header_make(&header, source));
    assert(header.length_bytes == header_bytes);
    return GT_OK;
}

static enum gt_status tensor_write(struct file_replacement *file, const struct safetensors_source *source, size_t index,
                                   void *staging, size_t staging_bytes)
{
    struct safetensors_tensor tensor = {.dtype = DTYPE_COUNT};
    source->describe(source->context, index, &tensor);
    size_t elements;
    TRY(tensor_elements(file->path, &tensor, &elements));
    const size_t element_bytes = dtype_size_bytes(tensor.dtype);
    const size_t count_max = staging_bytes / element_bytes;
    assert(count_max > 0);
    uint32_t crc32c = 0;
    for (size_t first = 0; first < elements;) {
        const size_t count = elements - first < count_max ? elements - first : count_max;
        TRY(source->fill(source->context, index, first, count, staging));
        TRY(file_replacement_write(file, staging, count * element_bytes));
        crc32c = file_crc32c(crc32c, staging, count * element_bytes);
        first += count;
    }
    return source->written != NULL ? source->written(source->context, index, crc32c) : GT_OK;
}

static enum gt_status data_write(struct file_replacement *file, const struct safetensors_source *source, void *staging,
                                 size_t staging_bytes)
{
    for (size_t i = 0; i < source->count; i++)
        TRY(tensor_write(file, source, i, staging, staging_bytes));
    return GT_OK;
}

enum gt_status safetensors_write(const char *path, const struct safetensors_source *source, void *staging,
                                 size_t staging_bytes, struct safetensors_result *out)
{
    size_t header_bytes;
    struct file_replacement file;
    TRY(header_measure(path, source, &header_bytes));
    TRY(file_replacement_begin_mode(&file, path, source->mode));
    enum gt_status status = header_write(&file, path, source, header_bytes);
    const uint32_t header_crc32c = file.crc32c;
    if (status == GT_OK)
        status = data_write(&file, source, staging, staging_bytes);
    const struct safetensors_result result = {file.size_bytes, file.crc32c, header_crc32c};
    TRY(file_replacement_end(&file, status));
    *out = result;
    return GT_OK;
}
