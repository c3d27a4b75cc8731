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

#define INIT_STD 0.02

int64_t model_qkv_width(const struct model_config *config)
{
    int64_t head_size = config->n_embd / config->n_head;
    return (config->n_head + 2 * (int64_t)config->n_kv_head) * head_size;
}

size_t parameters_count(const struct model_config *config)
{
    assert(config->n_layer >= 0);
    return 4 + 2 * BLOCK_LAYERS * (size_t)config->n_layer;
}

void parameters_shape(const struct model_config *config, size_t index, struct parameter_shape *out)
{
    const int64_t c = config->n_embd, qkv = model_qkv_width(config);
    const struct {
        const char *name;
        int64_t rows, columns; /* of the weight; columns = 0 for a layernorm's vector */
    } layers[BLOCK_LAYERS] = {
        [BLOCK_LN_1] = {"ln_1", c, 0},          [BLOCK_C_ATTN] = {"attn.c_attn", c, qkv},
        [BLOCK_C_PROJ] = {"attn.c_proj", c, c}, [BLOCK_LN_2] = {"ln_2", c, 0},
        [BLOCK_C_FC] = {"mlp.c_fc", c, 4 * c},  [BLOCK_MLP_PROJ] = {"mlp.c_proj", 4 * c, c},
    };
    assert(index < parameters_count(config));
    if (index < 2) {
        *out = (struct parameter_shape){
            .rank = 2, .dims = {index == 0 ? config->vocab_size : config->block_size, c}, .position_table = index == 1};
        (void)snprintf(out->name, sizeof out->name, "%s", index == 0 ? "wte.weight" : "wpe.weight");
        return;
    }
    const size_t block = (index - 2) / (2 * BLOCK_LAYERS), which = (index - 2) / 2 % BLOCK_LAYERS;
    const int64_t rows = layers[which].rows, columns = layers[which].columns;
    const bool bias = index % 2 == 1, matrix = columns > 0 && !bias;
    *out = (struct parameter_shape){.rank = matrix ? 2 : 1, .bias = bias};
    out->dims[0] = bias && columns > 0 ? columns : rows;
    out->dims[1] = matrix ? columns : 0;
    if (block < (size_t)config->n_layer)
        (void)snprintf(out->name, sizeof out->name, "h.%zu.%s.%s", block, layers[which].name, bias ? "bias" : "weight");
    else
        (void)snprintf(out->name, sizeof out->name, "ln_f.%s", bias ? "bias" : "weight");
}

size_t parameter_elements(const struct parameter_shape *shape)
{
    return (size_t)shape->dims[0] * (shape->rank == 2 ? (size_t)shape->dims[1] : 1);
}

bool parameter_is_linear(const struct parameter_shape *shape)
{
    return shape->rank == 2 && strncmp(shape->name, "h.", 2) == 0;
}

int32_t parameters_index(const struct model_config *config, int32_t layer, enum block_layer which, bool bias)
{
    const int32_t step = config->bias ? 2 : 1;
    return bias && !config->bias ? -1 : 2 + (layer * BLOCK_LAYERS + (int32_t)which) * step + bias;
}

/* Where parameter_add() puts parameters, and the options that all of them share. */
struct parameter_maker {
    struct graph *graph;
    struct parameter_list *list;
    const struct model_config *config;
    const struct parameter_options *options;
    int64_t elements; /* the sum of the saved elements of the parameters added so far */
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

static enum gt_status parameter_add(struct parameter_maker *maker, const struct parameter_shape *shape)
{
    const struct model_config *config = maker->config;
    const bool matrix = shape->rank == 2, linear = parameter_is_linear(shape);
    const bool residual = strstr(shape->name, "c_proj.weight") != NULL, norm = strstr(shape->name, "ln_") != NULL;
    struct parameter *parameter = &maker->list->at[maker->list->count];
    struct tensor tensor = {.dtype = norm ? DTYPE_F32 : maker->options->dtype,
                            .rank = shape->rank,
                            .dims = {shape->dims[0], shape->dims[1]},
                            .base = TENSOR_NONE,
                            .category = CATEGORY_PARAMETER,
                            .lifetime = LIFETIME_RUN};
    *parameter = (struct parameter){.init = shape->bias ? INIT_ZERO
                                            : matrix    ? INIT_NORMAL
                                                        : INIT_ONE,
                                    .saved_rows = shape->dims[0],
                                    .decay = matrix,
                                    .embedding = matrix && !linear,
                                    .muon = maker->options->muon && linear,
                                    .index_base = maker->elements};
    if (matrix)
        parameter->init_std = (float)(residual ? INIT_STD / sqrt(2.0 * config->n_layer) : INIT_STD);
    if (maker->list->count == PARAMETERS_WTE)
        tensor.dims[0] = config->padded_vocab_size;
    (void)snprintf(parameter->name, sizeof parameter->name, "%.90s", shape->name);
    memcpy(tensor.name, parameter->name, sizeof tensor.name);
    TRY(graph_tensor_add(maker->graph, &tensor, &parameter->tensor));
    parameter->master = parameter->gradient = parameter->m = parameter->v = parameter->scales = TENSOR_NONE;
    maker->elements += (int64_t)parameter_elements(shape);
    maker->list->count++;
    return maker->options->states ? states_add(maker, parameter) : GT_OK;
}

enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options, struct parameter_list *out)
{
    const size_t count = parameters_count(config);
    struct parameter_maker maker = {graph, out, config, options, 0};
    enum gt_status status = GT_OK;
    *out = (struct parameter_list){.count = 0};
    TRY(HOSTMEM_NEW(graph->mem, count, "parameters", &out->at));
    for (size_t i = 0; status == GT_OK && i < count; i++) {
        struct parameter_shape shape;
        parameters_shape(config, i, &shape);
        if (!shape.bias || config->bias)
            status = parameter_add(&maker, &shape);
    }
    if (status != GT_OK)
        parameters_destroy(graph, out);
    return status;
}

void parameters_destroy(struct graph *graph, struct parameter_list *list)
{
    hostmem_free(graph->mem, list->at);
    list->at = NULL;
    list->count = 0;
}
