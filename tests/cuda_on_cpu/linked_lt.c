/* backends/cuda/cuda_lt.c for the emulated backend: returns the linked functions of fake_cublaslt.cpp. */
#include "backends/cuda/cuda_lt.h"

enum gt_status cuda_lt_open(struct cuda_lt *out)
{
    *out = (struct cuda_lt){
#define CUDA_LT_FUNCTION(function) .function = &function,
#include "backends/cuda/cuda_lt.def"
#undef CUDA_LT_FUNCTION
    };
    return GT_OK;
}
