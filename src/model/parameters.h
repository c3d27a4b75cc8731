/* The parameters of a GPT-2: their names, shapes and order, and their indices for the builder. */
#ifndef GPT_TRAIN_MODEL_PARAMETERS_H
#define GPT_TRAIN_MODEL_PARAMETERS_H

#include <stddef.h>

#include "model/model.h"

#define PARAMETER_NAME_MAX 128

/* A parameter as files have it: weights of linear layers are [in, out] (Conv1D). */
struct parameter_shape {
    char name[PARAMETER_NAME_MAX]; /* "h.3.attn.c_attn.weight" */
    int32_t rank;                  /* 1 or 2 */
    int64_t dims[2];
    bool bias;           /* a model without biases does not have it */
    bool position_table; /* wpe.weight: may be read in part, for a shorter block_size */
};

/* 4 + 12 n_layer, biases included. */
size_t parameters_count(const struct model_config *config);
/* Gives the parameter `index`, below parameters_count(), in the order of the model's modules: wte, wpe, the blocks,
 * ln_f.  This is the order of checkpoints. */
void parameters_shape(const struct model_config *config, size_t index, struct parameter_shape *out);
size_t parameter_elements(const struct parameter_shape *shape);
/* Returns true for the weight of a linear layer. */
bool parameter_is_linear(const struct parameter_shape *shape);

/* Indices into parameter_list.at of a model. */
enum { PARAMETERS_WTE, PARAMETERS_WPE };
enum block_layer { BLOCK_LN_1, BLOCK_C_ATTN, BLOCK_C_PROJ, BLOCK_LN_2, BLOCK_C_FC, BLOCK_MLP_PROJ, BLOCK_LAYERS };
/* Returns the index of a weight or bias of a block, -1 for biases in a model without them.  Layer n_layer is ln_f, as
 * BLOCK_LN_1. */
int32_t parameters_index(const struct model_config *config, int32_t layer, enum block_layer which, bool bias);

struct parameter_options {
    enum dtype dtype; /* of weights and linear layers' biases */
    bool states;      /* also add gradients, moments and masters in `format` */
    enum state_format format;
    bool muon; /* matrices of the blocks have one moment, and no 8-bit codes */
};

/* Adds the parameters.  Layernorms' gains and biases are few and are used with fp32 statistics, so they stay fp32 with
 * fp32 states.  Errors: GT_NO_MEMORY. */
enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options, struct parameter_list *out);
void parameters_destroy(struct graph *graph, struct parameter_list *list);

/* Returns the width of a row of qkv: (H + 2 KV) D. */
int64_t model_qkv_width(const struct model_config *config);

#endif
