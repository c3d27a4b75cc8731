/* Reports who else uses the card, through the driver's management library (NVML).  The library is looked up when a card
 * is opened and may be missing; it is never linked. */
#ifndef GPT_TRAIN_CUDA_CUDA_NVML_H
#define GPT_TRAIN_CUDA_CUDA_NVML_H

#include "backend/backend.h"

struct cuda_nvml;

/* Opens NVML for the card that the run-time API numbers `device`.  *out is NULL when the library or the card is not
 * found.  Errors: GT_NO_MEMORY. */
enum gt_status cuda_nvml_open(int32_t device, struct cuda_nvml **out);
void cuda_nvml_close(struct cuda_nvml *nvml); /* accepts NULL */
/* Returns the bytes of the card in use by all processes, or 0 when unknown. */
uint64_t cuda_nvml_used_bytes(const struct cuda_nvml *nvml);
/* Returns the driver's release, "580.82.07", or "" when unknown. */
const char *cuda_nvml_driver(const struct cuda_nvml *nvml);
/* Inserts into `out` the other processes that use the most memory of the card, as far as the driver reports them (not
 * under WSL2). */
void cuda_nvml_holders(const struct cuda_nvml *nvml, struct backend_holders *out);

#endif
