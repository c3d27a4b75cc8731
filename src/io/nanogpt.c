/* Converts the pickles of nanoGPT: a checkpoint to tables of arrays, meta.pkl to a tokenizer.
 *
 * The pickle has already been read into JSON values.  This file looks up the fields of nanoGPT's
 * train.py by name, checks types and ranges, and turns each tensor into a location in the archive.
 * Linear weights are [out, in] there and are marked as transposed; biases that the model does not
 * have become zeros, since Hugging Face's layout always has them.  Opening reads tensor data only
 * to verify checksums, except for single numbers such as the step and the best loss; loading reads
 * the rest.  Of meta.pkl only "itos" is used: its keys must be 0, 1, 2, ... in this order, and the
 * characters must ascend, as sorted(set(text)) and enumerate() make them.  Sorting other tables
 * would change the ids.
 */
#include "io/nanogpt.h"

#include <math.h>
#include <unistd.h>

#include "base/utf8.h"
#include "io/checkpoint_load.h"
#include "io/pickle.h"
#include "io/safetensors_table.h"
#include "io/zip_stored.h"
#include "model/parameters.h"

#define MEMBER_NAME_MAX 512
#define IGNORED_TEXT_MAX 512
#define WEIGHTS_ALONE "; --resume_state=False takes the weights alone"

/* An open checkpoint file. */
struct source {
    const char *path;
    int fd;
    struct zip zip;
    const char *prefix; /* of the members' names, without the slash */
    size_t prefix_bytes;
    struct pickle pickle;
};

static enum gt_status field_refuse(const struct source *source, const char *field, const char *what)
{
    return FAIL(GT_DATA, "%s: field \"%s\": %s", source->path, field, what);
}

/* ---- the archive ---- */
static struct zip_entry *member_find(const struct source *source, const char *folder,
                                     const char *key)
{
    char name[MEMBER_NAME_MAX];
    const int count = snprintf(name, sizeof name, "%.*s/%s%s", (int)source->prefix_bytes,
                               source->prefix, folder, key);
    return count < MEMBER_NAME_MAX ? zip_find(&source->zip, name) : NULL;
}

/* Finds the first member NAME/data.pkl; NAME is the file's name when it was saved. */
static enum gt_status pickle_member_find(struct source *source, struct zip_entry **out)
{
    static const char ending[] = "/data.pkl";
    const size_t ending_bytes = sizeof ending - 1;
    for (uint64_t i = 0; i < source->zip.count; i++) {
        struct zip_entry *entry = &source->zip.entries[i];
        const size_t before =
            entry->name_bytes > ending_bytes ? entry->name_bytes - ending_bytes : 0;
        if (before == 0 || memcmp(entry->name + before, ending, ending_bytes) != 0)
            continue;
        source->prefix = entry->name;
        source->prefix_bytes = before;
        *out = entry;
        if (entry->size_bytes <= PICKLE_BYTES_MAX)
            return GT_OK;
        return FAIL(GT_DATA, "%s: data.pkl is %" PRIu64 " bytes long; at most %zu are accepted",
                    source->path, entry->size_bytes, PICKLE_BYTES_MAX);
    }
    return FAIL(GT_DATA, "%s: is a zip archive without data.pkl, which torch.save() writes",
                source->path);
}

static enum gt_status byte_order_check(const struct source *source)
{
    char text[8] = {0};
    struct zip_entry *entry = member_find(source, "byteorder", "");
    if (entry == NULL)
        return GT_OK;
    TRY(zip_verify(&source->zip, entry));
    if (entry->size_bytes < sizeof text)
        TRY(file_read_at(source->fd, source->path, entry->offset_bytes, text,
                         (size_t)entry->size_bytes));
    if (strcmp(text, "little") == 0)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: was written on a big-endian machine", source->path);
}

static enum gt_status source_open(struct source *source)
{
    uint64_t size_bytes;
    struct zip_entry *entry;
    unsigned char *text;
    TRY(file_open_read(source->path, &source->fd, &size_bytes));
    TRY(zip_open(source, source->fd, source->path, size_bytes, &source->zip));
    TRY(pickle_member_find(source, &entry));
    TRY(byte_order_check(source));
    TRY(zip_verify(&source->zip, entry));
    TRY(HOSTMEM_NEW(source, (size_t)entry->size_bytes, "data.pkl", &text));
    const char *label = TEXT(FILE_PATH_MAX + 16, "%s: data.pkl", source->path);
    TRY(file_read_at(source->fd, source->path, entry->offset_bytes, text,
                     (size_t)entry->size_bytes));
    TRY(pickle_read(source, text, (size_t)entry->size_bytes, label, NANOGPT_SAVE_AGAIN,
                    &source->pickle));
    hostmem_free(text);
    return GT_OK;
}

static void source_close(void *object)
{
    struct source *source = object;
    pickle_release(&source->pickle);
    if (source->fd >= 0)
        (void)close(source->fd);
}

/* ---- fields ---- */
/* Gets a dict of the root that describes the weights. */
static enum gt_status model_dict_get(const struct source *source, const char *name, json_t **out)
{
    *out = json_object_get(source->pickle.root, name);
    if (json_is_object(*out))
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: has no dict \"%s\", so it is not a checkpoint of nanoGPT; to use its weights, save {\"model\": its "
        "state dict, \"model_args\": {\"n_layer\", \"n_head\", \"n_embd\", \"block_size\", \"vocab_size\" and "
        "\"bias\" with their values}}, and add --resume_state=False",
        source->path, name);
}

/* Gets a dict of the root that only a run that is continued needs. */
static enum gt_status run_dict_get(const struct source *source, const char *name, json_t **out)
{
    *out = json_object_get(source->pickle.root, name);
    if (json_is_object(*out))
        return GT_OK;
    return FAIL(GT_DATA, "%s: has no dict \"%s\", which continuing the run needs" WEIGHTS_ALONE,
                source->path, name);
}

/* Gives the location of a tensor's data.  Verifies the member's checksum here, since the data is
 * later used in pieces; by then it usually is in the page cache. */
static enum gt_status tensor_place(const struct source *source, const char *name,
                                   const struct pickle_tensor *tensor, uint64_t *out_offset_bytes)
{
    struct zip_entry *entry = member_find(source, "data/", tensor->key);
    if (entry == NULL ||
        entry->size_bytes / tensor->element_bytes != (uint64_t)tensor->storage_elements ||
        entry->size_bytes % tensor->element_bytes != 0)
        return FAIL(GT_DATA,
                    "%s: tensor %.100s: member data/%.64s is missing, or not %" PRId64
                    " elements of %zu bytes",
                    source->path, name, tensor->key, tensor->storage_elements,
                    tensor->element_bytes);
    TRY(zip_verify(&source->zip, entry));
    *out_offset_bytes = entry->offset_bytes + (uint64_t)tensor->first * tensor->element_bytes;
    return GT_OK;
}

/* Gets a number, or a tensor with one element: older versions of PyTorch store Adam's step as a
 * plain number. */
static enum gt_status number_get(const struct source *source, const json_t *dict, const char *name,
                                 double *out)
{
    uint64_t at;
    float bytes; /* or fewer */
    const json_t *value = json_object_get(dict, name);
    const struct pickle_tensor *tensor = pickle_tensor_of(&source->pickle, value);
    if (tensor == NULL && json_is_number(value)) {
        *out = json_number_value(value);
        return GT_OK;
    }
    if (tensor == NULL || tensor->elements != 1 ||
        (tensor->dtype != DTYPE_F64 && tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_F16 &&
         tensor->dtype != DTYPE_BF16))
        return field_refuse(source, name,
                            "is neither a number nor a tensor of one real number" WEIGHTS_ALONE);
    TRY(tensor_place(source, name, tensor, &at));
    if (tensor->dtype == DTYPE_F64)
        return file_read_at(source->fd, source->path, at, out, sizeof *out);
    TRY(file_read_at(source->fd, source->path, at, &bytes, tensor->element_bytes));
    *out = (double)dtype_value(tensor->dtype, &bytes, 0);
    return GT_OK;
}

/* Logs the fields of model_args that are not read here: they belong to a fork, which may compute
 * something else.  `config` is not checked, because it has dozens of other fields in every fork,
 * and model_args also has all that shape the model. */
static void args_ignored_report(const struct source *source, json_t *args)
{
    static const char *const known[] = {"n_layer",    "n_head", "n_embd", "block_size",
                                        "vocab_size", "bias",   "dropout"};
    char list[IGNORED_TEXT_MAX] = "";
    const char *name;
    json_t *value;
    json_object_foreach(args, name, value)
    {
        const size_t used = strlen(list);
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known = is_known || strcmp(name, known[i]) == 0;
        if (!is_known)
            (void)snprintf(list + used, sizeof list - used, "%s%.64s=%s", used > 0 ? ", " : "",
                           name,
                           json_is_true(value)    ? "True"
                           : json_is_false(value) ? "False"
                           : json_is_null(value)  ? "None"
                                                  : JSON_SHORT_TEXT(value));
    }
    if (list[0] != '\0')
        log_warning(
            "%s: field \"model_args\": %s: not known here and ignored; if they change the model, its losses "
            "will be wrong",
            source->path, list);
}

static enum gt_status model_args_read(const struct source *source, struct model_config *out)
{
    struct model_config config = {.bias = true, .gelu = GELU_ERF, .norm_epsilon = 1e-5};
    json_t *args;
    double dropout = 0.0;
    TRY(model_dict_get(source, "model_args", &args));
    TRY(hf_size_field(args, source->path, "n_layer", &config.n_layer));
    TRY(hf_size_field(args, source->path, "n_head", &config.n_head));
    TRY(hf_size_field(args, source->path, "n_embd", &config.n_embd));
    TRY(hf_size_field(args, source->path, "block_size", &config.block_size));
    TRY(hf_size_field(args, source->path, "vocab_size", &config.vocab_size));
    if (json_object_get(args, "bias") != NULL)
        TRY(json_get_bool(args, source->path, "bias", &config.bias));
    TRY(hf_real_field(args, source->path, "dropout", 0.0, 1.0, &dropout));
    if (config.n_embd % config.n_head != 0)
        return field_refuse(source, "n_head", "does not divide n_embd");
    config.n_kv_head = config.n_head;
    config.padded_vocab_size = config.vocab_size;
    config.dropout = (float)dropout;
    args_ignored_report(source, args);
    *out = config;
    return GT_OK;
}

/* Adds the keys that define a run.  dtype is excluded: on a CPU nanoGPT computes in fp32 regardless
 * of it. */
static enum gt_status configuration_read(const struct source *source, json_t *dict, json_t *object)
{
    static const char *const keys[] = {
        "dataset",        "batch_size",    "gradient_accumulation_steps",
        "dropout",        "learning_rate", "max_iters",
        "weight_decay",   "beta1",         "beta2",
        "grad_clip",      "decay_lr",      "warmup_iters",
        "lr_decay_iters", "min_lr",        "eval_interval",
        "eval_iters",     "log_interval",  "always_save_checkpoint"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *value = json_object_get(dict, keys[i]);
        if (value == NULL)
            continue;
        if (!json_is_number(value) && !json_is_boolean(value) && !json_is_string(value))
            return FAIL(GT_DATA, "%s: field \"config\": %s is not a number, string or boolean",
                        source->path, keys[i]);
        if (json_object_set(object, keys[i], value) != 0)
            return FAIL(GT_NO_MEMORY, "%s: out of memory for its configuration", source->path);
    }
    return GT_OK;
}

/* ---- tensors ---- */
/* Adds a tensor under `name`.  Matrices of blocks are weights of linear layers. */
static enum gt_status tensor_add(const struct source *source, struct safetensors *table,
                                 const char *name, const json_t *value)
{
    const struct pickle_tensor *tensor = pickle_tensor_of(&source->pickle, value);
    uint64_t at;
    if (tensor == NULL)
        return FAIL(GT_DATA, "%s: %.100s is not a tensor", source->path, name);
    if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_F16 && tensor->dtype != DTYPE_BF16)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: tensor %.100s: only float32, float16 and bfloat16 can be loaded" NANOGPT_SAVE_AGAIN,
            source->path, name);
    TRY(tensor_place(source, name, tensor, &at));
    struct safetensors_tensor entry = {
        .dtype = tensor->dtype, .rank = tensor->rank, .offset_bytes = at};
    (void)snprintf(entry.name, sizeof entry.name, "%s", name);
    memcpy(entry.dims, tensor->dims, sizeof tensor->dims);
    entry.transposed = tensor->rank == 2 && strstr(name, HF_PREFIX "h.") != NULL;
    if (entry.transposed) {
        entry.dims[0] = tensor->dims[1];
        entry.dims[1] = tensor->dims[0];
    }
    return safetensors_add(table, &entry);
}

/* Adds zeros for a tensor of the layout that the file lacks. */
static enum gt_status zeros_add(struct safetensors *table, const char *prefix,
                                const struct parameter_shape *tensor)
{
    struct safetensors_tensor entry = {.dtype = DTYPE_F32,
                                       .rank = tensor->rank,
                                       .dims = {tensor->dims[0], tensor->dims[1]},
                                       .file = SAFETENSORS_ZEROS};
    size_t index;
    (void)snprintf(entry.name, sizeof entry.name, "%s%.100s", prefix, tensor->name);
    return safetensors_find(table, entry.name, &index) ? GT_OK : safetensors_add(table, &entry);
}

static enum gt_status model_read(const struct source *source, struct checkpoint *checkpoint)
{
    const size_t parameters = parameters_count(&checkpoint->config);
    char plain[SAFETENSORS_NAME_MAX];
    const char *name;
    json_t *dict, *value;
    TRY(model_dict_get(source, "model", &dict));
    TRY(safetensors_create(checkpoint, source->path, &checkpoint->model));
    TRY(safetensors_file_add(checkpoint->model, source->path));
    json_object_foreach(dict, name, value)
    {
        (void)snprintf(plain, sizeof plain, "%s", name);
        hf_layout_name_unwrap(plain);
        if (!hf_layout_is_buffer(plain))
            TRY(tensor_add(source, checkpoint->model, plain, value));
    }
    for (size_t i = 0; !checkpoint->config.bias && i < parameters; i++) {
        struct parameter_shape tensor;
        parameters_shape(&checkpoint->config, i, &tensor);
        if (tensor.absent)
            TRY(zeros_add(checkpoint->model, HF_PREFIX, &tensor));
    }
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

/* ---- the optimizer ---- */
/* The parameter numbers of the optimizer's groups: [0] with weight decay, [1] without. */
struct groups {
    const struct source *source;
    const json_t *params[2], *state;
    size_t next[2];
};

/* Refuses what PyTorch's optimizers can compute in addition to nanoGPT's AdamW. */
static enum gt_status group_check(const struct source *source, const json_t *group)
{
    static const char *const names[] = {"amsgrad", "maximize"};
    const json_t *decoupled = json_object_get(group, "decoupled_weight_decay");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (json_is_true(json_object_get(group, names[i])))
            return field_refuse(
                source, names[i],
                "is True, which the AdamW of this program does not do" WEIGHTS_ALONE);
    if (json_is_false(decoupled) &&
        json_number_value(json_object_get(group, "weight_decay")) != 0.0)
        return field_refuse(source, "optimizer",
                            "is Adam with weight decay, not AdamW" WEIGHTS_ALONE);
    return GT_OK;
}

static enum gt_status groups_find(const struct source *source, const json_t *optimizer,
                                  struct groups *out)
{
    const json_t *list = json_object_get(optimizer, "param_groups");
    *out = (struct groups){.source = source, .state = json_object_get(optimizer, "state")};
    if (!json_is_object(out->state))
        return field_refuse(source, "optimizer", "has no \"state\" of parameters" WEIGHTS_ALONE);
    if (json_array_size(list) != 2)
        return field_refuse(source, "optimizer",
                            "does not have two \"param_groups\", as nanoGPT's does" WEIGHTS_ALONE);
    for (size_t i = 0; i < 2; i++) {
        out->params[i] = json_object_get(json_array_get(list, i), "params");
        if (!json_is_array(out->params[i]))
            return field_refuse(source, "param_groups",
                                "a group has no list \"params\"" WEIGHTS_ALONE);
        TRY(group_check(source, json_array_get(list, i)));
    }
    return GT_OK;
}

/* Adds m and v of a parameter; all parameters must have the same number of steps. */
static enum gt_status moments_add(struct groups *groups, struct checkpoint *checkpoint,
                                  const struct parameter_shape *tensor)
{
    static const char *const fields[] = {"exp_avg", "exp_avg_sq"};
    static const char *const prefixes[] = {"m." HF_PREFIX, "v." HF_PREFIX};
    const int group = tensor->rank == 2 ? 0 : 1;
    const json_t *number = json_array_get(groups->params[group], groups->next[group]++);
    const json_t *dict = json_object_get(
        groups->state, TEXT(24, "%" JSON_INTEGER_FORMAT, json_integer_value(number)));
    double step;
    if (!json_is_integer(number) || !json_is_object(dict))
        return FAIL(GT_DATA, "%s: field \"optimizer\": has no state for %s" WEIGHTS_ALONE,
                    groups->source->path, tensor->name);
    TRY(number_get(groups->source, dict, "step", &step));
    if (!(step >= 0.0 && step <= (double)INT32_MAX) || step != floor(step) ||
        (checkpoint->record.state.adam_step >= 0 &&
         checkpoint->record.state.adam_step != (int64_t)step))
        return FAIL(
            GT_DATA,
            "%s: field \"optimizer\": step of %s is %g; expected the same whole number for all" WEIGHTS_ALONE,
            groups->source->path, tensor->name, step);
    checkpoint->record.state.adam_step = (int64_t)step;
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(dict, fields[i]);
        const char *name = TEXT(SAFETENSORS_NAME_MAX, "%s%.100s", prefixes[i], tensor->name);
        if (value == NULL)
            return FAIL(GT_DATA, "%s: field \"optimizer\": %s of %s is missing" WEIGHTS_ALONE,
                        groups->source->path, fields[i], tensor->name);
        TRY(tensor_add(groups->source, checkpoint->optimizer, name, value));
    }
    return GT_OK;
}

/* For a checkpoint saved before the first update, when PyTorch has no state yet. */
static enum gt_status moments_zero(struct checkpoint *checkpoint,
                                   const struct parameter_shape *tensor)
{
    checkpoint->record.state.adam_step = 0;
    TRY(zeros_add(checkpoint->optimizer, "m." HF_PREFIX, tensor));
    return zeros_add(checkpoint->optimizer, "v." HF_PREFIX, tensor);
}

/* Adds the settings in the optimizer's state, which replace those of "config": nanoGPT's
 * load_state_dict() sets the optimizer's groups. */
static enum gt_status group_keys_add(const struct source *source, const json_t *group, json_t *keys)
{
    const json_t *betas = json_object_get(group, "betas");
    const struct {
        const char *key;
        json_t *value;
    } had[] = {{"beta1", json_array_get(betas, 0)},
               {"beta2", json_array_get(betas, 1)},
               {"weight_decay", json_object_get(group, "weight_decay")},
               {"adam_epsilon", json_object_get(group, "eps")}};
    for (size_t i = 0; i < sizeof had / sizeof had[0]; i++) {
        const json_t *said = json_object_get(keys, had[i].key);
        if (!json_is_number(had[i].value))
            continue;
        if (json_is_number(said) && json_number_value(said) != json_number_value(had[i].value))
            log_note(
                "%s: the optimizer's state has %s=%g, \"config\" has %g; the run continues with the "
                "optimizer's, as nanoGPT does",
                source->path, had[i].key, json_number_value(had[i].value), json_number_value(said));
        if (json_object_set(keys, had[i].key, had[i].value) != 0)
            return FAIL(GT_NO_MEMORY, "%s: out of memory for its configuration", source->path);
    }
    return GT_OK;
}

static enum gt_status optimizer_read(const struct source *source, struct checkpoint *checkpoint)
{
    const size_t parameters = parameters_count(&checkpoint->config);
    struct groups groups;
    json_t *optimizer;
    TRY(run_dict_get(source, "optimizer", &optimizer));
    TRY(groups_find(source, optimizer, &groups));
    TRY(group_keys_add(source, json_array_get(json_object_get(optimizer, "param_groups"), 0),
                       checkpoint->record.root));
    TRY(safetensors_create(checkpoint, source->path, &checkpoint->optimizer));
    TRY(safetensors_file_add(checkpoint->optimizer, source->path));
    const bool empty = json_object_size(groups.state) == 0;
    checkpoint->record.state.adam_step = -1;
    for (size_t i = 0; i < parameters; i++) {
        struct parameter_shape tensor;
        parameters_shape(&checkpoint->config, i, &tensor);
        if (!tensor.absent)
            TRY(empty ? moments_zero(checkpoint, &tensor)
                      : moments_add(&groups, checkpoint, &tensor));
    }
    for (int i = 0; i < 2; i++)
        if (!empty && groups.next[i] < json_array_size(groups.params[i]))
            return field_refuse(source, "optimizer",
                                "has more parameters than the model" WEIGHTS_ALONE);
    return GT_OK;
}

/* Counts the samples that the run has read, if its configuration says how many a step takes. */
static void progress_set(struct checkpoint_record *record)
{
    const int64_t iter = record->state.iter;
    const json_int_t batch = json_integer_value(json_object_get(record->root, "batch_size"));
    const json_int_t steps =
        json_integer_value(json_object_get(record->root, "gradient_accumulation_steps"));
    const bool counted = batch > 0 && steps > 0 && batch < INT32_MAX && steps < INT32_MAX &&
                         (iter == 0 || batch * steps < INT64_MAX / iter);
    record->state.configuration = record->root;
    record->state.samples_seen = counted ? iter * batch * steps : 0;
}

/* Reads the run's progress.  A loss that is not finite is None here; an absent loss was never
 * measured. */
static enum gt_status progress_read(const struct source *source, struct checkpoint_record *record)
{
    const json_t *root = source->pickle.root, *best = json_object_get(root, "best_val_loss");
    double iter;
    json_t *dict;
    TRY(number_get(source, root, "iter_num", &iter));
    if (!(iter >= 0.0 && iter <= (double)INT32_MAX) || iter != floor(iter))
        return field_refuse(source, "iter_num",
                            "is not a whole number of iterations" WEIGHTS_ALONE);
    record->state.iter = (int64_t)iter;
    record->state.best_val_loss = INFINITY;
    if (best != NULL && !json_is_null(best))
        TRY(number_get(source, root, "best_val_loss", &record->state.best_val_loss));
    return run_dict_get(source, "config", &dict);
}

static enum gt_status everything_read(const struct source *source, bool with_optimizer,
                                      struct checkpoint *checkpoint)
{
    struct checkpoint_record *record = &checkpoint->record;
    size_t head;
    TRY(model_args_read(source, &checkpoint->config));
    if (with_optimizer)
        TRY(progress_read(source, record));
    record->root = json_object();
    TRY(configuration_read(source, json_object_get(source->pickle.root, "config"), record->root));
    progress_set(record);
    TRY(model_read(source, checkpoint));
    const bool has_head =
        safetensors_find(checkpoint->model, "lm_head.weight", &head); /* the caller compares it */
    checkpoint->rest = (struct hf_config_rest){.tied = !has_head, .bos_token = -1, .eos_token = -1};
    return with_optimizer ? optimizer_read(source, checkpoint) : GT_OK;
}

enum gt_status nanogpt_open(struct checkpoint *checkpoint, bool with_optimizer)
{
    struct source *source;
    TRY(HOSTMEM_NEW(checkpoint, 1, "ckpt.pt", &source));
    *source = (struct source){.path = checkpoint->source, .fd = -1};
    hostmem_at_free(source, source_close);
    TRY(source_open(source));
    TRY(everything_read(source, with_optimizer, checkpoint));
    hostmem_free(source);
    return GT_OK;
}

/* ---- meta.pkl ---- */
/* Sets code_points[] from "itos"; the array has room for all of its items. */
static enum gt_status characters_read(json_t *itos, const char *path, uint32_t *code_points)
{
    const char *key;
    json_t *value;
    uint32_t count = 0;
    json_object_foreach(itos, key, value)
    {
        const size_t length = json_string_length(value);
        if (strcmp(key, TEXT(16, "%" PRIu32, count)) != 0 || length == 0 ||
            utf8_decode((const unsigned char *)json_string_value(value), length,
                        &code_points[count]) != (int)length ||
            (count > 0 && code_points[count - 1] >= code_points[count]))
            return FAIL(GT_DATA,
                        "%s: field \"itos\": item %" PRIu32
                        " is not the next id with a character above the one before",
                        path, count);
        count++;
    }
    return GT_OK;
}

static enum gt_status meta_read(const struct pickle *pickle, const char *path,
                                struct tokenizer **out)
{
    json_t *itos = json_object_get(pickle->root, "itos");
    const size_t count = json_object_size(itos);
    uint32_t *code_points;
    if (count == 0)
        return FAIL(GT_DATA, "%s: has no \"itos\", so it is not the meta.pkl of a nanoGPT data set",
                    path);
    TRY(HOSTMEM_NEW(pickle->owner, count, "characters of meta.pkl", &code_points));
    enum gt_status status = characters_read(itos, path, code_points);
    THEN(status, tokenizer_create_chars(pickle->owner, code_points, count, out));
    hostmem_free(code_points);
    return status;
}

enum gt_status nanogpt_meta_open(const void *owner, const char *path, struct tokenizer **out)
{
    char *text;
    size_t count;
    struct pickle pickle = {.owner = NULL};
    TRY(file_read_all(path, PICKLE_BYTES_MAX, &text, &count));
    enum gt_status status =
        pickle_read(owner, (const unsigned char *)text, count, path, "", &pickle);
    free(text);
    THEN(status, meta_read(&pickle, path, out));
    pickle_release(&pickle);
    return status;
}
