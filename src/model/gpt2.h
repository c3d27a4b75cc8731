/* The GPT-2 builder: the forward pass as ops.  Source: nanoGPT model.py (Block, CausalSelfAttention, MLP,
 * GPT.forward). */
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
    int32_t cache;   /* [L * 2, B, capacity, KV D] key-value cache; TENSOR_NONE: attend to the program's own rows */
    bool train;      /* apply dropout, and replace the logits by their gradient */
};

/* Appends the embedding, the blocks, the final layernorm, giving hidden states [N, C], and the loss in chunks. */
enum gt_status gpt2_build_loss(const struct gpt2_build *build);
/* Appends the forward pass with a key-value cache, and returns logits [N, Vp] of every row.  With `logits` NULL
 * (prefill), the last block ends once its keys and values are in the cache. */
enum gt_status gpt2_build_generate(const struct gpt2_build *build, int32_t *logits);

#endif
