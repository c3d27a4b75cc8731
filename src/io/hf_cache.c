/* Finds a downloaded GPT-2: a folder of this name in the working folder, else the cache of Hugging
 * Face's tools (data/hf_hub.c).
 *
 * A folder of the cache counts if it has config.json and weights; a folder in the working folder
 * always does.  Nothing is downloaded.
 */
#include "io/hf_cache.h"

#include <strings.h>

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

/* Returns the length of a name without an ending for quantised weights. */
static size_t unquantised_length(const char *name)
{
    static const char *const endings[] = {
        "-unsloth-bnb-4bit", "-bnb-4bit",  "-bnb-8bit", "-4bit", "-8bit", "-awq",
        "-gptq-int4",        "-gptq-int8", "-gptq",     "-fp8",  "-int4", "-w4a16"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (length > strlen(endings[i]) &&
            strcasecmp(name + length - strlen(endings[i]), endings[i]) == 0)
            return length - strlen(endings[i]);
    return length;
}

enum gt_status hf_cache_model_find(const char *name, char out[static FILE_PATH_MAX])
{
    const size_t whole = unquantised_length(name);
    if (name[whole] != '\0' && hf_hub_is_repository(name) && !hf_hub_holds(name))
        return FAIL(
            GT_UNSUPPORTED,
            "%s: the name says that its weights are quantised, and only weights in 16 or 32 "
            "bits are read: use %.*s; an adapter names its base in adapter_config.json, as "
            "base_model_name_or_path",
            name, (int)whole, name);
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
        return hf_hub_find(
            name, "; its config.json alone, with --plan, tells whether it can be trained", out);
    (void)snprintf(out, FILE_PATH_MAX, "%s", name);
    return GT_OK;
}
