/* Finding a downloaded GPT-2.
 *
 * The cache is laid out by Hugging Face's tools; only the reference "main" is followed.  What it holds is a snapshot's name
 * from a file, so that it must look like one before it becomes part of a path.  The cache is read and never changed, and
 * nothing is fetched from anywhere.
 */
#include "io/hf_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/safetensors_index.h"

#define REF_BYTES_MAX 256

bool hf_cache_is_name(const char *name)
{
    static const char *const names[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* PARENT/NAME in place. */
static enum gt_status descend(char path[static FILE_PATH_MAX], const char *name)
{
    char parent[FILE_PATH_MAX];
    memcpy(parent, path, sizeof parent);
    return file_join(path, parent, name);
}

static enum gt_status hub_find(char out[static FILE_PATH_MAX])
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    if (hub != NULL && hub[0] != '\0')
        return file_join(out, hub, "");
    if (home != NULL && home[0] != '\0')
        return file_join(out, home, "hub");
    if (cache != NULL && cache[0] != '\0')
        return file_join(out, cache, "huggingface/hub");
    return file_join(out, user != NULL ? user : "", ".cache/huggingface/hub");
}

/* Whether the folder has what loading needs. */
static bool is_model(const char *folder)
{
    static const char *const weights[] = {"model.safetensors", SAFETENSORS_INDEX_NAME};
    char path[FILE_PATH_MAX];
    bool found = false;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        found = found || (file_join(path, folder, weights[i]) == GT_OK && file_exists(path));
    return found && file_join(path, folder, "config.json") == GT_OK && file_exists(path);
}

/* The first word of refs/main, when it can be a snapshot's name. */
static bool reference_read(const char *repository, char out[static REF_BYTES_MAX])
{
    static const char accepted[] = "0123456789abcdefABCDEF";
    char path[FILE_PATH_MAX], *text;
    size_t count;
    if (file_join(path, repository, "refs/main") != GT_OK || !file_exists(path))
        return false;
    if (file_read_all(path, REF_BYTES_MAX - 1, &text, &count) != GT_OK)
        return false;
    const size_t length = strspn(text, accepted);
    const bool valid = length > 0 && strspn(text + length, "\r\n") == count - length;
    if (valid)
        (void)snprintf(out, REF_BYTES_MAX, "%.*s", (int)length, text);
    free(text);
    return valid;
}

static bool snapshot_find(const char *hub, const char *repository, char out[static FILE_PATH_MAX])
{
    char name[REF_BYTES_MAX];
    if (file_join(out, hub, repository) != GT_OK || !reference_read(out, name))
        return false;
    return descend(out, "snapshots") == GT_OK && descend(out, name) == GT_OK && is_model(out);
}

enum gt_status hf_cache_find(const char *name, char out[static FILE_PATH_MAX])
{
    static const char *const owners[] = {"models--openai-community--", "models--"};
    char hub[FILE_PATH_MAX], repository[64];
    if (file_is_folder(name))
        return file_join(out, ".", name);
    TRY(hub_find(hub));
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        (void)snprintf(repository, sizeof repository, "%s%s", owners[i], name);
        if (snapshot_find(hub, repository, out))
            return GT_OK;
    }
    log_error("init_from='%s': there is no folder %s here, and no config.json with model.safetensors in "
              "%s/models--openai-community--%s; to download them: hf download openai-community/%s config.json "
              "model.safetensors",
              name, name, hub, name, name);
    return GT_DATA;
}
