/* Reads a configuration in nanoGPT's syntax: a small subset of Python, which is parsed and never
 * executed. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_FILE_H
#define GPT_TRAIN_CONFIG_CONFIG_FILE_H

#include "config/config.h"

/* Reads a file in nanoGPT's syntax, which config_file.c describes; time.time() is the current time.
 * `path` must outlive `config`. Errors: GT_USAGE after every problem of the file has been logged as
 * "PATH:LINE:COLUMN: ...". */
enum gt_status config_parse_file(struct config *config, const char *path);
/* Parses text[count] in the same way; `name` replaces the path. */
enum gt_status config_parse_text(struct config *config, const char *name, const char *text,
                                 size_t count);

#endif
