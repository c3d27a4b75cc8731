/* Checkpoints that a save does not replace: those of an earlier run, and the last few of the same run.
 *
 * Each is a folder inside of out_dir that is an out_dir itself: earlier-NNN of an earlier run, checkpoint-NNNNNN of iteration
 * NNNNNN.  Both are made of hard links before the save that would remove the files, so that a kill leaves out_dir's checkpoint
 * as it was, and perhaps the folder too.  The caller of what writes holds out_dir's lock.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_KEEP_H
#define GPT_TRAIN_IO_CHECKPOINT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define CHECKPOINT_KEEP_MAX 1000 /* the key keep's most */

/* Before the first save of a run that does not go on from out_dir's checkpoint: makes out_dir/earlier-NNN of what is there,
 * NNN being the next number, with the file `metrics` ("" or absent: none) as `metrics_as`, and moves the kept checkpoints of
 * iterations beyond `after` into it.  Says where they are.  Does nothing where there is nothing.  Errors: GT_IO, GT_USAGE. */
enum gt_status checkpoint_keep_earlier(const char *out_dir, int64_t after, const char *metrics, const char *metrics_as);
/* The folder that checkpoint_keep_earlier() would make, or made last; false where there is none that holds a checkpoint. */
bool checkpoint_keep_earlier_next(const char *out_dir, char path[static FILE_PATH_MAX]);
bool checkpoint_keep_earlier_last(const char *out_dir, char path[static FILE_PATH_MAX]);

/* Before a save: makes out_dir/checkpoint-NNNNNN of what is there, with keep > 1, and removes kept checkpoints but for the last
 * keep - 1 and the best.  A folder in which there is more than was put there is somebody's, and stays.  Errors: GT_IO,
 * GT_DATA. */
enum gt_status checkpoint_keep_last(const char *out_dir, int64_t keep);
/* How many are kept beside out_dir's own. */
size_t checkpoint_keep_count(const char *out_dir);

/* The folder of the checkpoint that `which` names, an iteration or "best" (the least validation loss); out_dir itself for its
 * own.  Errors: GT_USAGE where `which` is neither; GT_DATA where there is none such, naming those that there are. */
enum gt_status checkpoint_keep_find(const char *out_dir, const char *which, char path[static FILE_PATH_MAX]);

/* Removes what a kill left of a folder half made or half removed. */
void checkpoint_keep_repair(const char *out_dir);

#endif
