/* Tests of src/data/tokenizer_find.c: every place where GPT-2's vocabulary may be, their order, and
 * the line that explains how to get it.  The places are made in a scratch folder.  Each contains a
 * small vocabulary, so that the line which refuses it names the place that was found.  With GPT-2's
 * own files (GPT2_VOCAB_DIR) the hash is checked too. */
#include "base/file.h"
#include "data/hf_hub.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "data/tokenizer_export.h"
#include "tests/unit/bpe_fixture.h"

static const char *const variables[] = {
    "GPT_TRAIN_TOKENIZER_DIR", "HF_HUB_CACHE",  "HUGGINGFACE_HUB_CACHE", "HF_HOME",
    "XDG_CACHE_HOME",          "XDG_DATA_HOME", "XDG_DATA_DIRS"};

static void clear_environment(struct data_fixture *fixture)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    setenv("HOME", fixture->folder, 1);
}

/* Writes the vocabulary into fixture/`folder`. */
static void put_vocabulary(struct data_fixture *fixture, const struct tokenizer *tokenizer,
                           const char *folder)
{
    char path[FILE_PATH_MAX];
    file_join(path, fixture->folder, folder);
    ck_assert_int_eq(file_make_folders(path), GT_OK);
    ck_assert_int_eq(tokenizer_files_save(tokenizer, 1, path), GT_OK);
}

TEST(find_says_how_to_get_it)
{
    struct data_fixture fixture;
    struct tokenizer *tokenizer = NULL;
    fixture_open(&fixture);
    if (file_exists("/usr/share/gpt-train/gpt2/vocab.bpe")) {
        unit_skip("tokenizer_find_installed", "GPT-2's vocabulary is installed in /usr/share");
        fixture_close(&fixture);
        return;
    }
    clear_environment(&fixture);
    setenv("GPT_TRAIN_TOKENIZER_DIR", fixture_path(&fixture, "mine"), 1);
    const size_t lines = log_count(LOG_ERROR);
    ck_assert_int_eq(tokenizer_find(fixture.mem, "gpt2", &tokenizer), GT_USAGE);
    ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
    FIXTURE_SAYS(&fixture, "gpt2: GPT-2's vocabulary is not on this machine");
    FIXTURE_SAYS(&fixture, "/mine, ");
    FIXTURE_SAYS(&fixture, "/.cache/huggingface/hub, ");
    FIXTURE_SAYS(&fixture, "/.local/share/gpt-train/gpt2, ");
    FIXTURE_SAYS(&fixture, "/usr/share/gpt-train/gpt2");
    FIXTURE_SAYS(&fixture, "curl -O https://");
    FIXTURE_SAYS(&fixture, "hf download gpt2");
    ck_assert_int_eq(tokenizer_find(fixture.mem, fixture_path(&fixture, "absent"), &tokenizer),
                     GT_USAGE);
    FIXTURE_SAYS(&fixture, "/absent: no such file or folder");
    ck_assert_ptr_null(tokenizer);
    fixture_close(&fixture);
}

TEST(find_looks_in_order)
{
#define SNAPSHOT "/models--gpt2/snapshots/abc123"
    /* From the last place to the first: each new one must be found before the older ones. */
    static const struct {
        const char *folder, *variable, *value;
    } places[] = {
        {"dirs/gpt-train/gpt2", "XDG_DATA_DIRS", "dirs"},
        {".local/share/gpt-train/gpt2", NULL, NULL},
        {"data/gpt-train/gpt2", "XDG_DATA_HOME", "data"},
        {".cache/huggingface/hub" SNAPSHOT, NULL, NULL},
        {"cache/huggingface/hub" SNAPSHOT, "XDG_CACHE_HOME", "cache"},
        {"home/hub" SNAPSHOT, "HF_HOME", "home"},
        {"hub1" SNAPSHOT, "HUGGINGFACE_HUB_CACHE", "hub1"},
        {"hub2" SNAPSHOT, "HF_HUB_CACHE", "hub2"},
        {"own/gpt2", "GPT_TRAIN_TOKENIZER_DIR", "own"},
        {"own", "GPT_TRAIN_TOKENIZER_DIR", "own"},
    };
    struct data_fixture fixture;
    struct tokenizer *back = NULL;
    fixture_open(&fixture);
    clear_environment(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 300);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char expected[2 * FILE_PATH_MAX];
        put_vocabulary(&fixture, tokenizer, places[i].folder);
        const char *model = strstr(places[i].folder, "/snapshots/");
        if (model != NULL) {
            const int length = (int)(model - places[i].folder);
            const char *name = TEXT(256, "%.*s/refs", length, places[i].folder);
            ck_assert_int_eq(file_make_folders(fixture_path(&fixture, name)), GT_OK);
            name = TEXT(256, "%.*s/refs/main", length, places[i].folder);
            fixture_write_text(&fixture, name, "abc123\n");
        }
        if (places[i].variable != NULL)
            setenv(places[i].variable, fixture_path(&fixture, places[i].value), 1);
        ck_assert_int_eq(tokenizer_find(fixture.mem, "gpt2", &back), GT_DATA);
        snprintf(expected, sizeof expected, "%s/%s: this is not GPT-2's vocabulary", fixture.folder,
                 places[i].folder);
        ck_assert_msg(strstr(fixture.line, expected) != NULL, "place %zu: %s", i, fixture.line);
    }
    ck_assert_ptr_null(back);
    ck_assert_int_eq(tokenizer_find(fixture.mem, fixture_path(&fixture, "own"), &back), GT_OK);
    ck_assert_uint_eq(back->hash, tokenizer->hash);
    hostmem_free(back);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(find_gpt2)
{
    struct data_fixture fixture;
    struct tokenizer *tokenizer = NULL;
    char folder[FILE_PATH_MAX];
    const char *given = getenv("GPT2_VOCAB_DIR"), *top = getenv("top_srcdir");
    if (given != NULL)
        snprintf(folder, sizeof folder, "%s", given);
    else
        snprintf(folder, sizeof folder, "%s/../shared/data/gpt2", top != NULL ? top : ".");
    if (!file_is_folder(folder)) {
        unit_skip("tokenizer_find_gpt2", "no GPT-2 vocabulary; set GPT2_VOCAB_DIR");
        return;
    }
    fixture_open(&fixture);
    clear_environment(&fixture);
    setenv("GPT_TRAIN_TOKENIZER_DIR", folder, 1);
    ck_assert_int_eq(tokenizer_find(fixture.mem, "gpt2", &tokenizer), GT_OK);
    ck_assert_int_eq(tokenizer->vocab_size, 50257);
    ck_assert_int_eq(tokenizer_eot(tokenizer), 50256);
    int32_t ids[16];
    size_t count = 0;
    const int32_t expected[] = {15496, 11, 995, 0}; /* GPT-2's well-known "Hello, world!" */
    ck_assert_int_eq(tokenizer_encode_prompt(tokenizer, "Hello, world!", 13, "text", ids, &count),
                     GT_OK);
    ck_assert_uint_eq(count, 4);
    ck_assert_mem_eq(ids, expected, sizeof expected);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}
