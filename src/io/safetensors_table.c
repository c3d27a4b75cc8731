/* Tables of arrays in files, and the writer of safetensors.
 *
 * Every array is checked against its file when it is added, so that reading is just pread, straight
 * into the caller's buffer.  Files are not mapped: if another process truncated one, this one would
 * end with SIGBUS.  The rows of a transposed array are the columns of the stored one: of each
 * stored row, the elements that belong to the requested piece are contiguous in the file; they are
 * read and scattered.  No array is ever in memory as a whole.
 */
#include "io/safetensors_table.h"

#include <unistd.h>

#include "base/crc32c.h"
#include "base/size.h"

#define PIECE_COUNT 4096 /* elements read at a time, on the stack */
#define PIECE_BLOCKS 16  /* blocks decoded at a time */

static void files_close(void *object)
{
    struct safetensors *table = object;
    for (size_t i = 0; i < table->file_count; i++)
        if (table->files[i].fd >= 0)
            (void)close(table->files[i].fd);
}

enum gt_status safetensors_create(const void *owner, const char *path, struct safetensors **out)
{
    struct safetensors *table;
    TRY(HOSTMEM_NEW(owner, 1, "table of arrays", &table));
    hostmem_at_free(table, files_close);
    const enum gt_status status = file_trim(table->path, path);
    return FINISH(status, out, table, hostmem_free);
}

enum gt_status safetensors_fd_add(struct safetensors *table, const char *path, int fd,
                                  uint64_t size_bytes)
{
    const size_t count = table->file_count;
    enum gt_status status = HOSTMEM_GROW(table, &table->files, count + 1, "files of arrays");
    if (status != GT_OK) {
        (void)close(fd);
        return status;
    }
    table->files[count] = (struct safetensors_file){.fd = fd, .size_bytes = size_bytes};
    table->file_count++;
    return hostmem_strdup(table, path, &table->files[count].path);
}

enum gt_status safetensors_file_add(struct safetensors *table, const char *path)
{
    int fd;
    uint64_t size_bytes;
    TRY(file_open_read(path, &fd, &size_bytes));
    return safetensors_fd_add(table, path, fd, size_bytes);
}

bool safetensors_name_valid(const char *name)
{
    static const char accepted[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t length = strnlen(name, SAFETENSORS_NAME_MAX);
    return length > 0 && length < SAFETENSORS_NAME_MAX && strspn(name, accepted) == length;
}

/* Sets the computed fields of `tensor`, and compares its place with the file. */
static enum gt_status place_check(const struct safetensors *table,
                                  struct safetensors_tensor *tensor)
{
    /* The caller sets the size of an array without an enum dtype, which is never read. */
    const size_t element_bytes = tensor->dtype < DTYPE_COUNT ? dtype_size_bytes(tensor->dtype) : 0;
    const struct safetensors_file *file =
        tensor->file != SAFETENSORS_ZEROS ? &table->files[tensor->file] : NULL;
    const char *path = file != NULL ? file->path : table->path;
    const struct ggml_block *block = tensor->block;
    size_t bytes;
    if (!size_product(tensor->dims, (size_t)tensor->rank, &tensor->elements) ||
        (block != NULL ? !size_mul(tensor->elements / block->values, block->bytes, &bytes)
                       : !size_mul(tensor->elements, element_bytes, &bytes)))
        return FAIL(GT_DATA, "%s: tensor %s: the product of its sizes does not fit 64 bits", path,
                    tensor->name);
    if (tensor->dtype < DTYPE_COUNT)
        tensor->size_bytes = bytes;
    if (file == NULL || (tensor->offset_bytes <= file->size_bytes &&
                         tensor->size_bytes <= file->size_bytes - tensor->offset_bytes))
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: tensor %s: %" PRIu64 " bytes at byte %" PRIu64
                " lie outside the file, which has %" PRIu64 " bytes",
                path, tensor->name, tensor->size_bytes, tensor->offset_bytes, file->size_bytes);
}

enum gt_status safetensors_add(struct safetensors *table, const struct safetensors_tensor *tensor)
{
    const char *path = tensor->file >= 0 ? table->files[tensor->file].path : table->path;
    size_t index;
    assert(tensor->file >= SAFETENSORS_ZEROS && tensor->file < (int32_t)table->file_count);
    assert(tensor->rank >= 0 && tensor->rank <= SAFETENSORS_RANK_MAX);
    if (!safetensors_name_valid(tensor->name))
        return FAIL(GT_DATA,
                    "%s: tensor name \"%.64s\": must be 1 to %d characters of A-Z a-z 0-9 . _ -",
                    path, tensor->name, SAFETENSORS_NAME_MAX - 1);
    if (safetensors_find(table, tensor->name, &index) || table->count >= SAFETENSORS_TENSORS_MAX ||
        (tensor->transposed && tensor->rank != 2))
        return FAIL(
            GT_DATA,
            "%s: tensor %s: is listed twice, is one too many, or is transposed without two dimensions",
            path, tensor->name);
    TRY(HOSTMEM_GROW(table, &table->tensors, table->count + 1, "table of arrays"));
    struct safetensors_tensor *entry = &table->tensors[table->count];
    *entry = *tensor;
    TRY(place_check(table, entry));
    table->count++;
    return GT_OK;
}

enum gt_status safetensors_join(struct safetensors *table, struct safetensors *other)
{
    struct safetensors_file *file = &other->files[0];
    assert(other->file_count == 1);
    const int fd = file->fd;
    file->fd = -1; /* moved */
    TRY(safetensors_fd_add(table, file->path, fd, file->size_bytes));
    for (size_t i = 0; i < other->count; i++) {
        other->tensors[i].file = (int32_t)table->file_count - 1;
        TRY(safetensors_add(table, &other->tensors[i]));
    }
    return GT_OK;
}

const char *safetensors_path(const struct safetensors *table, size_t index)
{
    const int32_t file = table->tensors[index].file;
    return file != SAFETENSORS_ZEROS ? table->files[file].path : table->path;
}

bool safetensors_find(const struct safetensors *table, const char *name, size_t *out_index)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->tensors[i].name, name) == 0) {
            *out_index = i;
            return true;
        }
    }
    return false;
}

/* ---- reading ---- */
/* Decodes elements first ... first+count-1 in the file's order; the first and the last block may
 * lie partly outside. */
static enum gt_status blocks_read(const struct safetensors *table,
                                  const struct safetensors_tensor *tensor, size_t first,
                                  size_t count, float *out)
{
    unsigned char bytes[GGML_BLOCK_BYTES_MAX * PIECE_BLOCKS];
    float values[GGML_BLOCK_VALUES_MAX * PIECE_BLOCKS];
    const struct ggml_block *block = tensor->block;
    const struct safetensors_file *file = &table->files[tensor->file];
    for (size_t done = 0, now; done < count; done += now) {
        const size_t index = (first + done) / block->values, skip = (first + done) % block->values;
        const size_t blocks =
            size_min((skip + count - done + block->values - 1) / block->values, PIECE_BLOCKS);
        now = size_min(count - done, blocks * block->values - skip);
        TRY(file_read_at(file->fd, file->path,
                         tensor->offset_bytes + (uint64_t)index * block->bytes, bytes,
                         blocks * block->bytes));
        for (size_t i = 0; i < blocks; i++)
            block->decode(bytes + i * block->bytes, values + i * block->values);
        memcpy(out + done, values + skip, now * sizeof values[0]);
    }
    return GT_OK;
}

/* Reads elements first ... first+count-1 in the file's order. */
static enum gt_status stored_read(const struct safetensors *table,
                                  const struct safetensors_tensor *tensor, size_t first,
                                  size_t count, void *out, enum dtype out_dtype, uint32_t *crc32c)
{
    uint16_t bits[PIECE_COUNT];
    const struct safetensors_file *file = &table->files[tensor->file];
    const enum dtype dtype = tensor->dtype;
    if (tensor->block != NULL)
        return blocks_read(table, tensor, first, count, out);
    const size_t size = dtype_size_bytes(dtype), most = out_dtype == dtype ? count : PIECE_COUNT;
    for (size_t done = 0; done < count;) {
        const size_t now = size_min(count - done, most);
        void *to = out_dtype == dtype ? out : bits;
        TRY(file_read_at(file->fd, file->path,
                         tensor->offset_bytes + (uint64_t)(first + done) * size, to, now * size));
        if (crc32c != NULL)
            *crc32c = file_crc32c(*crc32c, to, now * size);
        if (out_dtype != dtype)
            dtype_convert((float *)out + done, DTYPE_F32, bits, dtype, now);
        done += now;
    }
    return GT_OK;
}

/* Reads elements first ... first+count-1 of an array that is stored transposed. */
static enum gt_status transposed_read(const struct safetensors *table,
                                      const struct safetensors_tensor *tensor, size_t first,
                                      size_t count, unsigned char *out, enum dtype dtype)
{
    float values[PIECE_COUNT]; /* or smaller elements */
    const size_t rows = (size_t)tensor->dims[0], columns = (size_t)tensor->dims[1],
                 end = first + count;
    const size_t size = dtype_size_bytes(dtype);
    assert(size <= sizeof values[0]);
    for (size_t column = 0; column < columns; column++) {
        /* The rows r for which first <= r * columns + column < end. */
        size_t row = first > column ? (first - column + columns - 1) / columns : 0;
        const size_t row_end = end > column ? (end - column + columns - 1) / columns : 0;
        while (row < row_end) {
            const size_t now = size_min(row_end - row, PIECE_COUNT);
            TRY(stored_read(table, tensor, column * rows + row, now, values, dtype, NULL));
            for (size_t i = 0; i < now; i++, row++)
                memcpy(out + (row * columns + column - first) * size,
                       (const unsigned char *)values + i * size, size);
        }
    }
    return GT_OK;
}

size_t tensor_order_place(const struct tensor_order *order, size_t index, size_t *out_run)
{
    const size_t unit = order->unit;
    *out_run = unit == 0 ? SIZE_MAX : order->first - index;
    if (unit == 0 || index < order->first)
        return index;
    const size_t number = (index - order->first) / unit, inside = (index - order->first) % unit,
                 place = number % (order->rows * order->columns);
    *out_run = unit - inside;
    return order->first + inside +
           unit * (number - place + place % order->columns * order->rows + place / order->columns);
}

/* Reads elements first ... first+count-1 of an array with another order in the file. */
static enum gt_status ordered_read(const struct safetensors *table,
                                   const struct safetensors_tensor *tensor, size_t first,
                                   size_t count, unsigned char *out, enum dtype dtype)
{
    for (size_t done = 0, run; done < count; done += run) {
        const size_t place = tensor_order_place(&tensor->order, first + done, &run);
        run = size_min(count - done, run);
        TRY(stored_read(table, tensor, place, run, out + done * dtype_size_bytes(dtype), dtype,
                        NULL));
    }
    return GT_OK;
}

enum gt_status safetensors_read(const struct safetensors *table, size_t index, size_t first,
                                size_t count, void *out, enum dtype dtype, uint32_t *crc32c)
{
    assert(index < table->count);
    const struct safetensors_tensor *tensor = &table->tensors[index];
    assert(first <= tensor->elements && count <= tensor->elements - first);
    const bool plain = !tensor->transposed && tensor->order.unit == 0 && tensor->block == NULL &&
                       tensor->map == NULL;
    if (tensor->dtype != dtype && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16)
        return FAIL(GT_UNSUPPORTED,
                    "%s: tensor %s: field \"dtype\": only F32, BF16 and F16 can be loaded",
                    safetensors_path(table, index), tensor->name);
    if (tensor->file == SAFETENSORS_ZEROS) {
        memset(out, 0, count * dtype_size_bytes(dtype));
        return GT_OK;
    }
    if (plain)
        return stored_read(table, tensor, first, count, out, dtype, crc32c);
    TRY(tensor->transposed ? transposed_read(table, tensor, first, count, out, dtype)
                           : ordered_read(table, tensor, first, count, out, dtype));
    for (size_t i = 0; tensor->map != NULL && dtype == DTYPE_F32 && i < count; i++)
        ((float *)out)[i] = tensor->map(((float *)out)[i]);
    if (crc32c != NULL)
        *crc32c = file_crc32c(*crc32c, out, count * dtype_size_bytes(dtype));
    return GT_OK;
}

char *safetensors_shape_text(char text[static SAFETENSORS_SHAPE_TEXT_MAX], const int64_t *dims,
                             int32_t rank)
{
    assert(rank >= 0 && rank <= SAFETENSORS_RANK_MAX);
    size_t length = 0;
    text[length++] = '[';
    for (int32_t i = 0; i < rank; i++)
        length += (size_t)snprintf(text + length, SAFETENSORS_SHAPE_TEXT_MAX - length, "%s%" PRId64,
                                   i > 0 ? "," : "", dims[i]);
    assert(length + 2 <= SAFETENSORS_SHAPE_TEXT_MAX);
    memcpy(text + length, "]", 2);
    return text;
}

/* ---- writing ----
 *
 * The same function makes the header twice, first to measure it and then to write it, so that
 * memory does not grow with the number of tensors.  The data is streamed through the caller's
 * staging buffer into a temporary file, which replaces the target in one rename; checksums are
 * computed on the way.  The source determines the order of the tensors and we that of the fields,
 * so equal weights give equal files. */
/* One tensor's part of the header: a name of 127, eight sizes and two offsets of 20 digits. */
#define PIECE_BYTES 512
#define ALIGNMENT 8
/* Transformers rejects a file without "format". */
#define METADATA "{\"__metadata__\":{\"format\":\"pt\"}"

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
        char piece[PIECE_BYTES];
        if (!source->describe(source->context, i, &tensor))
            continue;
        const size_t begin = header->data_bytes;
        header->data_bytes += elements_of(&tensor) * dtype_size_bytes(tensor.dtype);
        const int length =
            snprintf(piece, sizeof piece,
                     ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                     tensor.name, dtype_safetensors_name(tensor.dtype),
                     SAFETENSORS_SHAPE_TEXT(tensor.dims, tensor.rank), begin, header->data_bytes);
        assert(length > 0 && (size_t)length < sizeof piece);
        TRY(header_emit(header, piece, (size_t)length));
    }
    return header_emit(header, end, ALIGNMENT - header->length_bytes % ALIGNMENT);
}

/* Makes the header once to measure it, and once to write it. */
static enum gt_status header_write(struct file_replacement *file,
                                   const struct safetensors_source *source)
{
    struct header measured = {.file = NULL}, header = {.file = file};
    TRY(header_make(&measured, source));
    const uint64_t length = measured.length_bytes;
    assert(length % ALIGNMENT == 0 && length <= SAFETENSORS_HEADER_BYTES_MAX);
    TRY(file_replacement_write(file, &length, sizeof length));
    return header_make(&header, source);
}

static enum gt_status tensor_write(struct file_replacement *file,
                                   const struct safetensors_source *source, size_t index,
                                   void *staging, size_t staging_bytes)
{
    struct safetensors_tensor tensor = {.dtype = DTYPE_COUNT};
    if (!source->describe(source->context, index, &tensor))
        return GT_OK;
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

enum gt_status safetensors_write(const char *path, const struct safetensors_source *source,
                                 void *staging, size_t staging_bytes,
                                 struct safetensors_result *out)
{
    struct file_replacement file;
    assert(source->count <= SAFETENSORS_TENSORS_MAX);
    TRY(file_replacement_begin(&file, path, source->mode));
    enum gt_status status = header_write(&file, source);
    const uint32_t header_crc32c = file.crc32c;
    for (size_t i = 0; status == GT_OK && i < source->count; i++)
        status = tensor_write(&file, source, i, staging, staging_bytes);
    const struct safetensors_result result = {file.size_bytes, file.crc32c, header_crc32c};
    TRY(file_replacement_end(&file, status));
    *out = result;
    return GT_OK;
}
