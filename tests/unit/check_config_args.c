/* Tests of src/config/config_args.c: forms of flags, values as typed, order, and every mistake on
 * its own line. */
#include <fcntl.h>
#include <unistd.h>

#include "config/config_args.h"
#include "config/config_check.h"
#include "config/config_key.h"
#include "tests/unit/config_fixture.h"

#define ARGS_MAX 16

/* Parses the given words after the program's name; the list ends with NULL. */
static enum gt_status parse_words(enum config_program program, const char *const *words)
{
    static char storage[ARGS_MAX][256];
    static char *argv[ARGS_MAX + 2];
    int argc = 1;
    argv[0] = storage[0];
    for (; words[argc - 1] != NULL && argc < ARGS_MAX; argc++) {
        snprintf(storage[argc], sizeof storage[argc], "%s", words[argc - 1]);
        argv[argc] = storage[argc];
    }
    argv[argc] = NULL;
    fixture_open(program);
    return config_parse_args(&fixture.config, argc, argv);
}

#define TRAIN(...) parse_words(CONFIG_TRAIN, (const char *const[]){__VA_ARGS__, NULL})
#define SAMPLE(...) parse_words(CONFIG_SAMPLE, (const char *const[]){__VA_ARGS__, NULL})

/* Expects that the call failed with exactly one line, which contains `words`. */
static void refused(enum gt_status status, const char *words)
{
    ck_assert_int_eq(status, GT_USAGE);
    if (fixture.count != 1)
        fixture_print();
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID(words);
}

TEST(args_forms)
{
    const struct config *config = &fixture.config;
    ck_assert_int_eq(TRAIN("--n_layer=3", "--n-head", "4", "--learning-rate=1e-3", "--eval_only",
                           "--dataset", "a/b"),
                     GT_OK);
    ck_assert_int_eq(fixture.count, 0);
    ck_assert_int_eq(config->n_layer, 3);
    ck_assert_int_eq(config->n_head, 4);
    ck_assert(config->learning_rate == 1e-3);
    ck_assert(config->eval_only);
    ck_assert_str_eq(config->dataset, "a/b");
    ck_assert(config_key_was_set(config, CONFIG_KEY_n_head));
    ck_assert_str_eq(config->origin[CONFIG_KEY_n_layer].source, "--n_layer=3");
    ck_assert_int_eq(parse_words(CONFIG_TRAIN, (const char *const[]){NULL}), GT_OK);
}

TEST(args_numbers)
{
    ck_assert_int_eq(TRAIN("--learning_rate=1", "--dropout=0", "--seed=0x10", "--max_iters=1_000"),
                     GT_OK);
    ck_assert(fixture.config.learning_rate == 1.0);
    ck_assert_int_eq(fixture.config.seed, 16);
    ck_assert_int_eq(fixture.config.max_iters, 1000);
    refused(TRAIN("--batch_size=8.0"),
            "--batch_size=8.0: batch_size: expected an int, found float 8.0");
    refused(TRAIN("--batch_size=5e3"), "expected an int, found float 5000.0");
    refused(TRAIN("--batch_size=5*8"), "expected an int, found str '5*8'");
    refused(TRAIN("--lora_target", "q_proj", "v_proj"), "v_proj: no such file; a value");
    refused(TRAIN("."), "write --init_from=. for a model");
    refused(TRAIN("--batch_size=abc"), "expected an int, found str 'abc'");
    refused(TRAIN("--batch_size="), "expected an int, found str ''");
    refused(TRAIN("--batch_size=-3"), "batch_size = -3 is out of range");
    refused(TRAIN("--min_lr", "-1"), "--min_lr: min_lr = -1 is out of range");
    refused(TRAIN("--learning_rate=nan"), "expected a float, found str 'nan'");
    refused(TRAIN("--learning_rate=1e999"), "expected a float");
    refused(TRAIN("--n_layer='3'"), "expected an int");
}

TEST(args_booleans)
{
    static const char *const yes[] = {"--bias", "--bias=True", "--bias=true", "--bias=1",
                                      "--bias=yes"};
    static const char *const no[] = {"--bias=False", "--bias=false", "--bias=0", "--bias=no"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        ck_assert_int_eq(TRAIN("--bias=False", yes[i]), GT_OK);
        ck_assert_msg(fixture.config.bias, "%s", yes[i]);
    }
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        ck_assert_int_eq(TRAIN("--bias", no[i]), GT_OK);
        ck_assert_msg(!fixture.config.bias, "%s", no[i]);
    }
    ck_assert_int_eq(TRAIN("--bias", "--decay_lr", "False", "--n_layer=2"), GT_OK);
    ck_assert(fixture.config.bias && !fixture.config.decay_lr);
    refused(TRAIN("--bias=maybe"), "bias: expected True or False, found str 'maybe'");
}

TEST(args_strings)
{
    ck_assert_int_eq(SAMPLE("--start=\"a\\nb\"", "--out_dir=a=b"), GT_OK);
    ck_assert_str_eq(fixture.config.start, "a\nb");
    ck_assert_str_eq(fixture.config.out_dir, "a=b");
    ck_assert_int_eq(SAMPLE("--start=it's", "--out-dir", "3"), GT_OK);
    ck_assert_str_eq(fixture.config.start, "it's");
    ck_assert_str_eq(fixture.config.out_dir, "3");
    ck_assert_int_eq(SAMPLE("--start='it's'"), GT_OK);
    ck_assert_str_eq(fixture.config.start, "'it's'");
    ck_assert_int_eq(SAMPLE("--start="), GT_OK);
    ck_assert_str_eq(fixture.config.start, "");
    ck_assert_int_eq(SAMPLE("--top_k=None", "--start=-x-"), GT_OK);
    ck_assert_int_eq(fixture.config.top_k, 0);
    refused(SAMPLE("--out_dir="), "out_dir = '' is empty");
}

TEST(args_choices_and_plan)
{
    ck_assert_int_eq(TRAIN("--plan"), GT_OK);
    ck_assert_int_eq(fixture.config.plan, CONFIG_PLAN_TEXT);
    ck_assert_int_eq(TRAIN("--plan=json", "--gelu", "tanh", "--sampler='epoch'"), GT_OK);
    ck_assert_int_eq(fixture.config.plan, CONFIG_PLAN_JSON);
    ck_assert_int_eq(fixture.config.gelu, 1 + GELU_TANH);
    ck_assert_int_eq(fixture.config.sampler, CONFIG_SAMPLER_EPOCH);
    ck_assert_int_eq(TRAIN("--plan=svg"), GT_OK);
    ck_assert_int_eq(fixture.config.plan, CONFIG_PLAN_SVG);
    refused(TRAIN("--plan=png"), "plan = 'png' is none of off, text, json, json-pareto, svg");
    refused(TRAIN("--plan", "/nonexistent/json"),
            "/nonexistent/json"); /* a file, not the value of --plan */
    refused(TRAIN("--backend=opencl"),
            "built without OpenCL (it needs OpenCL's headers); this build has cpu");
    refused(SAMPLE("--backend=cuda"),
            "built without CUDA (./configure --with-cuda); this build has cpu");
    refused(TRAIN("--device=cuda"),
            "device='cuda': built without CUDA (./configure --with-cuda); leave --device out");
    refused(SAMPLE("--device=mps"), "device='mps': there is no backend for such a device");
    ck_assert_int_eq(TRAIN("--device=cuda", "--device-profile=rtx3060", "--plan"), GT_OK);
    ck_assert_int_eq(TRAIN("--backend=cuda", "--device-profile=rtx3060", "--plan"), GT_OK);
    ck_assert_int_eq(fixture.config.backend, CONFIG_BACKEND_CUDA);
    ck_assert_str_eq(fixture.config.device_profile, "rtx3060");
    refused(TRAIN("--norm=batchnorm"), "is none of auto, layernorm, rmsnorm");
}

TEST(args_refusals)
{
    refused(TRAIN("--n_layers=3"), "--n_layers=3: unknown key n_layers (did you mean n_layer?)");
    ck_assert_int_eq(
        TRAIN("--wandb_entity=team", "--wandb-group", "a", "--wandb_offline", "--n_layer=3"),
        GT_OK);
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ck_assert_int_eq(TRAIN("--max_iters=6e5"), GT_OK);
    ck_assert_int_eq(fixture.config.max_iters, 600000);
    refused(TRAIN("--batch_size=8.0"), "expected an int, found float 8.0; write 8");
    refused(TRAIN("--lr=1e-3"), "unknown key lr (did you mean learning_rate?)");
    refused(TRAIN("--sequence_length=9"), "unknown key sequence_length (did you mean block_size?)");
    refused(TRAIN("--input_bin=x"), "unknown key input_bin (write --dataset=FOLDER");
    refused(TRAIN("--warmdown_iters=9"),
            "unknown key warmdown_iters (write --lr_schedule=wsd and cooldown_iters)");
    refused(TRAIN("--steps=9"), "unknown key steps (did you mean max_iters?)");
    refused(TRAIN("--resume"), "unknown key resume (write --init_from=resume)");
    refused(TRAIN("--ddp"), "unknown key ddp (--ranks=N or --devices=0,1 trains with several");
    refused(SAMPLE("--prompt=x"), "unknown key prompt (did you mean start?)");
    refused(TRAIN("--device=cuda:0,1"), "--devices=cuda:0,1 gives a run several");
    refused(TRAIN("--nokey=1"), "unknown key nokey");
    refused(TRAIN("--n_layer"), "--n_layer: a value must follow (--n_layer=VALUE)");
    refused(TRAIN("--n_layer", "--n_head=3"), "--n_layer: a value must follow");
    refused(TRAIN("--top_k=3"), "top_k is a key of gpt-sample, not of gpt-train");
    refused(SAMPLE("--n_layer=3"), "n_layer is a key of gpt-train, not of gpt-sample");
    refused(TRAIN("-a"), "-a: not a flag; flags are written --key=value");
    refused(TRAIN("-x", "400"),
            "-x: not a flag; flags are written --key=value; for llm.c's -x write --max_iters");
    refused(TRAIN("--"), "--: not a flag");
    refused(TRAIN("-"), "-: not a flag");
    refused(TRAIN("n_layer=3"), "n_layer=3: write --n_layer=3");
    refused(TRAIN("/nonexistent.py"), "/nonexistent.py");
    refused(TRAIN("--=3"), "unknown key");
}

TEST(args_lists_all_mistakes)
{
    ck_assert_int_eq(TRAIN("--n_layers=3", "--batch_size=x", "--dropout=2", "/nonexistent.py",
                           "--n_embd=100", "--seed"),
                     GT_USAGE);
    ck_assert_int_eq(fixture.errors, 6);
    ASSERT_SAID("n_embd=100 (--n_embd=100) is not a multiple of n_head=12 (the default)");
}

TEST(args_files_and_order)
{
    char path[] = "/tmp/gpt-train-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "n_layer = 3\nn_head = 6\n", 23), 23);
    close(fd);
    ck_assert_int_eq(TRAIN("--n_layer=5", path, "--n_head=4"), GT_OK);
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ck_assert_int_eq(fixture.config.n_head, 4);
    ck_assert_int_eq(fixture.config.origin[CONFIG_KEY_n_layer].line, 1);
    ck_assert_int_eq(fixture.count, 1); /* names a flag that a file unexpectedly replaces */
    ASSERT_SAID(":1:1: n_layer=3 replaces 5 of the command line; a flag after the file would stay");
    ck_assert_int_eq(TRAIN("--n_layer=3", path, "--n_layer=5", "--n_layer=6"), GT_OK);
    ck_assert_int_eq(fixture.count, 0);
    ck_assert_int_eq(fixture.config.n_layer, 6);
    unlink(path);
}

/* With the device in a file and the backend on the command line, or vice versa, the command line
 * wins. */
TEST(args_win_over_a_file)
{
    char path[] = "config-test-XXXXXX", option[sizeof path + 16];
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "device = 'opencl'\n", 18), 18);
    close(fd);
    snprintf(option, sizeof option, "./%s", path);
    ck_assert_int_eq(TRAIN(option, "--backend=cpu"), GT_OK);
    ck_assert_int_eq(config_device(&fixture.config).backend, CONFIG_BACKEND_CPU);
    ck_assert_int_eq(config_device(&fixture.config).index, -1);
    ck_assert_int_eq(fixture.notes, 1);
    ASSERT_SAID("because of backend='cpu' (--backend=cpu)");
    refused(TRAIN("--device=opencl", "--backend=cpu"), "contradicts");
    const int again = open(path, O_WRONLY | O_TRUNC);
    ck_assert_int_ge(again, 0);
    ck_assert_int_eq(write(again, "backend = 'opencl'\n", 19), 19);
    close(again);
    ck_assert_int_eq(TRAIN(option, "--device=cpu"), GT_OK);
    ck_assert_int_eq(config_device(&fixture.config).backend, CONFIG_BACKEND_CPU);
    ASSERT_SAID("because of device='cpu' (--device=cpu)");
    ck_assert_int_eq(unlink(path), 0);
}

TEST(args_questions)
{
    ck_assert_int_eq(TRAIN("--nonsense", "--help"), GT_OK);
    ck_assert(fixture.config.help);
    ck_assert_int_eq(TRAIN("-h"), GT_OK);
    ck_assert(fixture.config.help);
    ck_assert_int_eq(TRAIN("--version", "nofile.py"), GT_OK);
    ck_assert(fixture.config.version && !fixture.config.help);
    ck_assert_int_eq(fixture.count, 0);
    ck_assert_int_eq(TRAIN("--list-devices"), GT_OK);
    ck_assert(fixture.config.list_devices);
}
