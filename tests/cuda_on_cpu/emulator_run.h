/* The emulator's other side: what the fake run-time library and the tests call.  Kernels see emulator.h.
 *
 * Kernels run on the calling thread, one block after the other; the threads of a block are fibers.  GT_CUDA_ON_CPU_ORDER (or
 * emulator_order_set) says in which order: "asc", "desc" or "random:SEED" for blocks, warps and lanes; then ",run-ahead"
 * (each warp runs to the block's barrier before the next one starts; the default) or ",lockstep" (warps take turns at
 * every point where lanes meet).  A correct kernel has the same result, to the bit, in all of them.
 *
 * GT_CUDA_ON_CPU_ROUNDING=card: sums of tensor cores are cut off, and functions are off, as a card's may be (rounding.cpp).
 *
 * A kernel's mistake ends the process: one line "emulator: KERNEL: block (x,y,z) thread (x,y,z): what", exit status 70.
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
    size_t shared_bytes_max; /* of static and dynamic shared memory together */
    void (*body)(void *context);
    void *context;
};

struct emulator_stats {
    uint64_t launches, blocks, threads;
    uint64_t switches;    /* of fibers, there and back */
    uint64_t collectives; /* shuffles, ballots, __syncwarp, ldmatrix, mma */
    uint64_t products;    /* mma of a warp */
    uint64_t matrix_rows; /* phases of ldmatrix: eight rows of one 8x8 matrix */
    uint64_t conflicts;   /* those whose rows share a bank */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Checks nothing: the fake run-time has refused what a device would.  Returns when all threads have ended. */
void emulator_run(const struct emulator_launch *launch);
/* False, and nothing changed, where `text` is none of the above. */
bool emulator_order_set(const char *text);
/* 10 major + minor of the device; a wrapper that needs more fails. */
void emulator_capability_set(int capability);
void emulator_stats_get(struct emulator_stats *out);

#ifdef __cplusplus
}
#endif

#endif
