/* Paths into the cache of Hugging Face's tools, and the search for GPT-2's vocabulary on this
 * machine.
 *
 * The snapshot's name comes from a file that anyone may have written, so it is validated before it
 * becomes part of a path.  Only the reference "main" is followed; a repository without it (hf
 * download --revision=...) may have one snapshot.  The places of the vocabulary are tried in a
 * fixed order, and the first with files for tokenizer_import() is used; their content must have the
 * hash of GPT-2's.
 */
#include "data/hf_hub.h"

#include "data/tokenizer.h"
#include "data/tokenizer_import.h"

#define REF_BYTES_MAX 256
#define GPT2_NAME "gpt2"
#define OWN_FOLDER "gpt-train/gpt2"
/* The hashes of vocab.bpe with encoder.json, and of gpt2.tiktoken. */
#define GPT2_HASH_MERGES UINT32_C(0xB35C6B87)
#define GPT2_HASH_RANKS UINT32_C(0x97176D28)

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

#define HEXADECIMAL "0123456789abcdefABCDEF"

/* The snapshots of a repository. */
struct snapshots {
    size_t count;
    char first[REF_BYTES_MAX]; /* in the order of the folder */
    char names[1024];          /* as many as fit, for a message */
};

static struct snapshots snapshots_list(const char *repository)
{
    struct snapshots all = {.count = 0};
    const char *folder = FILE_IN(repository, "snapshots"), *name;
    enum gt_status status = GT_OK;
    DIR *dir = NULL;
    while (file_is_folder(folder) && (name = file_next(folder, &dir, &status)) != NULL) {
        const size_t length = strlen(name), used = strlen(all.names);
        if (strspn(name, HEXADECIMAL) != length || length >= sizeof all.first ||
            !file_is_folder(FILE_IN(folder, name)))
            continue;
        if (all.count++ == 0)
            memcpy(all.first, name, length + 1);
        if (used + length + 3 < sizeof all.names)
            snprintf(all.names + used, sizeof all.names - used, "%s%s", used > 0 ? ", " : "", name);
    }
    return all;
}

bool hf_hub_snapshot(const char *hub, const char *repository, char out[static FILE_PATH_MAX])
{
    const char *folder = FILE_IN(hub, repository), *path = FILE_IN(folder, "refs/main");
    char *name = NULL;
    size_t count = 0;
    if (!file_exists(path)) {
        const struct snapshots all = snapshots_list(folder);
        if (all.count == 1)
            file_join(out, FILE_IN(folder, "snapshots"), all.first);
        return all.count == 1;
    }
    if (file_read_all(path, REF_BYTES_MAX - 1, &name, &count) != GT_OK)
        return false;
    const size_t length = strspn(name, HEXADECIMAL);
    const bool valid = length > 0 && strspn(name + length, "\r\n") == count - length;
    name[length] = '\0';
    if (valid)
        file_join(out, FILE_IN(folder, "snapshots"), name);
    free(name);
    return valid;
}

bool hf_hub_is_repository(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t count = strspn(name, allowed);
    if (name[0] == '.' || count == 0 || name[count] != '/')
        return false;
    const size_t rest = strspn(name + count + 1, allowed);
    return rest > 0 && name[count + 1 + rest] == '\0' &&
           !file_is_folder(TEXT(FILE_PATH_MAX, "%.*s", (int)count, name));
}

/* The name of the folder of the model OWNER/NAME. */
#define REPOSITORY_OF(name)                                                \
    TEXT(REF_BYTES_MAX, "models--%.*s--%s", (int)strcspn(name, "/"), name, \
         (name) + strcspn(name, "/") + 1)

bool hf_hub_holds(const char *name)
{
    char hub[FILE_PATH_MAX];
    return hf_hub_folder(hub) && file_is_folder(FILE_IN(hub, REPOSITORY_OF(name)));
}

enum gt_status hf_hub_find(const char *name, const char *more, char out[static FILE_PATH_MAX])
{
    char hub[FILE_PATH_MAX] = "~/.cache/huggingface/hub";
    const char *repository = REPOSITORY_OF(name);
    if (hf_hub_folder(hub) && hf_hub_snapshot(hub, repository, out) && file_is_folder(out))
        return GT_OK;
    const char *folder = FILE_IN(hub, repository);
    const struct snapshots all = snapshots_list(folder);
    if (all.count > 1 && !file_exists(FILE_IN(folder, "refs/main")))
        return FAIL(
            GT_DATA,
            "%s: %s has no refs/main and several snapshots; give the path of one: %s/snapshots/{%s}",
            name, folder, folder, all.names);
    return FAIL(
        GT_DATA,
        "%s: there is no such folder here, and no %s/%s; to download it: hf download %s --exclude 'original/*'%s",
        name, hub, repository, name, more);
}

/* ---- vocabularies ---- */

struct search {
    char places[8192];         /* the places searched, for the message */
    char found[FILE_PATH_MAX]; /* empty: not found yet */
    char local[FILE_PATH_MAX]; /* the user's local folder, suggested for the files */
};

static void place_note(struct search *search, const char *place)
{
    const size_t used = strlen(search->places);
    (void)snprintf(search->places + used, sizeof search->places - used, "%s%s",
                   used > 0 ? ", " : "", place);
}

/* Looks into a folder unless an earlier place had the files. */
static void place_try(struct search *search, const char *folder)
{
    bool holds = false;
    if (search->found[0] == '\0' && file_is_folder(folder) &&
        tokenizer_import_folder(folder, &holds) == GT_OK && holds)
        file_join(search->found, "", folder);
}

/* Tries the folder that the user chose, and gpt2 in it. */
static void search_variable(struct search *search)
{
    const char *chosen = variable("GPT_TRAIN_TOKENIZER_DIR");
    place_note(search, chosen != NULL ? chosen : "$GPT_TRAIN_TOKENIZER_DIR (not set)");
    if (chosen == NULL)
        return;
    place_try(search, chosen);
    place_try(search, FILE_IN(chosen, GPT2_NAME));
}

static void search_hub(struct search *search)
{
    static const char *const models[] = {"models--gpt2", "models--openai-community--gpt2"};
    char hub[FILE_PATH_MAX], snapshot[FILE_PATH_MAX];
    if (!hf_hub_folder(hub))
        return;
    place_note(search, hub);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (hf_hub_snapshot(hub, models[i], snapshot))
            place_try(search, snapshot);
}

/* Tries each folder of a colon-separated list. */
static void search_list(struct search *search, const char *list)
{
    for (const char *at = list, *end; at != NULL; at = *end == ':' ? end + 1 : NULL) {
        end = at + strcspn(at, ":");
        if (end == at)
            continue;
        const char *folder = TEXT(FILE_PATH_MAX, "%.*s/" OWN_FOLDER, (int)(end - at), at);
        place_try(search, folder);
        place_note(search, folder);
    }
}

static void search_data(struct search *search)
{
    const char *data = variable("XDG_DATA_HOME"), *home = variable("HOME"),
               *folders = variable("XDG_DATA_DIRS");
    if (data != NULL || home != NULL) {
        file_join(search->local, data != NULL ? data : home,
                  data != NULL ? OWN_FOLDER : ".local/share/" OWN_FOLDER);
        place_try(search, search->local);
        place_note(search, search->local);
    }
    search_list(search, folders != NULL ? folders : "/usr/local/share");
    search_list(search, "/usr/share");
}

static enum gt_status not_found(const struct search *search)
{
    const char *folder = search->local[0] != '\0' ? search->local : GPT2_NAME;
    return FAIL(
        GT_USAGE,
        "gpt2: GPT-2's vocabulary is not on this machine; looked in %s; to fetch it: mkdir -p %s && cd "
        "%s && curl -O https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe -O "
        "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json  (or: hf download gpt2 "
        "vocab.json merges.txt)",
        search->places, folder, folder);
}

static enum gt_status find_gpt2(const void *owner, struct tokenizer **out)
{
    struct search search = {.places = "", .found = "", .local = ""};
    struct tokenizer *tokenizer = NULL;
    search_variable(&search);
    search_hub(&search);
    search_data(&search);
    if (search.found[0] == '\0')
        return not_found(&search);
    TRY(tokenizer_import(owner, search.found, &tokenizer));
    const uint32_t hash = tokenizer->hash;
    if (hash != GPT2_HASH_MERGES && hash != GPT2_HASH_RANKS) {
        log_error("%s: this is not GPT-2's vocabulary (crc32c:%08" PRIx32
                  ", GPT-2's is crc32c:%08" PRIx32 "); to use it all the same, give its path",
                  search.found, hash, GPT2_HASH_MERGES);
        hostmem_free(tokenizer);
        return GT_DATA;
    }
    *out = tokenizer;
    return GT_OK;
}

enum gt_status tokenizer_find(const void *owner, const char *name, struct tokenizer **out)
{
    if (strcmp(name, GPT2_NAME) == 0)
        return find_gpt2(owner, out);
    char folder[FILE_PATH_MAX];
    const bool is_repository = hf_hub_is_repository(name);
    if (is_repository)
        TRY(hf_hub_find(name, "", folder));
    return tokenizer_import(owner, is_repository ? folder : name, out);
}
