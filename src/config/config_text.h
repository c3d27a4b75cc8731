/* Keys whose text has a form of its own (memory_budget, expected_losses), and the model's shape
 * from the keys. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_TEXT_H
#define GPT_TRAIN_CONFIG_CONFIG_TEXT_H

#include "config/config.h"

/* Sets each key of a new model's shape that the user left open to the default of its `arch`. Leaves
 * vocab_size open: it depends on the data. */
void config_arch_resolve(struct config *config);
/* Returns the shape that the keys give; none may be open. */
struct shape config_shape(const struct config *config);

/* Converts memory_budget to bytes; 0 when the key is empty.  The value is a number with a unit (B,
 * KB, MB, GB, KiB, MiB, GiB; K, M and G mean KiB, MiB and GiB), a number of bytes without a unit,
 * at least 1 MiB, or a percentage of total_bytes. Errors: GT_USAGE, logged, for an invalid amount.
 */
enum gt_status config_memory_budget(const struct config *config, uint64_t total_bytes,
                                    uint64_t *out);
/* The same for host_budget, which may be 0. */
enum gt_status config_host_budget(const struct config *config, uint64_t total_bytes, uint64_t *out);

/* Looks up the range of validation losses that expected_losses gives for iteration `iter`.  Returns
 * false if it gives none or is malformed (its form is ITER:LOW-HIGH, separated by blanks).  With
 * iter = -1, checks the form only. */
struct config_band {
    double low, high;
};
bool config_expected_losses(const struct config *config, int64_t iter, struct config_band *out);
/* Returns the file or argument that set expected_losses, borrowed.  Returns NULL if they are not
 * set, or if the run differs from that file in a setting that affects results. */
const char *config_expected_source(const struct config *config);

#endif
