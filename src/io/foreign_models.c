/* The table of models that are refused by name, with the reason.
 *
 * Source: transformers 5.24, the configurations and models of these types.  Types that are not in
 * the table are recognised by fields that models of their kind have.
 */
#include "io/foreign_models.h"

#include "base/log.h"

#define EXPERTS "is a mixture of experts"
#define IMAGES "reads images"
#define SOUND "reads sound"

/* Each type in a row has a space before and after it. */
static const struct {
    const char *types, *what;
} foreign[] = {
    {" mixtral qwen2_moe qwen3_moe qwen3_5_moe qwen3_5_moe_text qwen3_next gpt_oss deepseek_v2 deepseek_v3 "
     "deepseek_v32 deepseek_v4 llama4 llama4_text phimoe olmoe glm4_moe glm4_moe_lite granitemoe "
     "granitemoeshared lfm2_moe ernie4_5_moe mistral4 minimax dbrx ",
     EXPERTS},
    {" granitemoehybrid bamba jamba zamba2 falcon_h1 nemotron_h mamba mamba2 ",
     "has blocks with a state space (Mamba) instead of attention, or a mixture of experts"},
    {" gemma gemma2 ",
     "scales its embedding, has norms with gains of 1 + w, and may cap its scores"},
    {" gemma3n gemma3n_text gemma4 gemma4_text gemma4_unified ",
     "has an embedding of its own for each block, or a mixture of experts"},
    {" lfm2 ", "has short convolutions instead of attention in most blocks"},
    {" deepseek_vl glm4v qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe llava llava_next mllama idefics3 "
     "smolvlm paligemma pixtral mistral3 internvl lfm2_vl phi4_multimodal aya_vision ",
     IMAGES},
    {" whisper voxtral qwen2_audio qwen2_5_omni qwen3_omni_moe granite_speech ", SOUND},
    {" t5 mt5 bart mbart pegasus ", "has an encoder, whose output a decoder reads"},
    {" bert roberta distilbert electra deberta-v2 modernbert xlm-roberta ",
     "fills gaps in texts, and does not continue them"},
    {" phi gptj gpt_neox falcon cohere cohere2 ",
     "computes attention and MLP from the same input, or has other norms"},
};

/* Fields by which types that are not in the table are recognised. */
static const struct {
    const char *field, *what;
} signs[] = {{"vision_config", IMAGES},
             {"audio_config", SOUND},
             {"num_experts", EXPERTS},
             {"num_local_experts", EXPERTS},
             {"n_routed_experts", EXPERTS}};

const char *foreign_model_what(const json_t *root, const char *type)
{
    const char *word = TEXT(64, " %.60s ", type);
    const char *class =
        json_string_value(json_array_get(json_object_get(root, "architectures"), 0)),
               *end = class != NULL ? strstr(class, "ForConditionalGeneration") : NULL;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strstr(foreign[i].types, word) != NULL)
            return foreign[i].what;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const json_t *value = json_object_get(root, signs[i].field);
        if (json_is_object(value) || json_number_value(value) > 0.0)
            return signs[i].what;
    }
    return end != NULL && strcmp(end, "ForConditionalGeneration") == 0 ? "reads more than text"
                                                                       : NULL;
}
