/* Compares a resumed run with the run that wrote its checkpoint: kernels and plan, keys, data.
 *
 * Each function returns GT_OK if nothing differs.  It logs differences and continues; with strict_resume it refuses
 * them.
 */
#ifndef GPT_TRAIN_TRAIN_RESUME_CHECK_H
#define GPT_TRAIN_TRAIN_RESUME_CHECK_H

#include "train/feed.h"
#include "train/restore.h"

/* Passes the algorithms in a checkpoint's `plan` to the device.  `source` names the file in errors.  To be called before
 * the arena is taken.  Errors: GT_DATA. */
enum gt_status resume_algorithms_choose(struct backend *device, const json_t *plan, const char *source);

/* Reports differences in kernels and plan, which change the last bits of the results; with strict_resume refuses them.
 * Errors: GT_USAGE. */
enum gt_status resume_check_bits(const struct session *session, const struct restore_source *source);

/* Reports changed keys on which results depend.  Keys that the checkpoint lacks pass.  Errors: GT_USAGE. */
enum gt_status resume_check_keys(const struct config *config, const struct restore_source *source);

/* The digests of the splits, by enum token_split; see feed_digest(). */
struct run_data {
    char text[2][FEED_DIGEST_MAX];
};

/* Reports data that differ from the checkpoint's, so that the batches differ.  A checkpoint that has no digests passes.
 * Errors: GT_USAGE. */
enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct run_data *data);

/* Returns everything that decides the last bits of a run, for its record: the plan's choices, the backend and its
 * kernels.  Returns NULL without memory. */
json_t *resume_plan_object(const struct session *session);

#endif
