/* cuBLASLt, opened when a card is.
 *
 * The library is half a gigabyte, and the dynamic linker takes 0.1 s and 190 MiB of resident memory to relocate it: a program
 * that has it linked pays that for --help, for --plan and on the cpu.  Types are those of cublasLt.h, so that the compiler
 * checks them.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_LT_H
#define GPT_TRAIN_CUDA_CUDA_LT_H

#include <cublasLt.h>

#include "base/status.h"

struct cuda_lt {
#define CUDA_LT_FUNCTION(function) __typeof__(&function) function;
#include "backends/cuda/cuda_lt.def"
#undef CUDA_LT_FUNCTION
};

/* The emulated backend has one of its own, of what is linked (tests/cuda_on_cpu/linked_lt.c).  The library stays loaded.
 * Errors: GT_DEVICE, logged, when it is not installed or lacks a function. */
enum gt_status cuda_lt_open(struct cuda_lt *out);

#endif
