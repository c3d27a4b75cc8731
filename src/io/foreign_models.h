/* Describes models whose blocks are not supported, for messages that refuse them. */
#ifndef GPT_TRAIN_IO_FOREIGN_MODELS_H
#define GPT_TRAIN_IO_FOREIGN_MODELS_H

#include "base/json.h"

/* Returns the unsupported property of the model of a config.json with this model_type, such as "is
 * a mixture of experts"; NULL if that is not known. */
const char *foreign_model_what(const json_t *root, const char *type);

#endif
