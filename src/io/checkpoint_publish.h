/* The part of a checkpoint's folder that others see, kept equal to the commit record.
 *
 * Shared by saving and by the repair at start-up.  The caller holds the folder's lock.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_PUBLISH_H
#define GPT_TRAIN_IO_CHECKPOINT_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint_record.h"

#define CHECKPOINT_MODEL_NAME "model.safetensors"
#define CHECKPOINT_CONFIG_NAME "config.json"
#define CHECKPOINT_JSON_INDENT 2

/* Before the model is replaced by one of `config`: removes a config.json that says anything else, so that in between a reader
 * finds no model rather than the weights of one and the shape of another.  Errors: GT_IO. */
enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config);
/* Makes FOLDER/model.safetensors another name of FOLDER/`name` in one rename; a copy where links are refused or
 * `may_link` is false.  Errors: GT_IO; the old file is in place then. */
enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link);
/* Whether FOLDER/model.safetensors and FOLDER/`name` are one file. */
bool checkpoint_publish_is_link(const char *folder, const char *name);
/* Replaces FOLDER/config.json unless it says the same already; *out_changed tells which.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status checkpoint_publish_config(const char *folder, const json_t *config, bool *out_changed);
/* The permissions that a new file of a generation takes over from those of its kind that are in `folder`: what all of them
 * allow.  *out_found is false where there are none.  Errors: GT_IO where that cannot be told. */
enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out, bool *out_found);
/* Removes the generations' files in `folder` other than the two named ("" keeps none); returns how many. */
size_t checkpoint_publish_clean(const char *folder, const char *model_name, const char *optimizer_name);
/* Whether the file at `path` holds exactly what json_replace_file() would write.  Logs nothing when it is absent. */
bool checkpoint_json_equals(const char *path, const json_t *value);

#endif
