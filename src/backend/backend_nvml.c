/* Reports which processes use an NVIDIA card, through the driver's management library (NVML).
 *
 * Not every toolkit has its header, so the few declarations that are needed are written here and in
 * backend_nvml.h, from NVIDIA's reference: nvmlInit_v2, nvmlShutdown,
 * nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetMemoryInfo,
 * nvmlDeviceGetComputeRunningProcesses_v3 and ...GraphicsRunningProcesses_v3 (struct
 * nvmlProcessInfo_v2_t), nvmlSystemGetProcessName, nvmlSystemGetDriverVersion.  A function that is
 * missing or fails leaves its answer out; nothing depends on it.
 */
#include "backend/backend_nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include "backend/backend_holders.h"
#include "base/module.h"

#define LIBRARY "libnvidia-ml.so.1"
#define NVML_SUCCESS 0
#define NVML_NOT_AVAILABLE UINT64_MAX
#define PROCESSES_MAX 64
#define NAME_MAX_BYTES 256

static void driver_read(struct nvml *nvml)
{
    int (*version)(char *text, unsigned int size);
    if (!library_function(nvml->library, "nvmlSystemGetDriverVersion", &version) ||
        version(nvml->driver, sizeof nvml->driver) != NVML_SUCCESS)
        nvml->driver[0] = '\0';
    nvml->driver[sizeof nvml->driver - 1] = '\0';
}

static bool functions_find(struct nvml *nvml)
{
    void *library = nvml->library;
    (void)library_function(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes[0]);
    (void)library_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v3",
                           &nvml->processes[1]);
    (void)library_function(library, "nvmlSystemGetProcessName", &nvml->process_name);
    return library_function(library, "nvmlShutdown", &nvml->shutdown) &&
           library_function(library, "nvmlDeviceGetMemoryInfo", &nvml->memory);
}

void nvml_open(struct nvml *nvml, const char *pci)
{
    int (*init)(void), (*by_pci)(const char *pci, void **out);
    *nvml = (struct nvml){.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    if (nvml->library == NULL)
        return;
    if (functions_find(nvml) && library_function(nvml->library, "nvmlInit_v2", &init) &&
        init() == NVML_SUCCESS) {
        if (library_function(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2", &by_pci) &&
            by_pci(pci, &nvml->device) == NVML_SUCCESS) {
            driver_read(nvml);
            return;
        }
        (void)nvml->shutdown();
    }
    (void)dlclose(nvml->library);
    nvml->library = NULL;
}

void nvml_close(struct nvml *nvml)
{
    if (nvml->library == NULL)
        return;
    (void)nvml->shutdown();
    (void)dlclose(nvml->library);
}

struct nvml_memory nvml_memory_ask(const struct nvml *nvml)
{
    struct nvml_memory memory = {0, 0, 0};
    if (nvml->library == NULL || nvml->memory(nvml->device, &memory) != NVML_SUCCESS)
        memory = (struct nvml_memory){0, 0, 0};
    return memory;
}

/* Sets the holder's name to the file name of its program. */
static void name_read(const struct nvml *nvml, struct backend_holder *holder)
{
    char path[NAME_MAX_BYTES] = "";
    if (nvml->process_name == NULL ||
        nvml->process_name((unsigned int)holder->pid, path, sizeof path - 1) != NVML_SUCCESS)
        path[0] = '\0';
    path[strcspn(path, " ")] = '\0'; /* drops arguments */
    const char *slash = strrchr(path, '/');
    backend_holder_name(holder, slash != NULL && slash[1] != '\0' ? slash + 1 : path);
}

void nvml_holders(const struct nvml *nvml, struct backend_holders *out)
{
    struct nvml_process processes[PROCESSES_MAX];
    const int64_t self = getpid();
    for (int kind = 0; nvml->library != NULL && kind < 2; kind++) {
        unsigned int count = PROCESSES_MAX;
        if (nvml->processes[kind] == NULL ||
            nvml->processes[kind](nvml->device, &count, processes) != NVML_SUCCESS ||
            count > PROCESSES_MAX)
            continue;
        for (unsigned int i = 0; i < count; i++)
            if (processes[i].pid != self && processes[i].used_bytes != NVML_NOT_AVAILABLE)
                backend_holders_insert(out, processes[i].pid, processes[i].used_bytes);
    }
    for (int32_t i = 0; i < out->count; i++)
        name_read(nvml, &out->list[i]);
}
