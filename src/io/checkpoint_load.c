/* Loads the arrays of an open checkpoint.
 *
 * Each array in turn passes through the staging buffer to the caller.  Checksum, finiteness and
 * zeros are recorded on the way and checked after the last piece, the checksum first, so that a
 * flipped bit is not reported as a NaN.  A position table longer than the model's is read to its
 * end for the checksum and passed on in part.  Nothing is undone after a failure: the caller
 * discards the model.
 */
#include "io/checkpoint_load.h"

#include <math.h>

#include "base/crc32c.h"
#include "io/checkpoint_record.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

struct bad_value {
    bool found;
    size_t at; /* in the file's array */
    float value;
};

/* The transfer of one array. */
struct transfer {
    const struct safetensors *file;
    size_t index; /* in the file */
    enum checkpoint_array part;
    const struct checkpoint_tensor *target; /* NULL: a bias that the model does not have */
    size_t offset;                          /* of the array's first element in the target */
    size_t wanted;                          /* the number of elements to pass on, from the first */
    enum dtype dtype;                       /* in which they are passed on */
    const struct checkpoint_file_record *sums; /* NULL: no checksum is known */
    bool frozen;                               /* it belongs to the base of adapters */
    uint32_t *digest;                          /* extended by the array's checksum; or NULL */
    uint32_t crc32c;                           /* of the elements read so far, */
    bool zero, in_range;                       /* and their properties */
    struct bad_value not_finite, too_large;    /* the first of its kind */
};

/* Checks fields that a comparison of the tensors' shapes does not cover. */
static enum gt_status config_check(const struct checkpoint *checkpoint,
                                   const struct model_config *wanted)
{
    const struct model_config *saved = &checkpoint->config;
    if (saved->n_layer != wanted->n_layer || saved->n_head != wanted->n_head)
        return FAIL(
            GT_DATA, "%s: the checkpoint has n_layer=%d and n_head=%d; the model needs %d and %d",
            checkpoint->source, saved->n_layer, saved->n_head, wanted->n_layer, wanted->n_head);
    if (checkpoint->optimizer == NULL ||
        (saved->bias == wanted->bias &&
         (saved->block_size == wanted->block_size || saved->position == POSITION_ROPE)))
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: the optimizer state belongs to a model with bias=%d and block_size=%d; this model has %d and %d",
        checkpoint->source, (int)saved->bias, saved->block_size, (int)wanted->bias,
        wanted->block_size);
}

static void bad_note(struct bad_value *bad, size_t at, float value)
{
    if (!bad->found)
        *bad = (struct bad_value){true, at, value};
}

/* Scans values[count], the array's elements from `first` on. */
static void values_scan(struct transfer *transfer, const void *values, size_t first, size_t count)
{
    const bool half = transfer->part == CHECKPOINT_PARAMETER && transfer->target != NULL &&
                      transfer->target->used == DTYPE_F16 && transfer->dtype != DTYPE_F16;
    for (size_t i = 0; i < count; i++) {
        if (transfer->dtype == DTYPE_U8) {
            const int8_t exponent = ((const int8_t *)values)[i];
            transfer->in_range =
                transfer->in_range &&
                (transfer->part != CHECKPOINT_SCALES ||
                 (exponent >= STATE_EXPONENT_MIN && exponent <= STATE_EXPONENT_MAX));
            continue;
        }
        const float value = dtype_value(transfer->dtype, values, i);
        if (!isfinite(value))
            bad_note(&transfer->not_finite, first + i, value);
        else if (half && first + i < transfer->wanted && isinf(f16_to_f32(f16_from_f32(value))))
            bad_note(&transfer->too_large, first + i, value);
        transfer->zero = transfer->zero && value == 0.0f;
    }
}

static enum gt_status piece_load(struct transfer *transfer,
                                 const struct checkpoint_load_options *options, size_t first,
                                 size_t count)
{
    void *values = options->staging;
    uint32_t *crc32c =
        transfer->sums != NULL || transfer->digest != NULL ? &transfer->crc32c : NULL;
    TRY(safetensors_read(transfer->file, transfer->index, first, count, values, transfer->dtype,
                         crc32c));
    values_scan(transfer, values, first, count);
    if (transfer->target == NULL || first >= transfer->wanted || options->write == NULL)
        return GT_OK;
    const size_t left = transfer->wanted - first;
    return options->write(options->write_context, transfer->part, transfer->target->index,
                          transfer->offset + first, count < left ? count : left, values,
                          transfer->dtype);
}

/* Writes the indices of an element, such as "[48,0]". */
static const char *place_text(char out[static SAFETENSORS_SHAPE_TEXT_MAX],
                              const struct safetensors_tensor *tensor, size_t at)
{
    int64_t indices[SAFETENSORS_RANK_MAX];
    for (int32_t d = tensor->rank - 1; d >= 0; d--) {
        indices[d] = (int64_t)at % tensor->dims[d];
        at /= (size_t)tensor->dims[d];
    }
    return safetensors_shape_text(out, indices, tensor->rank);
}

static enum gt_status transfer_judge(const struct transfer *transfer, const char *source)
{
    const char *path = safetensors_path(transfer->file, transfer->index);
    const char *name = transfer->file->tensors[transfer->index].name;
    char place[SAFETENSORS_SHAPE_TEXT_MAX];
    uint32_t expected = transfer->crc32c;
    if (transfer->sums != NULL)
        TRY(checkpoint_record_tensor_crc(transfer->sums, source, name, &expected));
    if (transfer->crc32c != expected)
        return FAIL(GT_DATA,
                    "%s: tensor %s: the checksum is %08" PRIx32 ", but the record says %08" PRIx32
                    "; the file is damaged",
                    path, name, transfer->crc32c, expected);
    if (transfer->not_finite.found)
        return FAIL(
            GT_DATA,
            "%s: tensor %s: holds a value that is not finite, %g at %s; the file is damaged, or its training "
            "diverged",
            path, name, log_number((double)transfer->not_finite.value),
            place_text(place, &transfer->file->tensors[transfer->index], transfer->not_finite.at));
    if (transfer->too_large.found)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: tensor %s: holds %g at %s, which float16 cannot hold (at most 65504); add --dtype=float32, or "
            "bfloat16 where the device has it",
            path, name, (double)transfer->too_large.value,
            place_text(place, &transfer->file->tensors[transfer->index], transfer->too_large.at));
    if (!transfer->in_range)
        return FAIL(GT_DATA, "%s: tensor %s: holds an exponent outside %d to %d", path, name,
                    STATE_EXPONENT_MIN, STATE_EXPONENT_MAX);
    if (transfer->target == NULL && !transfer->zero)
        return FAIL(GT_DATA, "%s: tensor %s: is not zero, but the model has no biases", path, name);
    return GT_OK;
}

static enum gt_status transfer_run(struct transfer *transfer, const char *source,
                                   const struct checkpoint_load_options *options)
{
    transfer->zero = transfer->in_range = true;
    const size_t elements = transfer->file->tensors[transfer->index].elements;
    const size_t count_max =
        options->staging_bytes / sizeof(float); /* the same for any dtype: whole blocks */
    for (size_t first = 0; first < elements; first += count_max) {
        const size_t count = elements - first < count_max ? elements - first : count_max;
        TRY(piece_load(transfer, options, first, count));
    }
    if (transfer->digest != NULL)
        *transfer->digest =
            file_crc32c(*transfer->digest, &transfer->crc32c, sizeof transfer->crc32c);
    return transfer_judge(transfer, source);
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

/* Chooses the dtype in which elements are passed on: the stored one if it is the model's, or codes;
 * else fp32.  A resumed run must compute on its own state, so another dtype is an error unless
 * conversion was requested. */
static enum gt_status dtype_choose(const struct checkpoint *checkpoint,
                                   const struct checkpoint_load_options *options, enum dtype here,
                                   struct transfer *transfer)
{
    const struct safetensors_tensor *stored = &transfer->file->tensors[transfer->index];
    transfer->dtype =
        stored->dtype == here || stored->dtype == DTYPE_U8 ? stored->dtype : DTYPE_F32;
    if (stored->dtype == here || checkpoint->optimizer == NULL || options->convert ||
        transfer->target == NULL || transfer->frozen)
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: tensor %s: is stored as %s, but the run's state format needs %s; --convert_states=True converts it%s",
        safetensors_path(transfer->file, transfer->index), stored->name,
        stored->dtype < DTYPE_COUNT ? dtype_safetensors_name(stored->dtype) : "something else",
        dtype_safetensors_name(here),
        checkpoint->kind == CHECKPOINT_NANOGPT
            ? ", and --resume_state=False takes the weights alone"
            : "");
}

static enum gt_status part_load(const struct checkpoint *checkpoint,
                                const struct checkpoint_load_options *options,
                                const struct parameter_shape *tensor, enum checkpoint_array part,
                                uint32_t *digest)
{
    const bool is_weight = part == CHECKPOINT_PARAMETER,
               of_base = is_weight && tensor->adapter == ADAPTER_NONE;
    const bool frozen = of_base && checkpoint->base[0] != '\0',
               ours = checkpoint->kind == CHECKPOINT_OURS;
    const struct checkpoint_tensor *target = target_find(options, tensor);
    enum dtype here = target == NULL ? DTYPE_F32 : is_weight ? target->dtype : target->moment;
    struct transfer transfer = {.file = is_weight ? checkpoint->model : checkpoint->optimizer,
                                .part = part,
                                .target = target,
                                .offset = tensor->first,
                                .wanted = parameter_elements(tensor),
                                .sums =
                                    ours && !frozen ? &checkpoint->record.files[!is_weight] : NULL,
                                .frozen = frozen,
                                .digest = of_base ? digest : NULL};
    struct parameter_shape stored = *tensor;
    if (!is_weight)
        checkpoint_array_tensor(tensor, part, &stored);
    if ((part == CHECKPOINT_SCALES &&
         !safetensors_find(transfer.file, stored.name, &transfer.index)) ||
        (part == CHECKPOINT_V && target != NULL && target->no_second))
        return GT_OK;
    TRY(hf_layout_find(transfer.file, &stored, &transfer.index));
    if (is_weight && transfer.file->tensors[transfer.index].dtype == DTYPE_U8)
        return FAIL(GT_UNSUPPORTED,
                    "%s: tensor %s: field \"dtype\": only F32, BF16 and F16 can be loaded",
                    safetensors_path(transfer.file, transfer.index), tensor->name);
    TRY(dtype_choose(checkpoint, options, part == CHECKPOINT_SCALES ? DTYPE_U8 : here, &transfer));
    return transfer_run(&transfer, checkpoint->source, options);
}

static bool is_trained(const struct model_config *config, const struct parameter_shape *tensor)
{
    return !tensor->absent && (config->lora.rank == 0 || tensor->adapter != ADAPTER_NONE);
}

/* Refuses a base other than the one on which the adapters were trained. */
static enum gt_status base_check(const struct checkpoint *checkpoint, uint32_t digest)
{
    const char *text =
        json_string_value(json_object_get(checkpoint->record.adapter, CHECKPOINT_BASE_CRC));
    uint32_t expected;
    if (text != NULL && checkpoint_crc_parse(text, &expected) && expected == digest)
        return GT_OK;
    return FAIL(GT_DATA, "%s: its adapters were trained on another model than what is in %s now",
                checkpoint->source, checkpoint->base);
}

enum gt_status checkpoint_load(const struct checkpoint *checkpoint,
                               const struct checkpoint_load_options *options)
{
    assert(options->staging_bytes >= 2 * sizeof(float));
    TRY(config_check(checkpoint, options->config));
    static const enum checkpoint_array moments[] = {CHECKPOINT_SCALES, CHECKPOINT_M, CHECKPOINT_V};
    struct parameter_shape tensor;
    uint32_t digest = 0;
    const bool known = json_object_get(checkpoint->record.adapter, CHECKPOINT_BASE_CRC) != NULL;
    for (size_t i = 0; i < parameters_file_count(options->config); i++) {
        parameters_file_shape(options->config, i, &tensor);
        TRY(part_load(checkpoint, options, &tensor, CHECKPOINT_PARAMETER,
                      known || options->base_crc32c != NULL ? &digest : NULL));
    }
    if (known)
        TRY(base_check(checkpoint, digest));
    if (options->base_crc32c != NULL)
        *options->base_crc32c = digest;
    for (size_t i = 0; checkpoint->optimizer != NULL && i < parameters_count(options->config);
         i++) {
        parameters_shape(options->config, i, &tensor);
        for (int k = 0; k < 3 && is_trained(options->config, &tensor); k++)
            TRY(part_load(checkpoint, options, &tensor, moments[k], NULL));
    }
    return GT_OK;
}

/* ---- the required contents of the optimizer's file ----
 *
 * The file itself determines which moments it has: Muon's matrices have no v, 8-bit moments have
 * scales.  Here it must only have one of the forms that a save writes; loading checks that it is
 * the form that the run needs. */
void checkpoint_array_tensor(const struct parameter_shape *tensor, enum checkpoint_array part,
                             struct parameter_shape *out)
{
    static const char *const prefixes[CHECKPOINT_ARRAYS] = {[CHECKPOINT_PARAMETER] = "",
                                                            [CHECKPOINT_M] = "m.",
                                                            [CHECKPOINT_V] = "v.",
                                                            [CHECKPOINT_SCALES] = "s."};
    assert(part >= 0 && part < CHECKPOINT_ARRAYS);
    *out = *tensor;
    out->position_table = false;
    out->taps = part == CHECKPOINT_PARAMETER ? tensor->taps : 0;
    out->adapter = ADAPTER_NONE; /* the name has the prefix already */
    (void)snprintf(out->name, sizeof out->name, "%s%s%.100s", prefixes[part], tensor->prefix,
                   tensor->name);
    if (part != CHECKPOINT_SCALES)
        return;
    out->rank = 2;
    out->dims[0] = 2;
    out->dims[1] = state_blocks((int64_t)parameter_elements(tensor));
}

/* Checks the parts of one parameter and adds their number to *found.  A matrix may lack the second
 * moment. */
static enum gt_status moments_check(const struct safetensors *file,
                                    const struct parameter_shape *tensor, size_t *found)
{
    const char *expected = "F32, BF16 or U8";
    enum dtype dtype = DTYPE_COUNT; /* of the first moment */
    for (int part = CHECKPOINT_M; part < CHECKPOINT_ARRAYS; part++) {
        struct parameter_shape wanted;
        size_t index;
        checkpoint_array_tensor(tensor, (enum checkpoint_array)part, &wanted);
        if ((part == CHECKPOINT_V && tensor->linear &&
             !safetensors_find(file, wanted.name, &index)) ||
            (part == CHECKPOINT_SCALES && dtype != DTYPE_U8))
            continue;
        TRY(hf_layout_find(file, &wanted, &index));
        *found += 1;
        const enum dtype stored = file->tensors[index].dtype;
        const bool first = part == CHECKPOINT_M;
        if (first ? stored != DTYPE_F32 && stored != DTYPE_BF16 && stored != DTYPE_U8
                  : stored != dtype)
            return FAIL(
                GT_DATA, "%s: tensor %s: field \"dtype\" is %s, expected %s%s", file->path,
                wanted.name,
                stored < DTYPE_COUNT ? dtype_safetensors_name(stored) : "of another kind", expected,
                stored == DTYPE_F16 ? "; --resume_state=False takes the weights alone" : "");
        dtype = stored;
        expected = dtype_safetensors_name(dtype);
    }
    return GT_OK;
}

enum gt_status checkpoint_arrays_check(const struct safetensors *file,
                                       const struct model_config *config)
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
    return FAIL(GT_DATA, "%s: has %zu tensors, but the model needs %zu", file->path, file->count,
                found);
}

/* ---- a model's tensors in a file ----
 *
 * Names are composed, never parsed, except to recognise the buffers that old versions of
 * transformers saved like weights. */
static bool shape_fits(const struct safetensors_tensor *found, const struct parameter_shape *wanted)
{
    int64_t dims[3];
    if (parameter_file_dims(wanted, dims) == 3)
        return found->rank == 3 && memcmp(found->dims, dims, sizeof dims) == 0;
    if (found->rank != wanted->rank || (wanted->rank == 2 && found->dims[1] != wanted->dims[1]))
        return false;
    return found->dims[0] == wanted->dims[0] ||
           (wanted->position_table && found->dims[0] > wanted->dims[0]);
}

enum gt_status hf_layout_find(const struct safetensors *file, const struct parameter_shape *tensor,
                              size_t *out_index)
{
    size_t index;
    const bool prefixed = safetensors_find(file, HF_PREFIX "wte.weight", &index);
    const char *prefix = prefixed || tensor->adapter != ADAPTER_NONE ? tensor->prefix : "";
    const char *name = TEXT(SAFETENSORS_NAME_MAX + sizeof HF_PREFIX, "%s%s", prefix, tensor->name);
    int64_t dims[3];
    const int32_t rank = parameter_file_dims(tensor, dims);
    const char *wanted = SAFETENSORS_SHAPE_TEXT(dims, rank);
    /* The adapters' file is the last that is joined to the base's table. */
    const bool of_base = tensor->adapter == ADAPTER_NONE || file->file_count == 0;
    if (!safetensors_find(file, name, &index))
        return FAIL(
            GT_DATA, "%s: %s is missing; the model needs %s%s",
            of_base ? file->path : file->files[file->file_count - 1].path, tensor->name, wanted,
            strcmp(name, HF_HEAD) != 0 ? ""
                                       : "; if its output layer is the token embedding, set "
                                         "\"tie_word_embeddings\": true in config.json");
    const struct safetensors_tensor *entry = &file->tensors[index];
    if (!shape_fits(entry, tensor))
        return FAIL(GT_DATA, "%s: %s is %s; the model needs %s", safetensors_path(file, index),
                    tensor->name, SAFETENSORS_SHAPE_TEXT(entry->dims, entry->rank), wanted);
    *out_index = index;
    return GT_OK;
}

void hf_layout_name_unwrap(char name[static SAFETENSORS_NAME_MAX])
{
    static const char *const wrappers[] = {"_orig_mod.", "module.", "_fsdp_wrapped_module.",
                                           "_checkpoint_wrapped_module.", "base_model."};
    static const char *const wholes[] = {"model.model.", "model.transformer.", "model." HF_HEAD};
    char *to = name;
    for (const char *from = name; *from != '\0';) {
        const size_t count = strcspn(from, ".") + (strchr(from, '.') != NULL);
        bool wraps = false;
        for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
            wraps =
                wraps || (strlen(wrappers[i]) == count && strncmp(from, wrappers[i], count) == 0);
        if (!wraps)
            memmove(to, from, count);
        to += wraps ? 0 : count;
        from += count;
    }
    *to = '\0';
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++)
        if (strncmp(name, wholes[i], strlen(wholes[i])) == 0)
            memmove(name, name + strlen("model."), strlen(name + strlen("model.")) + 1);
}

void hf_layout_names_plain(struct safetensors *file)
{
    size_t index;
    for (size_t i = 0; i < file->count; i++)
        hf_layout_name_unwrap(file->tensors[i].name);
    if (!safetensors_find(file, "embed_tokens.weight", &index))
        return;
    for (size_t i = 0; i < file->count; i++) {
        char *name = file->tensors[i].name;
        if (strcmp(name, HF_HEAD) != 0)
            (void)snprintf(name, SAFETENSORS_NAME_MAX, "%s",
                           TEXT(SAFETENSORS_NAME_MAX, "model.%s", name));
    }
}

void hf_layout_part_keep(struct safetensors *file)
{
    /* The first is the name in transformers since release 4.52, the others are those of published
     * files. */
    static const char *const prefixes[][2] = {{"model.language_model.", "model."},
                                              {"language_model.model.", "model."},
                                              {"language_model.lm_head.", "lm_head."}};
    /* Tensors of vision in Gemma 3 and Qwen3.5. */
    static const char *const vision[] = {"vision_tower.", "multi_modal_projector.", "visual."};
    size_t kept = 0, seeing = 0, predicting = 0;
    for (size_t i = 0; i < file->count; i++) {
        struct safetensors_tensor *tensor = &file->tensors[i];
        const char *name =
            strncmp(tensor->name, "model.", 6) == 0 ? tensor->name + 6 : tensor->name;
        bool sees = false;
        for (size_t k = 0; k < sizeof vision / sizeof vision[0]; k++)
            sees = sees || strncmp(name, vision[k], strlen(vision[k])) == 0;
        const bool predicts = strncmp(name, "mtp.", 4) == 0;
        seeing += sees;
        predicting += predicts;
        if (sees || predicts)
            continue;
        for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++) {
            const size_t length = strlen(prefixes[k][0]), shorter = strlen(prefixes[k][1]);
            if (strncmp(tensor->name, prefixes[k][0], length) != 0)
                continue;
            memmove(tensor->name + shorter, tensor->name + length,
                    strlen(tensor->name + length) + 1);
            memcpy(tensor->name, prefixes[k][1], shorter);
        }
        file->tensors[kept++] = *tensor;
    }
    file->count = kept;
    if (seeing > 0)
        log_note("%s: %zu tensors of vision are skipped; the model is the text part", file->path,
                 seeing);
    hf_layout_predicting_log(file->path, predicting);
}

void hf_layout_predicting_log(const char *path, size_t count)
{
    if (count > 0)
        log_note("%s: %zu tensors of multi-token prediction (mtp) are skipped", path, count);
}

bool hf_layout_is_buffer(const char *name)
{
    static const char *const endings[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                                          ".position_ids"};
    const char *dotted = TEXT(SAFETENSORS_NAME_MAX + 1, ".%s", name);
    const size_t length = strlen(dotted);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (length >= strlen(endings[i]) &&
            strcmp(dotted + length - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config)
{
    bool known[SAFETENSORS_TENSORS_MAX] = {false};
    struct parameter_shape tensor;
    size_t index;
    /* At most file->count tensors can be found, so this ends early for an absurd n_layer. */
    for (size_t i = 0; i < parameters_file_count(config); i++) {
        parameters_file_shape(config, i, &tensor);
        TRY(hf_layout_find(file, &tensor, &index));
        known[index] = true;
    }
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        if (known[i] || strcmp(name, HF_HEAD) == 0 || hf_layout_is_buffer(name))
            continue;
        return FAIL(GT_DATA,
                    "%s: tensor %s does not belong to a model of %d layers%s; if the rest is "
                    "the whole model, remove it from the file",
                    safetensors_path(file, i), name, config->n_layer,
                    config->lora.rank > 0 ? " with these adapters" : "");
    }
    return GT_OK;
}
