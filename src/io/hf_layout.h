/* GPT-2's tensors in Hugging Face's names, shapes and order.
 *
 * A file of weights has all of them, biases included, even where the model has none: transformers' GPT-2 always has
 * biases, and zeros do nothing.  Weights of linear layers are [in, out] (Conv1D).  lm_head.weight is not listed: it is
 * wte.weight.  Source: transformers modeling_gpt2.py, GPT2Model and GPT2Block.
 */
#ifndef GPT_TRAIN_IO_HF_LAYOUT_H
#define GPT_TRAIN_IO_HF_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/safetensors.h"
#include "model/model.h"

#define HF_PREFIX "transformer."

struct hf_tensor {
    char name[SAFETENSORS_NAME_MAX]; /* without HF_PREFIX: "h.3.attn.c_attn.weight" */
    int32_t rank;                    /* 1 or 2 */
    int64_t dims[2];
    bool bias;           /* a bias, which a model without biases does not have */
    bool position_table; /* wpe.weight: may be read in part, when a shorter block_size is wanted */
};

/* 4 + 12 n_layer. */
size_t hf_layout_count(const struct model_config *config);
/* The tensor number `index` of hf_layout_count(), in the order of the model's modules. */
void hf_layout_tensor(const struct model_config *config, size_t index, struct hf_tensor *out);
size_t hf_tensor_elements(const struct hf_tensor *tensor);

/* Whether the names of `file` carry HF_PREFIX (save_pretrained of a GPT2LMHeadModel) or not (the hub's files). */
bool hf_layout_prefixed(const struct safetensors *file);
/* Finds `tensor` in `file`.  Its shape must be the tensor's, but that a position table may have more rows.  Errors:
 * GT_DATA with "FILE: h.3.attn.c_attn.weight is [768,2300], the model needs [768,2304]", or "is missing". */
enum gt_status hf_layout_find(const struct safetensors *file, bool prefixed, const struct hf_tensor *tensor,
                              size_t *out_index);
/* Checks that `file` holds exactly the tensors of `config`; besides them only lm_head.weight and old masks
 * (h.N.attn.bias, h.N.attn.masked_bias) are tolerated.  Errors: GT_DATA, naming the tensor. */
enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config);

#endif
