/* The defaults that `arch` gives to the other keys of the model's shape.
 *
 * Source: transformers, the classes' configurations (configuration_llama.py, configuration_qwen2.py,
 * configuration_qwen3.py) and those of published models: Llama's epsilon and theta are those of the first Llamas and of
 * SmolLM, Qwen's those of Qwen2.5 and Qwen3.
 */
#include "config/config.h"

#define INNER_MULTIPLE 64

static const struct {
    int norm, position, mlp, qk_norm;
    bool qkv_bias;
    double epsilon, theta;
} defaults[] = {
    [CONFIG_ARCH_GPT2] = {CONFIG_NORM_LAYERNORM, CONFIG_POSITION_LEARNED, CONFIG_MLP_GELU, CONFIG_QK_NORM_NONE, false,
                          1e-5, 1e4},
    [CONFIG_ARCH_LLAMA] = {CONFIG_NORM_RMSNORM, CONFIG_POSITION_ROPE, CONFIG_MLP_SWIGLU, CONFIG_QK_NORM_NONE, false,
                           1e-5, 1e4},
    [CONFIG_ARCH_QWEN2] = {CONFIG_NORM_RMSNORM, CONFIG_POSITION_ROPE, CONFIG_MLP_SWIGLU, CONFIG_QK_NORM_NONE, true,
                           1e-6, 1e6},
    [CONFIG_ARCH_QWEN3] = {CONFIG_NORM_RMSNORM, CONFIG_POSITION_ROPE, CONFIG_MLP_SWIGLU, CONFIG_QK_NORM_HEAD, false,
                           1e-6, 1e6},
};

static void settle(int *key, int otherwise)
{
    if (*key == 0) /* auto */
        *key = otherwise;
}

void config_arch_settle(struct config *config)
{
    settle(&config->arch, CONFIG_ARCH_GPT2);
    settle(&config->norm, defaults[config->arch].norm);
    settle(&config->position, defaults[config->arch].position);
    settle(&config->mlp, defaults[config->arch].mlp);
    settle(&config->qk_norm, defaults[config->arch].qk_norm);
    if (config->origin[CONFIG_KEY_qkv_bias].source == NULL)
        config->qkv_bias = defaults[config->arch].qkv_bias;
    if (config->norm_epsilon == 0.0)
        config->norm_epsilon = defaults[config->arch].epsilon;
    if (config->rope_theta == 0.0)
        config->rope_theta = defaults[config->arch].theta;
    if (config->n_kv_head == 0)
        config->n_kv_head = config->n_head;
    if (config->head_dim == 0)
        config->head_dim = config->n_embd / config->n_head;
    if (config->n_inner == 0 && config->mlp == CONFIG_MLP_GELU)
        config->n_inner = 4 * config->n_embd;
    if (config->n_inner == 0)
        config->n_inner = (8 * config->n_embd + 3 * INNER_MULTIPLE - 1) / (3 * INNER_MULTIPLE) * INNER_MULTIPLE;
}
