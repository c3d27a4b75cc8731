/* The generation_config.json of an export. */
#ifndef GPT_TRAIN_IO_EXPORT_GENERATION_H
#define GPT_TRAIN_IO_EXPORT_GENERATION_H

#include "base/json.h"
#include "io/export_options.h"

/* *out = the generation_config.json of the export; release it with json_decref().  It is the
 * base's, with the tokens that begin and end a text of this model.  All end tokens of the base end
 * a text, too.  Errors: GT_NO_MEMORY. */
enum gt_status export_generation_make(const struct export_options *options, json_t **out);

#endif
