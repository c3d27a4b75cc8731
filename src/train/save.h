/* When a run saves, and what a failed save leaves. */
#ifndef GPT_TRAIN_TRAIN_SAVE_H
#define GPT_TRAIN_TRAIN_SAVE_H

#include "train/trainer.h"

/* Saves after an evaluation if due.  Returns GT_OK after a failure to write, such as a full disk:
 * there may be room at the next evaluation, and the last checkpoint is intact.  Errors: others than
 * GT_IO. */
enum gt_status save_after_evaluation(struct trainer *t, double val_loss);
/* Saves at the end of a run.  Returns GT_DIVERGED, logged, if the model has diverged.  Errors:
 * those of saver_save(). */
enum gt_status save_at_end(struct trainer *t);
/* Returns true when the run saves only the best model and out_dir has one.  Saving another model
 * would overwrite it, and a resumed run would then compare its models with one that no longer
 * exists. */
bool save_keeps_best(const struct trainer *t);
/* Returns the iteration of this run's checkpoint in out_dir, or ITER_NONE. */
int64_t save_held_iter(const struct trainer *t);
#define KEPT_TEXT_MAX (FILE_PATH_MAX + 64)
/* Describes the checkpoint that remains.  Returns `text`. */
char *save_kept_text(char text[static KEPT_TEXT_MAX], const struct trainer *t);

#endif
