/* The model's builder: the forward pass as ops.  Source: nanoGPT model.py (Block, CausalSelfAttention, MLP,
 * GPT.forward); transformers modeling_llama.py (LlamaDecoderLayer), modeling_qwen3.py (Qwen3Attention). */
#ifndef GPT_TRAIN_MODEL_TRANSFORMER_H
#define GPT_TRAIN_MODEL_TRANSFORMER_H

#include "model/model.h"

struct transformer_build {
    const struct model *model;
    int32_t program;
    int64_t batch, time;
    int32_t ids;     /* data [N] */
    int32_t targets; /* data [N], or TENSOR_NONE: no loss */
    int32_t losses;  /* [N], with targets */
    int32_t cache;   /* [L * 2, B, capacity, KV D] key-value cache; TENSOR_NONE: attend to the program's own rows */
    bool train;      /* apply dropout, and replace the logits by their gradient */
};

/* Appends the embedding, the blocks, the last norm, giving hidden states [N, C], and the loss in chunks. */
enum gt_status transformer_build_loss(const struct transformer_build *build);
/* Appends the forward pass with a key-value cache, and returns logits [N, Vp] of every row.  With `logits` NULL
 * (prefill), the last block ends once its keys and values are in the cache. */
enum gt_status transformer_build_generate(const struct transformer_build *build, int32_t *logits);

#endif
