/* The update program. */
#ifndef GPT_TRAIN_MODEL_UPDATE_H
#define GPT_TRAIN_MODEL_UPDATE_H

#include "model/model.h"

/* Builds model->update: the norm of all gradients, the clip factor, and the optimizer step of each
 * parameter.  Errors: GT_NO_MEMORY. */
enum gt_status update_build(struct model *model);
/* Builds model->refresh, which copies the masters, if there are any, to the weights after the host
 * has written them. Errors: GT_NO_MEMORY. */
enum gt_status refresh_build(struct model *model);

#endif
