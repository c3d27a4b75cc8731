/* Models in GGUF files: llama.cpp's names of the tensors, and the reader.
 *
 * Source: llama.cpp's gguf-py/gguf/constants.py and src/models/.
 */
#ifndef GPT_TRAIN_IO_GGUF_MODEL_H
#define GPT_TRAIN_IO_GGUF_MODEL_H

#include "data/tokenizer.h"
#include "io/gguf.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

/* A key of ours: the rope_scaling of a model with rope_freqs.weight, as the configuration writes
 * it. */
#define GGUF_KEY_SCALING "gpt_train.rope_scaling"
/* The window of a model's attention; follows the architecture. */
#define GGUF_KEY_WINDOW ".attention.sliding_window"

/* The pattern that llama.cpp has for Gemma 3: every sixth block has no window. */
#define GGUF_WINDOW_PATTERN 6

/* Keys of a model with other divisors in long contexts, which follow the architecture, and its
 * tensors. */
#define GGUF_KEY_ORIGINAL ".rope.scaling.original_context_length"
#define GGUF_KEY_ATTENTION ".rope.scaling.attn_factor"
#define GGUF_LONG_DIVISORS "rope_factors_long.weight"
#define GGUF_SHORT_DIVISORS "rope_factors_short.weight"

/* The number of last blocks that are for multi-token prediction; follows the architecture. */
#define GGUF_KEY_PREDICTING ".nextn_predict_layers"

/* A key of ours: the generation_config.json of the model. */
#define GGUF_KEY_GENERATION "gpt_train.generation"

/* The kinds of tokens in tokenizer.ggml.token_type. */
enum gguf_token {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4,
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6
};

/* A tensor as such a file has it. */
struct gguf_form {
    char name[GGUF_NAME_MAX];
    int32_t rank;
    int64_t dims[2]; /* dims[0] is the fastest */
    struct tensor_form file;
    float (*back)(float); /* undoes file.map */
};

/* Sets *out to the form of a tensor in a model's file, or of its adapters. */
void gguf_form_get(const struct model_config *config, const struct parameter_shape *shape,
                   struct gguf_form *out);
/* Returns the number whose root divides attention's scores in a Gemma 3 of this shape: the width of
 * a head, but n_embd / n_head in the model of 27B. */
double gguf_scores_divisor(double n_layer, double n_embd, double n_head, double head_dim);
/* Returns the divisor of pair i's frequency in rope_freqs.weight. */
float gguf_rope_divisor(const struct model_config *config, int32_t i);

/* Opens a model's file: its shape, and a table of its tensors with Hugging Face's names and shapes,
 * whose blocks are decoded as they are read.  Errors: GT_IO, GT_NO_MEMORY; GT_DATA and
 * GT_UNSUPPORTED (another architecture, a type of blocks or a tensor that is not read here), with
 * one line that names the file and the key or tensor. */
enum gt_status gguf_model_open(const void *owner, const char *path, struct model_config *out_config,
                               struct hf_config_rest *out_rest, struct safetensors **out);

#endif
