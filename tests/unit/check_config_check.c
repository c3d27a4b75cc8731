/* Tests of src/config/config_check.c: checks across keys, devices and notes. */
#include "config/config_check.h"
#include "config/config_json.h"
#include "config/config_key.h"
#include "config/config_text.h"
#include "tests/unit/config_fixture.h"

/* Reads the text as a file, then checks as config_parse_args() does; the captured lines are those
 * of both. */
static enum gt_status check(const char *text)
{
    ck_assert_msg(fixture_read(text) == GT_OK, "refused before the check: %s", text);
    enum gt_status status = config_check(&fixture.config);
    if (status == GT_OK)
        config_notes(&fixture.config);
    return status;
}

/* Expects that the check of `text` fails with one line that contains `words`. */
static void refused(const char *text, const char *words)
{
    ck_assert_msg(check(text) == GT_USAGE, "accepted: %s", text);
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID(words);
}

TEST(check_defaults_are_silent)
{
    ck_assert_int_eq(check(""), GT_OK);
    ck_assert_int_eq(fixture.count, 0);
    fixture_open(CONFIG_SAMPLE);
    ck_assert_int_eq(config_check(&fixture.config), GT_OK);
    ck_assert_int_eq(fixture.count, 0);
}

TEST(check_pairs)
{
    refused("n_embd = 100\nn_head = 12",
            "n_embd=100 (x.py:1:1) is not a multiple of n_head=12 (x.py:2:1)");
    refused("n_head = 7", "n_embd=768 (the default) is not a multiple of n_head=7 (x.py:1:1)");
    refused("n_kv_head = 5", "n_kv_head=5 (x.py:1:1) does not divide n_head=12 (the default)");
    refused("rope_scaling = 'yarn:4'", "rope_scaling='yarn:4' (x.py:1:1): expected linear:FACTOR");
    refused("rope_scaling = 'llama3:32,4,1,8192'", "expected linear:FACTOR");
    refused("qk_norm = 'head'",
            "qk_norm='head' (x.py:1:1) needs rotary positions, but there is position='learned'");
    refused("micro_batch = 481",
            "micro_batch=481 (x.py:1:1) is larger than the 480 sequences of an update");
    refused("micro_batch = 121; parts = 4",
            "is larger than the 120 sequences of a part of an update");
    refused("batch_size = 4096; block_size = 65536; micro_batch = 32768", "2^31 tokens or more");
    ck_assert_int_eq(check("micro_batch = 480"), GT_OK);
    refused("batch_size = 2 ** 20; gradient_accumulation_steps = 2 ** 20",
            "more than 2^31 sequences");
    refused("batch_size = 2 ** 20; block_size = 2 ** 17", "2^31 tokens or more");
    refused("loss_chunk = 1; batch_size = 256; block_size = 64", "more than 4096 chunks");
    refused("beta2 = 0.99999999", "beta2=1 must be at most 1 - 1e-06");
    ck_assert_int_eq(check("n_kv_head = 12; micro_batch = 12"), GT_OK);
    ck_assert_int_eq(check("n_embd = 96; n_head = 4; n_kv_head = 4"), GT_OK);
    ck_assert_int_eq(
        check("arch = 'qwen3'; n_embd = 100; head_dim = 32; rope_scaling = 'llama3:32,1,4,8192'"),
        GT_OK);
    ck_assert_int_eq(fixture.count, 0);
}

TEST(check_ranks_and_parts)
{
    const char *const twenty = "batch_size = 4; gradient_accumulation_steps = 5";
    refused(
        TEXT(128, "%s; ranks = 3", twenty),
        "--ranks=3 does not divide the 20 sequences of an update (batch_size 4 x gradient_accumulation_steps 5): "
        "use 2, 4, 5 or 10 ranks, or gradient_accumulation_steps=6");
    refused(TEXT(128, "%s; devices = '0,1,2'", twenty), "3 ranks do not divide the 20 sequences");
    refused("batch_size = 1; gradient_accumulation_steps = 1; ranks = 2",
            "): use gradient_accumulation_steps=2");
    refused("batch_size = 6; gradient_accumulation_steps = 1; ranks = 4",
            "use 2, 3 or 6 ranks, or gradient_accumulation_steps=2");
    refused("batch_size = 12; gradient_accumulation_steps = 40; ranks = 7",
            "use 4, 5, 6 or 8 ranks, or gradient_accumulation_steps=42");
    refused(
        TEXT(128, "%s; parts = 3", twenty),
        "parts=3 does not divide the 20 sequences of an update (batch_size 4 x gradient_accumulation_steps 5): use "
        "1, 2, 4 or 5 parts");
    refused(TEXT(128, "%s; parts = 4; ranks = 3", twenty),
            "ranks=3 does not divide the 4 parts of an update: use 1, 2 or 4 ranks");
    ck_assert_int_eq(check(TEXT(128, "%s; parts = 4; ranks = 2", twenty)), GT_OK);
    ck_assert_int_eq(fixture_read(TEXT(128, "%s; ranks = 4", twenty)), GT_OK);
    fixture.config.parts = 3; /* as a resumed run's checkpoint says */
    fixture.config.origin[CONFIG_KEY_parts] =
        (struct config_origin){.source = "c.json", .checkpoint = true};
    ck_assert_int_eq(config_check(&fixture.config), GT_USAGE);
    ASSERT_SAID("the checkpoint's parts=3 does not divide the 20 sequences");
    fixture.config.parts = 10;
    ck_assert_int_eq(config_check(&fixture.config), GT_USAGE);
    ASSERT_SAID(
        "ranks=4 does not divide the checkpoint's 10 parts of an update: use 1, 2, 5 or 10 ranks");
}

TEST(check_expected_losses)
{
    static const char *const bad[] = {"2", "1:2", "1:3-2", "1:0-2", "1:2-3,", "1:2-3 x"};
    struct config_band band;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "expected_losses = '%s'", bad[i]);
        refused(text,
                "(x.py:1:1): expected points such as 250:2.3-2.6 (iteration, lowest, highest)");
    }
    ck_assert_int_eq(check("n_layer = 2; seed = 3; expected_losses = '0:4.1-4.3 250:2.3-2.5'"),
                     GT_OK);
    ck_assert(config_expected_losses(&fixture.config, 250, &band) &&
              !config_expected_losses(&fixture.config, 1, &band));
    ck_assert_double_eq(band.low, 2.3);
    ck_assert_double_eq(band.high, 2.5);
    ck_assert_str_eq(config_expected_source(&fixture.config), "x.py");
    fixture.config.origin[CONFIG_KEY_seed].source = "--seed=4"; /* the same suffix */
    ck_assert_str_eq(config_expected_source(&fixture.config), "x.py");
    fixture.config.origin[CONFIG_KEY_n_layer].source = "--n_layer=3";
    ck_assert_ptr_null(config_expected_source(&fixture.config));
    fixture.config.origin[CONFIG_KEY_n_layer] =
        (struct config_origin){.source = "out", .checkpoint = true};
    ck_assert_ptr_null(config_expected_source(&fixture.config)); /* 2 is not the default */
    fixture.config.n_layer = 12;
    ck_assert_str_eq(config_expected_source(&fixture.config), "x.py");
    fixture.config.n_layer = 3;
    fixture.config.origin[CONFIG_KEY_expected_losses] =
        (struct config_origin){.source = "--expected_losses=0:1-2"};
    ck_assert_str_eq(config_expected_source(&fixture.config), "--expected_losses=0:1-2");
}

/* Keys of patched nanoGPTs. */
TEST(check_aliases)
{
    refused("eval_block_size = 1025",
            "eval_block_size=1025 (x.py:1:1) is larger than block_size=1024 (the default)");
    ck_assert_int_eq(check("eval_block_size = 1024"), GT_OK);
    ck_assert_int_eq(check("grad_checkpoint = True"), GT_OK);
    ck_assert_str_eq(fixture.config.recompute, "full");
    ck_assert(config_key_was_set(&fixture.config, CONFIG_KEY_recompute));
    ck_assert_int_eq(config_check(&fixture.config),
                     GT_OK); /* again, as after reading a checkpoint */
    ck_assert_int_eq(check("grad_checkpoint = False"), GT_OK);
    ck_assert_str_eq(fixture.config.recompute, "none");
    ck_assert(config_key_was_set(&fixture.config, CONFIG_KEY_recompute));
    ck_assert_int_eq(check("grad_checkpoint = True; recompute = 'full'"), GT_OK);
    refused("grad_checkpoint = False; recompute = 'mlp'",
            "grad_checkpoint=False (x.py:1:1) contradicts recompute='mlp' (x.py:1:26)");
    ck_assert_int_eq(check(""), GT_OK);
    ck_assert(!config_key_was_set(&fixture.config, CONFIG_KEY_recompute));
    ck_assert_int_eq(check("recompute = 'mlp:7,layernorm'"), GT_OK);
    refused("recompute = 'most'", "recompute='most' (x.py:1:1) is not a recompute level");
    refused("recompute = 'full:13,none'",
            "recompute='full:13,none' (x.py:1:1) does not cover n_layer blocks");
    refused("n_embd = 448",
            "n_embd=448 (x.py:1:1) is not a multiple of n_head=12 (the default): with 12 heads");
}

/* Several mistakes give a line each, and a refused value takes no part in other checks. */
TEST(check_lists_all)
{
    ck_assert_int_eq(check("n_head = 7; micro_batch = 481; device = 'tpu'"), GT_USAGE);
    ck_assert_int_eq(fixture.errors, 3);
    ck_assert_int_eq(fixture_read("n_head = 0; n_embd = 100"), GT_USAGE);
    ck_assert_int_eq(config_check(&fixture.config), GT_OK);
    ck_assert_int_eq(fixture.errors, 1);
}

/* Samples of an evaluation are numbered in 32 bits. */
TEST(check_evaluation_samples)
{
    ck_assert_int_eq(check("eval_iters = 1000000000; batch_size = 4"), GT_OK);
    refused("eval_iters = 1000000000; batch_size = 5", "is 2^32 sequences or more per evaluation");
    ck_assert_int_eq(check("init_from = 'resume'; eval_iters = 1000000000"), GT_OK);
}

/* At a resume the checkpoint contains the number of heads, so that one half of the pair is not
 * checked. */
TEST(check_leaves_the_shape_to_a_checkpoint)
{
    ck_assert_int_eq(check("init_from = 'resume'; n_embd = 100"), GT_OK);
    refused("init_from = 'resume'; n_embd = 100; n_head = 3", "is not a multiple of");
    /* A resumed checkpoint also contains the batch size; the folder of another model does not. */
    ck_assert_int_eq(check("init_from = 'resume'; micro_batch = 13"), GT_OK);
    refused(
        "init_from = 'resume'; micro_batch = 13; batch_size = 6; gradient_accumulation_steps = 2; parts = 1",
        "is larger than");
    refused("init_from = 'models/gpt2'; micro_batch = 481",
            "is larger than the 480 sequences of an update");
    ck_assert_int_eq(check("init_from = 'models/gpt2'; n_embd = 100"), GT_OK);
    /* After it is read, its values count. */
    json_t *object = json_pack("{s:i, s:i, s:i, s:i, s:i}", "n_head", 3, "n_embd", 10, "batch_size",
                               2, "gradient_accumulation_steps", 6, "parts", 1);
    ck_assert_int_eq(check("init_from = 'resume'; micro_batch = 13; n_head = 3"), GT_OK);
    ck_assert_int_eq(config_from_json(&fixture.config, object, "state.json"), GT_OK);
    ck_assert_int_eq(config_check(&fixture.config), GT_USAGE);
    ck_assert_int_eq(fixture.errors, 2);
    ASSERT_SAID("n_embd=10 (state.json) is not a multiple of n_head=3");
    json_decref(object);
}

TEST(check_devices)
{
    static const char *const noted[] = {"cuda", "cuda:0", "cuda:12", "cuda:x", "mps", "xpu"};
    static const char *const unknown[] = {"tpu", "cuda:", "cudax", "cpu:1", "CPU", "-1", "99999"};
    char text[64];
    ck_assert_int_eq(check("device = 'cpu'"), GT_OK);
    ck_assert_int_eq(config_device(&fixture.config).backend, CONFIG_BACKEND_CPU);
    ck_assert_int_eq(fixture.count, 0);
    for (size_t i = 0; i < sizeof noted / sizeof noted[0]; i++) {
        snprintf(text, sizeof text, "device = '%s'", noted[i]);
        ck_assert_int_eq(check(text), GT_OK);
        ck_assert_int_eq(config_device(&fixture.config).backend, CONFIG_BACKEND_AUTO);
        ck_assert_int_eq(config_device(&fixture.config).index,
                         -1); /* nothing of an ignored device counts */
        ck_assert_int_eq(fixture.notes, 1);
        ck_assert_int_eq(fixture.count, 1);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        snprintf(text, sizeof text, "device = '%s'", unknown[i]);
        refused(text, "x.py:1:1: unknown device '");
    }
    refused("device = 'opencl:1'",
            "built without OpenCL (it needs OpenCL's headers); this build has cpu");
    refused("device = 'opencl'; backend = 'cpu'", "contradicts backend='cpu'");
}

/* Tests the device names where the build has the backend, and the device index. */
TEST(check_device_index)
{
    static const struct {
        const char *text;
        int backend;
        int32_t index;
    } cases[] = {
        {"device = 'cuda'", CONFIG_BACKEND_CUDA, -1},
        {"device = 'cuda:12'", CONFIG_BACKEND_CUDA, 12},
        {"device = '3'", CONFIG_BACKEND_AUTO, 3},
        {"device = '0'; backend = 'cuda'", CONFIG_BACKEND_CUDA, 0},
        {"device = 'cuda:3060'", CONFIG_BACKEND_CUDA, -1},
        {"device = 'auto'", CONFIG_BACKEND_AUTO, -1},
        {"device = 'cpu'", CONFIG_BACKEND_CPU, -1},
        {"backend = 'cuda'", CONFIG_BACKEND_CUDA, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(fixture_read(cases[i].text), GT_OK);
        config_backend_add(&fixture.config, "cuda");
        config_backend_add(&fixture.config, "no such word");
        ck_assert_int_eq(config_check(&fixture.config), GT_OK);
        config_notes(&fixture.config);
        ck_assert_int_eq(config_device(&fixture.config).backend, cases[i].backend);
        ck_assert_int_eq(config_device(&fixture.config).index, cases[i].index);
        ck_assert_int_eq(fixture.notes, 0);
    }
    ck_assert_int_eq(fixture_read("device = 'cuda:RTX 3060'"), GT_OK);
    config_backend_add(&fixture.config, "cuda");
    ck_assert_str_eq(config_device(&fixture.config).name, "RTX 3060");
    ck_assert_int_eq(fixture_read("device = 'cuda:3'"), GT_OK);
    config_backend_add(&fixture.config, "cuda");
    ck_assert_ptr_null(config_device(&fixture.config).name);
    ck_assert_int_eq(fixture_read("device = 'opencl'"), GT_OK);
    config_backend_add(&fixture.config, "cuda");
    ck_assert_int_eq(config_check(&fixture.config), GT_USAGE);
    ASSERT_SAID("built without OpenCL (it needs OpenCL's headers); this build has cpu, cuda");
}

TEST(check_notes)
{
    ck_assert_int_eq(check("compile = True; wandb_log = True; out_dir = 'o'"), GT_OK);
    ck_assert_int_eq(fixture.notes, 2);
    ASSERT_SAID("compile=True");
    ASSERT_SAID("o/metrics.jsonl");
    ck_assert_int_eq(check("compile = False; wandb_log = False; wandb_run_name = 'x'"), GT_OK);
    ck_assert_int_eq(fixture.count, 0);
}
