/* Looks up a model's tensors in a file.
 *
 * Names are composed, never parsed, except to recognise the causal masks that old versions of transformers saved like
 * weights.  Only headers that safetensors_open() has checked are used here.
 */
#include "io/hf_layout.h"

static bool shape_fits(const struct safetensors_tensor *found, const struct parameter_shape *wanted)
{
    if (found->rank != wanted->rank || (wanted->rank == 2 && found->dims[1] != wanted->dims[1]))
        return false;
    return found->dims[0] == wanted->dims[0] || (wanted->position_table && found->dims[0] > wanted->dims[0]);
}

enum gt_status hf_layout_find(const struct safetensors *file, const struct parameter_shape *tensor, size_t *out_index)
{
    size_t index;
    const bool prefixed = safetensors_find(file, HF_PREFIX "wte.weight", &index);
    const char *prefix = prefixed || tensor->adapter != ADAPTER_NONE ? tensor->prefix : "";
    const char *name = TEXT(SAFETENSORS_NAME_MAX + sizeof HF_PREFIX, "%s%s", prefix, tensor->name);
    const char *wanted = SAFETENSORS_SHAPE_TEXT(tensor->dims, tensor->rank);
    if (!safetensors_find(file, name, &index))
        return FAIL(GT_DATA, "%s: %s is missing; the model needs %s", file->path, tensor->name, wanted);
    const struct safetensors_tensor *entry = &file->tensors[index];
    if (!shape_fits(entry, tensor))
        return FAIL(GT_DATA, "%s: %s is %s; the model needs %s", file->path, tensor->name,
                    SAFETENSORS_SHAPE_TEXT(entry->dims, entry->rank), wanted);
    *out_index = index;
    return GT_OK;
}

/* h.N.attn.bias and h.N.attn.masked_bias: the causal mask and its fill value. */
static bool is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0)
        return false;
    const size_t digits = strspn(name + 2, "0123456789");
    const char *rest = name + 2 + digits;
    return digits > 0 && (strcmp(rest, ".attn.bias") == 0 || strcmp(rest, ".attn.masked_bias") == 0);
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
        const size_t skip = strncmp(name, HF_PREFIX, sizeof HF_PREFIX - 1) == 0 ? sizeof HF_PREFIX - 1 : 0;
        if (known[i] || strcmp(name, "lm_head.weight") == 0 || is_mask(name + skip))
            continue;
        return FAIL(GT_DATA, "%s: tensor %s does not belong to a model of %d layers", file->path, name,
                    config->n_layer);
    }
    return GT_OK;
}
