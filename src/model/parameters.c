/* The parameters of a GPT-2.  Names and layout are Hugging Face's (modeling_gpt2.py, Conv1D).  Initial values are
 * nanoGPT's (model.py GPT._init_weights): normal with std 0.02, or 0.02 / sqrt(2 L) for the projections into the
 * residual stream; biases 0; layernorm gains 1.
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

/* The destination of parameters, and their common options. */
struct parameter_maker {
    struct graph *graph;
    struct parameter_list *list;
    const struct model_config *config;
    const struct parameter_options *options;
    int64_t elements; /* saved elements of the parameters so far */
};

/* Adds a tensor with the shape of a parameter: its master, gradient or moment. */
static enum gt_status state_add(struct graph *graph, const struct parameter *parameter, const char *suffix,
                                enum dtype dtype, enum tensor_category category, int32_t *out)
{
    struct tensor state = graph->tensors[parameter->tensor];
    state.dtype = dtype;
    snprintf(state.name, sizeof state.name, "%.80s%s", parameter->name, suffix);
    state.category = category;
    state.lifetime = category == CATEGORY_GRADIENT ? LIFETIME_PHASE : LIFETIME_RUN;
    state.phase = PHASE_TRAIN;
    return graph_tensor_add(graph, &state, out);
}

/* Adds the exponents of 8-bit moments. */
static enum gt_status scales_add(struct graph *graph, struct parameter *parameter)
{
    struct tensor scales = {.dtype = DTYPE_U8,
                            .rank = 2,
                            .dims = {2, state_blocks(graph_tensor_elements(graph, parameter->tensor))},
                            .base = TENSOR_NONE,
                            .category = CATEGORY_MOMENT,
                            .lifetime = LIFETIME_RUN,
                            .phase = PHASE_TRAIN};
    snprintf(scales.name, sizeof scales.name, "%.80s.scales", parameter->name);
    return graph_tensor_add(graph, &scales, &parameter->scales);
}

static enum gt_status states_add(const struct parameter_maker *maker, struct parameter *parameter)
{
    struct graph *graph = maker->graph;
    const struct state_dtypes dtypes =
        state_format_dtypes(maker->options->format, graph->tensors[parameter->tensor].dtype, parameter->embedding);
    assert(!parameter->muon || dtypes.moment != DTYPE_U8);
    if (dtypes.master)
        TRY(state_add(graph, parameter, ".master", DTYPE_F32, CATEGORY_MASTER, &parameter->master));
    TRY(state_add(graph, parameter, ".grad", dtypes.gradient, CATEGORY_GRADIENT, &parameter->gradient));
    TRY(state_add(graph, parameter, ".m", dtypes.moment, CATEGORY_MOMENT, &parameter->m));
    if (!parameter->muon)
        TRY(state_add(graph, parameter, ".v", dtypes.moment, CATEGORY_MOMENT, &parameter->v));
    return dtypes.moment == DTYPE_U8 ? scales_add(graph, parameter) : GT_OK;
}

static enum gt_status parameter_add(struct parameter_maker *maker, const struct parameter *proto, enum dtype dtype,
                                    int32_t rank, int64_t rows, int64_t columns)
{
    struct parameter_list *list = maker->list;
    struct parameter *parameter = &list->at[list->count];
    *parameter = *proto;
    struct tensor tensor = {.dtype = dtype,
                            .rank = rank,
                            .dims = {rows, columns},
                            .base = TENSOR_NONE,
                            .category = CATEGORY_PARAMETER,
                            .lifetime = LIFETIME_RUN};
    memcpy(tensor.name, parameter->name, sizeof tensor.name);
    TRY(graph_tensor_add(maker->graph, &tensor, &parameter->tensor));
    parameter->master = parameter->gradient = parameter->m = parameter->v = parameter->scales = TENSOR_NONE;
    parameter->decay = rank >= 2;
    parameter->muon = maker->options->muon && rank >= 2 && !parameter->embedding;
    parameter->index_base = maker->elements;
    maker->elements += parameter->saved_rows * (rank >= 2 ? columns : 1);
    list->count++;
    return maker->options->states ? states_add(maker, parameter) : GT_OK;
}

/* Adds "<prefix>.weight" [rows, columns] (columns 0: a layernorm gain) and, in a model with biases, "<prefix>.bias". */
static enum gt_status layer_add(struct parameter_maker *maker, const char *prefix, int64_t rows, int64_t columns,
                                double std)
{
    bool matrix = columns > 0;
    enum dtype dtype = matrix ? maker->options->dtype : DTYPE_F32;
    struct parameter weight = {.init = matrix ? INIT_NORMAL : INIT_ONE, .init_std = (float)std, .saved_rows = rows};
    snprintf(weight.name, sizeof weight.name, "%s.weight", prefix);
    TRY(parameter_add(maker, &weight, dtype, matrix ? 2 : 1, rows, columns));
    if (!maker->config->bias)
        return GT_OK;
    int64_t width = matrix ? columns : rows;
    struct parameter bias = {.init = INIT_ZERO, .saved_rows = width};
    snprintf(bias.name, sizeof bias.name, "%s.bias", prefix);
    return parameter_add(maker, &bias, dtype, 1, width, 0);
}

static enum gt_status block_add(struct parameter_maker *maker, int32_t layer)
{
    const struct model_config *config = maker->config;
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
        TRY(layer_add(maker, prefix, weights[i].rows, weights[i].columns, weights[i].std));
    }
    return GT_OK;
}

enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options, struct parameter_list *out)
{
    void *array;
    size_t count = 4 + (size_t)config->n_layer * 2 * BLOCK_WEIGHTS;
    TRY(hostmem_alloc(graph->mem, count, sizeof(struct parameter), "parameters", &array));
    *out = (struct parameter_list){.at = array};
    struct parameter_maker maker = {graph, out, config, options, 0};
    struct parameter wte = {
        .name = "wte.weight", .init_std = (float)INIT_STD, .saved_rows = config->vocab_size, .embedding = true};
    struct parameter wpe = {
        .name = "wpe.weight", .init_std = (float)INIT_STD, .saved_rows = config->block_size, .embedding = true};
    enum gt_status status = parameter_add(&maker, &wte, options->dtype, 2, config->padded_vocab_size, config->n_embd);
    if (status == GT_OK)
        status = parameter_add(&maker, &wpe, options->dtype, 2, config->block_size, config->n_embd);
    for (int32_t layer = 0; status == GT_OK && layer < config->n_layer; layer++)
        status = block_add(&maker, layer);
    if (status == GT_OK)
        status = layer_add(&maker, "ln_f", config->n_embd, 0, 0);
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
