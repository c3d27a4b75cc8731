/* The end of a run: renames NAME.partial to NAME. */
#ifndef GPT_TRAIN_DATA_PREPARE_COMMIT_H
#define GPT_TRAIN_DATA_PREPARE_COMMIT_H

#include "data/prepare_state.h"

/* prepare_publish() makes the list, prepare_commit() carries it out. */
enum gt_status prepare_publish(struct prepare *prep);
enum gt_status prepare_commit(struct prepare *prep);
/* Refuses a folder whose data set cannot be replaced, because its manifest does not list the data
 * set's files. */
enum gt_status prepare_check_old(const struct prepare *prep);
/* Removes the temporary files of a run that has finished, or that never started to replace
 * anything; the state first. Returns false, with errno, when it cannot remove the state, and leaves
 * all files for the next run, because the state names them. */
bool prepare_clean(struct prepare *prep);
/* Like prepare_clean(), for an earlier run or one whose state is gone; also removes the outputs of
 * a commit that was stopped halfway.  Errors: GT_IO, GT_NO_MEMORY; the state stays when half a data
 * set stays, or when it cannot be removed. */
enum gt_status prepare_discard(struct prepare *prep);
/* Returns true for names of our files in out_dir, with or without the suffix of unfinished ones. */
bool prepare_is_output(const char *name);

#endif
