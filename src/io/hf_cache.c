/* Finds a downloaded GPT-2: a folder of this name in the working folder, else the cache of Hugging Face's tools
 * (data/hf_hub.c).
 *
 * A folder of the cache counts if it has config.json and weights; a folder in the working folder always does.  Nothing
 * is downloaded.
 */
#include "io/hf_cache.h"

#include "data/hf_hub.h"
#include "io/safetensors.h"

bool hf_cache_shape(const char *name, struct model_config *out)
{
    static const struct {
        const char *name;
        int32_t n_layer, n_head, n_embd;
    } models[] = {
        {"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(name, models[i].name) != 0)
            continue;
        *out = (struct model_config){.n_layer = models[i].n_layer,
                                     .n_head = models[i].n_head,
                                     .n_kv_head = models[i].n_head,
                                     .n_embd = models[i].n_embd,
                                     .block_size = 1024,
                                     .vocab_size = 50257,
                                     .padded_vocab_size = 50257,
                                     .bias = true,
                                     .gelu = GELU_TANH,
                                     .norm_epsilon = 1e-5};
        return true;
    }
    return false;
}

enum gt_status hf_cache_find(const char *name, char out[static FILE_PATH_MAX])
{
    static const char *const owners[] = {"models--openai-community--", "models--"};
    char hub[FILE_PATH_MAX];
    if (file_is_folder(name)) {
        file_join(out, ".", name);
        return GT_OK;
    }
    if (!hf_hub_folder(hub))
        return FAIL(GT_DATA,
                    "%s: there is no folder of this name here, and neither HOME nor HF_HOME says where downloads are",
                    name);
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        if (hf_hub_snapshot(hub, TEXT(64, "%s%s", owners[i], name), out) && file_exists(FILE_IN(out, "config.json")) &&
            (file_exists(FILE_IN(out, "model.safetensors")) || file_exists(FILE_IN(out, SAFETENSORS_INDEX_NAME))))
            return GT_OK;
    }
    return FAIL(GT_DATA,
                "%s: there is no folder of this name here, and no config.json with model.safetensors in "
                "%s/models--openai-community--%s; to download them: hf download openai-community/%s config.json "
                "model.safetensors",
                name, hub, name, name);
}

enum gt_status hf_cache_model_find(const char *name, char out[static FILE_PATH_MAX])
{
    if (hf_cache_is_name(name))
        return hf_cache_find(name, out);
    if (hf_hub_is_repository(name))
        return hf_hub_find(name, out);
    (void)snprintf(out, FILE_PATH_MAX, "%s", name);
    return GT_OK;
}
