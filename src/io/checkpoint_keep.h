/* Checkpoints that a save does not replace: those of an earlier run, and the last few of the current run.
 *
 * Each is a subfolder of out_dir that is an out_dir itself: earlier-NNN of an earlier run, checkpoint-NNNNNN of
 * iteration NNNNNN.  It is made of hard links before the save that would remove the files, so that a kill leaves
 * out_dir's checkpoint unchanged, perhaps together with the new folder.  Callers of functions that write hold out_dir's
 * lock.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_KEEP_H
#define GPT_TRAIN_IO_CHECKPOINT_KEEP_H

#include "base/file.h"

#define CHECKPOINT_KEEP_MAX 1000 /* the maximum of the key keep */

/* Call it before the first save of a run that does not continue out_dir's checkpoint.  It keeps the current contents as
 * out_dir/earlier-NNN, NNN being the next number, with the file `metrics` ("" or missing: none) as `metrics_as`, moves
 * the kept checkpoints of iterations after `after` into it, and logs its path.  Does nothing if there is nothing to
 * keep.  Errors: GT_IO, GT_USAGE. */
enum gt_status checkpoint_keep_earlier(const char *out_dir, int64_t after, const char *metrics, const char *metrics_as);
/* Give the folder that checkpoint_keep_earlier() would use, and the last one that exists.  Return false when out_dir,
 * or that folder, has no trainer_state.json. */
bool checkpoint_keep_earlier_next(const char *out_dir, char path[static FILE_PATH_MAX]);
bool checkpoint_keep_earlier_last(const char *out_dir, char path[static FILE_PATH_MAX]);

/* Call it before a save.  If keep > 1, it makes out_dir/checkpoint-NNNNNN from the current checkpoint.  Then it removes
 * kept checkpoints except the last keep - 1 and the best.  A folder that contains other files is not removed.  Errors:
 * GT_IO, GT_DATA. */
enum gt_status checkpoint_keep_last(const char *out_dir, int64_t keep);
/* The number of kept checkpoints, not counting out_dir's own. */
size_t checkpoint_keep_count(const char *out_dir);

/* Returns true when a file of this name is part of a checkpoint, or of a model that another program put there. */
bool checkpoint_keep_belongs(const char *name);

/* Finds the folder of the checkpoint `which`: an iteration, or "best" (the lowest validation loss).  Gives out_dir for
 * its own checkpoint.  Errors: GT_USAGE when `which` is neither; GT_DATA when there is no such checkpoint, listing the
 * existing ones. */
enum gt_status checkpoint_keep_find(const char *out_dir, const char *which, char path[static FILE_PATH_MAX]);

/* Removes the half-made or half-removed folder that a kill left.  Call it with checkpoint_repair(). */
void checkpoint_keep_repair(const char *out_dir);

#endif
