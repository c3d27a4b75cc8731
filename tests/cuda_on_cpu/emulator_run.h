/* The emulator's interface for the fake run-time library and the tests.  Kernels include
 * emulator.h.
 *
 * Kernels run on the calling thread, one block after another; the threads of a block are fibers.
 * GT_CUDA_ON_CPU_ORDER (or emulator_order_set) selects the order: "asc", "desc" or "random:SEED"
 * for blocks, warps and lanes; then
 * ",run-ahead" (each warp runs to the block's barrier before the next one starts; the default) or
 * ",lockstep" (warps take turns at every point where lanes synchronise).  A correct kernel gives
 * the same bits in all of them.
 *
 * GT_CUDA_ON_CPU_ROUNDING=card truncates the sums of tensor cores and makes functions inexact, as
 * on a card (rounding.cpp).
 *
 * A kernel's mistake ends the process: one line "emulator: KERNEL: block (x,y,z) thread (x,y,z):
 * what", exit status 70.
 */
#ifndef GPT_TRAIN_CUDA_ON_CPU_EMULATOR_RUN_H
#define GPT_TRAIN_CUDA_ON_CPU_EMULATOR_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#define EMULATOR_EXIT 70
#define EMULATOR_THREADS_MAX 1024

struct emulator_launch {
    const char *kernel; /* its name, for messages */
    dim3 grid, block;
    size_t dynamic_bytes;
    size_t shared_bytes_max; /* static plus dynamic shared memory */
    void (*body)(void *context);
    void *context;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Checks nothing: the fake run-time library has already refused invalid launches.  Returns when all
 * threads have ended. */
void emulator_run(const struct emulator_launch *launch);
/* Returns false, and changes nothing, when `text` is not one of the orders above. */
bool emulator_order_set(const char *text);
/* 10 * major + minor of the device; a wrapper that needs more fails. */
void emulator_capability_set(int capability);

#ifdef __cplusplus
}
#endif

#endif
