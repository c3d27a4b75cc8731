/* Paths into the cache of Hugging Face's tools.
 *
 * The snapshot's name comes from a file that anyone may have written, so it is validated before it becomes part of a
 * path.  Only the reference "main" is followed.
 */
#include "data/hf_hub.h"

#define REF_BYTES_MAX 256

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool hf_hub_folder(char out[static FILE_PATH_MAX])
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = variable(places[i].variable);
        if (value != NULL)
            return snprintf(out, FILE_PATH_MAX, "%s%s", value, places[i].below) < FILE_PATH_MAX;
    }
    return false;
}

/* Reads the snapshot's name from the file refs/main.  Returns false when it is not hexadecimal. */
static bool reference_read(const char *path, char out[static REF_BYTES_MAX])
{
    char *text = NULL;
    size_t count = 0;
    if (!file_exists(path) || file_read_all(path, REF_BYTES_MAX - 1, &text, &count) != GT_OK)
        return false;
    const size_t length = strspn(text, "0123456789abcdefABCDEF");
    const bool valid = length > 0 && strspn(text + length, "\r\n") == count - length;
    if (valid)
        (void)snprintf(out, REF_BYTES_MAX, "%.*s", (int)length, text);
    free(text);
    return valid;
}

bool hf_hub_snapshot(const char *hub, const char *repository, char out[static FILE_PATH_MAX])
{
    char name[REF_BYTES_MAX];
    if (!reference_read(FILE_IN(FILE_IN(hub, repository), "refs/main"), name))
        return false;
    file_join(out, FILE_IN(FILE_IN(hub, repository), "snapshots"), name);
    return true;
}

bool hf_hub_is_repository(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t count = strspn(name, allowed);
    if (name[0] == '.' || count == 0 || name[count] != '/')
        return false;
    const size_t rest = strspn(name + count + 1, allowed);
    return rest > 0 && name[count + 1 + rest] == '\0' && !file_is_folder(TEXT(FILE_PATH_MAX, "%.*s", (int)count, name));
}

enum gt_status hf_hub_find(const char *name, char out[static FILE_PATH_MAX])
{
    char hub[FILE_PATH_MAX] = "~/.cache/huggingface/hub";
    const int owner = (int)strcspn(name, "/");
    const char *repository = TEXT(REF_BYTES_MAX, "models--%.*s--%s", owner, name, name + owner + 1);
    if (hf_hub_folder(hub) && hf_hub_snapshot(hub, repository, out) && file_is_folder(out))
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: there is no such folder here, and no %s/%s; to download it: hf download %s --exclude 'original/*'",
                name, hub, repository, name);
}
