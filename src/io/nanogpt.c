/* Converts the pickle of a nanoGPT checkpoint to tables of arrays.
 *
 * The pickle has already been read into values.  This file looks up the fields of nanoGPT's train.py by name, checks
 * types and ranges, and turns each tensor into a location in the archive.  Linear weights are [out, in] there and are
 * marked as transposed; biases that the model does not have become zeros, since Hugging Face's layout always has them.
 * Opening reads tensor data only to verify checksums, except for single numbers such as the step and the best loss;
 * loading reads the rest.
 */
#include "io/nanogpt.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "io/array_table.h"
#include "io/hf_layout.h"
#include "io/pickle.h"
#include "io/zip_stored.h"

#define MEMBER_NAME_MAX 512
#define PREFIX_BYTES_MAX 256
#define DICT_ITEMS_MAX 1024 /* of the small dicts, which are searched linearly */
#define SIZE_FIELD_MAX 16777216
#define COMPILED_PREFIX "_orig_mod."

/* An open checkpoint file. */
struct source {
    struct hostmem *mem;
    const char *path;
    int fd;
    struct zip zip;
    const char *prefix; /* of the members' names, without the slash */
    size_t prefix_bytes;
    unsigned char *text; /* data.pkl */
    struct pickle *pickle;
};

static enum gt_status field_refuse(const struct source *source, const char *field, const char *what)
{
    log_error("%s: field \"%s\": %s", source->path, field, what);
    return GT_DATA;
}

static const struct pickle_value *value_at(const struct source *source, uint32_t index)
{
    return &source->pickle->values[index];
}

/* ---- the archive ---- */
static const struct zip_entry *member_find(const struct source *source, const char *folder, const char *key,
                                           size_t key_bytes)
{
    char name[MEMBER_NAME_MAX];
    if (key_bytes > 64)
        return NULL;
    const int count = snprintf(name, sizeof name, "%.*s/%s%.*s", (int)source->prefix_bytes, source->prefix, folder,
                               (int)key_bytes, key);
    return zip_find(&source->zip, name, (size_t)count);
}

/* Finds the first member NAME/data.pkl; NAME is the file's name when it was saved. */
static enum gt_status pickle_member_find(struct source *source, const struct zip_entry **out)
{
    static const char ending[] = "/data.pkl";
    const size_t ending_bytes = sizeof ending - 1;
    *out = NULL;
    for (size_t i = 0; i < source->zip.count; i++) {
        const struct zip_entry *entry = &source->zip.entries[i];
        const size_t before = entry->name_bytes > ending_bytes ? entry->name_bytes - ending_bytes : 0;
        if (before == 0 || before > PREFIX_BYTES_MAX || *out != NULL ||
            memcmp(entry->name + before, ending, ending_bytes) != 0)
            continue;
        source->prefix = entry->name;
        source->prefix_bytes = before;
        *out = entry;
    }
    if (*out == NULL) {
        log_error("%s: is a zip archive without data.pkl, which torch.save() writes", source->path);
        return GT_DATA;
    }
    if ((*out)->size_bytes <= PICKLE_BYTES_MAX)
        return GT_OK;
    log_error("%s: data.pkl is %" PRIu64 " bytes long; at most %zu are accepted", source->path, (*out)->size_bytes,
              PICKLE_BYTES_MAX);
    return GT_DATA;
}

static enum gt_status byte_order_check(const struct source *source)
{
    char text[8] = {0};
    const struct zip_entry *entry = member_find(source, "byteorder", "", 0);
    if (entry == NULL)
        return GT_OK;
    TRY(zip_verify(&source->zip, source->fd, source->path, entry));
    if (entry->size_bytes < sizeof text)
        TRY(file_read_at(source->fd, source->path, entry->offset_bytes, text, (size_t)entry->size_bytes));
    if (strcmp(text, "little") == 0)
        return GT_OK;
    log_error("%s: was written on a big-endian machine", source->path);
    return GT_UNSUPPORTED;
}

static enum gt_status source_open(struct source *source)
{
    uint64_t size_bytes;
    const struct zip_entry *entry;
    char label[FILE_PATH_MAX + 16];
    TRY(file_open_read(source->path, &source->fd, &size_bytes));
    TRY(zip_open(source->mem, source->fd, source->path, size_bytes, &source->zip));
    TRY(pickle_member_find(source, &entry));
    TRY(byte_order_check(source));
    TRY(zip_verify(&source->zip, source->fd, source->path, entry));
    TRY(HOSTMEM_NEW(source->mem, (size_t)entry->size_bytes, "data.pkl", &source->text));
    TRY(file_read_at(source->fd, source->path, entry->offset_bytes, source->text, (size_t)entry->size_bytes));
    (void)snprintf(label, sizeof label, "%s: data.pkl", source->path);
    return pickle_read(source->mem, source->text, (size_t)entry->size_bytes, label, &source->pickle);
}

static void source_close(struct source *source)
{
    pickle_destroy(source->pickle);
    hostmem_free(source->mem, source->text);
    zip_close(&source->zip);
    if (source->fd >= 0)
        (void)close(source->fd);
}

/* ---- fields ---- */
/* Gets a dict of at most `most` items from the root. */
static enum gt_status dict_get(const struct source *source, const char *name, uint32_t most, uint32_t *out)
{
    uint32_t dict;
    const uint32_t root = source->pickle->root;
    if (value_at(source, root)->kind != PICKLE_DICT || value_at(source, root)->as.items.count > DICT_ITEMS_MAX ||
        !pickle_find(source->pickle, root, name, &dict)) {
        log_error("%s: has no \"%s\", so it is not a checkpoint of nanoGPT", source->path, name);
        return GT_DATA;
    }
    if (value_at(source, dict)->kind != PICKLE_DICT || value_at(source, dict)->as.items.count > most)
        return field_refuse(source, name, "is not a dict, or has too many items");
    *out = dict;
    return GT_OK;
}

/* Gets an integer of `dict` in [min, max]. */
static enum gt_status integer_get(const struct source *source, uint32_t dict, const char *name, int64_t min,
                                  int64_t max, int64_t *out)
{
    uint32_t value;
    if (!pickle_find(source->pickle, dict, name, &value) || value_at(source, value)->kind != PICKLE_INT ||
        value_at(source, value)->as.integer < min || value_at(source, value)->as.integer > max) {
        log_error("%s: field \"%s\": expected an integer in [%" PRId64 ", %" PRId64 "]", source->path, name, min, max);
        return GT_DATA;
    }
    *out = value_at(source, value)->as.integer;
    return GT_OK;
}

static enum gt_status size_get(const struct source *source, uint32_t dict, const char *name, int32_t *out)
{
    int64_t value;
    TRY(integer_get(source, dict, name, 1, SIZE_FIELD_MAX, &value));
    *out = (int32_t)value;
    return GT_OK;
}

/* Gives the location of a tensor's data.  Verifies the member's checksum here, since the data is later used in pieces;
 * by then it usually is in the page cache. */
static enum gt_status tensor_place(const struct source *source, const char *name, const struct pickle_tensor *tensor,
                                   struct array_place *out)
{
    const struct zip_entry *entry = member_find(source, "data/", tensor->key, tensor->key_bytes);
    if (entry == NULL || entry->size_bytes / tensor->element_bytes != (uint64_t)tensor->storage_elements ||
        entry->size_bytes % tensor->element_bytes != 0) {
        log_error("%s: tensor %.100s: member data/%.*s is missing, or not %" PRId64 " elements of %zu bytes",
                  source->path, name, (int)(tensor->key_bytes < 64 ? tensor->key_bytes : 64), tensor->key,
                  tensor->storage_elements, tensor->element_bytes);
        return GT_DATA;
    }
    TRY(zip_verify(&source->zip, source->fd, source->path, entry));
    *out = (struct array_place){.file = 0,
                                .offset_bytes = entry->offset_bytes + (uint64_t)tensor->first * tensor->element_bytes};
    return GT_OK;
}

/* Gets a number, or a tensor with one element: older versions of PyTorch store Adam's step as a plain number. */
static enum gt_status number_get(const struct source *source, uint32_t dict, const char *name, double *out)
{
    uint32_t index;
    struct array_place place;
    float single;
    if (!pickle_find(source->pickle, dict, name, &index))
        return field_refuse(source, name, "is missing");
    const struct pickle_value *value = value_at(source, index);
    if (value->kind == PICKLE_INT || value->kind == PICKLE_REAL) {
        *out = value->kind == PICKLE_INT ? (double)value->as.integer : value->as.real;
        return GT_OK;
    }
    if (value->kind != PICKLE_TENSOR || source->pickle->tensors[value->as.index].elements != 1)
        return field_refuse(source, name, "is not a number");
    const struct pickle_tensor *tensor = &source->pickle->tensors[value->as.index];
    TRY(tensor_place(source, name, tensor, &place));
    if (tensor->dtype == DTYPE_F64)
        return file_read_at(source->fd, source->path, place.offset_bytes, out, sizeof *out);
    if (tensor->dtype != DTYPE_F32)
        return field_refuse(source, name, "is a tensor of a type other than float32 and float64");
    TRY(file_read_at(source->fd, source->path, place.offset_bytes, &single, sizeof single));
    *out = (double)single;
    return GT_OK;
}

static enum gt_status model_args_read(const struct source *source, struct model_config *out)
{
    struct model_config config = {.bias = true, .gelu = GELU_ERF, .norm_epsilon = 1e-5};
    uint32_t args, value;
    double dropout = 0.0;
    TRY(dict_get(source, "model_args", DICT_ITEMS_MAX, &args));
    TRY(size_get(source, args, "n_layer", &config.n_layer));
    TRY(size_get(source, args, "n_head", &config.n_head));
    TRY(size_get(source, args, "n_embd", &config.n_embd));
    TRY(size_get(source, args, "block_size", &config.block_size));
    TRY(size_get(source, args, "vocab_size", &config.vocab_size));
    if (pickle_find(source->pickle, args, "bias", &value)) {
        if (value_at(source, value)->kind != PICKLE_BOOL)
            return field_refuse(source, "bias", "is not a boolean");
        config.bias = value_at(source, value)->as.integer != 0;
    }
    if (pickle_find(source->pickle, args, "dropout", &value))
        TRY(number_get(source, args, "dropout", &dropout));
    if (!(dropout >= 0.0 && dropout < 1.0))
        return field_refuse(source, "dropout", "is not in [0, 1)");
    if (config.n_embd % config.n_head != 0)
        return field_refuse(source, "n_head", "does not divide n_embd");
    config.n_kv_head = config.n_head;
    config.padded_vocab_size = config.vocab_size;
    config.dropout = (float)dropout;
    *out = config;
    return GT_OK;
}

/* Returns a value of the configuration, or NULL if it has a type that no key accepts. */
static json_t *json_of(const struct source *source, uint32_t index)
{
    const struct pickle_value *value = value_at(source, index);
    switch (value->kind) {
    case PICKLE_BOOL:
        return json_boolean(value->as.integer != 0);
    case PICKLE_INT:
        return json_integer(value->as.integer);
    case PICKLE_REAL:
        return json_real(value->as.real);
    case PICKLE_TEXT:
        return json_stringn(value->as.text.bytes, value->as.text.count);
    default:
        return NULL;
    }
}

/* Reads the keys that define a run.  dtype is excluded: on a CPU nanoGPT computes in fp32 regardless of it. */
static enum gt_status configuration_read(const struct source *source, json_t **out)
{
    static const char *const keys[] = {"dataset",        "batch_size",    "gradient_accumulation_steps",
                                       "dropout",        "learning_rate", "max_iters",
                                       "weight_decay",   "beta1",         "beta2",
                                       "grad_clip",      "decay_lr",      "warmup_iters",
                                       "lr_decay_iters", "min_lr",        "eval_interval",
                                       "eval_iters",     "log_interval",  "always_save_checkpoint"};
    uint32_t dict, value;
    TRY(dict_get(source, "config", DICT_ITEMS_MAX, &dict));
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!pickle_find(source->pickle, dict, keys[i], &value))
            continue;
        if (json_object_set_new(object, keys[i], json_of(source, value)) != 0) {
            json_decref(object);
            log_error("%s: field \"config\": %s is not a number, string or boolean", source->path, keys[i]);
            return GT_DATA;
        }
    }
    *out = object;
    return GT_OK;
}

/* ---- tensors ---- */
/* Gives the name without the prefix that torch.compile adds.  Returns false if it is not valid in a table. */
static bool name_read(const struct source *source, uint32_t index, char out[static SAFETENSORS_NAME_MAX])
{
    const struct pickle_value *value = value_at(source, index);
    const size_t skip = sizeof COMPILED_PREFIX - 1;
    if (value->kind != PICKLE_TEXT)
        return false;
    const char *bytes = value->as.text.bytes;
    size_t count = value->as.text.count;
    if (count > skip && memcmp(bytes, COMPILED_PREFIX, skip) == 0) {
        bytes += skip;
        count -= skip;
    }
    if (count >= SAFETENSORS_NAME_MAX || memchr(bytes, '\0', count) != NULL)
        return false;
    memcpy(out, bytes, count);
    out[count] = '\0';
    return safetensors_name_valid(out);
}

/* Adds a tensor under `name`; `layer` is its name in the model and determines whether it is a linear weight. */
static enum gt_status tensor_add(const struct source *source, struct safetensors *table, const char *name,
                                 const char *layer, uint32_t index)
{
    static const char blocks[] = HF_PREFIX "h.";
    struct safetensors_tensor entry = {.rank = 0};
    struct array_place place;
    (void)snprintf(entry.name, sizeof entry.name, "%.127s", name);
    if (value_at(source, index)->kind != PICKLE_TENSOR) {
        log_error("%s: %.100s is not a tensor", source->path, name);
        return GT_DATA;
    }
    const struct pickle_tensor *tensor = &source->pickle->tensors[value_at(source, index)->as.index];
    entry.dtype = tensor->dtype;
    if (entry.dtype != DTYPE_F32 && entry.dtype != DTYPE_F16 && entry.dtype != DTYPE_BF16) {
        log_error("%s: tensor %.100s: only float32, float16 and bfloat16 can be loaded", source->path, name);
        return GT_UNSUPPORTED;
    }
    TRY(tensor_place(source, name, tensor, &place));
    entry.rank = tensor->rank;
    memcpy(entry.dims, tensor->dims, sizeof tensor->dims);
    place.transposed = tensor->rank == 2 && strncmp(layer, blocks, sizeof blocks - 1) == 0;
    if (place.transposed) {
        entry.dims[0] = tensor->dims[1];
        entry.dims[1] = tensor->dims[0];
    }
    return array_table_add(table, &entry, &place);
}

/* Adds zeros for a tensor of the layout that the file lacks. */
static enum gt_status zeros_add(struct safetensors *table, const char *prefix, const struct parameter_shape *tensor)
{
    struct safetensors_tensor entry = {
        .dtype = DTYPE_F32, .rank = tensor->rank, .dims = {tensor->dims[0], tensor->dims[1]}};
    const struct array_place place = {.file = ARRAY_ZEROS};
    size_t index;
    (void)snprintf(entry.name, sizeof entry.name, "%s%.100s", prefix, tensor->name);
    return safetensors_find(table, entry.name, &index) ? GT_OK : array_table_add(table, &entry, &place);
}

static enum gt_status model_fill(const struct source *source, const struct nanogpt *nanogpt, uint32_t dict)
{
    struct safetensors *table = nanogpt->model;
    const struct pickle *pickle = source->pickle;
    char name[SAFETENSORS_NAME_MAX];
    for (uint32_t i = value_at(source, dict)->as.items.first; i != PICKLE_END; i = pickle->items[i].next) {
        if (!name_read(source, pickle->items[i].key, name))
            return field_refuse(source, "model", "a tensor's name is not 1 to 127 characters of A-Z a-z 0-9 . _ -");
        TRY(tensor_add(source, table, name, name, pickle->items[i].value));
    }
    for (size_t i = 0; !nanogpt->config.bias && i < parameters_count(&nanogpt->config); i++) {
        struct parameter_shape tensor;
        parameters_shape(&nanogpt->config, i, &tensor);
        if (tensor.absent)
            TRY(zeros_add(table, HF_PREFIX, &tensor));
    }
    return GT_OK;
}

static enum gt_status layers_check(const struct source *source, const struct model_config *config)
{
    if (parameters_count(config) <= SAFETENSORS_TENSORS_MAX / 2)
        return GT_OK;
    return field_refuse(source, "n_layer", "has more tensors than can be read");
}

static enum gt_status model_read(const struct source *source, struct nanogpt *nanogpt)
{
    uint32_t dict;
    TRY(dict_get(source, "model", SAFETENSORS_TENSORS_MAX / 2, &dict));
    TRY(layers_check(source, &nanogpt->config));
    const size_t most = value_at(source, dict)->as.items.count + parameters_count(&nanogpt->config);
    int32_t file;
    TRY(array_table_create(source->mem, source->path, 1, most, &nanogpt->model));
    TRY(array_table_file_add(nanogpt->model, source->path, &file));
    return model_fill(source, nanogpt, dict);
}

/* ---- the optimizer ---- */
/* The parameter numbers of the optimizer's groups: [0] with weight decay, [1] without. */
struct groups {
    const struct source *source;
    uint32_t next[2]; /* items of the lists "params" */
    uint32_t state;
};

static enum gt_status groups_find(const struct source *source, uint32_t optimizer, struct groups *out)
{
    const struct pickle *pickle = source->pickle;
    uint32_t list, params, count = 0;
    *out = (struct groups){.source = source, .next = {PICKLE_END, PICKLE_END}};
    if (!pickle_find(pickle, optimizer, "state", &out->state) || value_at(source, out->state)->kind != PICKLE_DICT ||
        value_at(source, out->state)->as.items.count > SAFETENSORS_TENSORS_MAX)
        return field_refuse(source, "optimizer", "has no \"state\" of parameters");
    if (!pickle_find(pickle, optimizer, "param_groups", &list) || value_at(source, list)->kind != PICKLE_LIST ||
        value_at(source, list)->as.items.count != 2)
        return field_refuse(source, "optimizer", "does not have two \"param_groups\", as nanoGPT's does");
    for (uint32_t i = value_at(source, list)->as.items.first; i != PICKLE_END; i = pickle->items[i].next) {
        const struct pickle_value *group = value_at(source, pickle->items[i].value);
        if (group->kind != PICKLE_DICT || group->as.items.count > DICT_ITEMS_MAX ||
            !pickle_find(pickle, pickle->items[i].value, "params", &params) ||
            value_at(source, params)->kind != PICKLE_LIST)
            return field_refuse(source, "param_groups", "a group has no list \"params\"");
        out->next[count++] = value_at(source, params)->as.items.first;
    }
    return GT_OK;
}

/* Gets the dict of the next parameter of a group. */
static enum gt_status state_next(struct groups *groups, const struct parameter_shape *tensor, uint32_t *out)
{
    const struct pickle *pickle = groups->source->pickle;
    const int group = tensor->rank == 2 ? 0 : 1;
    const uint32_t item = groups->next[group];
    if (item != PICKLE_END) {
        const struct pickle_value *number = value_at(groups->source, pickle->items[item].value);
        groups->next[group] = pickle->items[item].next;
        if (number->kind == PICKLE_INT && pickle_find_index(pickle, groups->state, number->as.integer, out) &&
            value_at(groups->source, *out)->kind == PICKLE_DICT &&
            value_at(groups->source, *out)->as.items.count <= DICT_ITEMS_MAX)
            return GT_OK;
    }
    log_error("%s: field \"optimizer\": has no state for %s", groups->source->path, tensor->name);
    return GT_DATA;
}

/* Adds m and v of a parameter; all parameters must have the same number of steps. */
static enum gt_status moments_add(struct groups *groups, struct nanogpt *nanogpt, const struct parameter_shape *tensor)
{
    static const char *const fields[] = {"exp_avg", "exp_avg_sq"};
    static const char *const prefixes[] = {"m." HF_PREFIX, "v." HF_PREFIX};
    char name[SAFETENSORS_NAME_MAX], layer[SAFETENSORS_NAME_MAX];
    uint32_t dict, value;
    double step;
    TRY(state_next(groups, tensor, &dict));
    TRY(number_get(groups->source, dict, "step", &step));
    if (!(step >= 0.0 && step <= (double)INT32_MAX) || step != floor(step) ||
        (nanogpt->adam_step >= 0 && nanogpt->adam_step != (int64_t)step)) {
        log_error("%s: field \"optimizer\": step of %s is %g; expected the same whole number for all",
                  groups->source->path, tensor->name, step);
        return GT_DATA;
    }
    nanogpt->adam_step = (int64_t)step;
    (void)snprintf(layer, sizeof layer, HF_PREFIX "%.100s", tensor->name);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "%s%.100s", prefixes[i], tensor->name);
        if (!pickle_find(groups->source->pickle, dict, fields[i], &value)) {
            log_error("%s: field \"optimizer\": %s of %s is missing", groups->source->path, fields[i], tensor->name);
            return GT_DATA;
        }
        TRY(tensor_add(groups->source, nanogpt->optimizer, name, layer, value));
    }
    return GT_OK;
}

/* For a checkpoint saved before the first update, when PyTorch has no state yet. */
static enum gt_status moments_zero(struct nanogpt *nanogpt, const struct parameter_shape *tensor)
{
    nanogpt->adam_step = 0;
    TRY(zeros_add(nanogpt->optimizer, "m." HF_PREFIX, tensor));
    return zeros_add(nanogpt->optimizer, "v." HF_PREFIX, tensor);
}

static enum gt_status moments_read(struct groups *groups, struct nanogpt *nanogpt)
{
    const bool empty = value_at(groups->source, groups->state)->as.items.count == 0;
    for (size_t i = 0; i < parameters_count(&nanogpt->config); i++) {
        struct parameter_shape tensor;
        parameters_shape(&nanogpt->config, i, &tensor);
        if (tensor.absent)
            continue;
        TRY(empty ? moments_zero(nanogpt, &tensor) : moments_add(groups, nanogpt, &tensor));
    }
    if (empty || (groups->next[0] == PICKLE_END && groups->next[1] == PICKLE_END))
        return GT_OK;
    return field_refuse(groups->source, "optimizer", "has more parameters than the model");
}

static enum gt_status optimizer_read(const struct source *source, struct nanogpt *nanogpt)
{
    struct groups groups;
    uint32_t optimizer;
    int32_t file;
    TRY(dict_get(source, "optimizer", DICT_ITEMS_MAX, &optimizer));
    TRY(groups_find(source, optimizer, &groups));
    TRY(array_table_create(source->mem, source->path, 1, 2 * parameters_count(&nanogpt->config), &nanogpt->optimizer));
    TRY(array_table_file_add(nanogpt->optimizer, source->path, &file));
    nanogpt->adam_step = -1;
    return moments_read(&groups, nanogpt);
}

static enum gt_status everything_read(const struct source *source, bool with_optimizer, struct nanogpt *nanogpt)
{
    TRY(model_args_read(source, &nanogpt->config));
    TRY(integer_get(source, source->pickle->root, "iter_num", 0, INT32_MAX, &nanogpt->iter));
    TRY(number_get(source, source->pickle->root, "best_val_loss", &nanogpt->best_val_loss));
    TRY(configuration_read(source, &nanogpt->configuration));
    TRY(model_read(source, nanogpt));
    return with_optimizer ? optimizer_read(source, nanogpt) : GT_OK;
}

enum gt_status nanogpt_open(struct hostmem *mem, const char *path, bool with_optimizer, struct nanogpt *out)
{
    struct source source = {.mem = mem, .path = path, .fd = -1};
    struct nanogpt nanogpt = {.iter = 0};
    enum gt_status status = source_open(&source);
    if (status == GT_OK)
        status = everything_read(&source, with_optimizer, &nanogpt);
    source_close(&source);
    if (status != GT_OK) {
        nanogpt_release(&nanogpt);
        return status;
    }
    *out = nanogpt;
    return GT_OK;
}

void nanogpt_release(struct nanogpt *nanogpt)
{
    safetensors_close(nanogpt->model);
    safetensors_close(nanogpt->optimizer);
    json_decref(nanogpt->configuration);
    *nanogpt = (struct nanogpt){.iter = 0};
}
