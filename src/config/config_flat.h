/* Configuration files in YAML and JSON, and the choice of a file's form. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_FLAT_H
#define GPT_TRAIN_CONFIG_CONFIG_FLAT_H

#include "config/config.h"

/* Reads a configuration file of any form: by the end of its name YAML or JSON, else nanoGPT's.
 * `path` must outlive `config`.  Errors: GT_USAGE, logged. */
enum gt_status config_read_file(struct config *config, const char *path);

#endif
