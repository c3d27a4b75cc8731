/* A model's tensors in files with Hugging Face's names (parameters.h).
 *
 * transformers' GPT-2 always has biases.  The weights file of a GPT-2 without them therefore has zeros, which have no
 * effect.  lm_head.weight is not listed if it is the token embedding.  Source: transformers
 * modeling_gpt2.py, GPT2Model and GPT2Block; modeling_llama.py.
 */
#ifndef GPT_TRAIN_IO_HF_LAYOUT_H
#define GPT_TRAIN_IO_HF_LAYOUT_H

#include "io/safetensors.h"
#include "model/parameters.h"

#define HF_PREFIX "transformer."

/* Finds `tensor` in `file`, whose names all have HF_PREFIX (save_pretrained of a GPT2LMHeadModel) or all lack it (the
 * hub's files).  The shapes must match, except that a position table may have more rows.  Errors: GT_DATA with
 * "FILE: h.3.attn.c_attn.weight is [768,2300]; the model needs [768,2304]", or "is missing". */
enum gt_status hf_layout_find(const struct safetensors *file, const struct parameter_shape *tensor, size_t *out_index);
/* Checks that `file` contains exactly the tensors of `config`; the only others allowed are lm_head.weight and old masks
 * (h.N.attn.bias, h.N.attn.masked_bias).  Errors: GT_DATA, naming the tensor. */
enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config);

#endif
