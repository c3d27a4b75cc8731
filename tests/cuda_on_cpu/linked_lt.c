/* backends/cuda/cuda_lt.c for the emulated backend: returns the linked functions of
 * fake_cublaslt.cpp. */
#include "backends/cuda/cuda_lt.h"

#define LINKED(function) .function = &function,

enum gt_status cuda_lt_open(struct cuda_lt *out)
{
    *out = (struct cuda_lt){CUDA_LT_FUNCTIONS(LINKED)};
    return GT_OK;
}
