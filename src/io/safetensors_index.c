/* Opens weights that are split into several files.
 *
 * The index is untrusted JSON: a shard's name must be a plain file name before it becomes part of a path.  Each shard
 * is opened with all the checks of safetensors_open(), and its tensors are added to one table.  Index and shards must
 * list the same tensors.  Only headers are read.
 */
#include "io/safetensors_index.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "io/array_table.h"

#define INDEX_BYTES_MAX ((size_t)4 << 20)

/* The distinct file names of an index, owned by its JSON. */
struct shard_list {
    const char *names[SAFETENSORS_SHARDS_MAX];
    size_t count;
};

static bool name_is_safe(const char *name)
{
    static const char ending[] = ".safetensors";
    const size_t length = strlen(name);
    return safetensors_name_valid(name) && name[0] != '.' && length > sizeof ending - 1 &&
           strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

static enum gt_status shard_note(const char *path, const char *tensor, const char *name, struct shard_list *list)
{
    if (!name_is_safe(name)) {
        log_error("%s: tensor %.64s: \"%.64s\" is not the name of a safetensors file beside the index", path, tensor,
                  name);
        return GT_DATA;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->names[i], name) == 0)
            return GT_OK;
    }
    if (list->count == SAFETENSORS_SHARDS_MAX) {
        log_error("%s: names more than %d files", path, SAFETENSORS_SHARDS_MAX);
        return GT_DATA;
    }
    list->names[list->count++] = name;
    return GT_OK;
}

static enum gt_status shards_list(const json_t *map, const char *path, struct shard_list *list)
{
    const char *tensor;
    json_t *value;
    if (json_object_size(map) > SAFETENSORS_TENSORS_MAX) {
        log_error("%s: lists %zu tensors; at most %d are accepted", path, json_object_size(map),
                  SAFETENSORS_TENSORS_MAX);
        return GT_DATA;
    }
    json_object_foreach((json_t *)map, tensor, value)
    {
        if (!json_is_string(value)) {
            log_error("%s: field \"weight_map\": tensor %.64s: expected a file name", path, tensor);
            return GT_DATA;
        }
        TRY(shard_note(path, tensor, json_string_value(value), list));
    }
    return GT_OK;
}

/* Adds the tensors of an open shard; the index must assign each of them to this shard. */
static enum gt_status tensors_add(struct safetensors *table, const struct safetensors *shard, const json_t *map,
                                  const char *name, int32_t file)
{
    for (size_t i = 0; i < shard->count; i++) {
        const struct safetensors_tensor *tensor = &shard->tensors[i];
        const char *where = json_string_value(json_object_get(map, tensor->name));
        if (where == NULL || strcmp(where, name) != 0) {
            log_error("%s: tensor %s: the index says %.64s", shard->path, tensor->name,
                      where != NULL ? where : "nothing about it");
            return GT_DATA;
        }
        const struct array_place place = {.file = file, .offset_bytes = shard->data_offset + tensor->begin_bytes};
        TRY(array_table_add(table, tensor, &place));
    }
    return GT_OK;
}

static enum gt_status shard_add(struct safetensors *table, const char *folder, const json_t *map, const char *name)
{
    char path[FILE_PATH_MAX];
    struct safetensors *shard;
    int32_t file = 0;
    TRY(file_join(path, folder, name));
    TRY(safetensors_open(table->mem, path, &shard));
    enum gt_status status = array_table_file_add(table, path, &file);
    if (status == GT_OK)
        status = tensors_add(table, shard, map, name, file);
    safetensors_close(shard);
    return status;
}

/* Checks that every tensor of the index was found. */
static enum gt_status complete_check(const struct safetensors *table, const json_t *map)
{
    const char *tensor;
    json_t *value;
    size_t index;
    json_object_foreach((json_t *)map, tensor, value)
    {
        if (!safetensors_find(table, tensor, &index)) {
            log_error("%s: tensor %.100s is not in %.100s, where the index says it is", table->path, tensor,
                      json_string_value(value));
            return GT_DATA;
        }
    }
    return GT_OK;
}

static enum gt_status shards_open(struct hostmem *mem, const char *folder, const char *path, const json_t *map,
                                  struct safetensors **out)
{
    struct shard_list list = {.count = 0};
    struct safetensors *table;
    enum gt_status status = GT_OK;
    TRY(shards_list(map, path, &list));
    TRY(array_table_create(mem, path, list.count, json_object_size(map), &table));
    for (size_t i = 0; i < list.count && status == GT_OK; i++)
        status = shard_add(table, folder, map, list.names[i]);
    if (status == GT_OK)
        status = complete_check(table, map);
    if (status != GT_OK) {
        safetensors_close(table);
        return status;
    }
    *out = table;
    return GT_OK;
}

enum gt_status safetensors_index_open(struct hostmem *mem, const char *folder, struct safetensors **out)
{
    char path[FILE_PATH_MAX];
    json_t *root;
    const json_t *map;
    TRY(file_join(path, folder, SAFETENSORS_INDEX_NAME));
    TRY(json_parse_file(path, INDEX_BYTES_MAX, &root));
    enum gt_status status = GT_OK;
    if (!json_is_object(root)) {
        log_error("%s: expected an object", path);
        status = GT_DATA;
    }
    if (status == GT_OK)
        status = json_get_object(root, path, "weight_map", &map);
    if (status == GT_OK)
        status = shards_open(mem, folder, path, map, out);
    json_decref(root);
    return status;
}
