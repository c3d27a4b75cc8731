/* Compares a resumed run with the run that wrote its checkpoint.
 *
 * Each function returns GT_OK if nothing differs.  It logs differences and continues; with
 * strict_resume it refuses them. */
#ifndef GPT_TRAIN_SESSION_RESUME_CHECK_H
#define GPT_TRAIN_SESSION_RESUME_CHECK_H

#include "session/restore.h"

/* Passes the algorithms in a checkpoint to the device, then reads its description, which may depend
 * on them.  To be called before the arena is allocated.  Errors: GT_DATA, the device's. */
enum gt_status resume_algorithms_choose(struct session *session,
                                        const struct checkpoint *checkpoint);

/* Reports differences in kernels and plan, which change the last bits of the results; with
 * strict_resume refuses them. Errors: GT_USAGE. */
enum gt_status resume_check_bits(const struct session *session,
                                 const struct restore_source *source);

/* Reports changed keys on which results depend.  Keys that the checkpoint lacks pass.  Errors:
 * GT_USAGE. */
enum gt_status resume_check_keys(const struct config *config, const struct restore_source *source);

/* The digests of the splits, by enum token_split; see feed_digest(). */
#define DATA_DIGEST_MAX 192
struct data_digests {
    char text[2][DATA_DIGEST_MAX];
};

/* Reports data that differ from the checkpoint's, so that the batches differ.  A checkpoint that
 * has no digests passes. Errors: GT_USAGE. */
enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct data_digests *data);

/* Returns true if the checkpoint's best validation loss is one of other data. */
bool resume_has_other_val(const struct restore_source *source, const struct data_digests *data);

/* Returns everything that decides the last bits of a run, for its record: the plan's choices, the
 * backend and its kernels.  Returns NULL without memory. */
json_t *resume_plan_object(const struct session *session);

#endif
