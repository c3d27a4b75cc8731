/* GPT-2's list of tensors.
 *
 * One table has the tensors of a block, two others those before and after the blocks; an index is split into block and
 * row.  Names are composed, never parsed, except to recognise the causal masks that old versions of transformers saved
 * like weights.  Only headers that safetensors_open() has checked are used here.
 */
#include "io/hf_layout.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* A dimension of a tensor, resolved by dim_of(). */
enum dim { DIM_NONE, DIM_C, DIM_4C, DIM_QKV, DIM_V, DIM_T };

struct row {
    const char *name;
    enum dim dim[2];
    bool bias;
};

static const struct row before[] = {{"wte.weight", {DIM_V, DIM_C}, false}, {"wpe.weight", {DIM_T, DIM_C}, false}};
static const struct row block[] = {
    {"ln_1.weight", {DIM_C, DIM_NONE}, false},       {"ln_1.bias", {DIM_C, DIM_NONE}, true},
    {"attn.c_attn.weight", {DIM_C, DIM_QKV}, false}, {"attn.c_attn.bias", {DIM_QKV, DIM_NONE}, true},
    {"attn.c_proj.weight", {DIM_C, DIM_C}, false},   {"attn.c_proj.bias", {DIM_C, DIM_NONE}, true},
    {"ln_2.weight", {DIM_C, DIM_NONE}, false},       {"ln_2.bias", {DIM_C, DIM_NONE}, true},
    {"mlp.c_fc.weight", {DIM_C, DIM_4C}, false},     {"mlp.c_fc.bias", {DIM_4C, DIM_NONE}, true},
    {"mlp.c_proj.weight", {DIM_4C, DIM_C}, false},   {"mlp.c_proj.bias", {DIM_C, DIM_NONE}, true},
};
static const struct row after[] = {{"ln_f.weight", {DIM_C, DIM_NONE}, false}, {"ln_f.bias", {DIM_C, DIM_NONE}, true}};

#define ROWS(table) (sizeof(table) / sizeof(table)[0])
_Static_assert(ROWS(before) + ROWS(after) == 4 && ROWS(block) == 12, "GPT-2 has 4 + 12 L tensors");

static int64_t dim_of(const struct model_config *config, enum dim dim)
{
    const int64_t c = config->n_embd;
    switch (dim) {
    case DIM_NONE:
        return 0;
    case DIM_C:
        return c;
    case DIM_4C:
        return 4 * c;
    case DIM_QKV:
        return c + 2 * config->n_kv_head * (c / config->n_head);
    case DIM_V:
        return config->vocab_size;
    case DIM_T:
        return config->block_size;
    }
    return 0;
}

size_t hf_layout_count(const struct model_config *config)
{
    assert(config->n_layer >= 0);
    return ROWS(before) + ROWS(after) + ROWS(block) * (size_t)config->n_layer;
}

void hf_layout_tensor(const struct model_config *config, size_t index, struct hf_tensor *out)
{
    assert(index < hf_layout_count(config));
    const size_t blocks = ROWS(block) * (size_t)config->n_layer;
    const struct row *row;
    if (index < ROWS(before)) {
        row = &before[index];
        (void)snprintf(out->name, sizeof out->name, "%s", row->name);
    } else if (index - ROWS(before) < blocks) {
        const size_t in_blocks = index - ROWS(before);
        row = &block[in_blocks % ROWS(block)];
        (void)snprintf(out->name, sizeof out->name, "h.%zu.%s", in_blocks / ROWS(block), row->name);
    } else {
        row = &after[index - ROWS(before) - blocks];
        (void)snprintf(out->name, sizeof out->name, "%s", row->name);
    }
    out->rank = row->dim[1] == DIM_NONE ? 1 : 2;
    out->dims[0] = dim_of(config, row->dim[0]);
    out->dims[1] = dim_of(config, row->dim[1]);
    out->bias = row->bias;
    out->position_table = row->dim[0] == DIM_T;
}

size_t hf_tensor_elements(const struct hf_tensor *tensor)
{
    return (size_t)tensor->dims[0] * (tensor->rank == 2 ? (size_t)tensor->dims[1] : 1);
}

bool hf_layout_prefixed(const struct safetensors *file)
{
    size_t index;
    return safetensors_find(file, HF_PREFIX "wte.weight", &index);
}

static bool shape_fits(const struct safetensors_tensor *found, const struct hf_tensor *wanted)
{
    if (found->rank != wanted->rank || (wanted->rank == 2 && found->dims[1] != wanted->dims[1]))
        return false;
    return found->dims[0] == wanted->dims[0] || (wanted->position_table && found->dims[0] > wanted->dims[0]);
}

enum gt_status hf_layout_find(const struct safetensors *file, bool prefixed, const struct hf_tensor *tensor,
                              size_t *out_index)
{
    char name[SAFETENSORS_NAME_MAX + sizeof HF_PREFIX];
    (void)snprintf(name, sizeof name, "%s%s", prefixed ? HF_PREFIX : "", tensor->name);
    char wanted[SAFETENSORS_SHAPE_TEXT_MAX], found[SAFETENSORS_SHAPE_TEXT_MAX];
    safetensors_shape_text(wanted, tensor->dims, tensor->rank);
    size_t index;
    if (!safetensors_find(file, name, &index)) {
        log_error("%s: %s is missing; the model needs %s", file->path, tensor->name, wanted);
        return GT_DATA;
    }
    const struct safetensors_tensor *entry = &file->tensors[index];
    if (!shape_fits(entry, tensor)) {
        log_error("%s: %s is %s; the model needs %s", file->path, tensor->name,
                  safetensors_shape_text(found, entry->dims, entry->rank), wanted);
        return GT_DATA;
    }
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

/* Checks the tensors of the file that are not in the layout. */
static enum gt_status unknown_check(const struct safetensors *file, const struct model_config *config, bool prefixed,
                                    const bool *known)
{
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        const size_t skip = prefixed && strncmp(name, HF_PREFIX, sizeof HF_PREFIX - 1) == 0 ? sizeof HF_PREFIX - 1 : 0;
        if (known[i] || strcmp(name, "lm_head.weight") == 0 || is_mask(name + skip))
            continue;
        log_error("%s: tensor %s does not belong to a GPT-2 of %d layers", file->path, name, config->n_layer);
        return GT_DATA;
    }
    return GT_OK;
}

enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config)
{
    bool known[SAFETENSORS_TENSORS_MAX] = {false};
    const bool prefixed = hf_layout_prefixed(file);
    struct hf_tensor tensor;
    size_t index;
    /* At most file->count tensors can be found, so this ends early for an absurd n_layer. */
    for (size_t i = 0; i < hf_layout_count(config); i++) {
        hf_layout_tensor(config, i, &tensor);
        TRY(hf_layout_find(file, prefixed, &tensor, &index));
        known[index] = true;
    }
    return unknown_check(file, config, prefixed, known);
}
