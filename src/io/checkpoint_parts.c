/* The required contents of the optimizer's file.
 *
 * The file itself determines which moments it has: Muon's matrices have no v, 8-bit moments have scales.  Here it must
 * only have one of the forms that a save writes; loading checks that it is the form that the run needs.
 */
#include "io/checkpoint_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

void checkpoint_part_tensor(const struct parameter_shape *tensor, enum checkpoint_part part,
                            struct parameter_shape *out)
{
    static const char *const prefixes[CHECKPOINT_PARTS] = {
        [CHECKPOINT_PARAMETER] = "", [CHECKPOINT_M] = "m.", [CHECKPOINT_V] = "v.", [CHECKPOINT_SCALES] = "s."};
    assert(part >= 0 && part < CHECKPOINT_PARTS);
    *out = *tensor;
    out->position_table = false;
    (void)snprintf(out->name, sizeof out->name, "%s" HF_PREFIX "%.100s", prefixes[part], tensor->name);
    if (part != CHECKPOINT_SCALES)
        return;
    out->rank = 2;
    out->dims[0] = 2;
    out->dims[1] = state_blocks((int64_t)parameter_elements(tensor));
}

static enum gt_status part_find(const struct safetensors *file, const struct parameter_shape *tensor,
                                enum checkpoint_part part, const struct safetensors_tensor **out)
{
    struct parameter_shape wanted;
    size_t index;
    checkpoint_part_tensor(tensor, part, &wanted);
    TRY(hf_layout_find(file, false, &wanted, &index));
    *out = &file->tensors[index];
    return GT_OK;
}

static enum gt_status dtype_refuse(const struct safetensors *file, const struct safetensors_tensor *tensor,
                                   const char *expected)
{
    log_error("%s: tensor %s: field \"dtype\" is %s, expected %s", file->path, tensor->name,
              tensor->dtype < DTYPE_COUNT ? dtype_safetensors_name(tensor->dtype) : "of another kind", expected);
    return GT_DATA;
}

/* Checks the parts of one parameter and adds their number to *found. */
static enum gt_status moments_check(const struct safetensors *file, const struct parameter_shape *tensor, bool second,
                                    size_t *found)
{
    const struct safetensors_tensor *m, *v, *scales;
    TRY(part_find(file, tensor, CHECKPOINT_M, &m));
    *found += 1;
    if (m->dtype != DTYPE_F32 && m->dtype != DTYPE_BF16 && m->dtype != DTYPE_U8)
        return dtype_refuse(file, m, "F32, BF16 or U8");
    if (second) {
        TRY(part_find(file, tensor, CHECKPOINT_V, &v));
        *found += 1;
        if (v->dtype != m->dtype)
            return dtype_refuse(file, v, dtype_safetensors_name(m->dtype));
    }
    if (m->dtype != DTYPE_U8)
        return GT_OK;
    TRY(part_find(file, tensor, CHECKPOINT_SCALES, &scales));
    *found += 1;
    return scales->dtype == DTYPE_U8 ? GT_OK : dtype_refuse(file, scales, "U8");
}

enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config)
{
    static const char name[] = "m." HF_PREFIX "h.0.attn.c_attn.weight",
                      second[] = "v." HF_PREFIX "h.0.attn.c_attn.weight";
    struct parameter_shape tensor;
    size_t found = 0, index;
    const bool one_moment =
        config->n_layer > 0 && safetensors_find(file, name, &index) && !safetensors_find(file, second, &index);
    for (size_t i = 0; i < parameters_count(config); i++) {
        parameters_shape(config, i, &tensor);
        if (!tensor.bias || config->bias)
            TRY(moments_check(file, &tensor, !(one_moment && parameter_is_linear(&tensor)), &found));
    }
    if (found == file->count)
        return GT_OK;
    log_error("%s: has %zu tensors, but the model needs %zu", file->path, file->count, found);
    return GT_DATA;
}
