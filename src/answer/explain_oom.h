/* --explain_oom: what a PyTorch out-of-memory message means. */
#ifndef GPT_TRAIN_ANSWER_EXPLAIN_OOM_H
#define GPT_TRAIN_ANSWER_EXPLAIN_OOM_H

#include "config/config.h"
#include "model/model.h"

/* --explain_oom: explain_oom_text() of the text that config->explain_oom names ("-": standard
 * input).  Errors: GT_IO; those of explain_oom_text() and device_profile_find(). */
enum gt_status explain_oom(struct config *config, const struct model_config *model);

#endif
