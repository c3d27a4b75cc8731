/* Configuration files in YAML and JSON, and the choice of a file's form. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_FLAT_H
#define GPT_TRAIN_CONFIG_CONFIG_FLAT_H

#include "config/config.h"

/* Reads a configuration file: YAML or JSON if its name ends so, else nanoGPT's syntax.  `path` must
 * outlive `config`.  Errors: GT_USAGE, logged. */
enum gt_status config_read_file(struct config *config, const char *path);

#endif
