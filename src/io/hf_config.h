/* config.json: a model's shape in Hugging Face's words (GPT2Config), and back.
 *
 * Source: transformers, models/gpt2/configuration_gpt2.py for the fields and their defaults, modeling_gpt2.py for what
 * they do; activations.py: "gelu_new" and "gelu_pytorch_tanh" are one formula, the tanh one, and "gelu" is erf.
 */
#ifndef GPT_TRAIN_IO_HF_CONFIG_H
#define GPT_TRAIN_IO_HF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "model/model.h"

/* config.json of `config`: release with json_decref().  Equal arguments give equal text.  Token ids below 0 are unknown
 * and written as null, since GPT2Config's default of 50256 may be beyond the vocabulary.  What transformers does not
 * know stands under "gpt_train": {"bias": ...}.  Errors: GT_NO_MEMORY; GT_UNSUPPORTED for what GPT-2 cannot say. */
enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token, int32_t eos_token, json_t **out);

/* What else of a config.json the reader of the weights needs. */
struct hf_config_rest {
    bool tied;                    /* tie_word_embeddings */
    int32_t bos_token, eos_token; /* -1 where absent or null */
};

/* The inverse; `source` is the file's name for error lines.  Absent fields have GPT2Config's defaults, except that
 * vocab_size, n_positions, n_embd, n_layer and n_head must be there.  Without "gpt_train" the model has biases.
 * padded_vocab_size is vocab_size; dropout is resid_pdrop.  Errors: GT_DATA, GT_UNSUPPORTED, naming file and field. */
enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest);

#endif
