/* The GPT-2 builder: the forward pass as ops.  Source: nanoGPT model.py (Block, CausalSelfAttention, MLP, GPT.forward). */
#ifndef GPT_TRAIN_MODEL_GPT2_H
#define GPT_TRAIN_MODEL_GPT2_H

#include "model/model.h"

struct gpt2_build {
    const struct model *model;
    int32_t program;
    int64_t batch, time;
    int32_t ids;     /* data [N] */
    int32_t targets; /* data [N], or TENSOR_NONE: no loss */
    int32_t losses;  /* [N], with targets */
    int32_t
        cache;  /* [L * 2, B, capacity, KV D] key-value cache, or TENSOR_NONE: attention over the program's own rows */
    bool train; /* dropout, and logits replaced by their gradient */
};

/* Embedding, blocks and the final layernorm: hidden states [N, C]; then the loss in chunks when there are targets. */
enum gt_status gpt2_build_loss(const struct gpt2_build *build);
/* With a cache: the same, and logits [N, Vp] of every row unless `logits` is NULL; then the last block stops at its
 * keys and values. */
enum gt_status gpt2_build_generate(const struct gpt2_build *build, int32_t *logits);

#endif
