/* The files of out_dir: publishes a generation and removes old ones; keeps checkpoints, as folders
 * of hard links inside out_dir; checkpoint_repair(). */
#ifndef GPT_TRAIN_IO_CHECKPOINT_FOLDER_H
#define GPT_TRAIN_IO_CHECKPOINT_FOLDER_H

#include "io/checkpoint.h"

/* Repairs a folder after a kill: removes temporary files, a kept checkpoint that is half made or
 * half removed, and generations that trainer_state.json does not name, and makes model.safetensors
 * and config.json match the record (one note for each).  Without a record it only removes files.
 * Call it under the folder's lock, before probing.  Errors: GT_IO, GT_DATA (a damaged record: no
 * generation is removed then). */
enum gt_status checkpoint_repair(const char *out_dir);

/* ---- checkpoints that a save does not replace: those of an earlier run, and the last few of the
 * current run ----
 *
 * Each is a subfolder of out_dir that is an out_dir itself: earlier-NNN of an earlier run,
 * checkpoint-NNNNNN of iteration NNNNNN.  It is made of hard links before the save that would
 * remove the files, so that a kill leaves out_dir's checkpoint unchanged, perhaps together with the
 * new folder.  Callers of functions that write hold out_dir's lock. */

/* Call it before the first save of a run that does not continue out_dir's checkpoint.  It keeps the
 * current contents as out_dir/earlier-NNN, NNN being the next number, with the file `metrics` (""
 * or missing: none) as metrics.jsonl, moves the kept checkpoints of iterations after `after` into
 * it, and logs its path.  Does nothing if there is nothing to keep.  Errors: GT_IO, GT_USAGE. */
enum gt_status checkpoint_keep_earlier(const char *out_dir, int64_t after, const char *metrics);
/* Give the folder that checkpoint_keep_earlier() would use, and the last one that exists.  Return
 * false when out_dir, or that folder, has no trainer_state.json. */
bool checkpoint_keep_earlier_next(const char *out_dir, char path[static FILE_PATH_MAX]);
bool checkpoint_keep_earlier_last(const char *out_dir, char path[static FILE_PATH_MAX]);

/* Call it before a save.  If keep > 1, it makes out_dir/checkpoint-NNNNNN from the current
 * checkpoint.  Then it removes kept checkpoints except the last keep - 1 and the best.  A folder
 * that contains other files is not removed.  Errors: GT_IO, GT_DATA. */
enum gt_status checkpoint_keep_last(const char *out_dir, int64_t keep);
/* Finds the last checkpoint that transformers' Trainer saved in `folder`, and writes its path.
 * Returns false if the folder has no such checkpoint. */
bool checkpoint_folder_of_trainer(const char *folder, char path[static FILE_PATH_MAX]);
/* The number of kept checkpoints, not counting out_dir's own. */
size_t checkpoint_keep_count(const char *out_dir);

/* Returns true when a file of this name is part of a checkpoint, or of a model that another program
 * put there. */
bool checkpoint_keep_belongs(const char *name);

/* Finds the folder of the checkpoint `which`: an iteration, or "best" (the lowest validation loss).
 * Gives out_dir for its own checkpoint.  Errors: GT_USAGE when `which` is neither; GT_DATA when
 * there is no such checkpoint, listing the existing ones. */
enum gt_status checkpoint_keep_find(const char *out_dir, const char *which,
                                    char path[static FILE_PATH_MAX]);

/* The public files of the folder, kept consistent with the record.  The caller holds the folder's
 * lock. */

/* Call it before replacing the model by one with `config`.  It removes a config.json with other
 * content, so that in between a reader finds no model rather than one model's weights with
 * another's shape.  Errors: GT_IO. */
enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config);
/* Makes FOLDER/model.safetensors a hard link to FOLDER/`name` in one rename; a copy if the file
 * system refuses links or `may_link` is false.  Errors: GT_IO; the old file is in place then. */
enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link);
/* Returns true when FOLDER/model.safetensors and FOLDER/`name` are the same file. */
bool checkpoint_publish_is_link(const char *folder, const char *name);
/* Replaces FOLDER/config.json unless it is up to date; *out_changed is whether it was replaced.
 * Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status checkpoint_publish_config(const char *folder, const json_t *config,
                                         bool *out_changed);
/* Sets *out to the permissions for a new file of a generation: the intersection of those of the
 * files of this kind in `folder`.  *out_found is false when there are none.  Errors: GT_IO when
 * they cannot be determined. */
enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out,
                                       bool *out_found);
/* Removes the generation files in `folder` except the two named ("" keeps none). */
void checkpoint_publish_clean(const char *folder, const char *model_name,
                              const char *optimizer_name);

#endif
