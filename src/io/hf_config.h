/* config.json: a model's shape in Hugging Face's terms, in both directions: the classes of
 * base/archs.def, and models of this program that no class of transformers can express.
 *
 * Source: transformers, configuration_gpt2.py, configuration_llama.py and its like for the fields
 * and their defaults, modeling_*.py for their meaning; activations.py: "gelu_new" and
 * "gelu_pytorch_tanh" are the same formula, the tanh one, and "gelu" is erf; modeling_rope_utils.py
 * for rope_scaling.  Releases since 5.0 write rope_parameters, which is read too.
 */
#ifndef GPT_TRAIN_IO_HF_CONFIG_H
#define GPT_TRAIN_IO_HF_CONFIG_H

#include "base/json.h"
#include "model/model.h"

/* Makes the config.json of `config`; release it with json_decref().  Equal arguments give equal
 * text.  A token id below 0 is unknown and is written as null, since GPT2Config's default of 50256
 * may be outside the vocabulary.  Fields unknown to transformers are in "gpt_train": {"bias": ...}.
 * A model that no class of transformers can express has the type "gpt_train".  Errors:
 * GT_NO_MEMORY. */
enum gt_status hf_config_make(const struct model_config *config, int32_t bos_token,
                              int32_t eos_token, json_t **out);

/* The other fields of config.json that the reader of the weights needs. */
struct hf_config_rest {
    bool tied;                    /* tie_word_embeddings */
    int32_t bos_token, eos_token; /* -1 if absent or null */
    bool is_part; /* the model is the text part of one with vision; its tensors' names have a prefix
                     for that */
};

/* The inverse; `source` is the file's name for error lines.  Absent fields have the class's
 * defaults, except that sizes are required.  One warning names the fields that are set and not
 * known here.  Without "gpt_train" a GPT-2 has biases.  padded_vocab_size is vocab_size; a GPT-2's
 * dropout is resid_pdrop. Errors: GT_DATA, GT_UNSUPPORTED, naming file and field. */
enum gt_status hf_config_parse(const json_t *root, const char *source, struct model_config *out,
                               struct hf_config_rest *out_rest);

/* Returns NULL if a class of transformers can express the model.  Otherwise writes the property
 * that no class has to `text`, such as "norm='layernorm' in llama's blocks", and returns it. */
#define HF_LACKS_MAX (SHAPE_TEXT_MAX + 32)
const char *hf_config_lacks(const struct model_config *config, char text[static HF_LACKS_MAX]);

/* Returns a property in the form of the configuration's keys and of our own objects, owned by the
 * caller; NULL without memory. */
json_t *hf_property_json(const struct shape *shape, enum shape_property property);
/* Reads a required size, at least 1 and below 2^24.  Errors: GT_DATA. */
enum gt_status hf_size_field(const json_t *root, const char *source, const char *name,
                             int32_t *out);
/* Reads a real in [min, max); leaves *value unchanged if the field is absent or null.  Errors:
 * GT_DATA. */
enum gt_status hf_real_field(const json_t *root, const char *source, const char *name, double min,
                             double max, double *value);

#endif
