/* Finds a downloaded GPT-2: a folder of this name in the working folder, else the cache of Hugging
 * Face's tools (data/hf_hub.c).
 *
 * A folder of the cache counts if it has config.json and weights; a folder in the working folder
 * always does.  Nothing is downloaded.
 */
#include "io/hf_cache.h"

#include "data/hf_hub.h"
#include "io/known_models.h"
#include "io/safetensors.h"

bool hf_cache_is_name(const char *name)
{
    struct known_model model;
    return strchr(name, '/') == NULL && known_model_find(name, &model);
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
        return FAIL(
            GT_DATA,
            "%s: there is no folder of this name here, and neither HOME nor HF_HOME says where downloads are",
            name);
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        if (hf_hub_snapshot(hub, TEXT(64, "%s%s", owners[i], name), out) &&
            file_exists(FILE_IN(out, "config.json")) &&
            (file_exists(FILE_IN(out, "model.safetensors")) ||
             file_exists(FILE_IN(out, SAFETENSORS_INDEX_NAME))))
            return GT_OK;
    }
    return FAIL(
        GT_DATA,
        "%s: there is no folder of this name here, and no config.json with model.safetensors in "
        "%s/models--openai-community--%s; to download them: hf download openai-community/%s config.json "
        "model.safetensors",
        name, hub, name, name);
}

enum gt_status hf_cache_model_find(const char *name, char out[static FILE_PATH_MAX])
{
    if (hf_cache_is_name(name))
        return hf_cache_find(name, out);
    struct known_model model;
    char near[KNOWN_MODELS_TEXT_MAX];
    const bool repository = hf_hub_is_repository(name),
               bare = strchr(name, '/') == NULL && !file_exists(name);
    if (((repository && !hf_hub_holds(name)) || bare) && !known_model_find(name, &model) &&
        known_models_near(near, name)[0] != '\0')
        return FAIL(GT_DATA, "%s: there is no such folder here; did you mean %s?%s", name, near,
                    repository
                        ? TEXT(FILE_PATH_MAX, " To download it as it is: hf download %s", name)
                        : "");
    if (repository)
        return hf_hub_find(name, out);
    (void)snprintf(out, FILE_PATH_MAX, "%s", name);
    return GT_OK;
}
