/* config.json: a model's shape in Hugging Face's terms (GPT2Config), in both directions.
 *
 * Source: transformers, models/gpt2/configuration_gpt2.py for the fields and their defaults, modeling_gpt2.py for their
 * meaning; activations.py: "gelu_new" and "gelu_pytorch_tanh" are the same formula, the tanh one, and "gelu" is erf.
 */
#ifndef GPT_TRAIN_IO_HF_CONFIG_H
#define GPT_TRAIN_IO_HF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "model/model.h"

/* Makes the config.json of `config`; release it with json_decref().  Equal arguments give equal text.  A token id below
 * 0 is unknown and is written as null, since GPT2Config's default of 50256 may be outside the vocabulary.  Fields
 * unknown to transformers are in "gpt_train": {"bias": ...}.  Errors: GT_NO_MEMORY; GT_UNSUPPORTED for a model that
 * GPT-2 cannot express. */
enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out);

/* The other fields of config.json that the reader of the weights needs. */
struct hf_config_rest {
    bool tied;                    /* tie_word_embeddings */
    int32_t bos_token, eos_token; /* -1 if absent or null */
};

/* The inverse; `source` is the file's name for error lines.  Absent fields have GPT2Config's defaults, except that
 * vocab_size, n_positions, n_embd, n_layer and n_head are required.  Without "gpt_train" the model has biases.
 * padded_vocab_size is vocab_size; dropout is resid_pdrop.  Errors: GT_DATA, GT_UNSUPPORTED, naming file and field. */
enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest);

#endif
