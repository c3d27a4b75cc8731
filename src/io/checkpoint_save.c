/* Saves a checkpoint.
 *
 * The weights and the moments are streamed into two new files.  Then the commit record that names
 * them is renamed into place; from that moment the new checkpoint exists.  Finally the public files
 * are updated and the previous generation is removed.  If a step fails while the record cannot be
 * in place yet, the save removes its new files.  A save never writes to a file that a record names:
 * a second save of the same iter uses other names.
 */
#include "io/checkpoint_save.h"

#include <math.h>
#include <unistd.h>

#include "io/checkpoint_folder.h"
#include "io/checkpoint_load.h"
#include "io/checkpoint_record.h"
#include "io/peft.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

#define ATTEMPTS_MAX 9
#define OPTIMIZER_ARRAYS ((size_t)CHECKPOINT_ARRAYS - CHECKPOINT_M) /* m, v, scales */

/* The context of the callbacks for one file. */
struct save {
    const struct checkpoint_save_options *options;
    enum checkpoint_file which;
    json_t *sums; /* {name: checksum} of the file being written */
};

/* An array of a file. */
struct entry {
    const struct checkpoint_tensor
        *parameter; /* NULL: a bias that the model does not have, saved as zeros */
    size_t first;   /* its first element in the part */
    enum checkpoint_array part;
    struct parameter_shape shape; /* as saved */
};

enum gt_status checkpoint_config_check(const struct model_config *config)
{
    json_t *hf_config;
    TRY(hf_config_make(config, -1, -1, &hf_config));
    json_decref(hf_config);
    if (OPTIMIZER_ARRAYS * parameters_count(config) <= SAFETENSORS_TENSORS_MAX)
        return GT_OK;
    return FAIL(
        GT_UNSUPPORTED,
        "n_layer=%d is too many: the optimizer file would have %zu tensors; at most %d are supported",
        config->n_layer, OPTIMIZER_ARRAYS * parameters_count(config), SAFETENSORS_TENSORS_MAX);
}

static const struct checkpoint_tensor *tensor_find(const struct checkpoint_save_options *options,
                                                   const char *name)
{
    for (size_t i = 0; i < options->tensor_count; i++)
        if (strcmp(options->tensors[i].name, name) == 0)
            return &options->tensors[i];
    return NULL;
}

/* Chooses unused names, so that no file that a record may name is overwritten. */
static enum gt_status names_choose(const char *out_dir, int64_t iter,
                                   struct checkpoint_record *record)
{
    for (int attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
        bool taken = false;
        for (int i = 0; i < CHECKPOINT_FILES; i++) {
            bool exists;
            checkpoint_file_name(record->files[i].name, (enum checkpoint_file)i, iter, attempt);
            TRY(file_stat_exists(FILE_IN(out_dir, record->files[i].name), &exists));
            taken = taken || exists;
        }
        if (!taken)
            return GT_OK;
    }
    return FAIL(GT_IO, "%s: cannot save: there are already %d files of iter %" PRId64 "", out_dir,
                ATTEMPTS_MAX, iter);
}

/* ---- the files of a generation ---- */
/* Returns GT_DIVERGED, logged, when a value is not finite.  Does not look at DTYPE_U8: codes and
 * exponents are always finite. */
static enum gt_status values_check(const char *name, enum checkpoint_array part, enum dtype dtype,
                                   const void *values, size_t count)
{
    static const char *const parts[] = {[CHECKPOINT_PARAMETER] = "",
                                        [CHECKPOINT_M] = "the first moment of ",
                                        [CHECKPOINT_V] = "the second moment of ",
                                        [CHECKPOINT_SCALES] = "the scales of "};
    for (size_t i = 0; i < count && dtype != DTYPE_U8; i++) {
        const float value = dtype_value(dtype, values, i);
        if (!isfinite(value))
            return FAIL(GT_DIVERGED, "cannot save: %s%s holds a value that is not finite (%g)",
                        parts[part], name, log_number((double)value));
    }
    return GT_OK;
}

static enum dtype part_dtype(const struct checkpoint_tensor *tensor, enum checkpoint_array part)
{
    if (part == CHECKPOINT_SCALES)
        return DTYPE_U8;
    return part == CHECKPOINT_PARAMETER ? tensor->dtype : tensor->moment;
}

static bool part_exists(const struct checkpoint_tensor *tensor, enum checkpoint_array part)
{
    if (part == CHECKPOINT_V)
        return !tensor->no_second;
    return part != CHECKPOINT_SCALES || tensor->moment == DTYPE_U8;
}

/* Finds the array with a given index in a file.  The model's file has the tensors of the model, in
 * its order; the optimizer's has all first moments in this order, then all second moments, then all
 * scales; some do not exist. */
static void entry_get(const struct save *save, size_t index, struct entry *out)
{
    const struct model_config *config = save->options->config;
    const size_t count = parameters_count(config);
    struct parameter_shape shape, whole;
    *out = (struct entry){.part = CHECKPOINT_PARAMETER};
    if (save->which == CHECKPOINT_FILE_MODEL) {
        parameters_file_shape(config, index, &shape);
    } else {
        parameters_shape(config, index % count, &shape);
        out->part = (enum checkpoint_array)(CHECKPOINT_M + index / count);
    }
    parameters_shape(config, (size_t)shape.whole, &whole);
    out->parameter = tensor_find(save->options, whole.name);
    out->first = shape.first;
    assert((out->parameter == NULL) == whole.absent);
    checkpoint_array_tensor(&shape, out->part, &out->shape);
}

static bool array_describe(void *context, size_t index, struct safetensors_tensor *out)
{
    struct entry entry;
    entry_get(context, index, &entry);
    memcpy(out->name, entry.shape.name, sizeof out->name);
    out->dtype = entry.parameter != NULL ? part_dtype(entry.parameter, entry.part) : DTYPE_F32;
    out->rank = parameter_file_dims(&entry.shape, out->dims);
    return entry.parameter != NULL ? part_exists(entry.parameter, entry.part)
                                   : entry.part == CHECKPOINT_PARAMETER;
}

static enum gt_status array_fill(void *context, size_t index, size_t first, size_t count, void *out)
{
    const struct checkpoint_save_options *options = ((const struct save *)context)->options;
    struct entry entry;
    entry_get(context, index, &entry);
    if (entry.parameter == NULL) {
        memset(out, 0, count * sizeof(float));
        return GT_OK;
    }
    const enum dtype dtype = part_dtype(entry.parameter, entry.part);
    assert(dtype != DTYPE_F16);
    TRY(options->read(options->read_context, entry.part, entry.parameter->index,
                      entry.first + first, count, out));
    return values_check(entry.parameter->name, entry.part, dtype, out, count);
}

static enum gt_status array_written(void *context, size_t index, uint32_t crc32c)
{
    const struct save *save = context;
    struct entry entry;
    entry_get(save, index, &entry);
    if (json_object_set_new(save->sums, entry.shape.name,
                            json_string(CHECKPOINT_CRC_TEXT(crc32c))) == 0)
        return GT_OK;
    return FAIL(GT_NO_MEMORY, "out of memory for the checksums of a checkpoint");
}

/* Writes one file and fills its entry in the record, which uses `sums`; the caller releases `sums`.
 */
static enum gt_status file_write(const struct checkpoint_save_options *options,
                                 enum checkpoint_file which, json_t *sums,
                                 struct checkpoint_file_record *file)
{
    struct safetensors_result result;
    struct save save = {options, which, sums};
    mode_t mode;
    bool has_mode;
    TRY(checkpoint_publish_mode(options->out_dir, which, &mode, &has_mode));
    const struct safetensors_source source = {.context = &save,
                                              .count = which == CHECKPOINT_FILE_MODEL
                                                           ? parameters_file_count(options->config)
                                                           : OPTIMIZER_ARRAYS *
                                                                 parameters_count(options->config),
                                              .describe = array_describe,
                                              .fill = array_fill,
                                              .written = array_written,
                                              .mode = has_mode ? &mode : NULL};
    TRY(safetensors_write(FILE_IN(options->out_dir, file->name), &source, options->staging,
                          options->staging_bytes, &result));
    file->size_bytes = result.size_bytes;
    file->crc32c = result.crc32c;
    file->header_crc32c = result.header_crc32c;
    file->tensors = sums;
    return GT_OK;
}

static enum gt_status record_write(const struct checkpoint_save_options *options,
                                   const struct checkpoint_record *record, bool *out_in_place)
{
    json_t *root;
    TRY(checkpoint_record_make(record, &root));
    enum gt_status status =
        json_replace_file_keep_mode(FILE_IN(options->out_dir, CHECKPOINT_RECORD_NAME), root,
                                    CHECKPOINT_JSON_INDENT, NULL, out_in_place);
    json_decref(root);
    return status;
}

static enum gt_status generation_write(const struct checkpoint_save_options *options,
                                       struct checkpoint_record *record)
{
    json_t *sums[CHECKPOINT_FILES] = {json_object(), json_object()};
    enum gt_status status = GT_OK;
    bool in_place = false;
    if (sums[0] == NULL || sums[1] == NULL)
        status = FAIL(GT_NO_MEMORY, "out of memory for the checksums of a checkpoint");
    for (int i = 0; i < CHECKPOINT_FILES; i++)
        THEN(status, file_write(options, (enum checkpoint_file)i, sums[i], &record->files[i]));
    THEN(status, record_write(options, record, &in_place));
    for (int i = 0; !in_place && i < CHECKPOINT_FILES; i++)
        (void)unlink(FILE_IN(options->out_dir, record->files[i].name));
    json_decref(sums[0]);
    json_decref(sums[1]);
    return status;
}

/* Updates the public files of a complete checkpoint.  Then removes the old generation, even if an
 * update failed: its space may be what the update lacked. */
static enum gt_status generation_publish(const struct checkpoint_save_options *options,
                                         const struct checkpoint_record *record)
{
    const char *model_name = record->files[CHECKPOINT_FILE_MODEL].name;
    bool changed;
    const bool has_config = record->adapter == NULL; /* adapters alone are not a model */
    enum gt_status status = checkpoint_publish_retract(
        options->out_dir, has_config ? record->hf_config : record->adapter);
    THEN(status, checkpoint_publish_model(options->out_dir, model_name, true));
    if (has_config)
        THEN(status, checkpoint_publish_config(options->out_dir, record->hf_config, &changed));
    checkpoint_publish_clean(options->out_dir, model_name,
                             record->files[CHECKPOINT_FILE_OPTIMIZER].name);
    return status;
}

/* Makes the record's description of the adapters. */
static enum gt_status adapter_make(const struct checkpoint_save_options *options, json_t **out)
{
    TRY(peft_config_make(options->config, options->base, out));
    return json_object_set_new(*out, CHECKPOINT_BASE_CRC,
                               json_string(CHECKPOINT_CRC_TEXT(options->base_crc32c))) == 0
               ? GT_OK
               : FAIL(GT_NO_MEMORY, "out of memory for the record of a checkpoint");
}

enum gt_status checkpoint_save(const struct checkpoint_save_options *options)
{
    assert(options->staging_bytes >= sizeof(float) && options->state.iter >= 0 &&
           options->state.seed >= 0);
    struct checkpoint_record record = {.state = options->state};
    json_t *hf_config, *adapter = NULL;
    TRY(names_choose(options->out_dir, options->state.iter, &record));
    TRY(hf_config_make(options->config, -1, -1, &hf_config));
    record.hf_config = hf_config;
    enum gt_status status =
        options->config->lora.rank > 0 ? adapter_make(options, &adapter) : GT_OK;
    record.adapter = adapter;
    THEN(status, generation_write(options, &record));
    THEN(status, generation_publish(options, &record));
    json_decref(adapter);
    json_decref(hf_config);
    return status;
}
