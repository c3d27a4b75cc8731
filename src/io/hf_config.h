/* config.json: a model's shape in Hugging Face's terms, in both directions.  hf_config_llama.c has Llama's family.
 *
 * Source of GPT2Config: transformers, models/gpt2/configuration_gpt2.py for the fields and their defaults,
 * modeling_gpt2.py for their meaning; activations.py: "gelu_new" and "gelu_pytorch_tanh" are the same formula, the tanh
 * one, and "gelu" is erf.
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
 * unknown to transformers are in "gpt_train": {"bias": ...}.  A model that no class of transformers holds has the type
 * "gpt_train".  Errors: GT_NO_MEMORY. */
enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out);

/* The other fields of config.json that the reader of the weights needs. */
struct hf_config_rest {
    bool tied;                    /* tie_word_embeddings */
    int32_t bos_token, eos_token; /* -1 if absent or null */
};

/* The inverse; `source` is the file's name for error lines.  Absent fields have the class's defaults, except that sizes
 * are required.  Without "gpt_train" a GPT-2 has biases.  padded_vocab_size is vocab_size; a GPT-2's dropout is
 * resid_pdrop.  Errors: GT_DATA, GT_UNSUPPORTED, naming file and field. */
enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest);

#endif
