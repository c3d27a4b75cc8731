/* Guesses from its size which of nanoGPT's tensors an allocation was.
 *
 * nanoGPT under torch.amp.autocast creates a few kinds of large tensors whose sizes follow from the configuration.  A
 * tensor matches if its size, rounded as PyTorch's allocator rounds, prints as the message's number; the matches that
 * fit the traceback are listed first.  A size is evidence, not proof: the caller says "probably".
 *
 * source: nanoGPT model.py and train.py (commit 3adf61e); the dtypes are those of torch.amp's op lists (cross_entropy,
 * log_softmax, softmax and layer_norm in float32).
 */
#ifndef GPT_TRAIN_PLAN_OOM_MATCH_H
#define GPT_TRAIN_PLAN_OOM_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/oom_message.h"

#define OOM_MATCHES_MAX 8

/* The dimensions that determine the sizes. */
struct oom_shape {
    int64_t batch; /* sequences of a batch: eval_batch_size if an evaluation failed */
    int64_t block_size, n_embd, n_head, vocab_size;
};

struct oom_match {
    const char *name; /* "the logits" */
    const char *size; /* "batch x block_size x vocab_size" */
    uint64_t bytes;
    int32_t element_bytes;
    bool fits_traceback; /* also true without a traceback */
};

/* Fills out[OOM_MATCHES_MAX] and returns the number of matches.  Returns 0 also when the message contains no size, or
 * one that stands for any tensor below 10 MiB (2 and 20 MiB). */
int32_t oom_match_find(const struct oom_message *message, const struct oom_shape *shape,
                       struct oom_match out[static OOM_MATCHES_MAX]);
/* Returns a batch, different from `shape`'s, whose logits in elements of `element_bytes` have the message's size; 0
 * when there is none or the printed number is too coarse. */
int64_t oom_match_batch(const struct oom_message *message, const struct oom_shape *shape, int32_t element_bytes);
/* Returns true when the size is that of a segment for small tensors, which says nothing about the tensor. */
bool oom_is_small_segment(const struct oom_message *message);

#endif
