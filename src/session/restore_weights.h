/* Connects checkpoints (io/) to a session: the names and shapes of the model's parameters to the
 * tensors of the executor. */
#ifndef GPT_TRAIN_SESSION_RESTORE_WEIGHTS_H
#define GPT_TRAIN_SESSION_RESTORE_WEIGHTS_H

#include "session/restore.h"
#include "session/restore_weights.h"

/* Sets the initial weights of what is trained, a pure function of the seed, and zeroes the moments.
 */
enum gt_status session_weights_init(struct session *session, uint64_t seed);
/* Fills the weights (and moments, and Adam's bias corrections) on the device with initial values
 * from `seed`, or with the checkpoint's. */
enum gt_status restore_weights(struct session *session, const struct restore_source *source,
                               uint64_t seed);

/* Creates the array that describes the model's parameters to io/, which the caller frees.  Errors:
 * GT_NO_MEMORY. */
enum gt_status restore_tensors(struct session *session, struct checkpoint_tensor **out);

/* The context of restore_array_write().  The caller frees `exponents`. */
struct restore_arrays {
    struct session *session;
    int8_t *exponents; /* of the 8-bit moments being converted: [2, blocks] */
};

/* Where elements of a part of a parameter are: the rank, which may be this one, and the place of
 * the first element there. */
struct restore_place {
    int32_t owner;
    int64_t first, count;
};
/* Returns the place of the elements from `first` on that are contiguous on one rank, at most
 * `count`. */
struct restore_place restore_place(const struct session *session, enum checkpoint_array part,
                                   int32_t index, int64_t first, int64_t count);
/* Returns this rank's tensor of a part. */
int32_t restore_array_tensor(const struct session *session, enum checkpoint_array part,
                             int32_t index);
/* A checkpoint_write_fn; the context is a struct restore_arrays.  Writes the elements that belong
 * to this rank. */
enum gt_status restore_array_write(void *context, enum checkpoint_array part, int32_t index,
                                   size_t first, size_t count, const void *values,
                                   enum dtype dtype);

#endif
