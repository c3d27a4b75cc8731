/* Finds the cards, and checks that this build can use them.
 *
 * It asks the run-time API and opens no context.  Each reason for having no usable card has its own message, with the
 * versions that matter: no driver, a driver that is older than the toolkit, no device, a card before capability 7.5.
 */
#include "backends/cuda/cuda.h"

#include <strings.h>
#include <unistd.h>

/* Writes why cudaGetDeviceCount() failed or found no device. */
static void reason_set(cudaError_t error, char reason[static BACKEND_REASON_MAX])
{
    int driver = 0, runtime = CUDART_VERSION;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    const char *have = CUDA_VERSION_TEXT(driver), *need = CUDA_VERSION_TEXT(runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        snprintf(reason, BACKEND_REASON_MAX, "no NVIDIA driver is loaded (this build has CUDA %s)", need);
    else if (error == cudaErrorInsufficientDriver)
        snprintf(reason, BACKEND_REASON_MAX, "the NVIDIA driver is for CUDA %s, this build needs one for %s or newer",
                 have, need);
    else if (error == cudaErrorStubLibrary)
        snprintf(reason, BACKEND_REASON_MAX, "libcuda.so.1 is the toolkit's stub, not a driver (CUDA %s)", need);
    else if (error == cudaSuccess || error == cudaErrorNoDevice)
        snprintf(reason, BACKEND_REASON_MAX, "no device (driver for CUDA %s, built with CUDA %s%s)", have, need,
                 visible != NULL ? TEXT(80, ", CUDA_VISIBLE_DEVICES=\"%.40s\"", visible) : "");
    else
        snprintf(reason, BACKEND_REASON_MAX, "%s: %s (driver for CUDA %s, built with CUDA %s)", cudaGetErrorName(error),
                 cudaGetErrorString(error), have, need);
}

/* Returns true when ops can run on the device; otherwise writes why not to `reason`. */
static bool is_usable(int device, struct cudaDeviceProp *properties, char reason[static BACKEND_REASON_MAX])
{
    const cudaError_t error = cudaGetDeviceProperties(properties, device);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(reason, BACKEND_REASON_MAX, "device %d: %s: %s", device, cudaGetErrorName(error),
                 cudaGetErrorString(error));
        return false;
    }
    if (properties->major * 10 + properties->minor >= CUDA_CAPABILITY_MIN)
        return true;
    snprintf(reason, BACKEND_REASON_MAX, "%.80s has capability %d.%d, the kernels need %d.%d or newer",
             properties->name, properties->major, properties->minor, CUDA_CAPABILITY_MIN / 10,
             CUDA_CAPABILITY_MIN % 10);
    return false;
}

void cuda_devices(bool automatic, struct backend_devices *out)
{
    (void)automatic;
    struct cudaDeviceProp properties;
    int count = 0;
    *out = (struct backend_devices){.first = -1};
    /* Set before the first call: otherwise CUDA before 12.2 loads whole modules at once, ours and the library's. */
    (void)setenv("CUDA_MODULE_LOADING", "LAZY", 0);
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count <= 0) {
        (void)cudaGetLastError();
        reason_set(error, out->reason);
        return;
    }
    out->count = count;
    for (int i = 0; i < count && out->first < 0; i++)
        if (is_usable(i, &properties, out->reason))
            out->first = i;
}

/* Returns true when `part` is in `text`, ignoring case. */
static bool name_contains(const char *text, const char *part)
{
    while (*text != '\0' && strncasecmp(text, part, strlen(part)) != 0)
        text++;
    return *text != '\0';
}

/* Sets cuda->device to the first device with `name` in its name, ignoring case, if `name` is not NULL. */
static enum gt_status device_select(struct cuda_backend *cuda, int32_t count, const char *name)
{
    struct cudaDeviceProp properties;
    for (int32_t i = 0; i < count && name != NULL; i++) {
        cuda->device = i;
        if (cudaGetDeviceProperties(&properties, i) == cudaSuccess && name_contains(properties.name, name))
            return GT_OK;
    }
    (void)cudaGetLastError();
    if (name != NULL)
        return FAIL(GT_USAGE, "cuda: no device has \"%s\" in its name (--list_devices shows them)", name);
    if (cuda->device < 0 || cuda->device >= count)
        return FAIL(GT_DEVICE, "cuda: device %" PRId32 " does not exist; there %s %" PRId32 ", numbered from 0",
                    cuda->device, count == 1 ? "is" : "are", count);
    return GT_OK;
}

/* For tests: GPT_TRAIN_CUDA_MULTIPROCESSORS=N makes the backend choose kernels and grids as for N of them, so that each
 * kernel can be compared with a reference on any card. */
static int32_t multiprocessors_of(const struct cudaDeviceProp *properties)
{
    const char *wanted = getenv("GPT_TRAIN_CUDA_MULTIPROCESSORS");
    const long number = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    if (number < 1 || number > INT16_MAX)
        return properties->multiProcessorCount;
    log_note("cuda: kernels are chosen as for %ld multiprocessors because of GPT_TRAIN_CUDA_MULTIPROCESSORS, which is "
             "for tests",
             number);
    return (int32_t)number;
}

enum gt_status cuda_device_describe(struct cuda_backend *cuda, const char *name)
{
    struct backend_devices devices;
    struct cudaDeviceProp properties;
    char reason[BACKEND_REASON_MAX];
    cuda_devices(false, &devices);
    if (devices.count == 0)
        return FAIL(GT_DEVICE, "cuda: %s", devices.reason);
    TRY(device_select(cuda, devices.count, name));
    if (!is_usable(cuda->device, &properties, reason))
        return FAIL(GT_DEVICE, "cuda: %s", reason);
    cuda->runtime = CUDART_VERSION;
    (void)cudaDriverGetVersion(&cuda->driver);
    (void)cudaRuntimeGetVersion(&cuda->runtime);
    snprintf(cuda->name, sizeof cuda->name, "%.60s", properties.name);
    cuda->capability = properties.major * 10 + properties.minor;
    cuda->multiprocessors = multiprocessors_of(&properties);
    cuda->shared_bytes_max = properties.sharedMemPerBlockOptin;
    cuda->is_wsl = access("/dev/dxg", F_OK) == 0; /* the paravirtual card of Windows' kernel */
    return GT_OK;
}
