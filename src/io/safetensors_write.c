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

#include "base/size.h"
#include "io/safetensors.h"

#define PIECE_BYTES 512 /* one tensor's part of the header: a name of 127, eight sizes and two offsets of 20 digits */
#define ALIGNMENT 8
#define METADATA "{\"__metadata__\":{\"format\":\"pt\"}" /* transformers rejects a file without "format" */

/* The state while the header is made. */
struct header {
    struct file_replacement *file; /* NULL: only measure */
    size_t length_bytes;
    size_t data_bytes;
};

static enum gt_status header_emit(struct header *header, const char *text, size_t count)
{
    header->length_bytes += count;
    return header->file != NULL ? file_replacement_write(header->file, text, count) : GT_OK;
}

/* A model's configuration was checked long before, so its tensors can be written. */
static size_t elements_of(const struct safetensors_tensor *tensor)
{
    size_t elements = 0;
    const bool fits = size_product(tensor->dims, (size_t)tensor->rank, &elements);
    assert(fits && safetensors_name_valid(tensor->name));
    (void)fits;
    return elements;
}

static enum gt_status header_make(struct header *header, const struct safetensors_source *source)
{
    static const char end[ALIGNMENT + 1] = "}       ";
    TRY(header_emit(header, METADATA, sizeof METADATA - 1));
    for (size_t i = 0; i < source->count; i++) {
        struct safetensors_tensor tensor = {.dtype = DTYPE_COUNT};
        char shape[SAFETENSORS_SHAPE_TEXT_MAX], piece[PIECE_BYTES];
        source->describe(source->context, i, &tensor);
        const size_t begin = header->data_bytes;
        header->data_bytes += elements_of(&tensor) * dtype_size_bytes(tensor.dtype);
        const int length =
            snprintf(piece, sizeof piece, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                     tensor.name, dtype_safetensors_name(tensor.dtype),
                     safetensors_shape_text(shape, tensor.dims, tensor.rank), begin, header->data_bytes);
        assert(length > 0 && (size_t)length < sizeof piece);
        TRY(header_emit(header, piece, (size_t)length));
    }
    return header_emit(header, end, ALIGNMENT - header->length_bytes % ALIGNMENT);
}

/* Makes the header once to measure it, and once to write it. */
static enum gt_status header_write(struct file_replacement *file, const struct safetensors_source *source)
{
    struct header measured = {.file = NULL}, header = {.file = file};
    TRY(header_make(&measured, source));
    const uint64_t length = measured.length_bytes;
    assert(length % ALIGNMENT == 0 && length <= SAFETENSORS_HEADER_BYTES_MAX);
    TRY(file_replacement_write(file, &length, sizeof length));
    return header_make(&header, source);
}

static enum gt_status tensor_write(struct file_replacement *file, const struct safetensors_source *source, size_t index,
                                   void *staging, size_t staging_bytes)
{
    struct safetensors_tensor tensor = {.dtype = DTYPE_COUNT};
    source->describe(source->context, index, &tensor);
    const size_t elements = elements_of(&tensor);
    const size_t element_bytes = dtype_size_bytes(tensor.dtype);
    const size_t count_max = staging_bytes / element_bytes;
    assert(count_max > 0);
    uint32_t crc32c = 0;
    for (size_t first = 0; first < elements;) {
        const size_t count = size_min(elements - first, count_max);
        TRY(source->fill(source->context, index, first, count, staging));
        TRY(file_replacement_write(file, staging, count * element_bytes));
        crc32c = file_crc32c(crc32c, staging, count * element_bytes);
        first += count;
    }
    return source->written != NULL ? source->written(source->context, index, crc32c) : GT_OK;
}

enum gt_status safetensors_write(const char *path, const struct safetensors_source *source, void *staging,
                                 size_t staging_bytes, struct safetensors_result *out)
{
    struct file_replacement file;
    assert(source->count <= SAFETENSORS_TENSORS_MAX);
    TRY(file_replacement_begin_mode(&file, path, source->mode));
    enum gt_status status = header_write(&file, source);
    const uint32_t header_crc32c = file.crc32c;
    for (size_t i = 0; status == GT_OK && i < source->count; i++)
        status = tensor_write(&file, source, i, staging, staging_bytes);
    const struct safetensors_result result = {file.size_bytes, file.crc32c, header_crc32c};
    TRY(file_replacement_end(&file, status));
    *out = result;
    return GT_OK;
}
