/* Loads the arrays of an open checkpoint.
 *
 * Each array in turn passes through the staging buffer to the caller.  Checksum, finiteness and zeros are recorded on
 * the way and checked after the last piece, the checksum first, so that a flipped bit is not reported as a NaN.  A
 * position table longer than the model's is read to its end for the checksum and passed on in part.  Nothing is undone
 * after a failure: the caller discards the model.
 */
#include <math.h>

#include "io/checkpoint.h"
#include "io/hf_layout.h"

/* The transfer of one array. */
struct transfer {
    const struct safetensors *file;
    size_t index; /* in the file */
    enum checkpoint_part part;
    const struct checkpoint_tensor *target;    /* NULL: a bias that the model does not have */
    size_t offset;                             /* of the array's first element in the target */
    size_t wanted;                             /* the number of elements to pass on, from the first */
    enum dtype dtype;                          /* in which they are passed on */
    const struct checkpoint_file_record *sums; /* NULL: no checksum is known */
    bool frozen;                               /* it belongs to the base of adapters */
    uint32_t *digest;                          /* takes its checksum; or NULL */
};

/* Properties of the elements read so far. */
struct seen {
    uint32_t crc32c;
    bool finite, zero, in_range;
};

/* Checks what the shapes of the tensors do not show. */
static enum gt_status config_check(const struct checkpoint *checkpoint, const struct model_config *wanted)
{
    const struct model_config *saved = &checkpoint->config;
    if (saved->n_layer != wanted->n_layer || saved->n_head != wanted->n_head)
        return FAIL(GT_DATA, "%s: the checkpoint has n_layer=%d and n_head=%d; the model needs %d and %d",
                    checkpoint->source, saved->n_layer, saved->n_head, wanted->n_layer, wanted->n_head);
    if (checkpoint->optimizer == NULL ||
        (saved->bias == wanted->bias && (saved->block_size == wanted->block_size || saved->position == POSITION_ROPE)))
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the optimizer state belongs to a model with bias=%d and block_size=%d; this model has %d and %d",
                checkpoint->source, (int)saved->bias, saved->block_size, (int)wanted->bias, wanted->block_size);
}

static void values_look(const struct transfer *transfer, const void *values, size_t count, struct seen *seen)
{
    for (size_t i = 0; i < count; i++) {
        if (transfer->dtype == DTYPE_U8) {
            const int8_t exponent = ((const int8_t *)values)[i];
            seen->in_range = seen->in_range && (transfer->part != CHECKPOINT_SCALES ||
                                                (exponent >= STATE_EXPONENT_MIN && exponent <= STATE_EXPONENT_MAX));
            continue;
        }
        const float value = dtype_value(transfer->dtype, values, i);
        seen->finite = seen->finite && isfinite(value);
        seen->zero = seen->zero && value == 0.0f;
    }
}

static enum gt_status piece_load(const struct transfer *transfer, const struct checkpoint_load_options *options,
                                 size_t first, size_t count, struct seen *seen)
{
    void *values = options->staging;
    uint32_t *crc32c = transfer->sums != NULL || transfer->digest != NULL ? &seen->crc32c : NULL;
    TRY(safetensors_read(transfer->file, transfer->index, first, count, values, transfer->dtype, crc32c));
    values_look(transfer, values, count, seen);
    if (transfer->target == NULL || first >= transfer->wanted || options->write == NULL)
        return GT_OK;
    const size_t left = transfer->wanted - first;
    return options->write(options->write_context, transfer->part, transfer->target->index, transfer->offset + first,
                          count < left ? count : left, values, transfer->dtype);
}

static enum gt_status transfer_judge(const struct transfer *transfer, const char *source, const struct seen *seen)
{
    const char *path = transfer->file->path, *name = transfer->file->tensors[transfer->index].name;
    uint32_t expected = seen->crc32c;
    if (transfer->sums != NULL)
        TRY(checkpoint_record_tensor_crc(transfer->sums, source, name, &expected));
    if (seen->crc32c != expected)
        return FAIL(GT_DATA,
                    "%s: tensor %s: the checksum is %08" PRIx32 ", but the record says %08" PRIx32
                    "; the file is damaged",
                    path, name, seen->crc32c, expected);
    if (!seen->finite)
        return FAIL(GT_DATA, "%s: tensor %s: holds a value that is not finite", path, name);
    if (!seen->in_range)
        return FAIL(GT_DATA, "%s: tensor %s: holds an exponent outside %d to %d", path, name, STATE_EXPONENT_MIN,
                    STATE_EXPONENT_MAX);
    if (transfer->target == NULL && !seen->zero)
        return FAIL(GT_DATA, "%s: tensor %s: is not zero, but the model has no biases", path, name);
    return GT_OK;
}

static enum gt_status transfer_run(const struct transfer *transfer, const char *source,
                                   const struct checkpoint_load_options *options)
{
    struct seen seen = {.finite = true, .zero = true, .in_range = true};
    const size_t elements = transfer->file->tensors[transfer->index].elements;
    const size_t count_max = options->staging_bytes / sizeof(float); /* the same for any dtype: whole blocks */
    for (size_t first = 0; first < elements; first += count_max) {
        const size_t count = elements - first < count_max ? elements - first : count_max;
        TRY(piece_load(transfer, options, first, count, &seen));
    }
    if (transfer->digest != NULL)
        *transfer->digest = file_crc32c(*transfer->digest, &seen.crc32c, sizeof seen.crc32c);
    return transfer_judge(transfer, source, &seen);
}

/* Returns the caller's tensor of this name; NULL for a bias that the model does not have. */
static const struct checkpoint_tensor *target_find(const struct checkpoint_load_options *options,
                                                   const struct parameter_shape *tensor)
{
    static const struct checkpoint_tensor any; /* while values are only verified */
    struct parameter_shape whole;
    size_t i = 0;
    if (tensor->absent || options->write == NULL)
        return tensor->absent ? NULL : &any;
    parameters_shape(options->config, (size_t)tensor->whole, &whole);
    while (i < options->tensor_count && strcmp(options->tensors[i].name, whole.name) != 0)
        i++;
    assert(i < options->tensor_count);
    return &options->tensors[i];
}

static const struct checkpoint_file_record *sums_of(const struct checkpoint *checkpoint, enum checkpoint_file which)
{
    return checkpoint->kind == CHECKPOINT_OURS ? &checkpoint->record.files[which] : NULL;
}

/* Chooses the dtype in which elements are passed on: the stored one if it is the model's, or codes; else fp32.  A
 * resumed run must compute on its own state, so another dtype is an error unless conversion was requested. */
static enum gt_status dtype_choose(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options,
                                   enum dtype here, struct transfer *transfer)
{
    const struct safetensors_tensor *stored = &transfer->file->tensors[transfer->index];
    transfer->dtype = stored->dtype == here || stored->dtype == DTYPE_U8 ? stored->dtype : DTYPE_F32;
    if (stored->dtype == here || checkpoint->optimizer == NULL || options->convert || transfer->target == NULL ||
        transfer->frozen)
        return GT_OK;
    return FAIL(GT_DATA, "%s: tensor %s: is stored as %s, but the run's state format needs %s", transfer->file->path,
                stored->name, stored->dtype < DTYPE_COUNT ? dtype_safetensors_name(stored->dtype) : "something else",
                dtype_safetensors_name(here));
}

static enum gt_status parameter_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options,
                                     const struct parameter_shape *tensor, uint32_t *digest)
{
    const bool frozen = checkpoint->base[0] != '\0' && tensor->adapter == ADAPTER_NONE;
    struct transfer transfer = {.file = checkpoint->model,
                                .part = CHECKPOINT_PARAMETER,
                                .target = target_find(options, tensor),
                                .offset = tensor->first,
                                .wanted = parameter_elements(tensor),
                                .sums = frozen ? NULL : sums_of(checkpoint, CHECKPOINT_FILE_MODEL),
                                .frozen = frozen,
                                .digest = tensor->adapter == ADAPTER_NONE ? digest : NULL};
    TRY(hf_layout_find(transfer.file, tensor, &transfer.index));
    if (transfer.file->tensors[transfer.index].dtype == DTYPE_U8)
        return FAIL(GT_UNSUPPORTED, "%s: tensor %s: field \"dtype\": only F32, BF16 and F16 can be loaded",
                    transfer.file->path, tensor->name);
    TRY(dtype_choose(checkpoint, options, transfer.target != NULL ? transfer.target->dtype : DTYPE_F32, &transfer));
    return transfer_run(&transfer, checkpoint->source, options);
}

static enum gt_status moments_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options,
                                   const struct parameter_shape *tensor)
{
    static const enum checkpoint_part order[] = {CHECKPOINT_SCALES, CHECKPOINT_M, CHECKPOINT_V};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        struct transfer transfer = {.file = checkpoint->optimizer,
                                    .part = order[i],
                                    .target = target_find(options, tensor),
                                    .wanted = parameter_elements(tensor),
                                    .sums = sums_of(checkpoint, CHECKPOINT_FILE_OPTIMIZER)};
        struct parameter_shape moment;
        checkpoint_part_tensor(tensor, order[i], &moment);
        if (order[i] == CHECKPOINT_SCALES && !safetensors_find(transfer.file, moment.name, &transfer.index))
            continue;
        if (order[i] == CHECKPOINT_V && transfer.target != NULL && transfer.target->no_second)
            continue;
        TRY(hf_layout_find(transfer.file, &moment, &transfer.index));
        const enum dtype here = transfer.target != NULL ? transfer.target->moment : DTYPE_F32;
        TRY(dtype_choose(checkpoint, options, order[i] == CHECKPOINT_SCALES ? DTYPE_U8 : here, &transfer));
        TRY(transfer_run(&transfer, checkpoint->source, options));
    }
    return GT_OK;
}

static enum gt_status head_compare(const struct safetensors *file, size_t head, size_t wte,
                                   const struct checkpoint_load_options *options, bool *out_equal)
{
    const size_t elements = file->tensors[wte].elements;
    const size_t half = options->staging_bytes / (2 * sizeof(float));
    float *left = options->staging, *right = left + half;
    bool equal = file->tensors[head].elements == elements;
    for (size_t first = 0; equal && first < elements; first += half) {
        const size_t count = elements - first < half ? elements - first : half;
        TRY(safetensors_read(file, head, first, count, left, DTYPE_F32, NULL));
        TRY(safetensors_read(file, wte, first, count, right, DTYPE_F32, NULL));
        equal = memcmp(left, right, count * sizeof *left) == 0;
    }
    *out_equal = equal;
    return GT_OK;
}

/* The output layer is the token embedding here; a model with another output layer cannot be represented. */
static enum gt_status head_check(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options)
{
    const struct safetensors *file = checkpoint->model;
    struct parameter_shape table;
    size_t head, wte;
    if (options->config->untied)
        return GT_OK;
    parameters_shape(options->config, PARAMETERS_WTE, &table);
    const bool found = safetensors_find(file, "lm_head.weight", &head);
    if (!found && checkpoint->tied)
        return GT_OK;
    bool equal = false;
    if (found)
        TRY(hf_layout_find(file, &table, &wte));
    if (found)
        TRY(head_compare(file, head, wte, options, &equal));
    if (equal)
        return GT_OK;
    if (checkpoint->tied) {
        log_note("%s: lm_head.weight differs from %s and is ignored, as tie_word_embeddings says", file->path,
                 table.name);
        return GT_OK;
    }
    return FAIL(GT_UNSUPPORTED, "%s: lm_head.weight %s; the output layer must be the token embedding", file->path,
                found ? "differs from wte.weight" : "is missing, but tie_word_embeddings is false");
}

static bool is_trained(const struct model_config *config, const struct parameter_shape *tensor)
{
    return !tensor->absent && (config->lora.rank == 0 || tensor->adapter != ADAPTER_NONE);
}

/* Refuses a base other than the one on which the adapters were trained. */
static enum gt_status base_check(const struct checkpoint *checkpoint, uint32_t digest)
{
    const char *text = json_string_value(json_object_get(checkpoint->record.adapter, CHECKPOINT_BASE_CRC));
    uint32_t expected;
    if (text != NULL && checkpoint_crc_parse(text, &expected) && expected == digest)
        return GT_OK;
    return FAIL(GT_DATA, "%s: its adapters were trained on another model than what is in %s now", checkpoint->source,
                checkpoint->base);
}

enum gt_status checkpoint_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options)
{
    assert(options->staging_bytes >= 2 * sizeof(float));
    TRY(config_check(checkpoint, options->config));
    struct parameter_shape tensor;
    uint32_t digest = 0;
    const bool known = json_object_get(checkpoint->record.adapter, CHECKPOINT_BASE_CRC) != NULL;
    for (size_t i = 0; i < parameters_file_count(options->config); i++) {
        parameters_file_shape(options->config, i, &tensor);
        TRY(parameter_load(checkpoint, options, &tensor, known || options->base_crc32c != NULL ? &digest : NULL));
    }
    if (known)
        TRY(base_check(checkpoint, digest));
    if (options->base_crc32c != NULL)
        *options->base_crc32c = digest;
    for (size_t i = 0; checkpoint->optimizer != NULL && i < parameters_count(options->config); i++) {
        parameters_shape(options->config, i, &tensor);
        if (is_trained(options->config, &tensor))
            TRY(moments_load(checkpoint, options, &tensor));
    }
    return head_check(checkpoint, options);
}

/* ---- the required contents of the optimizer's file ----
 *
 * The file itself determines which moments it has: Muon's matrices have no v, 8-bit moments have scales.  Here it must
 * only have one of the forms that a save writes; loading checks that it is the form that the run needs. */
void checkpoint_part_tensor(const struct parameter_shape *tensor, enum checkpoint_part part,
                            struct parameter_shape *out)
{
    static const char *const prefixes[CHECKPOINT_PARTS] = {
        [CHECKPOINT_PARAMETER] = "", [CHECKPOINT_M] = "m.", [CHECKPOINT_V] = "v.", [CHECKPOINT_SCALES] = "s."};
    assert(part >= 0 && part < CHECKPOINT_PARTS);
    *out = *tensor;
    out->position_table = false;
    out->adapter = ADAPTER_NONE; /* the name has the prefix already */
    (void)snprintf(out->name, sizeof out->name, "%s%s%.100s", prefixes[part], tensor->prefix, tensor->name);
    if (part != CHECKPOINT_SCALES)
        return;
    out->rank = 2;
    out->dims[0] = 2;
    out->dims[1] = state_blocks((int64_t)parameter_elements(tensor));
}

/* Checks the parts of one parameter and adds their number to *found.  A matrix may lack the second moment. */
static enum gt_status moments_check(const struct safetensors *file, const struct parameter_shape *tensor, size_t *found)
{
    const char *expected = "F32, BF16 or U8";
    enum dtype dtype = DTYPE_COUNT; /* of the first moment */
    for (int part = CHECKPOINT_M; part < CHECKPOINT_PARTS; part++) {
        struct parameter_shape wanted;
        size_t index;
        checkpoint_part_tensor(tensor, (enum checkpoint_part)part, &wanted);
        if ((part == CHECKPOINT_V && tensor->linear && !safetensors_find(file, wanted.name, &index)) ||
            (part == CHECKPOINT_SCALES && dtype != DTYPE_U8))
            continue;
        TRY(hf_layout_find(file, &wanted, &index));
        *found += 1;
        const enum dtype stored = file->tensors[index].dtype;
        const bool first = part == CHECKPOINT_M;
        if (first ? stored != DTYPE_F32 && stored != DTYPE_BF16 && stored != DTYPE_U8 : stored != dtype)
            return FAIL(GT_DATA, "%s: tensor %s: field \"dtype\" is %s, expected %s", file->path, wanted.name,
                        stored < DTYPE_COUNT ? dtype_safetensors_name(stored) : "of another kind", expected);
        dtype = stored;
        expected = dtype_safetensors_name(dtype);
    }
    return GT_OK;
}

enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config)
{
    struct parameter_shape tensor;
    size_t found = 0;
    for (size_t i = 0; i < parameters_count(config); i++) {
        parameters_shape(config, i, &tensor);
        if (is_trained(config, &tensor))
            TRY(moments_check(file, &tensor, &found));
    }
    if (found == file->count)
        return GT_OK;
    return FAIL(GT_DATA, "%s: has %zu tensors, but the model needs %zu", file->path, file->count, found);
}
