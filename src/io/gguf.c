/* Parses the head of a GGUF file.
 *
 * The file's beginning is read into memory in growing pieces until the head ends in it, so that a
 * model of many GB costs no more than its head.  Checking a value skips it.  In arrays, strings are
 * checked one by one; other arrays are skipped by their size.  Arrays of arrays do not occur in
 * models and are refused, so that nothing recurses.
 */
#include "io/gguf.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/size.h"

#ifndef FIRST_BYTES
#define FIRST_BYTES ((size_t)1 << 20)
#endif
#define VERSION_MIN 2
#define KEY_BYTES_MIN 14    /* of a name of one byte and a value of one */
#define TENSOR_BYTES_MIN 33 /* of a name of one byte and one dimension */

static const uint8_t value_bytes[GGUF_VALUES] = {
    [GGUF_UINT8] = 1,  [GGUF_INT8] = 1,  [GGUF_UINT16] = 2,  [GGUF_INT16] = 2,
    [GGUF_UINT32] = 4, [GGUF_INT32] = 4, [GGUF_FLOAT32] = 4, [GGUF_BOOL] = 1,
    [GGUF_UINT64] = 8, [GGUF_INT64] = 8, [GGUF_FLOAT64] = 8,
};

/* Takes `count` bytes of the head.  Returns NULL when they are beyond what was read. */
static const unsigned char *take(struct gguf *gguf, uint64_t count)
{
    if (count > gguf->count - gguf->at)
        return NULL;
    gguf->at += (size_t)count;
    return gguf->bytes + gguf->at - count;
}

static bool take_number(struct gguf *gguf, size_t bytes, uint64_t *out)
{
    const unsigned char *at = take(gguf, bytes);
    if (at != NULL)
        *out = le_read(at, bytes);
    return at != NULL;
}

/* GT_STOPPED, with nothing logged, means that the head extends beyond the bytes that were read. */
#define NEED(condition)        \
    do {                       \
        if (!(condition))      \
            return GT_STOPPED; \
    } while (0)

static enum gt_status name_parse(struct gguf *gguf, const char *what,
                                 char out[static GGUF_NAME_MAX])
{
    uint64_t length = 0;
    NEED(take_number(gguf, 8, &length));
    if (length == 0 || length >= GGUF_NAME_MAX)
        return FAIL(GT_DATA, "%s: %s at byte %zu has %" PRIu64 " bytes; 1 to %d are accepted",
                    gguf->path, what, gguf->at - 8, length, GGUF_NAME_MAX - 1);
    const unsigned char *at = take(gguf, length);
    NEED(at != NULL);
    for (uint64_t i = 0; i < length; i++)
        if (at[i] <= ' ' || at[i] >= 0x7f)
            return FAIL(GT_DATA, "%s: %s at byte %zu has characters that a name cannot have",
                        gguf->path, what, gguf->at);
    memcpy(out, at, (size_t)length);
    out[length] = '\0';
    return GT_OK;
}

static enum gt_status texts_skip(struct gguf *gguf, uint64_t count)
{
    for (uint64_t i = 0, length = 0; i < count; i++)
        NEED(take_number(gguf, 8, &length) && take(gguf, length) != NULL);
    return GT_OK;
}

static enum gt_status array_parse(struct gguf *gguf, struct gguf_key *key)
{
    uint64_t element = 0;
    NEED(take_number(gguf, 4, &element) && take_number(gguf, 8, &key->count));
    if (element >= GGUF_VALUES || element == GGUF_ARRAY)
        return FAIL(GT_DATA, "%s: key %s: an array of type %" PRIu64 " is not accepted", gguf->path,
                    key->name, element);
    key->element = (enum gguf_value)element;
    key->at = gguf->at;
    if (key->element == GGUF_STRING)
        return texts_skip(gguf, key->count);
    NEED(key->count <= gguf->count / value_bytes[element]);
    NEED(take(gguf, key->count * value_bytes[element]) != NULL);
    return GT_OK;
}

static enum gt_status key_parse(struct gguf *gguf, struct gguf_key *key)
{
    uint64_t type = 0;
    TRY(name_parse(gguf, "the name of a key", key->name));
    NEED(take_number(gguf, 4, &type));
    if (type >= GGUF_VALUES)
        return FAIL(GT_DATA, "%s: key %s: its type, %" PRIu64 ", is unknown", gguf->path, key->name,
                    type);
    key->type = (enum gguf_value)type;
    key->at = gguf->at;
    key->count = 1;
    if (key->type == GGUF_ARRAY)
        return array_parse(gguf, key);
    if (key->type == GGUF_STRING)
        return texts_skip(gguf, 1);
    NEED(take(gguf, value_bytes[type]) != NULL);
    return GT_OK;
}

static enum gt_status tensor_parse(struct gguf *gguf, struct gguf_tensor *tensor)
{
    uint64_t rank = 0, dim = 0, number = 0;
    TRY(name_parse(gguf, "the name of a tensor", tensor->name));
    NEED(take_number(gguf, 4, &rank));
    if (rank == 0 || rank > GGUF_RANK_MAX)
        return FAIL(GT_DATA, "%s: tensor %s: %" PRIu64 " dimensions; 1 to %d are accepted",
                    gguf->path, tensor->name, rank, GGUF_RANK_MAX);
    tensor->rank = (int32_t)rank;
    for (uint64_t i = 0; i < rank; i++) {
        NEED(take_number(gguf, 8, &dim));
        if (dim == 0 || dim > INT32_MAX)
            return FAIL(GT_DATA,
                        "%s: tensor %s: dimension %" PRIu64 " is %" PRIu64 "; 1 to %" PRId32
                        " are accepted",
                        gguf->path, tensor->name, i, dim, INT32_MAX);
        tensor->dims[i] = (int64_t)dim;
    }
    NEED(take_number(gguf, 4, &number) && take_number(gguf, 8, &tensor->offset_bytes));
    tensor->number = (uint32_t)number;
    return GT_OK;
}

/* Makes the tensors' offsets count from the beginning of the file. */
static enum gt_status offsets_set(struct gguf *gguf)
{
    int64_t alignment = GGUF_ALIGNMENT;
    (void)gguf_integer(gguf, "general.alignment", &alignment);
    if (alignment < 8 || alignment > 1 << 20 || (alignment & (alignment - 1)) != 0)
        return FAIL(GT_DATA,
                    "%s: key general.alignment: %" PRId64
                    " is not a power of two from 8 to 1048576",
                    gguf->path, alignment);
    const uint64_t begin = size_round_up(gguf->at, (size_t)alignment);
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        if (tensor->offset_bytes >= gguf->file_bytes ||
            begin >= gguf->file_bytes - tensor->offset_bytes)
            return FAIL(GT_DATA,
                        "%s: tensor %s: begins at byte %" PRIu64
                        " of the data, but the file has %" PRIu64
                        " bytes: it was cut short, or is damaged",
                        gguf->path, tensor->name, tensor->offset_bytes, gguf->file_bytes);
        tensor->offset_bytes += begin;
    }
    return GT_OK;
}

/* Parses the numbers of keys and tensors, checks them against the limits, and allocates the lists.
 */
static enum gt_status counts_parse(struct gguf *gguf)
{
    uint64_t version = 0, tensors = 0, keys = 0;
    NEED(take(gguf, 4) != NULL && take_number(gguf, 4, &version));
    if (version < VERSION_MIN || version > GGUF_VERSION)
        return FAIL(GT_UNSUPPORTED, "%s: GGUF version %" PRIu64 "; %d and %d are read", gguf->path,
                    version, VERSION_MIN, GGUF_VERSION);
    NEED(take_number(gguf, 8, &tensors) && take_number(gguf, 8, &keys));
    if (tensors > GGUF_TENSORS_MAX || keys > GGUF_KEYS_MAX)
        return FAIL(GT_DATA,
                    "%s: %" PRIu64 " tensors and %" PRIu64 " keys; at most %d and %d are accepted",
                    gguf->path, tensors, keys, GGUF_TENSORS_MAX, GGUF_KEYS_MAX);
    NEED(keys * KEY_BYTES_MIN + tensors * TENSOR_BYTES_MIN <= gguf->count - gguf->at);
    gguf->tensor_count = (size_t)tensors;
    gguf->key_count = (size_t)keys;
    hostmem_free(gguf->keys);
    hostmem_free(gguf->tensors);
    gguf->keys = NULL;
    gguf->tensors = NULL;
    TRY(HOSTMEM_NEW(gguf, gguf->key_count + 1, "keys of GGUF", &gguf->keys));
    return HOSTMEM_NEW(gguf, gguf->tensor_count + 1, "tensors of GGUF", &gguf->tensors);
}

static enum gt_status head_parse(struct gguf *gguf)
{
    gguf->at = 0;
    TRY(counts_parse(gguf));
    for (size_t i = 0; i < gguf->key_count; i++)
        TRY(key_parse(gguf, &gguf->keys[i]));
    for (size_t i = 0; i < gguf->tensor_count; i++)
        TRY(tensor_parse(gguf, &gguf->tensors[i]));
    return offsets_set(gguf);
}

/* Reads more and more of the file, until the head is in memory. */
static enum gt_status head_read(struct gguf *gguf, int fd)
{
    for (size_t most = FIRST_BYTES;; most *= 4) {
        gguf->count = gguf->file_bytes < most ? (size_t)gguf->file_bytes : most;
        hostmem_free(gguf->bytes);
        gguf->bytes = NULL;
        TRY(HOSTMEM_NEW(gguf, gguf->count + 1, "head of GGUF", &gguf->bytes));
        TRY(file_read_at(fd, gguf->path, 0, gguf->bytes, gguf->count));
        if (gguf->count < 4 || memcmp(gguf->bytes, GGUF_MAGIC, 4) != 0)
            return FAIL(GT_DATA, "%s: does not begin with " GGUF_MAGIC, gguf->path);
        const enum gt_status status = head_parse(gguf);
        if (status != GT_STOPPED)
            return status;
        if (gguf->count == gguf->file_bytes)
            return FAIL(GT_DATA,
                        "%s: ends in the list of keys and tensors: it was cut short, or is damaged",
                        gguf->path);
        if (most >= GGUF_HEAD_BYTES_MAX)
            return FAIL(GT_DATA, "%s: keys and tensors take more than %zu bytes", gguf->path,
                        GGUF_HEAD_BYTES_MAX);
    }
}

bool gguf_is_file(const char *path)
{
    char magic[4];
    FILE *file = file_is_folder(path) ? NULL : fopen(path, "rbe");
    const bool found = file != NULL && fread(magic, sizeof magic, 1, file) == 1 &&
                       memcmp(magic, GGUF_MAGIC, 4) == 0;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

enum gt_status gguf_open(const void *owner, const char *path, struct gguf **out)
{
    int fd;
    struct gguf *gguf = NULL;
    uint64_t size_bytes;
    TRY(file_open_read(path, &fd, &size_bytes));
    enum gt_status status = HOSTMEM_NEW(owner, 1, "GGUF file", &gguf);
    if (status == GT_OK) {
        gguf->path = path;
        gguf->file_bytes = size_bytes;
        status = head_read(gguf, fd);
    }
    (void)close(fd);
    return FINISH(status, out, gguf, hostmem_free);
}

const struct gguf_key *gguf_key_find(const struct gguf *gguf, const char *name)
{
    for (size_t i = 0; i < gguf->key_count; i++)
        if (strcmp(gguf->keys[i].name, name) == 0)
            return &gguf->keys[i];
    return NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name)
{
    for (size_t i = 0; i < gguf->tensor_count; i++)
        if (strcmp(gguf->tensors[i].name, name) == 0)
            return &gguf->tensors[i];
    return NULL;
}

bool gguf_integer(const struct gguf *gguf, const char *name, int64_t *out)
{
    const struct gguf_key *key = gguf_key_find(gguf, name);
    if (key == NULL || key->type == GGUF_FLOAT32 || key->type == GGUF_FLOAT64 ||
        key->type == GGUF_STRING || key->type == GGUF_ARRAY)
        return false;
    const size_t bytes = value_bytes[key->type];
    const uint64_t value = le_read(gguf->bytes + key->at, bytes);
    const bool is_signed =
        key->type == GGUF_INT8 || key->type == GGUF_INT16 || key->type == GGUF_INT32;
    const uint64_t sign = is_signed ? (uint64_t)1 << (8 * bytes - 1) : 0;
    *out = (int64_t)((value ^ sign) - sign);
    return true;
}

bool gguf_real(const struct gguf *gguf, const char *name, double *out)
{
    const struct gguf_key *key = gguf_key_find(gguf, name);
    float value;
    if (key == NULL || (key->type != GGUF_FLOAT32 && key->type != GGUF_FLOAT64))
        return false;
    if (key->type == GGUF_FLOAT64) {
        memcpy(out, gguf->bytes + key->at, sizeof *out);
        return true;
    }
    memcpy(&value, gguf->bytes + key->at, sizeof value);
    *out = (double)value;
    return true;
}

void gguf_next_text(const struct gguf *gguf, size_t *at, const char **out, size_t *out_count)
{
    *out_count = (size_t)le_read(gguf->bytes + *at, 8);
    *out = (const char *)gguf->bytes + *at + 8;
    *at += 8 + *out_count;
}

bool gguf_text(const struct gguf *gguf, const char *name, const char **out, size_t *out_count)
{
    const struct gguf_key *key = gguf_key_find(gguf, name);
    size_t at = key != NULL ? key->at : 0;
    if (key == NULL || key->type != GGUF_STRING)
        return false;
    gguf_next_text(gguf, &at, out, out_count);
    return true;
}
