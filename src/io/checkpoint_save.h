/* Saves a checkpoint. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_SAVE_H
#define GPT_TRAIN_IO_CHECKPOINT_SAVE_H

#include "io/checkpoint.h"

/* out[count] = elements first ... of a part of the parameter `index`, in its saved dtype. */
typedef enum gt_status checkpoint_read_fn(void *context, enum checkpoint_array part, int32_t index,
                                          size_t first, size_t count, void *out);

struct checkpoint_save_options {
    const char *out_dir; /* exists */
    const struct model_config *config;
    const char *base;     /* the model that the adapters of `config`, if any, are for, */
    uint32_t base_crc32c; /* and its checksum from checkpoint_load() */
    struct checkpoint_state state;
    const struct checkpoint_tensor
        *tensors; /* exactly the trained parameters; without biases if config has none */
    size_t tensor_count;
    checkpoint_read_fn *read;
    void *read_context;
    void *staging; /* aligned to 4 bytes; 4 MiB is a good size */
    size_t staging_bytes;
};

/* Checks that a model of this shape can be saved and read back.  Call it at start-up, not after the
 * first hours. Errors: GT_UNSUPPORTED. */
enum gt_status checkpoint_config_check(const struct model_config *config);

/* Saves the run.  Allocates only JSON text, about 100 bytes per tensor, and releases it before
 * returning.  Refuses a value that is not finite, so that it never replaces a good checkpoint.
 * Errors: GT_IO, GT_NO_MEMORY, GT_DIVERGED (a value that is not finite), errors of `read`.  The
 * last checkpoint can still be loaded then.  After a failure in PUBLISH or CONFIG the new one is
 * complete, and checkpoint_repair() or the next save finishes publishing it. */
enum gt_status checkpoint_save(const struct checkpoint_save_options *options);

#endif
