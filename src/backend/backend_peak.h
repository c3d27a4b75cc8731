/* Measures a device's rate of matrix products, for MFU and forecasts, through the backend interface
 * only. */
#ifndef GPT_TRAIN_BACKEND_BACKEND_PEAK_H
#define GPT_TRAIN_BACKEND_BACKEND_PEAK_H

#include "backend/backend.h"

/* Writes `count` random numbers between -1 and 1, always the same: products of equal numbers, or of
 * zeros, take less power than those of training. */
void backend_noise(enum dtype dtype, int64_t count, void *out);

/* Measures the rate of matrix products in `dtype`, in FLOP/s, for MFU; takes about `seconds`.  Uses
 * fp32 if the device cannot multiply `dtype`.  Overwrites at most `scratch_bytes` of the arena from
 * `scratch`.  Errors: GT_NO_FIT (not logged) when not even a small product fits, and those of
 * run(). */
enum gt_status backend_peak_flops(struct backend *backend, enum dtype dtype, struct address scratch,
                                  size_t scratch_bytes, double seconds, double *out);

#endif
