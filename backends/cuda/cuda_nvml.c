/* Reports who else uses the card, through the driver's management library (NVML).
 *
 * Not every toolkit has its header, so the few declarations that are needed are written here, from NVIDIA's NVML API
 * reference: nvmlInit_v2, nvmlShutdown, nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetMemoryInfo,
 * nvmlDeviceGetComputeRunningProcesses_v3 and ...GraphicsRunningProcesses_v3 (struct nvmlProcessInfo_v2_t),
 * nvmlSystemGetProcessName, nvmlSystemGetDriverVersion.  A function that is missing or fails leaves its answer out;
 * nothing depends on it.
 */
#include "backends/cuda/cuda_nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "base/library.h"

#define LIBRARY "libnvidia-ml.so.1"
#define NVML_SUCCESS 0
#define NVML_NOT_AVAILABLE UINT64_MAX
#define PROCESSES_MAX 64
#define NAME_MAX_BYTES 256
#define PCI_ID_MAX 32
#define DRIVER_TEXT_MAX 32

typedef struct nvml_device *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

struct cuda_nvml {
    void *library;
    nvml_device device;
    char driver[DRIVER_TEXT_MAX];
    int (*shutdown)(void);
    int (*memory)(nvml_device device, struct nvml_memory *out);
    int (*processes[2])(nvml_device device, unsigned int *count, struct nvml_process *out); /* compute, graphics */
    int (*process_name)(unsigned int pid, char *name, unsigned int size);
};

static void driver_read(struct cuda_nvml *nvml)
{
    int (*version)(char *text, unsigned int size);
    if (!library_function(nvml->library, "nvmlSystemGetDriverVersion", &version) ||
        version(nvml->driver, sizeof nvml->driver) != NVML_SUCCESS)
        nvml->driver[0] = '\0';
    nvml->driver[sizeof nvml->driver - 1] = '\0';
}

static bool device_find(struct cuda_nvml *nvml, int32_t device)
{
    char id[PCI_ID_MAX] = "";
    int (*by_id)(const char *id, nvml_device *out);
    return library_function(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2", &by_id) &&
           cudaDeviceGetPCIBusId(id, sizeof id, device) == cudaSuccess && by_id(id, &nvml->device) == NVML_SUCCESS;
}

static bool functions_find(struct cuda_nvml *nvml)
{
    void *library = nvml->library;
    bool known = library_function(library, "nvmlShutdown", &nvml->shutdown);
    known = library_function(library, "nvmlDeviceGetMemoryInfo", &nvml->memory) && known;
    (void)library_function(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes[0]);
    (void)library_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", &nvml->processes[1]);
    (void)library_function(library, "nvmlSystemGetProcessName", &nvml->process_name);
    return known;
}

enum gt_status cuda_nvml_open(int32_t device, struct cuda_nvml **out)
{
    struct cuda_nvml *nvml = calloc(1, sizeof *nvml);
    int (*init)(void);
    if (nvml == NULL) { /* an error: timings are stored by the driver's release, which would be missing */
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B", sizeof *nvml);
    }
    *out = NULL;
    nvml->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL)
        goto free_nvml;
    if (!functions_find(nvml) || !library_function(nvml->library, "nvmlInit_v2", &init) || init() != NVML_SUCCESS)
        goto close_library;
    if (!device_find(nvml, device))
        goto shut_down;
    driver_read(nvml);
    *out = nvml;
    return GT_OK;
shut_down:
    (void)nvml->shutdown();
close_library:
    (void)dlclose(nvml->library);
free_nvml:
    (void)cudaGetLastError();
    free(nvml);
    return GT_OK;
}

void cuda_nvml_close(struct cuda_nvml *nvml)
{
    if (nvml == NULL)
        return;
    (void)nvml->shutdown();
    (void)dlclose(nvml->library);
    free(nvml);
}

uint64_t cuda_nvml_used_bytes(const struct cuda_nvml *nvml)
{
    struct nvml_memory memory;
    return nvml != NULL && nvml->memory(nvml->device, &memory) == NVML_SUCCESS ? memory.used : 0;
}

const char *cuda_nvml_driver(const struct cuda_nvml *nvml)
{
    return nvml != NULL ? nvml->driver : "";
}

/* Sets the holder's name to the file name of its program. */
static void name_read(const struct cuda_nvml *nvml, struct backend_holder *holder)
{
    char path[NAME_MAX_BYTES] = "";
    if (nvml->process_name == NULL ||
        nvml->process_name((unsigned int)holder->pid, path, sizeof path - 1) != NVML_SUCCESS)
        path[0] = '\0';
    path[strcspn(path, " ")] = '\0'; /* drops arguments */
    const char *slash = strrchr(path, '/');
    backend_holder_name(holder, slash != NULL && slash[1] != '\0' ? slash + 1 : path);
}

void cuda_nvml_holders(const struct cuda_nvml *nvml, struct backend_holders *out)
{
    struct nvml_process processes[PROCESSES_MAX];
    const int64_t self = getpid();
    for (int kind = 0; nvml != NULL && kind < 2; kind++) {
        unsigned int count = PROCESSES_MAX;
        if (nvml->processes[kind] == NULL || nvml->processes[kind](nvml->device, &count, processes) != NVML_SUCCESS ||
            count > PROCESSES_MAX)
            continue;
        for (unsigned int i = 0; i < count; i++)
            if (processes[i].pid != self && processes[i].used_bytes != NVML_NOT_AVAILABLE)
                backend_holders_insert(out, processes[i].pid, processes[i].used_bytes);
    }
    for (int32_t i = 0; i < out->count; i++)
        name_read(nvml, &out->list[i]);
}
