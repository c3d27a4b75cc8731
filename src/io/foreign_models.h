/* What models are whose blocks are not computed here, for messages that refuse them. */
#ifndef GPT_TRAIN_IO_FOREIGN_MODELS_H
#define GPT_TRAIN_IO_FOREIGN_MODELS_H

#include "base/json.h"

/* Returns what the model of a config.json with this model_type is or does that is not supported,
 * as "is a mixture of experts"; NULL if that is not known. */
const char *foreign_model_what(const json_t *root, const char *type);

#endif
