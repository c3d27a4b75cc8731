/* The parts of which model_create() makes a model's programs. */
#ifndef GPT_TRAIN_MODEL_PROGRAMS_H
#define GPT_TRAIN_MODEL_PROGRAMS_H

#include "model/model.h"

/* Appends the embedding, the blocks, the last norm, giving hidden states [N, C], and the loss in chunks.  `train`
 * applies dropout and replaces the logits by their gradient. */
enum gt_status transformer_build_loss(const struct model *model, const struct program_io *io, bool train);
/* Appends the forward pass with a key-value cache [L * 2, B, capacity, KV D], and returns logits [N, Vp] of every row.
 * With `logits` NULL (prefill), the last block ends once its keys and values are in the cache. */
enum gt_status transformer_build_generate(const struct model *model, const struct program_io *io, int32_t cache,
                                          int32_t *logits);

/* Builds model->part_first and part_next, if an update has several parts and no micro-step is a whole one.  Errors:
 * GT_NO_MEMORY. */
enum gt_status parts_build(struct model *model);
/* Inserts into the program of a micro-step, which is a part, the exchange of the gradients and their addition to those
 * of earlier rounds, or as the first.  Errors: GT_NO_MEMORY. */
enum gt_status parts_insert(struct model *model, int32_t program, bool first);
/* Builds model->gather, if there are several ranks.  Errors: GT_NO_MEMORY. */
enum gt_status gather_build(struct model *model);
/* Builds model->update: the norm of all gradients, the clip factor, and the optimizer step of each parameter.  Errors:
 * GT_NO_MEMORY. */
enum gt_status update_build(struct model *model);
/* Builds model->refresh, which copies the masters, if there are any, to the weights after the host has written them.
 * Errors: GT_NO_MEMORY. */
enum gt_status refresh_build(struct model *model);

#endif
