/* The loss scale of float16. */
#ifndef GPT_TRAIN_SESSION_LOSS_SCALER_H
#define GPT_TRAIN_SESSION_LOSS_SCALER_H

#include "base/dtype.h"
#include "base/json.h"

/* Dynamic loss scaling for float16.  The loss is multiplied by a scale, so that small gradients do
 * not vanish, and the gradients are divided by it before they are used.
 *
 * Source: PyTorch torch.amp.GradScaler, whose defaults these are: the scale starts at 2^16; an
 * update whose gradients are not finite is skipped and halves the scale; 2,000 good updates in a
 * row double it.  Other dtypes keep the scale 1. */
#define LOSS_SCALE_FIRST 65536.0
#define LOSS_SCALE_GROWTH 2.0
#define LOSS_SCALE_BACKOFF 0.5
#define LOSS_SCALE_GROWTH_INTERVAL 2000

struct loss_scaler {
    bool dynamic;           /* float16 */
    double scale;           /* a power of two within fp32's range */
    int64_t growth_tracker; /* good updates since the scale changed: GradScaler's _growth_tracker */
};

void loss_scaler_init(struct loss_scaler *scaler, enum dtype dtype);
/* Adjusts the scale after an update, skipped or not.  The scale never leaves fp32's normal range.
 */
void loss_scaler_update(struct loss_scaler *scaler, bool found_inf);

/* Returns {"scale": 65536.0, "growth_tracker": 0} for the checkpoint; NULL without memory. */
json_t *loss_scaler_to_json(const struct loss_scaler *scaler);
/* Restores the state from a checkpoint if scaling is dynamic.  `source` names the file in errors.
 * Errors: GT_DATA. */
enum gt_status loss_scaler_from_json(struct loss_scaler *scaler, const json_t *object,
                                     const char *source);

#endif
