/* A stand-in for libnvidia-ml.so.1, for tests of src/backend/backend_nvml.c: one card and three
 * processes.
 *
 * The environment configures its answers: GT_FAKE_NVML_FAIL names a function that fails;
 * GT_FAKE_NVML_USED_MIB is the memory used by other processes (default 350 MiB);
 * GT_FAKE_NVML_CONTEXT_MIB is what this process adds when it asks again after opening the card
 * (default 216 MiB).  As in the real library, memory reserved by the card counts as used. Process
 * 4711 is both a compute and a graphics process, and must be listed once; 4712 has a name with
 * control characters; 4713's memory is unknown, as under WSL2.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_device *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *text, unsigned int size);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *out);
int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *out);
int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count,
                                            struct nvml_process *out);
int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned int *count,
                                             struct nvml_process *out);
int nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size);

enum { SUCCESS = 0, FAILURE = 999, RESERVED_MIB = 250 };

static int opened; /* open count; one shutdown too many aborts */
static int asked;  /* queries of used memory since nvmlInit */

static int result_of(const char *name)
{
    const char *failing = getenv("GT_FAKE_NVML_FAIL");
    return failing != NULL && strcmp(failing, name) == 0 ? FAILURE : SUCCESS;
}

static unsigned long long number_of(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return strtoull(text != NULL ? text : otherwise, NULL, 10);
}

int nvmlInit_v2(void)
{
    opened += result_of("init") == SUCCESS;
    asked = 0;
    return result_of("init");
}

int nvmlShutdown(void)
{
    if (opened-- <= 0)
        abort();
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
    snprintf(text, size, "580.82.07");
    return result_of("driver");
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *out)
{
    if (strchr(id, ':') == NULL)
        return FAILURE;
    *out = NULL;
    return result_of("handle");
}

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *out)
{
    unsigned long long used = RESERVED_MIB + number_of("GT_FAKE_NVML_USED_MIB", "350");
    (void)device;
    if (asked++ > 0)
        used += number_of("GT_FAKE_NVML_CONTEXT_MIB", "216");
    *out = (struct nvml_memory){.used = used << 20};
    return result_of("memory");
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count,
                                            struct nvml_process *out)
{
    (void)device;
    if (*count < 3)
        return FAILURE;
    *count = 3;
    out[0] = (struct nvml_process){.pid = 4712, .used_bytes = 100ull << 20};
    out[1] = (struct nvml_process){.pid = 4711, .used_bytes = 250ull << 20};
    out[2] = (struct nvml_process){.pid = 4713, .used_bytes = UINT64_MAX};
    return result_of("processes");
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned int *count,
                                             struct nvml_process *out)
{
    (void)device;
    if (*count < 1)
        return FAILURE;
    *count = 1;
    out[0] = (struct nvml_process){.pid = 4711, .used_bytes = 250ull << 20};
    return result_of("processes");
}

int nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size)
{
    snprintf(name, size, pid == 4711 ? "/usr/lib/firefox/firefox --headless" : "/tmp/od\x1b[2Jd");
    return result_of("name");
}
