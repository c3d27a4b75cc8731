/* Who else uses the card, from the driver's management library (NVML), which is looked for when a card is opened and need
 * not be there.  Nothing of it is linked, and no other library is loaded this way. */
#ifndef GPT_TRAIN_CUDA_CUDA_NVML_H
#define GPT_TRAIN_CUDA_CUDA_NVML_H

#include <stdint.h>

#include "backend/backend.h"

struct cuda_nvml;

/* For the card that the run-time API numbers `device`; NULL where the library or the card is not found.  Errors: GT_NO_MEMORY. */
enum gt_status cuda_nvml_open(int32_t device, struct cuda_nvml **out);
void cuda_nvml_close(struct cuda_nvml *nvml); /* accepts NULL */
/* Bytes of the card in use by anybody; 0 where that is not known. */
uint64_t cuda_nvml_used_bytes(const struct cuda_nvml *nvml);
/* "580.82.07"; "" where that is not known. */
const char *cuda_nvml_driver(const struct cuda_nvml *nvml);
/* The other processes with most memory of the card into `out`, as far as the driver says (not under WSL2). */
void cuda_nvml_holders(const struct cuda_nvml *nvml, struct backend_holders *out);

#endif
