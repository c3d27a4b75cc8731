/* Tests of src/config/config_key.c: the table, nanoGPT's defaults, finding and assigning keys. */
#include "config/config_key.h"

#include <string.h>

#include "config/config_names.h"
#include "config/config_value.h"
#include "tests/unit/config_fixture.h"

/* The defaults of nanoGPT's train.py at the commit that research used, in Python's notation. */
static const struct {
    enum config_key key;
    const char *text;
} train_defaults[] = {
    {CONFIG_KEY_out_dir, "'out'"},
    {CONFIG_KEY_eval_interval, "2000"},
    {CONFIG_KEY_log_interval, "1"},
    {CONFIG_KEY_eval_iters, "200"},
    {CONFIG_KEY_eval_only, "False"},
    {CONFIG_KEY_always_save_checkpoint, "True"},
    {CONFIG_KEY_init_from, "'scratch'"},
    {CONFIG_KEY_wandb_log, "False"},
    {CONFIG_KEY_wandb_project, "'owt'"},
    {CONFIG_KEY_wandb_run_name, "'gpt2'"},
    {CONFIG_KEY_dataset, "'openwebtext'"},
    {CONFIG_KEY_gradient_accumulation_steps, "40"},
    {CONFIG_KEY_batch_size, "12"},
    {CONFIG_KEY_block_size, "1024"},
    {CONFIG_KEY_n_layer, "12"},
    {CONFIG_KEY_n_head, "12"},
    {CONFIG_KEY_n_embd, "768"},
    {CONFIG_KEY_dropout, "0.0"},
    {CONFIG_KEY_bias, "False"},
    {CONFIG_KEY_learning_rate, "0.0006"},
    {CONFIG_KEY_max_iters, "600000"},
    {CONFIG_KEY_weight_decay, "0.1"},
    {CONFIG_KEY_beta1, "0.9"},
    {CONFIG_KEY_beta2, "0.95"},
    {CONFIG_KEY_grad_clip, "1.0"},
    {CONFIG_KEY_decay_lr, "True"},
    {CONFIG_KEY_warmup_iters, "2000"},
    {CONFIG_KEY_lr_decay_iters, "600000"},
    {CONFIG_KEY_min_lr, "6e-05"},
    {CONFIG_KEY_compile, "True"},
    {CONFIG_KEY_seed, "1337"},
};

TEST(key_defaults_of_train)
{
    char text[CONFIG_VALUE_TEXT_MAX];
    fixture_open(CONFIG_TRAIN);
    for (size_t i = 0; i < sizeof train_defaults / sizeof train_defaults[0]; i++)
        ck_assert_str_eq(config_key_text(text, &fixture.config, train_defaults[i].key),
                         train_defaults[i].text);
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        ck_assert(!config_key_was_set(&fixture.config, (enum config_key)key));
}

TEST(key_defaults_of_sample)
{
    const struct config *config = &fixture.config;
    fixture_open(CONFIG_SAMPLE);
    ck_assert_str_eq(config->init_from, "resume");
    ck_assert_str_eq(config->start, "\n");
    ck_assert_int_eq(config->num_samples, 10);
    ck_assert_int_eq(config->max_new_tokens, 500);
    ck_assert(config->temperature == 0.8);
    ck_assert_int_eq(config->top_k, 200);
    ck_assert_int_eq(config->seed, 1337);
    ck_assert(!config->compile);
}

/* Each default is a value that its key accepts, and each name is found in both spellings. */
TEST(key_table_is_sound)
{
    char dashed[64];
    for (int program = CONFIG_TRAIN; program <= CONFIG_SAMPLE; program++) {
        fixture_open((enum config_program)program);
        for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
            enum config_key key = (enum config_key)i;
            const struct config_key_info *info = config_key_info_get(key);
            struct config_value value = config_key_value(&fixture.config, key);
            struct config_origin origin = {"test", 0, 0, false, false};
            ck_assert_msg(config_key_assign(&fixture.config, key, &value, &origin) == GT_OK, "%s",
                          info->name);
            ck_assert_int_eq(config_key_find(info->name, strlen(info->name)), key);
            snprintf(dashed, sizeof dashed, "%s", info->name);
            for (char *c = dashed; *c != '\0'; c++)
                *c = *c == '_' ? '-' : *c;
            ck_assert_int_eq(config_key_find(dashed, strlen(dashed)), key);
            ck_assert_msg(info->programs != 0 && info->help[0] != '\0', "%s", info->name);
        }
    }
    ck_assert_int_eq(config_key_find("n_laye", 6), CONFIG_KEY_COUNT);
    ck_assert_int_eq(config_key_find("n_layers", 8), CONFIG_KEY_COUNT);
    ck_assert_int_eq(config_key_find("", 0), CONFIG_KEY_COUNT);
}

TEST(key_words_match_their_enumerators)
{
    ck_assert_str_eq(config_key_info_get(CONFIG_KEY_sampler)->words[CONFIG_SAMPLER_EPOCH], "epoch");
    ck_assert_str_eq(config_key_info_get(CONFIG_KEY_gelu)->words[1 + GELU_TANH], "tanh");
    ck_assert_str_eq(config_key_info_get(CONFIG_KEY_dtype)->words[CONFIG_DTYPE_BFLOAT16],
                     "bfloat16");
    ck_assert_str_eq(config_key_info_get(CONFIG_KEY_backend)->words[CONFIG_BACKEND_CPU], "cpu");
    ck_assert_str_eq(config_key_info_get(CONFIG_KEY_plan)->words[CONFIG_PLAN_JSON], "json");
}

static void suggests(const char *name, enum config_program program, const char *expected)
{
    char hint[CONFIG_HINT_MAX], wanted[CONFIG_HINT_MAX];
    if (expected != NULL)
        snprintf(wanted, sizeof wanted, " (did you mean %s?)", expected);
    else
        snprintf(wanted, sizeof wanted, " (--help=all lists the keys)");
    ck_assert_str_eq(config_key_hint(hint, name, strlen(name), program), wanted);
}

TEST(key_nearest)
{
    suggests("n_layers", CONFIG_TRAIN, "n_layer");
    suggests("n_lyaer", CONFIG_TRAIN, "n_layer");
    suggests("batchsize", CONFIG_TRAIN, "batch_size");
    suggests("learning-rat", CONFIG_TRAIN, "learning_rate");
    suggests("grad_accumulation_steps", CONFIG_TRAIN, "gradient_accumulation_steps");
    suggests("top_kk", CONFIG_TRAIN, NULL); /* exists only in gpt-sample */
    suggests("top_kk", CONFIG_SAMPLE, "top_k");
    suggests("zzzzzzzz", CONFIG_TRAIN, NULL);
    suggests("learing_rate", CONFIG_TRAIN, "learning_rate");
    suggests("dropuot", CONFIG_TRAIN, "dropout");
    suggests("bais", CONFIG_TRAIN, "bias");
    suggests("num_layers", CONFIG_TRAIN, "n_layer");
    /* Not every name is a mistyped key. */
    suggests("simple", CONFIG_TRAIN, NULL);
    suggests("train_batch_size", CONFIG_TRAIN, NULL);
    suggests("data_dir", CONFIG_TRAIN, NULL);
    suggests("x", CONFIG_TRAIN, NULL);
    suggests("a_name_that_is_longer_than_any_key_could_ever_be", CONFIG_TRAIN, NULL);
    char hint[CONFIG_HINT_MAX];
    ck_assert_str_eq(config_key_hint(hint, "num_gpus", 8, CONFIG_TRAIN),
                     " (several cards: --ranks=2)");
}
