/* Errors of CUDA's run-time API.
 *
 * An error that takes the context down (a kernel's fault, a lost card) shows at some later call: it
 * is logged once, with the card and the versions, and every call after it fails without a message.
 */
#include "backends/cuda/cuda_error.h"

#define LOADED_BYTES ((uint64_t)128 << 20) /* of kernels and graphs, generously */
/* In this range the run-time API reports a fault of a kernel or of the card: the context is lost.
 */
#define ERROR_LOST_FIRST cudaErrorIllegalAddress
#define ERROR_LOST_LAST cudaErrorLaunchFailure

/* Returns true for errors after which nothing in this process works on the card any more.  A launch
 * that needs too many resources does no harm. */
static bool is_lost(cudaError_t error)
{
    /* Contained errors, a leak of tensor memory, a terminated MPS client, an external
     * device: 11.8's header lacks names. */
    static const int more[] = {226, 721, 810, 911};
    if (error == cudaErrorLaunchOutOfResources)
        return false;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if ((int)error == more[i])
            return true;
    return (error >= ERROR_LOST_FIRST && error <= ERROR_LOST_LAST) ||
           error == cudaErrorECCUncorrectable || error == cudaErrorUnknown ||
           error == cudaErrorDevicesUnavailable;
}

enum gt_status cuda_loading_refuse(const struct cuda_backend *cuda, const char *what)
{
    uint64_t planned = cuda->context_bytes;
    for (int32_t i = 0; i < cuda->segments; i++)
        planned += cuda->segment[i].space == SPACE_DEVICE ? cuda->segment[i].size_bytes : 0;
    const uint64_t less = planned > 2 * LOADED_BYTES ? planned - LOADED_BYTES : planned / 2;
    return FAIL(
        GT_NO_FIT,
        "cuda: %s: the plan takes %s, which leaves %s no memory for the kernels that it loads at their first "
        "use: add --memory_budget=%" PRIu64 "MiB",
        what, LOG_BYTES(planned), cuda->name, (less + 0xfffff) >> 20);
}

enum gt_status cuda_check(struct backend *backend, cudaError_t error, const char *what)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (error == cudaSuccess)
        return GT_OK;
    (void)cudaGetLastError(); /* else the next launch would report it again */
    if (cuda->lost != cudaSuccess)
        return GT_DEVICE;
    if (is_lost(error))
        cuda->lost = error;
    else if (cuda_capture_fail(cuda, what, cudaGetErrorString(error)))
        return GT_DEVICE;
    if (error == cudaErrorMemoryAllocation && cuda->binding)
        return cuda_loading_refuse(cuda, what);
    log_error(
        "cuda: %s: %s: %s (%s, capability %" PRId32 ".%" PRId32
        ", driver for CUDA %s, built with CUDA %s)%s",
        what, cudaGetErrorName(error), cudaGetErrorString(error), cuda->name, cuda->capability / 10,
        cuda->capability % 10, CUDA_VERSION_TEXT(cuda->driver), CUDA_VERSION_TEXT(cuda->runtime),
        is_lost(error) ? ": the card is lost to this process; the kernel's log (Xid) may say why"
                       : "");
    return error == cudaErrorMemoryAllocation ? GT_NO_MEMORY : GT_DEVICE;
}
