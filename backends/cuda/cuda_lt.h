/* Loads cuBLASLt when a card is opened.
 *
 * The library is half a gigabyte, and the dynamic linker takes 0.1 s and 190 MiB of resident memory
 * to relocate it.  A program that links it pays that even for --help, for --plan and on the cpu.
 * The types are those of cublasLt.h, so that the compiler checks them.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_LT_H
#define GPT_TRAIN_CUDA_CUDA_LT_H

#include <cublasLt.h>

#include "base/status.h"

/* The functions that we call.  Their types come from the declarations in cublasLt.h. */
#define CUDA_LT_FUNCTIONS(FUNCTION)                \
    FUNCTION(cublasLtCreate)                       \
    FUNCTION(cublasLtDestroy)                      \
    FUNCTION(cublasLtGetStatusName)                \
    FUNCTION(cublasLtGetVersion)                   \
    FUNCTION(cublasLtMatmul)                       \
    FUNCTION(cublasLtMatmulAlgoGetHeuristic)       \
    FUNCTION(cublasLtMatmulDescCreate)             \
    FUNCTION(cublasLtMatmulDescDestroy)            \
    FUNCTION(cublasLtMatmulDescSetAttribute)       \
    FUNCTION(cublasLtMatmulPreferenceCreate)       \
    FUNCTION(cublasLtMatmulPreferenceDestroy)      \
    FUNCTION(cublasLtMatmulPreferenceSetAttribute) \
    FUNCTION(cublasLtMatrixLayoutCreate)           \
    FUNCTION(cublasLtMatrixLayoutDestroy)

#define CUDA_LT_POINTER(function) __typeof__(&function) function;
struct cuda_lt {
    CUDA_LT_FUNCTIONS(CUDA_LT_POINTER)
};

/* Loads the library and fills in the table.  The library stays loaded.  The emulated backend has
 * its own version, with the functions that are linked (tests/cuda_on_cpu/linked_lt.c). Errors:
 * GT_DEVICE, logged, when it is not installed or lacks a function. */
enum gt_status cuda_lt_open(struct cuda_lt *out);

#endif
