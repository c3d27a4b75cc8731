/* A device that is only planned for: a backend whose memory and dtypes are a profile's, and which runs nothing.
 *
 * It grants each op the workspace that the real backend may take at most (the caps below are the contract), so that a
 * profile's plan and the device's agree byte for byte at equal alignment and segments.
 */
#ifndef GPT_TRAIN_PLAN_PROFILE_DEVICE_H
#define GPT_TRAIN_PLAN_PROFILE_DEVICE_H

#include "backend/backend.h"
#include "plan/device_profile.h"

/* The caps, in bytes:
 *   gemm                  PROFILE_GEMM_BYTES, from which a library or an own kernel that splits K takes what it wants
 *   attention_backward    the fp32 sums of dq [N, H D], and one fp32 word per row and head (dy . y)
 *   attention_cached      of fewer than PROFILE_CACHE_ROWS new rows: fp32 sums and two words per head, for each part of
 *                         PROFILE_CACHE_KEYS cached rows, at most PROFILE_CACHE_PARTS parts
 *   layernorm_backward    PROFILE_PARTIAL_ROWS fp32 rows of dgain and as many of dbias
 *   bias_backward         PROFILE_PARTIAL_ROWS fp32 rows of dbias
 *   sum_of_squares, loss_sum   PROFILE_PARTIAL_ROWS fp32 words
 * All others work without.  Never more than what the op's shape can use: a product of a few KiB is not given 32 MiB. */
#define PROFILE_GEMM_BYTES ((size_t)32 << 20)
#define PROFILE_PARTIAL_ROWS 256
#define PROFILE_CACHE_ROWS 16
#define PROFILE_CACHE_KEYS 128
#define PROFILE_CACHE_PARTS 32

/* Errors: GT_NO_MEMORY. */
enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out);
/* The cap of one op. */
size_t profile_workspace_bytes(const struct backend *backend, const struct op_call *call);

#endif
