/* The update program: the norm of all gradients, the clip factor, and the optimizer step of each parameter. */
#ifndef GPT_TRAIN_MODEL_UPDATE_H
#define GPT_TRAIN_MODEL_UPDATE_H

#include "base/status.h"
#include "model/model.h"

/* Builds model->update.  Errors: GT_NO_MEMORY. */
enum gt_status update_build(struct model *model);

#endif
