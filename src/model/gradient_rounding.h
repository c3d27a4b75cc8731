/* 16-bit gradients: a micro-step computes each in fp32, and one op rounds it into what micro-steps add up in.
 *
 * So there is one rounding per micro-step and parameter, however many loss chunks and ops contribute, and an fp32 gradient
 * lives from the first contribution to the last, not to the update.
 */
#ifndef GPT_TRAIN_MODEL_GRADIENT_ROUNDING_H
#define GPT_TRAIN_MODEL_GRADIENT_ROUNDING_H

#include "base/status.h"
#include "model/autodiff.h"
#include "model/model.h"

/* targets[parameters] = where the program's gradients go: a parameter's own gradient, or a new fp32 tensor of the program.
 * Errors: GT_NO_MEMORY. */
enum gt_status gradient_rounding_targets(struct model *model, const char *program, struct autodiff_parameter *targets);
/* Adds the rounding of each new tensor behind the last op that touches it.  `first`: the update's first micro-step, which
 * overwrites.  Errors: GT_NO_MEMORY. */
enum gt_status gradient_rounding_insert(struct model *model, int32_t program, bool first,
                                        const struct autodiff_parameter *targets);

#endif
