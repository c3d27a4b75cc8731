/* The backward pass of a micro-step. */
#ifndef GPT_TRAIN_MODEL_MICRO_STEP_H
#define GPT_TRAIN_MODEL_MICRO_STEP_H

#include "model/model.h"

/* Appends the backward pass to the program io->program, which has the forward pass and the loss,
 * and adds each gradient to the sum of the micro-steps before, or overwrites that sum if `first`.
 * Errors: GT_NO_MEMORY. */
enum gt_status micro_step_backward(struct model *model, enum program_kind kind, bool first,
                                   const struct program_io *io);

#endif
