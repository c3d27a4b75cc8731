/* Finds GPT-2's vocabulary on this machine.
 *
 * Places are tried in a fixed order, and the first with files for tokenizer_import() is used; their content must have
 * the hash of GPT-2's.  The cache of Hugging Face's tools is in data/hf_hub.c.
 */
#include "data/tokenizer_find.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/hf_hub.h"
#include "data/tokenizer_import.h"

#define GPT2_NAME "gpt2"
#define OWN_FOLDER "gpt-train/gpt2"
/* bpe_hash() of vocab.bpe with encoder.json, and of gpt2.tiktoken. */
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

/* Writes "base/end" to `out`; returns false when it is too long. */
static bool path_make(char out[static FILE_PATH_MAX], const char *base, size_t base_count, const char *end)
{
    const int length = snprintf(out, FILE_PATH_MAX, "%.*s/%s", (int)base_count, base, end);
    return base_count < FILE_PATH_MAX && length > 0 && length < FILE_PATH_MAX;
}

/* Writes the path of `end` in the home folder to `out`. */
static bool home_make(char out[static FILE_PATH_MAX], const char *end)
{
    const char *home = variable("HOME");
    return home != NULL && path_make(out, home, strlen(home), end);
}

static void place_note(struct search *search, const char *place)
{
    const size_t used = strlen(search->places);
    (void)snprintf(search->places + used, sizeof search->places - used, "%s%s", used > 0 ? ", " : "", place);
}

static bool place_try(struct search *search, const char *folder)
{
    bool holds = false;
    if (search->found[0] == '\0' && file_is_folder(folder) && tokenizer_import_folder(folder, &holds) == GT_OK && holds)
        (void)snprintf(search->found, sizeof search->found, "%s", folder);
    return search->found[0] != '\0';
}

/* Tries the folder that the user chose, and gpt2 in it. */
static void search_variable(struct search *search)
{
    char folder[FILE_PATH_MAX];
    const char *chosen = variable("GPT_TRAIN_TOKENIZER_DIR");
    place_note(search, chosen != NULL ? chosen : "$GPT_TRAIN_TOKENIZER_DIR (not set)");
    if (chosen == NULL || place_try(search, chosen) || !path_make(folder, chosen, strlen(chosen), GPT2_NAME))
        return;
    place_try(search, folder);
}

static void search_hub(struct search *search)
{
    static const char *const models[] = {"models--gpt2", "models--openai-community--gpt2"};
    char hub[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    if (!hf_hub_folder(hub))
        return;
    place_note(search, hub);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (hf_hub_snapshot(hub, models[i], folder))
            place_try(search, folder);
}

/* Tries each folder of a colon-separated list. */
static void search_list(struct search *search, const char *list)
{
    char folder[FILE_PATH_MAX];
    for (const char *at = list; at != NULL;) {
        const char *colon = strchr(at, ':');
        const size_t count = colon != NULL ? (size_t)(colon - at) : strlen(at);
        if (count > 0 && path_make(folder, at, count, OWN_FOLDER)) {
            place_note(search, folder);
            place_try(search, folder);
        }
        at = colon != NULL ? colon + 1 : NULL;
    }
}

static void search_data(struct search *search)
{
    const char *home = variable("XDG_DATA_HOME"), *folders = variable("XDG_DATA_DIRS");
    if (home != NULL ? path_make(search->own, home, strlen(home), OWN_FOLDER)
                     : home_make(search->own, ".local/share/" OWN_FOLDER)) {
        place_note(search, search->own);
        place_try(search, search->own);
    }
    search_list(search, folders != NULL ? folders : "/usr/local/share");
    search_list(search, "/usr/share");
}

static enum gt_status not_found(const struct search *search)
{
    const char *folder = search->own[0] != '\0' ? search->own : GPT2_NAME;
    log_error("gpt2: GPT-2's vocabulary is not on this machine; looked in %s; to fetch it: mkdir -p %s && cd "
              "%s && curl -O https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe -O "
              "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json  (or: hf download gpt2 "
              "vocab.json merges.txt)",
              search->places, folder, folder);
    return GT_USAGE;
}

static enum gt_status find_gpt2(struct hostmem *mem, struct tokenizer **out)
{
    struct search search = {.places = "", .found = "", .own = ""};
    struct tokenizer *tokenizer = NULL;
    search_variable(&search);
    search_hub(&search);
    search_data(&search);
    if (search.found[0] == '\0')
        return not_found(&search);
    TRY(tokenizer_import(mem, search.found, &tokenizer));
    const uint32_t hash = tokenizer_hash(tokenizer);
    if (hash != GPT2_HASH_MERGES && hash != GPT2_HASH_RANKS) {
        log_error("%s: this is not GPT-2's vocabulary (crc32c:%08" PRIx32 ", GPT-2's is crc32c:%08" PRIx32
                  "); to use it all the same, give its path",
                  search.found, hash, GPT2_HASH_MERGES);
        tokenizer_destroy(tokenizer);
        return GT_DATA;
    }
    *out = tokenizer;
    return GT_OK;
}

enum gt_status tokenizer_find(struct hostmem *mem, const char *name, struct tokenizer **out)
{
    if (strcmp(name, GPT2_NAME) == 0)
        return find_gpt2(mem, out);
    return tokenizer_import(mem, name, out);
}
