/* Tests of src/config/config_names.c and config_flat.c: names that other programs have for keys, on
 * the command line, in files of nanoGPT's syntax, in YAML and in JSON. */
#include <config.h>

#include <unistd.h>

#include "config/config_args.h"
#include "config/config_check.h"
#include "config/config_flat.h"
#include "config/config_key.h"
#include "tests/unit/config_fixture.h"
#include "tests/unit/scratch.h"

static enum gt_status parse(const char *a, const char *b)
{
    char words[3][256] = {"gpt-train"};
    char *argv[4] = {words[0], words[1], words[2], NULL};
    snprintf(words[1], sizeof words[1], "%s", a);
    snprintf(words[2], sizeof words[2], "%s", b != NULL ? b : "");
    fixture_open(CONFIG_TRAIN);
    return config_parse_args(&fixture.config, b != NULL ? 3 : 2, argv);
}

/* Reads `text` as a file whose name ends in `end`. */
static enum gt_status parse_file(const char *end, const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "check_config_names.%ld%s", (long)getpid(), end);
    scratch_write(path, text, strlen(text));
    fixture_open(CONFIG_TRAIN);
    const enum gt_status status = config_read_file(&fixture.config, path);
    ck_assert_int_eq(unlink(path), 0);
    return status;
}

/* The rows whose answer is a note or an error. */
static const struct {
    const char *name;
    bool refused;
    unsigned programs;
} answers[] = {
#define CONFIG_NEEDLESS_NAME(name, programs, answer) {#name, false, programs},
#define CONFIG_LACKING_NAME(name, programs, answer) {#name, true, programs},
#include "config/names.def"
};

TEST(names_answer_in_one_line)
{
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        const char *name = answers[i].name;
        ck_assert_msg(config_key_find(name, strlen(name)) == CONFIG_KEY_COUNT, "%s is a key", name);
        ck_assert_int_eq(parse(TEXT(80, "--%s=7", name), NULL),
                         answers[i].refused ? GT_USAGE : GT_OK);
        ck_assert_msg(fixture.count == 1, "--%s=7: %d lines", name, fixture.count);
        ck_assert_msg(strstr(fixture.lines[0], "{}") == NULL, "%s", fixture.lines[0]);
        ck_assert_int_eq(parse(TEXT(80, "--%s=False", name), NULL), GT_OK);
        ck_assert_msg(fixture.count == 0, "--%s=False: %d lines", name, fixture.count);
    }
    ck_assert_int_eq(parse("--max-seq-length=2048", NULL), GT_OK);
    ASSERT_SAID(
        "--block-size=2048, which block_size follows; for a data set of texts write --block_size");
    ck_assert_int_eq(parse("--gradient-checkpointing", NULL), GT_OK);
    ASSERT_SAID("the plan recomputes");
    ck_assert_int_eq(parse("--report_to", "none"), GT_OK);
    ck_assert_int_eq(fixture.count, 0);
    ck_assert_int_eq(parse("--use_dora", NULL), GT_USAGE);
    ASSERT_SAID("DoRA is not supported");
}

/* What is done even if a name asks for its absence is said. */
TEST(fixed_names_answer_when_off)
{
    static const char *const names[] = {
#define CONFIG_FIXED_NAME(name, programs, answer) #name,
#include "config/names.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (const char *const *off = (const char *const[]){"False", "no", "0", NULL}; *off != NULL;
             off++) {
            ck_assert_int_eq(parse(TEXT(80, "--%s=%s", names[i], *off), NULL), GT_OK);
            ck_assert_msg(fixture.count == 1, "--%s=%s: %d lines", names[i], *off, fixture.count);
        }
    ck_assert_int_eq(parse("--eval_strategy", "no"), GT_OK);
    ASSERT_SAID("--eval_strategy: a run is evaluated and saved every eval_interval updates");
    ck_assert_int_eq(parse_file(".json", "{\"do_train\": false, \"eval_strategy\": null}"), GT_OK);
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID("always trains");
}

TEST(names_of_keys)
{
    const struct config *config = &fixture.config;
    ck_assert_int_eq(parse("--num-train-epochs=2", "--lora_r=8"),
                     GT_USAGE); /* adapters of no model */
    ck_assert(config->epochs == 2.0 && config->lora_rank == 8);
    ck_assert_int_eq(parse("--model_name_or_path=A/b", "--output_dir=o"), GT_OK);
    ck_assert_str_eq(config->init_from, "A/b");
    ck_assert_str_eq(config->out_dir, "o");
    ck_assert_int_eq(parse("--max_steps=60", "--bf16"), GT_OK);
    ck_assert_int_eq(config->max_iters, 59);
    ck_assert_int_eq(config->dtype, CONFIG_DTYPE_BFLOAT16);
    ck_assert_int_eq(parse("--max_steps=-1", "--fp16=False"), GT_OK);
    ck_assert_int_eq(config->max_iters, 600000);
    ck_assert_int_eq(config->dtype, CONFIG_DTYPE_AUTO);
    ck_assert_int_eq(parse("--max_steps=1", "--optim=adamw_torch"), GT_OK);
    ck_assert_int_eq(config->max_iters, 0);
    ck_assert_int_eq(parse("--train.epochs=3", "--lr_scheduler_type=linear"), GT_OK);
    ck_assert(config->epochs == 3.0 && config->lr_schedule == CONFIG_LR_LINEAR);
    ck_assert_int_eq(parse("--warmup_steps=5", "--epochs=1"), GT_OK);
    ck_assert(config->warmup_iters == 5 && !config_key_was_set(config, CONFIG_KEY_warmup_ratio));
    ck_assert_int_eq(parse("--warmup_steps=0.03", "--epochs=1"), GT_OK);
    ck_assert(config->warmup_ratio == 0.03 && !config_key_was_set(config, CONFIG_KEY_warmup_iters));
    ck_assert_int_eq(parse("--use_cpu", "--mixed_precision=bf16"), GT_OK);
    ck_assert_str_eq(config->device, "cpu");
    ck_assert_int_eq(config->dtype, CONFIG_DTYPE_BFLOAT16);
    ck_assert_int_eq(
        parse("--torch_dtype=torch.float16", "--lr_scheduler_type=cosine_with_restarts"), GT_OK);
    ck_assert(config->dtype == CONFIG_DTYPE_FLOAT16 && config->lr_schedule == CONFIG_LR_COSINE);
    ck_assert_int_eq(parse("--warmup_steps=x", NULL), GT_USAGE);
    ASSERT_SAID("--warmup_steps=x: warmup_iters: expected an int");
}

TEST(names_batch_of_a_device)
{
    const struct config *config = &fixture.config;
    ck_assert_int_eq(parse("--per_device_train_batch_size=2", NULL), GT_OK);
    ck_assert(config->batch_size == 2 && config->gradient_accumulation_steps == 1);
    ck_assert_int_eq(parse("--per_device_train_batch_size=2", "--gradient_accumulation_steps=4"),
                     GT_OK);
    ck_assert(config->batch_size == 2 && config->gradient_accumulation_steps == 4);
    ck_assert_int_eq(parse("--micro_batch_size=2", "--ranks=3"), GT_OK);
    ck_assert(config->batch_size == 6 && config->gradient_accumulation_steps == 1 &&
              config->parts == 3);
    ck_assert_int_eq(parse("--per_device_train_batch_size=2", "--init_from=resume"), GT_OK);
    ck_assert(!config_key_was_set(config, CONFIG_KEY_batch_size));
    ASSERT_SAID("has no effect");
    ck_assert_int_eq(parse("--per_device_train_batch_size=2", "--batch_size=4"), GT_USAGE);
    ASSERT_SAID("contradicts");
}

TEST(adapters_by_other_names)
{
    const struct config *config = &fixture.config;
    ck_assert_int_eq(parse("--use_peft", "--init_from=A/b"), GT_OK);
    ck_assert_int_eq(config->lora_rank, 16);
    ck_assert_int_eq(parse_file(".json", "{\"lora_r\": 4, \"use_peft\": true}"), GT_OK);
    ck_assert_int_eq(config->lora_rank, 4);
    ck_assert_int_eq(fixture_read("finetuning_type = 'lora'\nlora_rank = 2\n"), GT_OK);
    ck_assert_int_eq(config->lora_rank, 2);
    ck_assert_int_eq(fixture_read("finetuning_type = 'full'\n"), GT_OK);
    ck_assert_int_eq(config->lora_rank, 0);
    ck_assert_int_eq(fixture_read("adapter = 'llama-adapter'\n"), GT_USAGE);
    ASSERT_SAID("is not full, lora or qlora");
}

TEST(contradictions_in_a_file)
{
    ck_assert_int_eq(fixture_read("bf16 = True\nfp16 = True\n"), GT_USAGE);
    ASSERT_SAID("fp16 contradicts dtype='bfloat16'");
    ck_assert_int_eq(fixture_read("per_device_train_batch_size = 2\nbatch_size = 3\n"), GT_OK);
    ck_assert_int_eq(config_check(&fixture.config), GT_USAGE);
    ASSERT_SAID("contradicts");
    ck_assert_int_eq(parse_file(".json", "{\"learning_rate\": 1e-4, \"lr_scheduler_type\": "
                                         "\"constant_with_warmup\", \"eval_steps\": 0.5}"),
                     GT_USAGE);
    ASSERT_SAID("expected an int, found float 0.5");
    ck_assert(strstr(fixture.lines[0], "int(...)") == NULL);
    ck_assert_int_eq(
        parse_file(".json",
                   "{\"lora_r\": 4, \"bf16\": false, \"dtype\": \"float16\",\n"
                   "\"lora_target_linear\": true,\n\"lora_target_modules\": [\"q_proj\"]}"),
        GT_OK);
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID(":3:1: lora_target_modules replaces that of line 2");
#ifdef HAVE_YAML
    ck_assert_int_eq(parse_file(".yaml", "learning_rate: 1e-4\nlearning_rate: 2e-4\n"), GT_OK);
    ASSERT_SAID(":2:1: learning_rate replaces that of line 1");
#endif
}

TEST(names_in_a_file)
{
    ck_assert_int_eq(
        fixture_read("num_train_epochs = 2\nbf16 = True\nload_in_4bit = True\nuse_dora = False\n"),
        GT_OK);
    ck_assert(fixture.config.epochs == 2.0 && fixture.config.dtype == CONFIG_DTYPE_BFLOAT16);
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID("x.py:3:1: load_in_4bit: not needed");
    /* A name that the file uses is its own. */
    ck_assert_int_eq(fixture_read("num_epochs = 2\nmax_iters = num_epochs * 100\n"), GT_OK);
    ck_assert(fixture.config.epochs == 0.0 && fixture.config.max_iters == 200);
    ck_assert_int_eq(fixture_read("use_dora = True\nneftune_noise_alpha = 5\n"), GT_USAGE);
    ck_assert_int_eq(fixture.errors, 2);
}

static const char json[] =
    "{\"base_model\": \"A/b\", \"learning_rate\": 1e-4, \"num_epochs\": 2,\n"
    " \"lora_target_modules\": [\"q_proj\", \"v_proj\"], \"bf16\": true, \"tf32\": null,\n"
    " \"packing\": true}";
static const char yaml[] =
    "# a comment\nbase_model: A/b\nlearning_rate: 1e-4\nnum_epochs: 2\nlora_target_modules:\n  - q_proj\n"
    "  - v_proj\nbf16: true\ntf32:\npacking: true\nwandb_watch: x\n";

static void read_alike(const char *place)
{
    const struct config *config = &fixture.config;
    ck_assert_str_eq(config->init_from, "A/b");
    ck_assert_str_eq(config->lora_targets, "q_proj,v_proj");
    ck_assert(config->learning_rate == 1e-4 && config->epochs == 2.0 &&
              config->dtype == CONFIG_DTYPE_BFLOAT16);
    ck_assert(!config_key_was_set(config, CONFIG_KEY_tf32));
    ck_assert_int_eq(fixture.count, 1);
    ASSERT_SAID(place);
}

TEST(names_in_json)
{
    ck_assert_int_eq(parse_file(".json", json), GT_OK);
    read_alike(".json:3:2: packing: gpt-prepare");
    ck_assert_int_eq(
        parse_file(".json",
                   "{\"training\": {\"learning_rate\": 1}, \"zork\": 1, \"batch_size\": \"x\"}"),
        GT_USAGE);
    ck_assert_int_eq(fixture.count, 3);
    ASSERT_SAID("training is nested");
    ASSERT_SAID("as in learning_rate: VALUE");
    ASSERT_SAID("unknown key zork");
    ASSERT_SAID("batch_size: expected an int");
    for (const char *const *bad = (const char *const[]){"[1]", "{", "", "{\"a\": }", "3", NULL};
         *bad != NULL; bad++) {
        ck_assert_int_eq(parse_file(".json", *bad), GT_USAGE);
        ck_assert_int_eq(fixture.count, 1);
    }
    ck_assert_int_eq(parse_file(".toml", "a = 1\n"), GT_USAGE);
    ASSERT_SAID("TOML is not supported");
}

TEST(names_in_yaml)
{
#ifdef HAVE_YAML
    ck_assert_int_eq(parse_file(".yaml", yaml), GT_OK);
    read_alike(".yaml:10:1: packing: gpt-prepare");
    ck_assert_int_eq(
        parse_file(
            ".yml",
            "datasets:\n  - path: x\n    type: chat\ntrain:\n  epochs: 3\n  log: {a: [1, 2]}\nkeep: 3\nzork: 1\n"),
        GT_USAGE);
    ck_assert_int_eq(fixture.count, 3);
    ASSERT_SAID(".yml:1:1: datasets: make a data set");
    ASSERT_SAID(".yml:4:1: train is nested");
    ASSERT_SAID("as in epochs: VALUE");
    ASSERT_SAID("unknown key zork");
    ck_assert_int_eq(fixture.config.keep, 3);
    for (const char *const *bad = (const char *const[]){"- a\n", "just text", "? [a]\n: b\n",
                                                        "keep: 3\n? {a: 1}\n: b\n", NULL};
         *bad != NULL; bad++) {
        ck_assert_int_eq(parse_file(".yaml", *bad), GT_USAGE);
        ck_assert_int_eq(fixture.count, 1);
        ASSERT_SAID("a configuration is a list of keys and values");
    }
    for (const char *const *bad =
             (const char *const[]){"\"a", "[", "learning_rate: {a: 1}\n", "a: &x 1\n",
                                   "keep: &x 2\neval_iters: *x\n", NULL};
         *bad != NULL; bad++) {
        ck_assert_int_eq(parse_file(".yaml", *bad), GT_USAGE);
        ck_assert_int_eq(fixture.count, 1);
    }
    ck_assert_int_eq(parse_file(".yaml", ""), GT_OK);
#else
    ck_assert_int_eq(parse_file(".yaml", yaml), GT_USAGE);
    ASSERT_SAID("this build has no libyaml");
#endif
}
