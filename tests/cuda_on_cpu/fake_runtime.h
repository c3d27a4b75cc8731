/* Knobs and counters of the fake CUDA run-time library and the fake cuBLASLt; the API itself is
 * cuda_runtime.h and cublasLt.h.
 *
 * A program is configured by its environment:
 *   GT_CUDA_ON_CPU_DEVICES   "86:12g:NAME,75:8g:NAME": capability, memory (k, m, g) and name of
 *                            each device; "none".  "86x2": with two multiprocessors instead of 28.
 *                            Default: one of 12 GiB, sm_86
 *   GT_CUDA_ON_CPU_DRIVER    version that cudaDriverGetVersion reports; 0: no driver.  Default:
 *                            13000
 *   GT_CUDA_ON_CPU_TAKEN     "BYTES" or "BYTES@NAME:N": another process takes so much, from the
 *                            n-th call of NAME on
 *   GT_CUDA_ON_CPU_FAIL      "NAME:N" or "NAME:N:ERROR": the n-th call of that function fails; NAME
 *                            "any" counts all calls, "launch" all kernel launches.  ERROR is
 *                            cudaError...; the default depends on the function.  A sticky device
 *                            error (fake_cuda_error_is_sticky) appears at the next wait and
 *                            persists.  "hang": the call never returns; with "launch" the kernel
 *                            never ends
 *   GT_CUDA_ON_CPU_FASTEST   index of cuBLASLt's algorithm that takes half as long as the other
 *                            two.  Default: 0
 *   GT_CUDA_ON_CPU_BARE      "1": cuBLASLt has no algorithm for a product that may use a workspace
 *   GT_CUDA_ON_CPU_COPIES    "early": a copy into an empty stream runs when it is enqueued, and a
 *                            stream without kernels as soon as its waits allow; "late": when
 *                            somebody waits; "random:SEED": at any time in between
 *   GT_CUDA_ON_CPU_PIN       the most bytes that cudaHostRegister pins.  Default: all
 *   GT_CUDA_ON_CPU_LINK      bytes per second between host and device, each way, for in_us and
 *                            out_us; copies take no time by default
 *   GT_CUDA_ON_CPU_ENGINES   copy engines, 1 or 2.  Default: 2
 *   GT_CUDA_ON_CPU_REPORT    file that gets the counters as JSON when the process ends; "refused"
 *                            counts the calls after a sticky error
 *   GT_CUDA_ON_CPU_ORDER     see emulator_run.h
 *
 * Deliberate differences from a device: a stream runs only when the host waits for it, so that a
 * missing wait reads the old values; memory is initially NaN, and an allocation has exactly the
 * requested size; every product overwrites its workspace.  Everything happens on one host thread.
 */
#ifndef GPT_TRAIN_CUDA_ON_CPU_FAKE_RUNTIME_H
#define GPT_TRAIN_CUDA_ON_CPU_FAKE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

/* Device memory used by opening a device, and by cuBLASLt's handle. */
#define FAKE_CONTEXT_BYTES ((size_t)200 << 20)
#define FAKE_CUBLASLT_BYTES ((size_t)16 << 20)

/* calls: of all functions and kernels; allocations: of device memory, bytes as requested; waits:
 * for a stream, an event or the device, waits_after_replay those since the first graph was
 * launched; replayed: kernels and products that graphs enqueued; in_us, out_us: how long copies
 * from and to the host took; objects_alive: live allocations, streams, events, graphs, handles and
 * descriptors. */
#define FAKE_CUDA_COUNTERS      \
    COUNTER(calls)              \
    COUNTER(launches)           \
    COUNTER(allocations)        \
    COUNTER(allocated_bytes)    \
    COUNTER(live_bytes)         \
    COUNTER(live_bytes_peak)    \
    COUNTER(pinned_bytes)       \
    COUNTER(pinned_bytes_peak)  \
    COUNTER(waits)              \
    COUNTER(waits_after_replay) \
    COUNTER(replayed)           \
    COUNTER(in_us)              \
    COUNTER(out_us)             \
    COUNTER(objects_alive)
#define COUNTER(name) size_t name;
struct fake_cuda_counters {
    FAKE_CUDA_COUNTERS
};
#undef COUNTER

#ifdef __cplusplus
extern "C" {
#endif

void fake_cuda_counters_get(struct fake_cuda_counters *out);
bool fake_cuda_error_is_sticky(cudaError_t error);

#ifdef __cplusplus
}

#include <functional>

/* For fake_cublaslt.cpp.  The first counts a call and returns true when it must fail; the second
 * enqueues work. */
bool fake_cuda_call_fails(const char *function);
cudaError_t fake_cuda_enqueue(cudaStream_t stream, std::function<void()> work);
void fake_cuda_object_count(int change);
/* Advances the clock that events read.  Only products and kernels advance it, so that timings are
 * reproducible. */
void fake_cuda_clock_advance(double seconds);
void fake_cuda_device_take(int64_t bytes);
#endif

#endif
