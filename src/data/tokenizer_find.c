/* Finds GPT-2's vocabulary on this machine.
 *
 * Places are tried in a fixed order, and the first with files for tokenizer_import() is used; their content must have
 * the hash of GPT-2's.  The cache of Hugging Face's tools is in data/hf_hub.c.
 */
#include "data/tokenizer.h"

#include "base/file.h"
#include "data/hf_hub.h"
#include "data/tokenizer_import.h"

#define GPT2_NAME "gpt2"
#define OWN_FOLDER "gpt-train/gpt2"
/* The hashes of vocab.bpe with encoder.json, and of gpt2.tiktoken. */
#define GPT2_HASH_MERGES UINT32_C(0xB35C6B87)
#define GPT2_HASH_RANKS UINT32_C(0x97176D28)

struct search {
    char places[8192];         /* the places searched, for the message */
    char found[FILE_PATH_MAX]; /* empty: not found yet */
    char own[FILE_PATH_MAX];   /* the user's own folder, suggested for the files */
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void place_note(struct search *search, const char *place)
{
    const size_t used = strlen(search->places);
    (void)snprintf(search->places + used, sizeof search->places - used, "%s%s", used > 0 ? ", " : "", place);
}

/* Looks into base[count]/end unless an earlier place had the files.  Writes the path to `out`, or "" when it is too
 * long. */
static void place_try(struct search *search, const char *base, size_t count, const char *end,
                      char out[static FILE_PATH_MAX])
{
    bool holds = false;
    if (count >= FILE_PATH_MAX || snprintf(out, FILE_PATH_MAX, "%.*s%s", (int)count, base, end) >= FILE_PATH_MAX)
        out[0] = '\0';
    if (out[0] != '\0' && search->found[0] == '\0' && file_is_folder(out) &&
        tokenizer_import_folder(out, &holds) == GT_OK && holds)
        (void)snprintf(search->found, sizeof search->found, "%s", out);
}

/* Tries the folder that the user chose, and gpt2 in it. */
static void search_variable(struct search *search)
{
    char folder[FILE_PATH_MAX];
    const char *chosen = variable("GPT_TRAIN_TOKENIZER_DIR");
    place_note(search, chosen != NULL ? chosen : "$GPT_TRAIN_TOKENIZER_DIR (not set)");
    if (chosen == NULL)
        return;
    place_try(search, chosen, strlen(chosen), "", folder);
    place_try(search, chosen, strlen(chosen), "/" GPT2_NAME, folder);
}

static void search_hub(struct search *search)
{
    static const char *const models[] = {"models--gpt2", "models--openai-community--gpt2"};
    char hub[FILE_PATH_MAX], snapshot[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    if (!hf_hub_folder(hub))
        return;
    place_note(search, hub);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (hf_hub_snapshot(hub, models[i], snapshot))
            place_try(search, snapshot, strlen(snapshot), "", folder);
}

/* Tries each folder of a colon-separated list. */
static void search_list(struct search *search, const char *list)
{
    char folder[FILE_PATH_MAX];
    for (const char *at = list; at != NULL;) {
        const size_t count = strcspn(at, ":");
        folder[0] = '\0';
        if (count > 0)
            place_try(search, at, count, "/" OWN_FOLDER, folder);
        if (folder[0] != '\0')
            place_note(search, folder);
        at = at[count] == ':' ? at + count + 1 : NULL;
    }
}

static void search_data(struct search *search)
{
    const char *data = variable("XDG_DATA_HOME"), *home = variable("HOME"), *folders = variable("XDG_DATA_DIRS");
    if (data != NULL)
        place_try(search, data, strlen(data), "/" OWN_FOLDER, search->own);
    else if (home != NULL)
        place_try(search, home, strlen(home), "/.local/share/" OWN_FOLDER, search->own);
    if (search->own[0] != '\0')
        place_note(search, search->own);
    search_list(search, folders != NULL ? folders : "/usr/local/share");
    search_list(search, "/usr/share");
}

static enum gt_status not_found(const struct search *search)
{
    const char *folder = search->own[0] != '\0' ? search->own : GPT2_NAME;
    return FAIL(GT_USAGE,
                "gpt2: GPT-2's vocabulary is not on this machine; looked in %s; to fetch it: mkdir -p %s && cd "
                "%s && curl -O https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe -O "
                "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json  (or: hf download gpt2 "
                "vocab.json merges.txt)",
                search->places, folder, folder);
}

static enum gt_status find_gpt2(const void *owner, struct tokenizer **out)
{
    struct search search = {.places = "", .found = "", .own = ""};
    struct tokenizer *tokenizer = NULL;
    search_variable(&search);
    search_hub(&search);
    search_data(&search);
    if (search.found[0] == '\0')
        return not_found(&search);
    TRY(tokenizer_import(owner, search.found, &tokenizer));
    const uint32_t hash = tokenizer->hash;
    if (hash != GPT2_HASH_MERGES && hash != GPT2_HASH_RANKS) {
        log_error("%s: this is not GPT-2's vocabulary (crc32c:%08" PRIx32 ", GPT-2's is crc32c:%08" PRIx32
                  "); to use it all the same, give its path",
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
    if (hf_hub_is_repository(name)) {
        char folder[FILE_PATH_MAX];
        TRY(hf_hub_find(name, folder));
        return tokenizer_import(owner, folder, out);
    }
    return tokenizer_import(owner, name, out);
}
