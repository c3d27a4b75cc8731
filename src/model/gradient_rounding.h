/* 16-bit gradients: a micro-step computes each gradient in fp32, and one op rounds it into the 16-bit accumulator.
 *
 * A gradient is thus rounded once per micro-step, however many loss chunks and ops contribute.  The fp32 tensor lives
 * only from the first contribution to the last.
 */
#ifndef GPT_TRAIN_MODEL_GRADIENT_ROUNDING_H
#define GPT_TRAIN_MODEL_GRADIENT_ROUNDING_H

#include "base/status.h"
#include "model/autodiff.h"
#include "model/model.h"

/* Fills targets[parameters]: each parameter's own gradient, or, if that has 16 bits, a new fp32 tensor of the program.
 * Errors: GT_NO_MEMORY. */
enum gt_status gradient_rounding_targets(struct model *model, const char *program, struct autodiff_parameter *targets);
/* Inserts the rounding of each new tensor after the last op that touches it.  `first` is set for the update's first
 * micro-step, which overwrites the accumulator.  Errors: GT_NO_MEMORY. */
enum gt_status gradient_rounding_insert(struct model *model, int32_t program, bool first,
                                        const struct autodiff_parameter *targets);

#endif
