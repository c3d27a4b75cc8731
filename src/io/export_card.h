/* The model card of a Hugging Face folder. */
#ifndef GPT_TRAIN_IO_EXPORT_CARD_H
#define GPT_TRAIN_IO_EXPORT_CARD_H

#include "base/json.h"
#include "io/export.h"

#define EXPORT_CARD_NAME "README.md"
#define EXPORT_CARD_PICTURE "memory.svg"

/* Writes README.md to `folder`, and memory.svg if the run's metrics tell the plan.  `config` is the content of
 * config.json.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status export_card_write(const struct export_options *options, const json_t *config, const char *folder);

#endif
