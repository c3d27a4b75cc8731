/* The parameters of a GPT-2: names and layout are Hugging Face's (modeling_gpt2.py, Conv1D), initial values are
 * nanoGPT's (model.py GPT._init_weights): normal with std 0.02, the projections into the residual stream with
 * 0.02 / sqrt(2 L), biases 0, layernorm gains 1.
 */
#include "model/parameters.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_WEIGHTS 6
#define INIT_STD 0.02

int64_t model_qkv_width(const struct model_config *config)
{
    int64_t head_size = config->n_embd / config->n_head;
    return (config->n_head + 2 * (int64_t)config->n_kv_head) * head_size;
}

static int32_t block_stride(const struct model_config *config)
{
    return config->bias ? 2 * BLOCK_WEIGHTS : BLOCK_WEIGHTS;
}

struct block_parameters parameters_block(const struct model_config *config, int32_t layer)
{
    int32_t step = config->bias ? 2 : 1, first = 2 + layer * block_stride(config);
    int32_t at[BLOCK_WEIGHTS], bias[BLOCK_WEIGHTS];
    for (int32_t i = 0; i < BLOCK_WEIGHTS; i++) {
        at[i] = first + i * step;
        bias[i] = config->bias ? at[i] + 1 : -1;
    }
    return (struct block_parameters){
        .ln_1_gain = at[0],
        .ln_1_bias = bias[0],
        .c_attn = at[1],
        .c_attn_bias = bias[1],
        .c_proj = at[2],
        .c_proj_bias = bias[2],
        .ln_2_gain = at[3],
        .ln_2_bias = bias[3],
        .c_fc = at[4],
        .c_fc_bias = bias[4],
        .mlp_proj = at[5],
        .mlp_proj_bias = bias[5],
    };
}

struct model_parameters parameters_outside(const struct model_config *config)
{
    int32_t ln_f = 2 + config->n_layer * block_stride(config);
    return (struct model_parameters){.wte = 0, .wpe = 1, .ln_f_gain = ln_f, .ln_f_bias = config->bias ? ln_f + 1 : -1};
}

/* One of the tensors that belong to a parameter. */
static enum gt_status state_add(struct graph *graph, const struct parameter *parameter, const char *suffix,
                                enum tensor_category category, enum tensor_lifetime lifetime, int32_t *out)
{
    struct tensor state = graph->tensors[parameter->tensor];
    snprintf(state.name, sizeof state.name, "%.80s%s", parameter->name, suffix);
    state.category = category;
    state.lifetime = lifetime;
    state.phase = PHASE_TRAIN;
    return graph_tensor_add(graph, &state, out);
}

static enum gt_status parameter_add(struct graph *graph, struct parameter_list *list, const struct parameter *proto,
                                    int32_t rank, int64_t rows, int64_t columns, bool states)
{
    struct parameter *parameter = &list->at[list->count];
    *parameter = *proto;
    struct tensor tensor = {.dtype = DTYPE_F32,
                            .rank = rank,
                            .dims = {rows, columns},
                            .base = TENSOR_NONE,
                            .category = CATEGORY_PARAMETER,
                            .lifetime = LIFETIME_RUN};
    memcpy(tensor.name, parameter->name, sizeof tensor.name);
    TRY(graph_tensor_add(graph, &tensor, &parameter->tensor));
    parameter->gradient = parameter->m = parameter->v = TENSOR_NONE;
    parameter->decay = rank >= 2;
    if (states) {
        TRY(state_add(graph, parameter, ".grad", CATEGORY_GRADIENT, LIFETIME_PHASE, &parameter->gradient));
        TRY(state_add(graph, parameter, ".m", CATEGORY_MOMENT, LIFETIME_RUN, &parameter->m));
        TRY(state_add(graph, parameter, ".v", CATEGORY_MOMENT, LIFETIME_RUN, &parameter->v));
    }
    list->count++;
    return GT_OK;
}

/* "<prefix>.weight" of [rows, columns] (columns 0: a layernorm gain) and, where the model has biases, "<prefix>.bias". */
static enum gt_status layer_add(struct graph *graph, struct parameter_list *list, const struct model_config *config,
                                const char *prefix, int64_t rows, int64_t columns, double std, bool states)
{
    bool matrix = columns > 0;
    struct parameter weight = {.init = matrix ? INIT_NORMAL : INIT_ONE, .init_std = (float)std, .saved_rows = rows};
    snprintf(weight.name, sizeof weight.name, "%s.weight", prefix);
    TRY(parameter_add(graph, list, &weight, matrix ? 2 : 1, rows, columns, states));
    if (!config->bias)
        return GT_OK;
    int64_t width = matrix ? columns : rows;
    struct parameter bias = {.init = INIT_ZERO, .saved_rows = width};
    snprintf(bias.name, sizeof bias.name, "%s.bias", prefix);
    return parameter_add(graph, list, &bias, 1, width, 0, states);
}

static enum gt_status block_add(struct graph *graph, struct parameter_list *list, const struct model_config *config,
                                int32_t layer, bool states)
{
    int64_t c = config->n_embd, qkv = model_qkv_width(config);
    double residual_std = INIT_STD / sqrt(2.0 * config->n_layer);
    const struct {
        const char *name;
        int64_t rows, columns;
        double std;
    } weights[BLOCK_WEIGHTS] = {
        {"ln_1", c, 0, 0}, {"attn.c_attn", c, qkv, INIT_STD}, {"attn.c_proj", c, c, residual_std},
        {"ln_2", c, 0, 0}, {"mlp.c_fc", c, 4 * c, INIT_STD},  {"mlp.c_proj", 4 * c, c, residual_std},
    };
    for (int32_t i = 0; i < BLOCK_WEIGHTS; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "h.%" PRId32 ".%s", layer, weights[i].name);
        TRY(layer_add(graph, list, config, prefix, weights[i].rows, weights[i].columns, weights[i].std, states));
    }
    return GT_OK;
}

enum gt_status parameters_create(struct graph *graph, const struct model_config *config, bool states,
                                 struct parameter_list *out)
{
    void *array;
    size_t count = 4 + (size_t)config->n_layer * 2 * BLOCK_WEIGHTS;
    TRY(hostmem_alloc(graph->mem, count, sizeof(struct parameter), "parameters", &array));
    *out = (struct parameter_list){.at = array};
    struct parameter wte = {.name = "wte.weight", .init_std = (float)INIT_STD, .saved_rows = config->vocab_size};
    struct parameter wpe = {.name = "wpe.weight", .init_std = (float)INIT_STD, .saved_rows = config->block_size};
    enum gt_status status = parameter_add(graph, out, &wte, 2, config->padded_vocab_size, config->n_embd, states);
    if (status == GT_OK)
        status = parameter_add(graph, out, &wpe, 2, config->block_size, config->n_embd, states);
    for (int32_t layer = 0; status == GT_OK && layer < config->n_layer; layer++)
        status = block_add(graph, out, config, layer, states);
    if (status == GT_OK)
        status = layer_add(graph, out, config, "ln_f", config->n_embd, 0, 0, states);
    if (status != GT_OK)
        parameters_destroy(graph, out);
    assert(status != GT_OK || out->count == 3 + config->bias + config->n_layer * block_stride(config));
    return status;
}

void parameters_destroy(struct graph *graph, struct parameter_list *list)
{
    hostmem_free(graph->mem, list->at);
    list->at = NULL;
    list->count = 0;
}
