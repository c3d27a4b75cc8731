/* Tests of finding a downloaded GPT-2: a folder of that name, the cache that the environment names,
 * and references that must not lead out of the cache. */
#include "io/hf_cache.h"

#include "data/hf_hub.h"
#include "tests/unit/io_fixture.h"

static char folder[FILE_PATH_MAX], before[FILE_PATH_MAX];
static struct log_capture capture;

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                        "XDG_CACHE_HOME"};

static void setup(void)
{
    scratch_make(folder);
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(folder), 0);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    setenv("HOME", folder, 1);
    log_capture_begin(&capture);
}

static void teardown(void)
{
    log_capture_end();
    ck_assert_int_eq(chdir(before), 0);
    scratch_remove(folder);
}

static void put_model(const char *directory, const char *weights)
{
    scratch_put(directory, "config.json", "{}");
    scratch_put(directory, weights, "x");
}

TEST_FIXTURE(setup, teardown)

/* check_data_tokenizer_find has the order of the places. */
TEST(no_place_for_the_hub)
{
    char out[FILE_PATH_MAX], value[FILE_PATH_MAX];
    setenv("HF_HUB_CACHE", "", 1); /* empty counts as not set */
    setenv("HUGGINGFACE_HUB_CACHE", "/place", 1);
    ck_assert(hf_hub_folder(out));
    ck_assert_str_eq(out, "/place");
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    setenv("HF_HOME", value, 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    ck_assert(!hf_hub_folder(out));
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    ck_assert(!hf_hub_folder(out));
    log_capture_refused(&capture, hf_cache_find("gpt2", out), GT_DATA, "neither HOME nor HF_HOME");
}

TEST(quantised_by_its_name)
{
    char out[FILE_PATH_MAX];
    log_capture_refused(&capture, hf_cache_model_find("unsloth/Qwen3-4B-unsloth-bnb-4bit", out),
                        GT_UNSUPPORTED, "use unsloth/Qwen3-4B;");
    log_capture_refused(&capture, hf_cache_model_find("own/Model-AWQ", out), GT_UNSUPPORTED,
                        "use own/Model;");
}

TEST(finds_and_refuses)
{
    char out[FILE_PATH_MAX];
    setenv("HF_HUB_CACHE", "hub", 1);
    log_capture_refused(&capture, hf_cache_find("gpt2", out), GT_DATA,
                        "hf download openai-community/gpt2 config.json model.safetensors");

    scratch_put("hub/models--gpt2/refs", "main", "0123abc\n");
    ck_assert_int_eq(hf_cache_find("gpt2", out), GT_DATA); /* a reference without its snapshot */
    log_capture_one_error(&capture, "hf download");
    scratch_put("hub/models--gpt2/snapshots/0123abc", "config.json", "{}");
    ck_assert_int_eq(hf_cache_find("gpt2", out), GT_DATA); /* weights are missing */
    log_capture_one_error(&capture, "hf download");
    put_model("hub/models--gpt2/snapshots/0123abc", "model.safetensors.index.json");
    ck_assert_int_eq(hf_cache_find("gpt2", out), GT_OK);
    ck_assert_str_eq(out, "hub/models--gpt2/snapshots/0123abc");

    put_model("hub/models--openai-community--gpt2/snapshots/ff", "model.safetensors");
    scratch_put("hub/models--openai-community--gpt2/refs", "main", "ff");
    ck_assert_int_eq(hf_cache_find("gpt2", out), GT_OK);
    ck_assert_str_eq(out, "hub/models--openai-community--gpt2/snapshots/ff");

    put_model("gpt2", "model.safetensors"); /* a folder in the working directory comes first */
    ck_assert_int_eq(hf_cache_find("gpt2", out), GT_OK);
    ck_assert_str_eq(out, "./gpt2");
    ck_assert_int_eq(capture.lines, 0);
}

static const char *const bad_references[] = {
    "", "\n", "..", "../..", "0123abc/..", "0123abc other", "main", " 0123abc", "/0123abc",
};

TEST_LOOP(references_stay_inside, (int)(sizeof bad_references / sizeof bad_references[0]))
{
    char out[FILE_PATH_MAX];
    put_model("hub/models--gpt2/snapshots/0123abc", "model.safetensors");
    scratch_put("hub/models--gpt2/refs", "main", bad_references[_i]);
    ck_assert(!hf_hub_snapshot("hub", "models--gpt2", out));
}

/* As after hf download --revision=REVISION, which writes refs/REVISION alone. */
TEST(no_reference)
{
    char out[FILE_PATH_MAX];
    setenv("HF_HUB_CACHE", "hub", 1);
    ck_assert(!hf_hub_snapshot("hub", "models--Own--Tiny", out));
    put_model("hub/models--Own--Tiny/snapshots/0123abc", "model.safetensors");
    scratch_put("hub/models--Own--Tiny/refs", "v1", "0123abc");
    scratch_put("hub/models--Own--Tiny/snapshots/not a snapshot", "a", "");
    ck_assert(hf_hub_snapshot("hub", "models--Own--Tiny", out));
    ck_assert_str_eq(out, "hub/models--Own--Tiny/snapshots/0123abc");
    ck_assert_int_eq(hf_hub_find("Own/Tiny", "", out), GT_OK);

    put_model("hub/models--Own--Tiny/snapshots/ff", "model.safetensors");
    ck_assert(!hf_hub_snapshot("hub", "models--Own--Tiny", out));
    ck_assert_int_eq(hf_hub_find("Own/Tiny", "", out), GT_DATA);
    ck_assert_msg(strstr(capture.text, "several snapshots") && strstr(capture.text, "0123abc") &&
                      strstr(capture.text, "ff"),
                  "%s", capture.text);
}
