/* The parameters of a GPT-2 and where the builder finds them. */
#ifndef GPT_TRAIN_MODEL_PARAMETERS_H
#define GPT_TRAIN_MODEL_PARAMETERS_H

#include "model/model.h"

/* Indices into parameter_list.at; -1 for biases that the configuration does not have. */
struct block_parameters {
    int32_t ln_1_gain, ln_1_bias, c_attn, c_attn_bias, c_proj, c_proj_bias;
    int32_t ln_2_gain, ln_2_bias, c_fc, c_fc_bias, mlp_proj, mlp_proj_bias;
};

struct model_parameters {
    int32_t wte, wpe, ln_f_gain, ln_f_bias;
};

struct parameter_options {
    enum dtype dtype; /* of weights and linear layers' biases */
    bool states;      /* gradients, moments and masters too, as `format` has them */
    enum state_format format;
    bool muon; /* matrices of the blocks have one moment, and no 8-bit codes */
};

/* Parameters in the checkpoint's order: wte, wpe, the blocks, ln_f; layernorms' gains and biases are few, read beside fp32
 * statistics, and stay fp32 with fp32 states.  Errors: GT_NO_MEMORY. */
enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options, struct parameter_list *out);
void parameters_destroy(struct graph *graph, struct parameter_list *list);

/* Where the parameters of block `layer` are in the list. */
struct block_parameters parameters_block(const struct model_config *config, int32_t layer);
struct model_parameters parameters_outside(const struct model_config *config);

/* Width of a row of qkv: (H + 2 KV) D. */
int64_t model_qkv_width(const struct model_config *config);

#endif
