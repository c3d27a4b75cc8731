/* Models in GGUF files: what llama.cpp calls the tensors, and the reader.
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
/* Of a model whose attention has a window: follows the architecture. */
#define GGUF_KEY_WINDOW ".attention.sliding_window"

/* Of a model with other divisors in long contexts, follow the architecture; and its tensors. */
#define GGUF_KEY_ORIGINAL ".rope.scaling.original_context_length"
#define GGUF_KEY_ATTENTION ".rope.scaling.attn_factor"
#define GGUF_LONG_DIVISORS "rope_factors_long.weight"
#define GGUF_SHORT_DIVISORS "rope_factors_short.weight"

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

/* Writes the name of a tensor of a model's file, or of its adapters.  Returns the head_dim of heads
 * whose rows are stored in the order of neighbours, 0, D/2, 1, D/2 + 1, ...; else 0. */
int32_t gguf_tensor_name(const struct model_config *config, const struct parameter_shape *shape,
                         char out[static GGUF_NAME_MAX]);
/* Returns by how much a tensor's values in the file, which are float32, exceed the model's. */
float gguf_plus(const struct model_config *config, const struct parameter_shape *shape);
/* Returns what rope_freqs.weight divides the frequency of pair i by. */
float gguf_rope_divisor(const struct model_config *config, int32_t i);

/* Opens a model's file: its shape, and a table of its tensors with Hugging Face's names and shapes,
 * whose blocks are decoded as they are read.  Errors: GT_IO, GT_NO_MEMORY; GT_DATA and
 * GT_UNSUPPORTED (another architecture, a type of blocks or a tensor that is not read here), with
 * one line that names the file and the key or tensor. */
enum gt_status gguf_model_open(const void *owner, const char *path, struct model_config *out_config,
                               struct hf_config_rest *out_rest, struct safetensors **out);

#endif
