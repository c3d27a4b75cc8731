/* Opens safetensors files, and weights that are split into several of them.
 *
 * A header is parsed once, checked completely, and added to a table in the order of the data.  The
 * checks go from cheap to expensive: length of the file, length of the header, JSON, each entry by
 * itself, all entries together.  The index of split weights is untrusted JSON too: a shard's name
 * must be a plain file name before it becomes part of a path, and index and shards must list the
 * same tensors.  Only headers are read.  safetensors_table.c reads and writes the arrays.
 */
#include "io/safetensors.h"

#include <unistd.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "base/size.h"
#include "io/safetensors_table.h"

#define INDEX_BYTES_MAX ((size_t)4 << 20)
#define LENGTH_BYTES 8

/* The format's dtypes; DTYPE_COUNT for those without an enum dtype. */
static const struct {
    const char *name;
    enum dtype dtype;
    size_t size_bytes;
} kinds[] = {
    {"F32", DTYPE_F32, 4},       {"BF16", DTYPE_BF16, 2}, {"F16", DTYPE_F16, 2},
    {"F64", DTYPE_F64, 8},       {"I32", DTYPE_I32, 4},   {"U8", DTYPE_U8, 1},
    {"BOOL", DTYPE_COUNT, 1},    {"I8", DTYPE_COUNT, 1},  {"I16", DTYPE_COUNT, 2},
    {"U16", DTYPE_COUNT, 2},     {"U32", DTYPE_COUNT, 4}, {"I64", DTYPE_COUNT, 8},
    {"U64", DTYPE_COUNT, 8},     {"C64", DTYPE_COUNT, 8}, {"F8_E4M3", DTYPE_COUNT, 1},
    {"F8_E5M2", DTYPE_COUNT, 1},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* A file whose header is being read. */
struct opening {
    struct safetensors *table;
    const struct safetensors_file *file;
    uint64_t data_offset; /* where the arrays begin */
    const json_t *map;    /* of an index: the file of each tensor; NULL without one */
    const char *name;     /* of this file in the index */
};

/* PyTorch's own files begin like a zip archive or like a pickle of protocol 2 to 5. */
static bool is_pickle(const unsigned char bytes[static LENGTH_BYTES])
{
    const bool zip = memcmp(bytes, "PK\3\4", 4) == 0;
    const bool pickle = bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
    return zip || pickle;
}

/* Reads the header's length, and sets where the data begins. */
static enum gt_status header_length_read(struct opening *opening)
{
    const struct safetensors_file *file = opening->file;
    unsigned char bytes[LENGTH_BYTES];
    uint64_t length;
    if (file->size_bytes < LENGTH_BYTES)
        return FAIL(GT_DATA, "%s: is %" PRIu64 " bytes long, too short for a safetensors file",
                    file->path, file->size_bytes);
    TRY(file_read_at(file->fd, file->path, 0, bytes, sizeof bytes));
    memcpy(&length, bytes, sizeof length);
    const uint64_t left = file->size_bytes - LENGTH_BYTES;
    if (memcmp(bytes, FILE_LFS_HEAD, sizeof bytes) == 0)
        return FAIL(GT_DATA, "%s: " FILE_LFS_ADVICE, file->path);
    if (length > left && is_pickle(bytes))
        return FAIL(
            GT_UNSUPPORTED,
            "%s: is a PyTorch pickle file, which can run code when read, so it is not read here; "
            "doc/checkpoint.md says how to convert it",
            file->path);
    if (length > left && bytes[0] == '<')
        return FAIL(GT_DATA,
                    "%s: begins with \"<\", as a web page does, and is no safetensors file; "
                    "download it again: hf download OWNER/NAME",
                    file->path);
    if (length > left || length > SAFETENSORS_HEADER_BYTES_MAX || length < 2)
        return FAIL(GT_DATA,
                    "%s: header length %" PRIu64 " is impossible: the file has %" PRIu64
                    " bytes after it, and 2 to %zu are accepted",
                    file->path, length, left, SAFETENSORS_HEADER_BYTES_MAX);
    opening->data_offset = LENGTH_BYTES + length;
    return GT_OK;
}

/* Gets an integer of "shape" or "data_offsets", where JSON allows any value. */
static enum gt_status list_item(const char *source, const char *field, const json_t *list,
                                size_t index, int64_t *out)
{
    const json_t *item = json_array_get(list, index);
    if (!json_is_integer(item) || json_integer_value(item) < 0)
        return FAIL(GT_DATA, "%s: field \"%s\": item %zu is not an integer of 0 or more", source,
                    field, index);
    *out = json_integer_value(item);
    return GT_OK;
}

static enum gt_status shape_parse(const char *source, const json_t *entry,
                                  struct safetensors_tensor *out)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_RANK_MAX)
        return FAIL(GT_DATA, "%s: field \"shape\": expected a list of at most %d integers", source,
                    SAFETENSORS_RANK_MAX);
    out->rank = (int32_t)json_array_size(shape);
    for (size_t i = 0; i < (size_t)out->rank; i++)
        TRY(list_item(source, "shape", shape, i, &out->dims[i]));
    return GT_OK;
}

/* Sets the dtype, and the location of the array; its length must agree with dtype and shape. */
static enum gt_status place_parse(const struct opening *opening, const char *source,
                                  const json_t *entry, struct safetensors_tensor *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const uint64_t data_bytes = opening->file->size_bytes - opening->data_offset;
    const char *dtype;
    size_t kind = 0, elements, expected;
    int64_t begin, end;
    TRY(json_get_string(entry, source, "dtype", &dtype));
    while (kind < KIND_COUNT && strcmp(dtype, kinds[kind].name) != 0)
        kind++;
    if (kind == KIND_COUNT)
        return FAIL(GT_DATA, "%s: field \"dtype\": \"%.32s\" is not a known type", source, dtype);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return FAIL(GT_DATA, "%s: field \"data_offsets\": expected a list of two integers", source);
    TRY(list_item(source, "data_offsets", offsets, 0, &begin));
    TRY(list_item(source, "data_offsets", offsets, 1, &end));
    if (begin > end || (uint64_t)end > data_bytes)
        return FAIL(GT_DATA,
                    "%s: field \"data_offsets\": [%" PRId64 ", %" PRId64
                    "] is outside the file's %" PRIu64 " bytes of data",
                    source, begin, end, data_bytes);
    if (size_product(out->dims, (size_t)out->rank,
                     &elements) && /* else safetensors_add() refuses it */
        (!size_mul(elements, kinds[kind].size_bytes, &expected) ||
         expected != (uint64_t)(end - begin)))
        return FAIL(GT_DATA,
                    "%s: field \"data_offsets\": %" PRId64
                    " bytes, but dtype and shape need %zu elements of %zu bytes",
                    source, end - begin, elements, kinds[kind].size_bytes);
    out->dtype = kinds[kind].dtype;
    out->offset_bytes = opening->data_offset + (uint64_t)begin;
    out->size_bytes = (uint64_t)(end - begin);
    return GT_OK;
}

/* Adds a tensor.  An index must assign it to this file. */
static enum gt_status entry_add(const struct opening *opening, const char *name,
                                const json_t *entry)
{
    struct safetensors_tensor tensor = {.file = (int32_t)opening->table->file_count - 1};
    const char *where = json_string_value(json_object_get(opening->map, name));
    if (!safetensors_name_valid(name))
        return FAIL(
            GT_DATA,
            "%s: tensor name \"%.64s\" (%zu bytes): must be 1 to %d characters of A-Z a-z 0-9 . _ -",
            opening->file->path, name, strlen(name), SAFETENSORS_NAME_MAX - 1);
    const char *source =
        TEXT(FILE_PATH_MAX + SAFETENSORS_NAME_MAX + 16, "%s: tensor %s", opening->file->path, name);
    if (opening->map != NULL && (where == NULL || strcmp(where, opening->name) != 0))
        return FAIL(GT_DATA, "%s: the index says %.64s", source,
                    where != NULL ? where : "nothing about it");
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return FAIL(GT_DATA, "%s: expected an object of dtype, shape and data_offsets", source);
    memcpy(tensor.name, name, strlen(name) + 1);
    TRY(shape_parse(source, entry, &tensor));
    TRY(place_parse(opening, source, entry, &tensor));
    return safetensors_add(opening->table, &tensor);
}

/* Adds the tensors.  "__metadata__" is a flat table of strings, which are not used. */
static enum gt_status entries_add(const struct opening *opening, json_t *root)
{
    const char *path = opening->file->path, *name;
    json_t *entry, *metadata = json_object_get(root, "__metadata__"), *value;
    bool strings = metadata == NULL || json_is_object(metadata);
    const size_t count = json_object_size(root) - (metadata != NULL);
    json_object_foreach(metadata, name, value) strings = strings && json_is_string(value);
    if (!strings)
        return FAIL(GT_DATA, "%s: field \"__metadata__\": expected an object of strings", path);
    if (count > SAFETENSORS_TENSORS_MAX)
        return FAIL(GT_DATA, "%s: the header lists %zu tensors; at most %d are accepted", path,
                    count, SAFETENSORS_TENSORS_MAX);
    json_object_foreach(root, name, entry)
    {
        if (entry != metadata)
            TRY(entry_add(opening, name, entry));
    }
    return GT_OK;
}

static int by_offset(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left, *b = right;
    if (a->offset_bytes != b->offset_bytes)
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    if (a->size_bytes != b->size_bytes)
        return a->size_bytes < b->size_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Sorts the file's tensors, which begin at `first` in the table, and checks that they follow one
 * another from the first byte of the data to the last. */
static enum gt_status layout_check(const struct opening *opening, size_t first)
{
    const struct safetensors *table = opening->table;
    const uint64_t data_bytes = opening->file->size_bytes - opening->data_offset;
    uint64_t end = 0;
    if (table->count > first)
        qsort(table->tensors + first, table->count - first, sizeof table->tensors[0], by_offset);
    for (size_t i = first; i < table->count; i++) {
        const uint64_t begin = table->tensors[i].offset_bytes - opening->data_offset;
        if (begin != end)
            return FAIL(GT_DATA,
                        "%s: tensor %s: begins at byte %" PRIu64
                        " of the data, but the tensor before it ends at %" PRIu64,
                        opening->file->path, table->tensors[i].name, begin, end);
        end = begin + table->tensors[i].size_bytes;
    }
    if (end == data_bytes)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the tensors end at byte %" PRIu64
                " of the data, but the file ends at %" PRIu64,
                opening->file->path, end, data_bytes);
}

static enum gt_status header_parse(const struct opening *opening, const char *text,
                                   size_t text_bytes)
{
    json_t *root;
    if (text[0] != '{')
        return FAIL(GT_DATA,
                    "%s: the header does not begin with '{', so this is not a safetensors file",
                    opening->file->path);
    TRY(json_parse(text, text_bytes, opening->file->path, &root));
    const size_t first = opening->table->count;
    const enum gt_status status = entries_add(opening, root);
    json_decref(root);
    return status == GT_OK ? layout_check(opening, first) : status;
}

/* Adds an open file with all its tensors to `table`.  Takes ownership of `fd`.  `map` and `name`
 * are those of an index, or NULL. */
static enum gt_status file_load(struct safetensors *table, const char *path, int fd,
                                uint64_t size_bytes, const json_t *map, const char *name)
{
    struct opening opening = {.table = table, .map = map, .name = name};
    char *text;
    TRY(safetensors_fd_add(table, path, fd, size_bytes));
    struct safetensors_file *file = &table->files[table->file_count - 1];
    opening.file = file;
    TRY(header_length_read(&opening));
    const size_t count = (size_t)opening.data_offset;
    TRY(HOSTMEM_NEW(table, count, "safetensors header", &text));
    TRY(file_read_at(fd, path, 0, text, count));
    file->header_crc32c = file_crc32c(0, text, count);
    TRY(header_parse(&opening, text + LENGTH_BYTES, count - LENGTH_BYTES));
    hostmem_free(text);
    return GT_OK;
}

enum gt_status safetensors_open(const void *owner, const char *path, bool must,
                                struct safetensors **out)
{
    int fd;
    uint64_t size_bytes;
    struct safetensors *table = NULL;
    TRY((must ? file_open_read : file_open_read_if_there)(path, &fd, &size_bytes));
    if (fd < 0) {
        *out = NULL;
        return GT_OK;
    }
    enum gt_status status = safetensors_create(owner, path, &table);
    if (status == GT_OK)
        status = file_load(table, path, fd, size_bytes, NULL, NULL);
    else
        (void)close(fd);
    return FINISH(status, out, table, hostmem_free);
}

/* ---- weights in several files ---- */
static bool name_is_safe(const char *name)
{
    static const char ending[] = ".safetensors";
    const size_t length = strlen(name);
    return safetensors_name_valid(name) && name[0] != '.' && length > sizeof ending - 1 &&
           strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

/* Loads the file that the index gives for a tensor, unless an earlier tensor had the same. */
static enum gt_status shard_load(struct safetensors *table, const char *folder, const json_t *map,
                                 const char *tensor)
{
    const char *name = json_string_value(json_object_get(map, tensor));
    int fd;
    uint64_t size_bytes;
    if (name == NULL || !name_is_safe(name))
        return FAIL(
            GT_DATA,
            "%s: tensor %.64s: \"%.64s\" is not the name of a safetensors file beside the index",
            table->path, tensor, name != NULL ? name : "");
    const char *path = FILE_IN(folder, name);
    for (size_t i = 0; i < table->file_count; i++)
        if (strcmp(table->files[i].path, path) == 0)
            return GT_OK;
    TRY(file_open_read(path, &fd, &size_bytes));
    return file_load(table, path, fd, size_bytes, map, name);
}

static enum gt_status shards_load(struct safetensors *table, const char *folder, json_t *map)
{
    const char *tensor;
    json_t *name;
    size_t index;
    if (json_object_size(map) > SAFETENSORS_TENSORS_MAX)
        return FAIL(GT_DATA, "%s: lists %zu tensors; at most %d are accepted", table->path,
                    json_object_size(map), SAFETENSORS_TENSORS_MAX);
    json_object_foreach(map, tensor, name) TRY(shard_load(table, folder, map, tensor));
    json_object_foreach(map, tensor, name)
    {
        if (!safetensors_find(table, tensor, &index))
            return FAIL(GT_DATA, "%s: tensor %.100s is not in %.100s, where the index says it is",
                        table->path, tensor, json_string_value(name));
    }
    return GT_OK;
}

enum gt_status safetensors_index_open(const void *owner, const char *folder,
                                      struct safetensors **out)
{
    struct safetensors *table = NULL;
    json_t *root;
    const char *path = FILE_IN(folder, SAFETENSORS_INDEX_NAME);
    TRY(json_parse_file(path, INDEX_BYTES_MAX, &root));
    json_t *map = json_object_get(root, "weight_map");
    enum gt_status status = GT_DATA;
    if (!json_is_object(map))
        log_error("%s: expected an object with an object \"weight_map\"", path);
    else
        status = safetensors_create(owner, path, &table);
    THEN(status, shards_load(table, folder, map));
    json_decref(root);
    return FINISH(status, out, table, hostmem_free);
}
