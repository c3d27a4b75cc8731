/* The parameters of a GPT-2, and their indices for the builder. */
#ifndef GPT_TRAIN_MODEL_PARAMETERS_H
#define GPT_TRAIN_MODEL_PARAMETERS_H

#include "model/model.h"

/* Indices into parameter_list.at; -1 for biases in a model without them. */
struct block_parameters {
    int32_t ln_1_gain, ln_1_bias, c_attn, c_attn_bias, c_proj, c_proj_bias;
    int32_t ln_2_gain, ln_2_bias, c_fc, c_fc_bias, mlp_proj, mlp_proj_bias;
};

struct model_parameters {
    int32_t wte, wpe, ln_f_gain, ln_f_bias;
};

struct parameter_options {
    enum dtype dtype; /* of weights and linear layers' biases */
    bool states;      /* also add gradients, moments and masters in `format` */
    enum state_format format;
    bool muon; /* matrices of the blocks have one moment, and no 8-bit codes */
};

/* Adds the parameters in checkpoint order: wte, wpe, the blocks, ln_f.  Layernorms' gains and biases are few and are
 * used with fp32 statistics, so they stay fp32 with fp32 states.  Errors: GT_NO_MEMORY. */
enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options, struct parameter_list *out);
void parameters_destroy(struct graph *graph, struct parameter_list *list);

/* Return the indices of the parameters of block `layer`, and of those outside the blocks. */
struct block_parameters parameters_block(const struct model_config *config, int32_t layer);
struct model_parameters parameters_outside(const struct model_config *config);

/* Returns the width of a row of qkv: (H + 2 KV) D. */
int64_t model_qkv_width(const struct model_config *config);

#endif
