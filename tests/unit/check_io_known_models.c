/* Tests of the table of known models: each shape has the number of parameters that its published
 * weights have, and a mistyped name gets the names that are near. */
#include "io/known_models.h"
#include "model/model_create.h"

#include "model/parameters.h"
#include "tests/unit/unit_main.h"

static const char *const names[] = {
#define MODEL_SHAPE(key, type, layers, heads, kv, head, channels, inner, vocabulary, tied, \
                    epsilon, theta, scaling, src)
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
