/* Tables of arrays in other files.
 *
 * Every array is checked against its file when it is added, so that reading is just pread.  The rows of a transposed
 * array are the columns of the stored one: of each stored row, the elements that belong to the requested piece are
 * contiguous in the file; they are read and scattered.  Nothing is allocated after array_table_create(), and no array
 * is ever in memory as a whole.
 */
#include "io/array_table.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"

#define PIECE_COUNT 4096 /* elements read at a time, on the stack */

enum gt_status array_table_create(struct hostmem *mem, const char *path, size_t file_capacity, size_t capacity,
                                  struct safetensors **out)
{
    struct safetensors *table;
    enum gt_status status;
    if (capacity > SAFETENSORS_TENSORS_MAX || strlen(path) >= FILE_PATH_MAX) {
        log_error("%.200s: lists %zu tensors; at most %d are accepted", path, capacity, SAFETENSORS_TENSORS_MAX);
        return GT_DATA;
    }
    TRY(HOSTMEM_NEW(mem, 1, "table of arrays", &table));
    table->mem = mem;
    table->fd = -1;
    memcpy(table->path, path, strlen(path) + 1);
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, 1, "places of arrays", &table->places));
    table->places->capacity = capacity;
    table->places->file_capacity = file_capacity;
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, capacity, "table of arrays", &table->tensors));
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, capacity, "places of arrays", &table->places->at));
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, file_capacity, "files of arrays", &table->places->files));
    *out = table;
    return GT_OK;
fail:
    safetensors_close(table);
    return status;
}

void array_table_release(struct safetensors *table)
{
    struct array_places *places = table->places;
    if (places == NULL)
        return;
    for (size_t i = 0; i < places->file_count; i++) {
        (void)close(places->files[i].fd);
        hostmem_free(table->mem, (void *)(uintptr_t)places->files[i].path);
    }
    hostmem_free(table->mem, places->files);
    hostmem_free(table->mem, places->at);
    hostmem_free(table->mem, places);
}

enum gt_status array_table_file_add(struct safetensors *table, const char *path, int32_t *out)
{
    struct array_places *places = table->places;
    char *own;
    assert(places->file_count < places->file_capacity);
    struct array_file *file = &places->files[places->file_count];
    TRY(file_open_read(path, &file->fd, &file->size_bytes));
    *out = (int32_t)places->file_count++;
    TRY(hostmem_strdup(table->mem, path, &own));
    file->path = own;
    return GT_OK;
}

/* Fills the computed fields of `tensor`. */
static enum gt_status size_compute(const char *path, struct safetensors_tensor *tensor)
{
    size_t bytes;
    /* An array without an enum dtype is never read: the caller gives its size in the file. */
    const size_t element_bytes = tensor->dtype < DTYPE_COUNT ? dtype_size_bytes(tensor->dtype) : 0;
    if (!size_product(tensor->dims, (size_t)tensor->rank, &tensor->elements) ||
        !size_mul(tensor->elements, element_bytes, &bytes)) {
        log_error("%s: tensor %s: the product of its sizes does not fit 64 bits", path, tensor->name);
        return GT_DATA;
    }
    if (tensor->dtype < DTYPE_COUNT)
        tensor->size_bytes = bytes;
    return GT_OK;
}

static enum gt_status place_check(const struct safetensors *table, const struct safetensors_tensor *tensor,
                                  const struct array_place *place)
{
    if (place->file == ARRAY_ZEROS)
        return GT_OK;
    const struct array_file *file = &table->places->files[place->file];
    if (place->offset_bytes <= file->size_bytes && tensor->size_bytes <= file->size_bytes - place->offset_bytes)
        return GT_OK;
    log_error("%s: tensor %s: %" PRIu64 " bytes at byte %" PRIu64 " lie outside the file, which has %" PRIu64 " bytes",
              file->path, tensor->name, tensor->size_bytes, place->offset_bytes, file->size_bytes);
    return GT_DATA;
}

enum gt_status array_table_add(struct safetensors *table, const struct safetensors_tensor *tensor,
                               const struct array_place *place)
{
    struct array_places *places = table->places;
    size_t index;
    assert(place->file >= ARRAY_ZEROS && place->file < (int32_t)places->file_count);
    assert(tensor->rank >= 0 && tensor->rank <= SAFETENSORS_RANK_MAX);
    if (!safetensors_name_valid(tensor->name)) {
        log_error("%s: tensor name \"%.64s\": must be 1 to %d characters of A-Z a-z 0-9 . _ -", table->path,
                  tensor->name, SAFETENSORS_NAME_MAX - 1);
        return GT_DATA;
    }
    if (safetensors_find(table, tensor->name, &index) || table->count >= places->capacity ||
        (place->transposed && tensor->rank != 2)) {
        log_error("%s: tensor %s: is there twice, is one too many, or does not have two dimensions", table->path,
                  tensor->name);
        return GT_DATA;
    }
    struct safetensors_tensor *entry = &table->tensors[table->count];
    *entry = *tensor;
    TRY(size_compute(table->path, entry));
    TRY(place_check(table, entry, place));
    places->at[table->count++] = *place;
    return GT_OK;
}

enum gt_status array_read(const struct array_file *file, uint64_t offset_bytes, enum dtype dtype, size_t first,
                          size_t count, void *out, enum dtype out_dtype, uint32_t *crc32c)
{
    uint16_t bits[PIECE_COUNT];
    const size_t size = dtype_size_bytes(dtype), most = out_dtype == dtype ? count : PIECE_COUNT;
    for (size_t done = 0; done < count;) {
        const size_t now = count - done < most ? count - done : most;
        void *to = out_dtype == dtype ? out : bits;
        TRY(file_read_at(file->fd, file->path, offset_bytes + (uint64_t)(first + done) * size, to, now * size));
        if (crc32c != NULL)
            *crc32c = file_crc32c(*crc32c, to, now * size);
        if (out_dtype != dtype)
            dtype_convert((float *)out + done, DTYPE_F32, bits, dtype, now);
        done += now;
    }
    return GT_OK;
}

/* A request for a part of an array. */
struct piece {
    const struct array_file *file;
    const struct array_place *place;
    const struct safetensors_tensor *tensor;
    size_t first, count;
    enum dtype dtype; /* of `out` */
    unsigned char *out;
};

/* Reads elements `row_first` up to `row_end` of one stored row, which is column `column` of the array. */
static enum gt_status column_read(const struct piece *piece, size_t column, size_t row_first, size_t row_end)
{
    float values[PIECE_COUNT]; /* or smaller elements */
    const struct safetensors_tensor *tensor = piece->tensor;
    const size_t rows = (size_t)tensor->dims[0], columns = (size_t)tensor->dims[1];
    const size_t size = dtype_size_bytes(piece->dtype);
    assert(size <= sizeof values[0]);
    for (size_t row = row_first; row < row_end;) {
        const size_t now = row_end - row < PIECE_COUNT ? row_end - row : PIECE_COUNT;
        TRY(array_read(piece->file, piece->place->offset_bytes, tensor->dtype, column * rows + row, now, values,
                       piece->dtype, NULL));
        for (size_t i = 0; i < now; i++)
            memcpy(piece->out + ((row + i) * columns + column - piece->first) * size,
                   (const unsigned char *)values + i * size, size);
        row += now;
    }
    return GT_OK;
}

static enum gt_status transposed_read(const struct piece *piece)
{
    const size_t columns = (size_t)piece->tensor->dims[1], first = piece->first, end = piece->first + piece->count;
    for (size_t column = 0; column < columns; column++) {
        /* The rows r for which first <= r * columns + column < end. */
        const size_t row_first = first > column ? (first - column + columns - 1) / columns : 0;
        const size_t row_end = end > column ? (end - column + columns - 1) / columns : 0;
        if (row_first < row_end)
            TRY(column_read(piece, column, row_first, row_end));
    }
    return GT_OK;
}

enum gt_status array_table_read(const struct safetensors *table, size_t index, size_t first, size_t count, void *out,
                                enum dtype dtype)
{
    const struct safetensors_tensor *tensor = &table->tensors[index];
    const struct array_place *place = &table->places->at[index];
    assert(index < table->count && first <= tensor->elements && count <= tensor->elements - first);
    assert(dtype == tensor->dtype || (dtype == DTYPE_F32 && dtype_size_bytes(tensor->dtype) == 2));
    if (place->file == ARRAY_ZEROS) {
        memset(out, 0, count * dtype_size_bytes(dtype));
        return GT_OK;
    }
    const struct array_file *file = &table->places->files[place->file];
    if (!place->transposed)
        return array_read(file, place->offset_bytes, tensor->dtype, first, count, out, dtype, NULL);
    const struct piece piece = {file, place, tensor, first, count, dtype, out};
    return transposed_read(&piece);
}
