/* What of a resumed run differs from the run that wrote its checkpoint: kernels and plan, keys, data.
 *
 * Each function returns GT_OK when nothing differs, or logs the differences and goes on; with strict_resume it refuses them.
 */
#ifndef GPT_TRAIN_TRAIN_RESUME_CHECK_H
#define GPT_TRAIN_TRAIN_RESUME_CHECK_H

#include "train/feed.h"
#include "train/restore.h"

/* Says so where a resumed run computes otherwise than the run that wrote the checkpoint, so that bits will differ; with
 * strict_resume refuses it.  Errors: GT_USAGE. */
enum gt_status resume_check_bits(const struct session *session, const struct restore_source *source);

/* The same where this invocation changed keys on which results depend.  Keys that the checkpoint does not say pass.
 * Errors: GT_USAGE. */
enum gt_status resume_check_keys(const struct config *config, const struct restore_source *source);

/* What the splits are, by enum token_split; see feed_digest(). */
struct run_data {
    char text[2][FEED_DIGEST_MAX];
};

/* The same where a resumed run has other data than the checkpoint's, so that its batches are others.  A checkpoint that does
 * not say passes.  Errors: GT_USAGE. */
enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct run_data *data);

/* What decides the last bits of a run, as its record says it: the plan's choices and who computes.  NULL without memory. */
json_t *resume_plan_object(const struct session *session);

#endif
