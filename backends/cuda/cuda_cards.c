/* Finds the cards, and checks that this build can use them.
 *
 * It asks the run-time API and opens no context.  Each reason for having no usable card has its own
 * message, with the versions that matter: no driver, a driver that is older than the toolkit, no
 * device, a card before capability 7.5.
 */
#include "backends/cuda/cuda_cards.h"

#include <config.h>

#include <strings.h>
#include <unistd.h>

/* Returns the first driver that runs programs of a major version of CUDA, or 0.  NVIDIA, CUDA
 * Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
 * Compatibility". */
static int driver_first(int major)
{
    static const struct {
        int major, driver;
    } table[] = {{11, 450}, {12, 525}, {13, 580}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].major == major)
            return table[i].driver;
    return 0;
}

/* Writes that the driver is older than this build's toolkit, and which build it would run. */
static void driver_refuse(int driver, int runtime, char reason[static BACKEND_REASON_MAX])
{
    const int first = driver_first(runtime / 1000), major = driver / 1000;
    const char *update = first > 0 ? TEXT(40, " (NVIDIA %d or newer)", first) : "";
    const char *wheel = major >= CUDA_MAJOR_MIN && major < runtime / 1000
                            ? TEXT(100, "; a wheel made with CUDA %d runs on it: gpt_train-%s+cu%d",
                                   major, PACKAGE_VERSION, major)
                            : "";
    snprintf(reason, BACKEND_REASON_MAX,
             "the NVIDIA driver is for CUDA %s, this build needs one for %s%s%s",
             CUDA_VERSION_TEXT(driver), CUDA_VERSION_TEXT(runtime), update, wheel);
}

/* Writes why cudaGetDeviceCount() failed or found no device. */
static void reason_set(cudaError_t error, char reason[static BACKEND_REASON_MAX])
{
    int driver = 0, runtime = CUDART_VERSION;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    const char *have = CUDA_VERSION_TEXT(driver), *need = CUDA_VERSION_TEXT(runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        snprintf(reason, BACKEND_REASON_MAX, "no NVIDIA driver is loaded (this build has CUDA %s)",
                 need);
    else if (error == cudaErrorInsufficientDriver)
        driver_refuse(driver, runtime, reason);
    else if (error == cudaErrorStubLibrary)
        snprintf(reason, BACKEND_REASON_MAX,
                 "libcuda.so.1 is the toolkit's stub, not a driver (CUDA %s)", need);
    else if (error == cudaSuccess || error == cudaErrorNoDevice)
        snprintf(reason, BACKEND_REASON_MAX, "no device (driver for CUDA %s, built with CUDA %s%s)",
                 have, need,
                 visible != NULL ? TEXT(80, ", CUDA_VISIBLE_DEVICES=\"%.40s\"", visible) : "");
    else
        snprintf(reason, BACKEND_REASON_MAX, "%s: %s (driver for CUDA %s, built with CUDA %s)",
                 cudaGetErrorName(error), cudaGetErrorString(error), have, need);
}

/* Returns true when ops can run on the device; otherwise writes why not to `reason`. */
static bool is_usable(int device, struct cudaDeviceProp *properties,
                      char reason[static BACKEND_REASON_MAX])
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
    snprintf(reason, BACKEND_REASON_MAX,
             "%.80s has capability %d.%d, the kernels need %d.%d or newer", properties->name,
             properties->major, properties->minor, CUDA_CAPABILITY_MIN / 10,
             CUDA_CAPABILITY_MIN % 10);
    return false;
}

void cuda_devices(bool automatic, struct backend_devices *out)
{
    (void)automatic;
    struct cudaDeviceProp properties;
    int count = 0;
    *out = (struct backend_devices){.first = -1};
    /* Set before the first call: otherwise CUDA before 12.2 loads whole modules at once, ours and
     * the library's. */
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

/* Sets cuda->device to the first device with `name` in its name, ignoring case, if `name` is not
 * NULL. */
static enum gt_status device_select(struct cuda_backend *cuda, int32_t count, const char *name)
{
    struct cudaDeviceProp properties;
    for (int32_t i = 0; i < count && name != NULL; i++) {
        cuda->device = i;
        if (cudaGetDeviceProperties(&properties, i) == cudaSuccess &&
            name_contains(properties.name, name))
            return GT_OK;
    }
    (void)cudaGetLastError();
    if (name != NULL)
        return FAIL(GT_USAGE, "cuda: no device has \"%s\" in its name (--list_devices shows them)",
                    name);
    if (cuda->device < 0 || cuda->device >= count)
        return FAIL(GT_DEVICE,
                    "cuda: device %" PRId32 " does not exist; there %s %" PRId32
                    ", numbered from 0",
                    cuda->device, count == 1 ? "is" : "are", count);
    return GT_OK;
}

/* Says so where this build has no machine code that the card runs: code for capability x.y runs on
 * x.y and later x. The driver then compiles the PTX of all kernels at their first launch, and keeps
 * the result on disk. */
static void compiling_announce(int32_t capability)
{
    char *rest = NULL;
    const char *text = CUDA_ARCH_LIST;
    for (long arch = strtol(text, &rest, 10); rest != text; arch = strtol(text, &rest, 10)) {
        if (arch / 10 == capability / 10 && arch % 10 <= capability % 10)
            return;
        text = rest;
    }
    log_note(
        "cuda: compiling for this card, once: this build has machine code for capabilities %s (in tenths), and the "
        "card has %" PRId32
        "; the driver needs up to some minutes, and keeps the result in ~/.nv/ComputeCache",
        CUDA_ARCH_LIST, capability);
}

/* For tests: GPT_TRAIN_CUDA_MULTIPROCESSORS=N makes the backend choose kernels and grids as for N
 * of them, so that each kernel can be compared with a reference on any card. */
static int32_t multiprocessors_of(const struct cudaDeviceProp *properties)
{
    const char *wanted = getenv("GPT_TRAIN_CUDA_MULTIPROCESSORS");
    const long number = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    if (number < 1 || number > INT16_MAX)
        return properties->multiProcessorCount;
    log_note(
        "cuda: kernels are chosen as for %ld multiprocessors because of GPT_TRAIN_CUDA_MULTIPROCESSORS, which is "
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
    compiling_announce(cuda->capability);
    cuda->multiprocessors = multiprocessors_of(&properties);
    cuda->shared_bytes_max = properties.sharedMemPerBlockOptin;
    cuda->is_wsl = access("/dev/dxg", F_OK) == 0; /* the paravirtual card of Windows' kernel */
    return GT_OK;
}
