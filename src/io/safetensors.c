/* Reads safetensors.
 *
 * The header is parsed once, checked completely, and kept as a table in the order of the data.  Arrays are then read
 * piece by piece with pread, straight into the caller's buffer.  The file is not mapped: if another process truncated
 * it, this one would end with SIGBUS.  The checks go from cheap to expensive: length of the file, length of the header,
 * JSON, each entry by itself, all entries together.  safetensors_write.c does the writing.
 */
#include "io/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/size.h"
#include "io/array_table.h"

#define LENGTH_BYTES 8

/* The format's dtypes; DTYPE_COUNT for those without an enum dtype. */
static const struct {
    const char *name;
    enum dtype dtype;
    size_t size_bytes;
} kinds[] = {
    {"F32", DTYPE_F32, 4},   {"BF16", DTYPE_BF16, 2}, {"F16", DTYPE_F16, 2},       {"F64", DTYPE_F64, 8},
    {"I32", DTYPE_I32, 4},   {"U8", DTYPE_U8, 1},     {"BOOL", DTYPE_COUNT, 1},    {"I8", DTYPE_COUNT, 1},
    {"I16", DTYPE_COUNT, 2}, {"U16", DTYPE_COUNT, 2}, {"U32", DTYPE_COUNT, 4},     {"I64", DTYPE_COUNT, 8},
    {"U64", DTYPE_COUNT, 8}, {"C64", DTYPE_COUNT, 8}, {"F8_E4M3", DTYPE_COUNT, 1}, {"F8_E5M2", DTYPE_COUNT, 1},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static enum gt_status file_load(struct safetensors *file);
static enum gt_status header_length_read(struct safetensors *file, size_t *out_bytes);
static enum gt_status header_parse(struct safetensors *file, const char *text, size_t text_bytes);
static enum gt_status entry_parse(const struct safetensors *file, const char *name, const json_t *entry,
                                  struct safetensors_tensor *out);
static enum gt_status layout_check(const struct safetensors *file);

enum gt_status safetensors_open(struct hostmem *mem, const char *path, struct safetensors **out)
{
    assert(mem != NULL && path != NULL);
    const size_t length = strlen(path);
    if (length >= FILE_PATH_MAX) {
        log_error("the path of a safetensors file has %zu bytes; at most %d are possible", length, FILE_PATH_MAX - 1);
        return GT_USAGE;
    }
    int fd;
    uint64_t size_bytes;
    TRY(file_open_read(path, &fd, &size_bytes));
    return safetensors_open_fd(mem, path, fd, size_bytes, out);
}

enum gt_status safetensors_open_fd(struct hostmem *mem, const char *path, int fd, uint64_t size_bytes,
                                   struct safetensors **out)
{
    assert(fd >= 0 && strlen(path) < FILE_PATH_MAX);
    struct safetensors *file;
    enum gt_status status = HOSTMEM_NEW(mem, 1, "safetensors file", &file);
    if (status != GT_OK) {
        (void)close(fd);
        return status;
    }
    file->mem = mem;
    file->fd = fd;
    file->size_bytes = size_bytes;
    memcpy(file->path, path, strlen(path) + 1);
    status = file_load(file);
    if (status != GT_OK) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return GT_OK;
}

void safetensors_close(struct safetensors *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        (void)close(file->fd);
    array_table_release(file);
    hostmem_free(file->mem, file->tensors);
    hostmem_free(file->mem, file);
}

static enum gt_status file_load(struct safetensors *file)
{
    size_t header_bytes;
    TRY(header_length_read(file, &header_bytes));
    char *text;
    TRY(HOSTMEM_NEW(file->mem, header_bytes, "safetensors header", &text));
    enum gt_status status = file_read_at(file->fd, file->path, LENGTH_BYTES, text, header_bytes);
    if (status == GT_OK) {
        file->header_crc32c = file_crc32c(file->header_crc32c, text, header_bytes);
        file->data_offset = LENGTH_BYTES + header_bytes;
        file->data_bytes = file->size_bytes - file->data_offset;
        status = header_parse(file, text, header_bytes);
    }
    hostmem_free(file->mem, text);
    return status == GT_OK ? layout_check(file) : status;
}

/* PyTorch's own files begin like a zip archive or like a pickle of protocol 2 to 5. */
static bool is_pickle(const unsigned char bytes[static LENGTH_BYTES])
{
    const bool zip = memcmp(bytes, "PK\3\4", 4) == 0;
    const bool pickle = bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
    return zip || pickle;
}

static enum gt_status header_length_read(struct safetensors *file, size_t *out_bytes)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t length;
    if (file->size_bytes < LENGTH_BYTES) {
        log_error("%s: is %" PRIu64 " bytes long, too short for a safetensors file", file->path, file->size_bytes);
        return GT_DATA;
    }
    TRY(file_read_at(file->fd, file->path, 0, bytes, sizeof bytes));
    memcpy(&length, bytes, sizeof length);
    const uint64_t left = file->size_bytes - LENGTH_BYTES;
    if (length > left && is_pickle(bytes)) {
        log_error("%s: is a PyTorch pickle file, which can run code when read, so it is not read here; "
                  "doc/checkpoint.md says how to convert it",
                  file->path);
        return GT_UNSUPPORTED;
    }
    if (length > left || length > SAFETENSORS_HEADER_BYTES_MAX || length < 2) {
        log_error("%s: header length %" PRIu64 " is impossible: the file has %" PRIu64
                  " bytes after it, and 2 to %zu are accepted",
                  file->path, length, left, SAFETENSORS_HEADER_BYTES_MAX);
        return GT_DATA;
    }
    file->header_crc32c = file_crc32c(0, bytes, sizeof bytes);
    *out_bytes = (size_t)length;
    return GT_OK;
}

/* "__metadata__" is a flat table of strings, which are not used. */
static enum gt_status metadata_check(const struct safetensors *file, json_t *metadata)
{
    const char *name;
    json_t *value;
    bool strings = json_is_object(metadata);
    json_object_foreach(metadata, name, value) strings = strings && json_is_string(value);
    if (strings)
        return GT_OK;
    log_error("%s: field \"__metadata__\": expected an object of strings", file->path);
    return GT_DATA;
}

static enum gt_status entries_parse(struct safetensors *file, json_t *root)
{
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TRY(metadata_check(file, entry));
            continue;
        }
        assert(file->count < json_object_size(root));
        TRY(entry_parse(file, name, entry, &file->tensors[file->count]));
        file->count++;
    }
    return GT_OK;
}

static enum gt_status header_parse(struct safetensors *file, const char *text, size_t text_bytes)
{
    if (text[0] != '{') {
        log_error("%s: the header does not begin with '{', so this is not a safetensors file", file->path);
        return GT_DATA;
    }
    json_t *root;
    TRY(json_parse(text, text_bytes, file->path, &root));
    enum gt_status status = GT_OK;
    const size_t count = json_object_size(root);
    if (count > SAFETENSORS_TENSORS_MAX + 1) {
        log_error("%s: the header lists %zu tensors; at most %d are accepted", file->path, count,
                  SAFETENSORS_TENSORS_MAX);
        status = GT_DATA;
    }
    if (status == GT_OK)
        status = HOSTMEM_NEW(file->mem, count, "safetensors table", &file->tensors);
    if (status == GT_OK)
        status = entries_parse(file, root);
    json_decref(root);
    return status;
}

/* Gets an integer of "shape" or "data_offsets", where JSON allows any value. */
static enum gt_status list_item(const char *source, const char *field, const json_t *list, size_t index, int64_t *out)
{
    const json_t *item = json_array_get(list, index);
    if (!json_is_integer(item) || json_integer_value(item) < 0) {
        log_error("%s: field \"%s\": item %zu is not an integer of 0 or more", source, field, index);
        return GT_DATA;
    }
    *out = json_integer_value(item);
    return GT_OK;
}

static enum gt_status shape_parse(const char *source, const json_t *entry, struct safetensors_tensor *out)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_RANK_MAX) {
        log_error("%s: field \"shape\": expected a list of at most %d integers", source, SAFETENSORS_RANK_MAX);
        return GT_DATA;
    }
    out->rank = (int32_t)json_array_size(shape);
    for (size_t i = 0; i < (size_t)out->rank; i++)
        TRY(list_item(source, "shape", shape, i, &out->dims[i]));
    if (!size_product(out->dims, (size_t)out->rank, &out->elements)) {
        log_error("%s: field \"shape\": the product of the sizes does not fit 64 bits", source);
        return GT_DATA;
    }
    return GT_OK;
}

static enum gt_status dtype_parse(const char *source, const json_t *entry, struct safetensors_tensor *out,
                                  size_t *out_size_bytes)
{
    const char *name;
    TRY(json_get_string(entry, source, "dtype", &name));
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            out->dtype = kinds[i].dtype;
            *out_size_bytes = kinds[i].size_bytes;
            return GT_OK;
        }
    }
    log_error("%s: field \"dtype\": \"%.32s\" is not a known type", source, name);
    return GT_DATA;
}

/* Gives the location of the array; its length must agree with dtype and shape. */
static enum gt_status offsets_parse(const struct safetensors *file, const char *source, const json_t *entry,
                                    size_t element_bytes, struct safetensors_tensor *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2) {
        log_error("%s: field \"data_offsets\": expected a list of two integers", source);
        return GT_DATA;
    }
    int64_t begin, end;
    TRY(list_item(source, "data_offsets", offsets, 0, &begin));
    TRY(list_item(source, "data_offsets", offsets, 1, &end));
    if (begin > end || (uint64_t)end > file->data_bytes) {
        log_error("%s: field \"data_offsets\": [%" PRId64 ", %" PRId64 "] is outside the file's %" PRIu64
                  " bytes of data",
                  source, begin, end, file->data_bytes);
        return GT_DATA;
    }
    size_t expected;
    if (!size_mul(out->elements, element_bytes, &expected) || expected != (uint64_t)(end - begin)) {
        log_error("%s: field \"data_offsets\": %" PRId64 " bytes, but dtype and shape need %zu elements of %zu bytes",
                  source, end - begin, out->elements, element_bytes);
        return GT_DATA;
    }
    out->begin_bytes = (uint64_t)begin;
    out->size_bytes = (uint64_t)(end - begin);
    return GT_OK;
}

static enum gt_status entry_parse(const struct safetensors *file, const char *name, const json_t *entry,
                                  struct safetensors_tensor *out)
{
    if (!safetensors_name_valid(name)) {
        log_error("%s: tensor name \"%.64s\" (%zu bytes): must be 1 to %d characters of A-Z a-z 0-9 . _ -", file->path,
                  name, strlen(name), SAFETENSORS_NAME_MAX - 1);
        return GT_DATA;
    }
    char source[FILE_PATH_MAX + SAFETENSORS_NAME_MAX + 16];
    (void)snprintf(source, sizeof source, "%s: tensor %s", file->path, name);
    if (!json_is_object(entry) || json_object_size(entry) != 3) {
        log_error("%s: expected an object of dtype, shape and data_offsets", source);
        return GT_DATA;
    }
    size_t element_bytes;
    memcpy(out->name, name, strlen(name) + 1);
    TRY(dtype_parse(source, entry, out, &element_bytes));
    TRY(shape_parse(source, entry, out));
    return offsets_parse(file, source, entry, element_bytes, out);
}

static int by_begin(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left, *b = right;
    if (a->begin_bytes != b->begin_bytes)
        return a->begin_bytes < b->begin_bytes ? -1 : 1;
    if (a->size_bytes != b->size_bytes)
        return a->size_bytes < b->size_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Checks that the arrays follow one another from the first byte of the data to the last. */
static enum gt_status layout_check(const struct safetensors *file)
{
    if (file->count > SAFETENSORS_TENSORS_MAX) {
        log_error("%s: the header lists %zu tensors; at most %d are accepted", file->path, file->count,
                  SAFETENSORS_TENSORS_MAX);
        return GT_DATA;
    }
    if (file->count > 0)
        qsort(file->tensors, file->count, sizeof file->tensors[0], by_begin);
    uint64_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->begin_bytes != end) {
            log_error("%s: tensor %s: begins at byte %" PRIu64
                      " of the data, but the tensor before it ends at %" PRIu64,
                      file->path, tensor->name, tensor->begin_bytes, end);
            return GT_DATA;
        }
        end = tensor->begin_bytes + tensor->size_bytes;
    }
    if (end != file->data_bytes) {
        log_error("%s: the tensors end at byte %" PRIu64 " of the data, but the file ends at %" PRIu64, file->path, end,
                  file->data_bytes);
        return GT_DATA;
    }
    return GT_OK;
}

bool safetensors_find(const struct safetensors *file, const char *name, size_t *out_index)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            *out_index = i;
            return true;
        }
    }
    return false;
}

enum gt_status safetensors_read(const struct safetensors *file, size_t index, size_t first, size_t count, void *out,
                                enum dtype dtype, uint32_t *crc32c)
{
    assert(index < file->count);
    const struct safetensors_tensor *tensor = &file->tensors[index];
    assert(first <= tensor->elements && count <= tensor->elements - first);
    assert(file->places == NULL || crc32c == NULL); /* only checkpoints of ours have checksums */
    if (tensor->dtype != dtype && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16) {
        log_error("%s: tensor %s: field \"dtype\": only F32, BF16 and F16 can be loaded", file->path, tensor->name);
        return GT_UNSUPPORTED;
    }
    if (file->places != NULL)
        return array_table_read(file, index, first, count, out, dtype);
    const struct array_file own = {.fd = file->fd, .path = file->path};
    return array_read(&own, file->data_offset + tensor->begin_bytes, tensor->dtype, first, count, out, dtype, crc32c);
}

bool safetensors_name_valid(const char *name)
{
    static const char accepted[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t length = strnlen(name, SAFETENSORS_NAME_MAX);
    return length > 0 && length < SAFETENSORS_NAME_MAX && strspn(name, accepted) == length;
}

char *safetensors_shape_text(char text[static SAFETENSORS_SHAPE_TEXT_MAX], const int64_t *dims, int32_t rank)
{
    assert(rank >= 0 && rank <= SAFETENSORS_RANK_MAX);
    size_t length = 0;
    text[length++] = '[';
    for (int32_t i = 0; i < rank; i++) {
        const char *comma = i > 0 ? "," : "";
        length += (size_t)snprintf(text + length, SAFETENSORS_SHAPE_TEXT_MAX - length, "%s%" PRId64, comma, dims[i]);
    }
    assert(length + 2 <= SAFETENSORS_SHAPE_TEXT_MAX);
    text[length++] = ']';
    text[length] = '\0';
    return text;
}
