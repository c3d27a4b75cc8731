/* Knobs and counters of the fake CUDA run-time library and the fake cuBLASLt; the API itself is cuda_runtime.h and cublasLt.h.
 *
 * A program is configured by its environment, or by these functions:
 *   GT_CUDA_ON_CPU_DEVICES   "86:12g:NAME,75:8g:NAME": capability, memory (k, m, g), name of each device; "none".
 *                            Default: one of 12 GiB, sm_86
 *   GT_CUDA_ON_CPU_DRIVER    version that the driver supports, as cudaDriverGetVersion says it; 0: no driver.  13000
 *   GT_CUDA_ON_CPU_TAKEN     "BYTES" or "BYTES@NAME:N": another process takes so much, from the n-th call of NAME on
 *   GT_CUDA_ON_CPU_FAIL      "NAME:N" or "NAME:N:ERROR": the n-th call of that function fails; NAME "any" counts all calls,
 *                            "launch" those that start a kernel.  ERROR is cudaError...; default by function.  An error
 *                            that a device makes (see fake_cuda_error_is_sticky) appears at the next wait and stays.
 *                            "hang": the call never returns; of "launch" the kernel never ends
 *   GT_CUDA_ON_CPU_FASTEST   which of cuBLASLt's three algorithms is said to take half as long as the others; 0
 *   GT_CUDA_ON_CPU_COPIES    "early": a copy that nothing stands before runs when it is enqueued; "late"
 *   GT_CUDA_ON_CPU_REPORT    file that gets the counters as JSON when the process ends; "refused" counts the calls after
 *                            an error that stays
 *   GT_CUDA_ON_CPU_HISTORY   file that gets a line at each wait: bytes alive, pinned bytes alive, allocations so far of
 *                            device memory, objects alive
 *   GT_CUDA_ON_CPU_ORDER     emulator_run.h
 *
 * How it differs from a device on purpose: a stream runs only when somebody waits for it, so that a forgotten wait reads
 * what was there before; memory is full of NaN, and an allocation has exactly the bytes that were asked for; a workspace is
 * overwritten by every product.  Everything happens on one host thread.
 */
#ifndef GPT_TRAIN_CUDA_ON_CPU_FAKE_RUNTIME_H
#define GPT_TRAIN_CUDA_ON_CPU_FAKE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

/* What opening a device takes of its memory beside what is asked for, and what cuBLASLt's handle takes. */
#define FAKE_CONTEXT_BYTES ((size_t)200 << 20)
#define FAKE_CUBLASLT_BYTES ((size_t)16 << 20)

struct fake_cuda_counters {
    uint64_t calls; /* of all functions, kernels included */
    uint64_t launches;
    uint64_t allocations, allocated_bytes; /* of device memory; bytes as asked for */
    uint64_t live_bytes, live_bytes_peak;
    uint64_t pinned_bytes, pinned_bytes_peak;
    uint64_t waits;         /* for a stream, an event or the device */
    uint64_t lookups;       /* cublasLtMatmulAlgoGetHeuristic */
    uint64_t replayed;      /* kernels and products that graphs put into a stream */
    uint64_t objects_alive; /* allocations, streams, events, graphs, handles and descriptors that nobody gave back */
    uint64_t copies_beside; /* to the device, enqueued while another stream had kernels to run */
};

#ifdef __cplusplus
extern "C" {
#endif

void fake_cuda_counters_get(struct fake_cuda_counters *out);
uint64_t fake_cuda_calls_of(const char *function);
/* As the environment says them; false, and nothing changed, where the text is not understood. */
bool fake_cuda_devices_set(const char *text);
bool fake_cuda_fail_set(const char *text);
bool fake_cuda_taken_set(const char *text);
bool fake_cuda_copies_set(const char *text);
void fake_cuda_driver_set(int version);
bool fake_cuda_error_is_sticky(cudaError_t error);
/* Forgets errors, what is queued, limits and counters; what is alive stays so. */
void fake_cuda_reset(void);

#ifdef __cplusplus
}

#include <functional>

/* For fake_cublaslt.cpp: counts a call; true when this one is to fail.  Puts work into a stream. */
bool fake_cuda_call_fails(const char *function);
cudaError_t fake_cuda_enqueue(cudaStream_t stream, std::function<void()> work);
void fake_cuda_object_count(int change);
/* The clock that events read: products and kernels advance it, so that timings are the same each time. */
void fake_cuda_clock_advance(double seconds);
void fake_cuda_device_take(int64_t bytes);
#endif

#endif
