/* Tests of the table of known models: each shape has the number of parameters that its published
 * weights have, some have all that their config.json says, and a mistyped name gets the names that
 * are near. */
#include "io/known_models.h"

#include "io/hf_config.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "tests/unit/unit_main.h"

static const char *const names[] = {
#define MODEL_SHAPE(...)
#define KNOWN_MODEL(name, key, positions, chat) name,
#include "io/known_models.def"
};

/* The parameters of the published weights: safetensors.total of the Hub's API, which public
 * programs and tests repeat for each of these models.  Those of GPT-2, Qwen2.5, Qwen3, Llama 2 and
 * Mistral are also `params` in KerasHub's presets (keras-team/keras-hub,
 * keras_hub/src/models/NAME/NAME_presets.py). */
static const struct {
    const char *name;
    int64_t parameters;
} published[] = {
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"Qwen/Qwen3-0.6B", 596049920},
    {"Qwen/Qwen3-1.7B", 1720574976},
    {"Qwen/Qwen3-4B", 4022468096},
    {"Qwen/Qwen3-4B-Instruct-2507", 4022468096},
    {"Qwen/Qwen3-8B", 8190735360},
    {"Qwen/Qwen3-14B", 14768307200},
    {"Qwen/Qwen3-32B", 32762123264},
    {"Qwen/Qwen2.5-0.5B", 494032768},
    {"Qwen/Qwen2.5-1.5B", 1543714304},
    {"Qwen/Qwen2.5-3B", 3085938688},
    {"Qwen/Qwen2.5-7B", 7615616512},
    {"Qwen/Qwen2.5-14B", 14770033664},
    {"Qwen/Qwen2.5-32B", 32763876352},
    {"meta-llama/Llama-3.2-1B", 1235814400},
    {"meta-llama/Llama-3.2-3B", 3212749824},
    {"meta-llama/Llama-3.1-8B", 8030261248},
    {"meta-llama/Meta-Llama-3-8B", 8030261248},
    {"meta-llama/Llama-2-7b-hf", 6738415616},
    {"HuggingFaceTB/SmolLM2-135M", 134515008},
    {"HuggingFaceTB/SmolLM2-360M", 361821120},
    {"HuggingFaceTB/SmolLM2-1.7B", 1711376384},
    {"microsoft/Phi-4-mini-instruct", 3836021760},
    {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1100048384},
    {"mistralai/Mistral-7B-v0.3", 7248023552},
    {"mistralai/Mistral-Nemo-Instruct-2407", 12247782400},
};

TEST(known_models_have_their_parameters)
{
    struct known_model model;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        ck_assert(known_model_find(published[i].name, &model));
        ck_assert_msg(model_parameter_count(&model.config) == published[i].parameters,
                      "%s: %" PRId64 " parameters", published[i].name,
                      model_parameter_count(&model.config));
    }
    ck_assert(!known_model_find("Qwen/Qwen3-9B", &model));
    ck_assert(!known_model_find("", &model));
}

TEST(known_models_are_whole)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct known_model model;
        ck_assert(known_model_find(names[i], &model));
        ck_assert_str_eq(model.name, names[i]);
        ck_assert_int_eq(model_config_check(&model.config), GT_OK);
        ck_assert_int_ge(model.config.block_size, 1024);
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(strcmp(names[i], names[k]) != 0, "%s is there twice", names[i]);
    }
}

/* What these models' config.json says, as tests of public programs quote it. */
static const struct {
    const char *name, *json;
} published_configs[] = {
    {"google/gemma-3-4b-it",
     "{'model_type': 'gemma3', 'text_config': {'model_type': 'gemma3_text', 'num_hidden_layers': 34, "
     "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 256, 'hidden_size': 2560, "
     "'intermediate_size': 10240, 'vocab_size': 262208, 'max_position_embeddings': 131072, 'rms_norm_eps': 1e-6, "
     "'rope_theta': 1e6, 'rope_local_base_freq': 1e4, 'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}, "
     "'query_pre_attn_scalar': 256, 'sliding_window': 1024, 'sliding_window_pattern': 6}}"},
    {"google/gemma-3-1b-it",
     "{'model_type': 'gemma3_text', 'num_hidden_layers': 26, 'num_attention_heads': 4, 'num_key_value_heads': 1, "
     "'head_dim': 256, 'hidden_size': 1152, 'intermediate_size': 6912, 'vocab_size': 262144, "
     "'max_position_embeddings': 32768, 'rms_norm_eps': 1e-6, 'rope_theta': 1e6, 'rope_local_base_freq': 1e4, "
     "'query_pre_attn_scalar': 256, 'sliding_window': 512, 'sliding_window_pattern': 6}"},
    {"ibm-granite/granite-3.3-8b-instruct",
     "{'model_type': 'granite', 'num_hidden_layers': 40, 'num_attention_heads': 32, 'num_key_value_heads': 8, "
     "'hidden_size': 4096, 'intermediate_size': 12800, 'vocab_size': 49159, 'max_position_embeddings': 131072, "
     "'rms_norm_eps': 1e-5, 'rope_theta': 1e7, 'tie_word_embeddings': true, 'attention_multiplier': 0.0078125, "
     "'embedding_multiplier': 12.0, 'logits_scaling': 16.0, 'residual_multiplier': 0.22}"},
    {"HuggingFaceTB/SmolLM3-3B",
     "{'model_type': 'smollm3', 'num_hidden_layers': 36, 'num_attention_heads': 16, 'num_key_value_heads': 4, "
     "'hidden_size': 2048, 'intermediate_size': 11008, 'vocab_size': 128256, 'max_position_embeddings': 65536, "
     "'rms_norm_eps': 1e-6, 'rope_theta': 5e6, 'tie_word_embeddings': true, 'no_rope_layer_interval': 4}"},
    {"microsoft/Phi-4-mini-instruct",
     "{'model_type': 'phi3', 'num_hidden_layers': 32, 'num_attention_heads': 24, 'num_key_value_heads': 8, "
     "'hidden_size': 3072, 'intermediate_size': 8192, 'vocab_size': 200064, 'max_position_embeddings': 131072, "
     "'rms_norm_eps': 1e-5, 'rope_theta': 1e4, 'tie_word_embeddings': true, 'partial_rotary_factor': 0.75, "
     "'sliding_window': 262144}"},
    {"Qwen/Qwen2.5-7B",
     "{'model_type': 'qwen2', 'num_hidden_layers': 28, 'num_attention_heads': 28, 'num_key_value_heads': 4, "
     "'hidden_size': 3584, 'intermediate_size': 18944, 'vocab_size': 152064, 'max_position_embeddings': 131072, "
     "'rms_norm_eps': 1e-6, 'rope_theta': 1e6, 'sliding_window': 131072, 'use_sliding_window': false, "
     "'max_window_layers': 28, 'tie_word_embeddings': false}"},
};

TEST_LOOP(known_models_are_what_their_files_say,
          (int)(sizeof published_configs / sizeof published_configs[0]))
{
    const char *name = published_configs[_i].name;
    char json[1024];
    struct known_model known;
    struct model_config config;
    struct hf_config_rest rest;
    snprintf(json, sizeof json, "%s", published_configs[_i].json);
    for (char *at = json; (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    json_t *root = json_loads(json, 0, NULL);
    ck_assert(root != NULL && known_model_find(name, &known));
    ck_assert_int_eq(hf_config_parse(root, name, &config, &rest), GT_OK);
    shape_sizes_fill(&config.shape);
    shape_sizes_fill(&known.config.shape);
    for (enum shape_property p = 0; p < SHAPE_PROPERTIES; p++) {
        char said_text[SHAPE_TEXT_MAX], text[SHAPE_TEXT_MAX];
        ck_assert_str_eq(shape_text(text, &known.config.shape, p),
                         shape_text(said_text, &config.shape, p));
    }
    char said[ROPE_SCALING_TEXT_MAX], in_table[ROPE_SCALING_TEXT_MAX];
    ck_assert_str_eq(rope_scaling_text(in_table, &known.config.rope),
                     rope_scaling_text(said, &config.rope));
    ck_assert_int_eq(known.config.block_size, config.block_size);
    json_decref(root);
}

TEST(known_models_near_names)
{
    char text[KNOWN_MODELS_TEXT_MAX];
    ck_assert_str_eq(known_models_near(text, "Qwen/Qwen3-9B"), "Qwen/Qwen3-4B, Qwen/Qwen3-8B");
    ck_assert_str_eq(known_models_near(text, "qwen3-8b"), "Qwen/Qwen3-8B");
    ck_assert_str_eq(known_models_near(text, "unsloth/Qwen3-14B"), "Qwen/Qwen3-14B");
    ck_assert_str_eq(known_models_near(text, "meta-llama/Lama-3.2-1B"), "meta-llama/Llama-3.2-1B");
    ck_assert_str_eq(known_models_near(text, "bigscience/bloom"), "");
    ck_assert_str_eq(known_models_near(text, ""), "");
    ck_assert_str_eq(known_model_of_size(1.0), "HuggingFaceTB/SmolLM2-135M-Instruct");
    ck_assert_str_eq(known_model_of_size(8.2e9), "Qwen/Qwen3-8B");
    ck_assert_str_eq(known_model_of_size(1e12), "Qwen/Qwen2.5-32B");
}
