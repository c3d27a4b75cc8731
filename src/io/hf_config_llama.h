/* config.json of Llama, Mistral, Qwen2, Qwen3, and of models of this program that no class of transformers holds. */
#ifndef GPT_TRAIN_IO_HF_CONFIG_LLAMA_H
#define GPT_TRAIN_IO_HF_CONFIG_LLAMA_H

#include "base/json.h"
#include "model/model.h"

/* Returns the configuration, or NULL without memory. */
json_t *hf_config_llama_make(const struct model_config *config, int32_t bos_token, int32_t eos_token);
/* Reads all but tie_word_embeddings and the tokens.  Errors: GT_DATA, GT_UNSUPPORTED. */
enum gt_status hf_config_llama_parse(const json_t *root, const char *source, struct model_config *out);
/* Returns the model_type: "gpt2", "llama", "qwen2" or "qwen3"; "gpt_train" if no class holds the model. */
const char *hf_config_type(const struct model_config *config);
/* Returns NULL if a class of transformers holds the model, else the setting that none has: "norm='layernorm'". */
const char *hf_config_lacks(const struct model_config *config);

#endif
