/* The programs that add the gradients of an update's parts, and give each rank the other ranks' new
 * weights. */
#ifndef GPT_TRAIN_MODEL_PARTS_H
#define GPT_TRAIN_MODEL_PARTS_H

#include "model/model.h"

/* Builds model->part_first and part_next, if an update has several parts and no micro-step is a
 * whole one.  Errors: GT_NO_MEMORY. */
enum gt_status parts_build(struct model *model);
/* Inserts into the program of a micro-step, which is a part, the exchange of the gradients and
 * their addition to the sum of earlier rounds, which they overwrite if `first`.  Errors:
 * GT_NO_MEMORY. */
enum gt_status parts_insert(struct model *model, int32_t program, bool first);
/* Builds model->gather, if there are several ranks.  Errors: GT_NO_MEMORY. */
enum gt_status gather_build(struct model *model);

#endif
