/* The public files of a checkpoint's folder, kept consistent with the commit record.
 *
 * Used by saving and by the repair at start-up.  The caller holds the folder's lock.
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

/* Call it before replacing the model by one with `config`.  It removes a config.json with other content, so that in
 * between a reader finds no model rather than one model's weights with another's shape.  Errors: GT_IO. */
enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config);
/* Makes FOLDER/model.safetensors a hard link to FOLDER/`name` in one rename; a copy if the file system refuses links or
 * `may_link` is false.  Errors: GT_IO; the old file is in place then. */
enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link);
/* Returns true when FOLDER/model.safetensors and FOLDER/`name` are the same file. */
bool checkpoint_publish_is_link(const char *folder, const char *name);
/* Replaces FOLDER/config.json unless it is up to date; *out_changed is whether it was replaced.  Errors: GT_IO,
 * GT_NO_MEMORY. */
enum gt_status checkpoint_publish_config(const char *folder, const json_t *config, bool *out_changed);
/* Sets *out to the permissions for a new file of a generation: the intersection of those of the files of this kind in
 * `folder`.  *out_found is false when there are none.  Errors: GT_IO when they cannot be determined. */
enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out, bool *out_found);
/* Removes the generation files in `folder` except the two named ("" keeps none).  Returns the number removed. */
size_t checkpoint_publish_clean(const char *folder, const char *model_name, const char *optimizer_name);
/* Returns true when the file at `path` is what json_replace_file() would write.  Logs nothing when it is absent. */
bool checkpoint_json_equals(const char *path, const json_t *value);

#endif
