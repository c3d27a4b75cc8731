/* Free memory of cards, and the processes that use it, from vendor interfaces.
 *
 * OpenCL has no query for free memory.  For AMD there are two sources, and the smaller number
 * counts: AMD's extension of clGetDeviceInfo, which may not include the desktop's use, and amdgpu's
 * files in sysfs, which Mesa's drivers leave alone.  For NVIDIA it is the management library,
 * opened at run time.  Processes come from the fdinfo that DRM drivers write for each open file; it
 * names the card by its PCI address.
 */

#include "backends/opencl/opencl_vendor.h"

#include <dirent.h>

#include "backend/backend_holders.h"
#include "backend/backend_nvml.h"

#define FREE_MEMORY_AMD 0x4039u  /* CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, in KiB */
#define PCI_BUS_INFO_KHR 0x410Fu /* CL_DEVICE_PCI_BUS_INFO_KHR */
#define PCI_BUS_NV 0x4008u       /* CL_DEVICE_PCI_BUS_ID_NV */
#define PCI_SLOT_NV 0x4009u      /* CL_DEVICE_PCI_SLOT_ID_NV */
#define PCI_DOMAIN_NV 0x400Au    /* CL_DEVICE_PCI_DOMAIN_ID_NV */
#define PCI_TEXT_MAX 32
#define PATH_BYTES_MAX 512
#define LINE_BYTES_MAX 256
#define FILES_MAX 4096
#define CLIENTS_MAX 64

/* The layout in cl_khr_pci_bus_info. */
struct pci_bus_info {
    cl_uint domain, bus, device, function;
};

/* Writes "0000:03:00.0"; returns false when the driver does not report it. */
static bool pci_text(const struct opencl_backend *cl, char text[static PCI_TEXT_MAX])
{
    struct pci_bus_info info = {0, 0, 0, 0};
    cl_uint slot = 0;
    const cl_device_id id = cl->device.id;
    if (cl->api.clGetDeviceInfo(id, PCI_BUS_INFO_KHR, sizeof info, &info, NULL) != CL_SUCCESS) {
        if (cl->api.clGetDeviceInfo(id, PCI_BUS_NV, sizeof info.bus, &info.bus, NULL) !=
                CL_SUCCESS ||
            cl->api.clGetDeviceInfo(id, PCI_SLOT_NV, sizeof slot, &slot, NULL) != CL_SUCCESS)
            return false;
        if (cl->api.clGetDeviceInfo(id, PCI_DOMAIN_NV, sizeof info.domain, &info.domain, NULL) !=
            CL_SUCCESS)
            info.domain = 0;
        info.device = slot >> 3;
        info.function = slot & 7u;
    }
    snprintf(text, PCI_TEXT_MAX, "%04x:%02x:%02x.%x", info.domain & 0xffffu, info.bus & 0xffu,
             info.device & 0x1fu, info.function & 7u);
    return true;
}

static bool amd_free_bytes(const struct opencl_backend *cl, uint64_t *out)
{
    size_t kibibytes[2] = {0, 0};
    if (cl->api.clGetDeviceInfo(cl->device.id, FREE_MEMORY_AMD, sizeof kibibytes, kibibytes,
                                NULL) != CL_SUCCESS ||
        kibibytes[0] == 0)
        return false;
    *out = (uint64_t)kibibytes[0] * 1024;
    return true;
}

/* Reads the "total" or "used" memory of the card at `pci` from amdgpu. */
static bool vram_read(const char *pci, const char *what, uint64_t *out)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/mem_info_vram_%s", pci, what);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const bool found = fscanf(file, "%" SCNu64, out) == 1;
    fclose(file);
    return found;
}

static bool sysfs_free_bytes(const char *pci, uint64_t *out)
{
    uint64_t total = 0, used = 0;
    if (!vram_read(pci, "total", &total) || !vram_read(pci, "used", &used) || used > total)
        return false;
    *out = total - used;
    return true;
}

static bool nvml_free_bytes(const char *pci, uint64_t *out)
{
    struct nvml nvml;
    nvml_open(&nvml, pci);
    const struct nvml_memory memory = nvml_memory_ask(&nvml);
    nvml_close(&nvml);
    *out = memory.free;
    return memory.total > 0 && memory.free <= memory.total;
}

bool opencl_vendor_free_bytes(const struct opencl_backend *cl, uint64_t *out_bytes,
                              const char **out_basis)
{
    char pci[PCI_TEXT_MAX];
    uint64_t of_amd = 0;
    const bool has_amd = amd_free_bytes(cl, &of_amd), has_pci = pci_text(cl, pci);
    *out_basis = "free: as amdgpu says";
    if (has_pci && sysfs_free_bytes(pci, out_bytes) && (!has_amd || *out_bytes <= of_amd))
        return true;
    *out_basis = "free: as AMD's driver reports";
    *out_bytes = of_amd;
    if (has_amd)
        return true;
    if (!has_pci)
        return false;
    *out_basis = "free: as NVML says";
    return nvml_free_bytes(pci, out_bytes);
}

/* The card usage that one open file of a process reports. */
struct drm_file {
    char pci[PCI_TEXT_MAX];
    uint64_t client, bytes;
};

/* Returns the bytes in "drm-memory-vram: 12 KiB" and in newer forms, which name the region. */
static uint64_t vram_bytes(const char *line)
{
    const char *value = NULL;
    uint64_t number = 0;
    char unit[8] = "";
    if (strncmp(line, "drm-memory-vram", 15) == 0 || strncmp(line, "drm-resident-vram", 17) == 0)
        value = strchr(line, ':');
    if (value == NULL || sscanf(value + 1, " %" SCNu64 " %7s", &number, unit) < 1 ||
        number > UINT64_MAX >> 20)
        return 0;
    if (strcmp(unit, "KiB") == 0)
        return number * 1024;
    return strcmp(unit, "MiB") == 0 ? number << 20 : number;
}

static void drm_file_read(const char *path, struct drm_file *out)
{
    char line[LINE_BYTES_MAX];
    FILE *file = fopen(path, "re");
    *out = (struct drm_file){.pci = ""};
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        const uint64_t bytes = vram_bytes(line);
        out->bytes = bytes > out->bytes ? bytes : out->bytes;
        if (sscanf(line, "drm-pdev: %31s", out->pci) != 1)
            (void)sscanf(line, "drm-client-id: %" SCNu64, &out->client);
    }
    fclose(file);
}

/* Returns the memory of the card at `pci` that process `pid` uses, counting each of its DRM clients
 * once. */
static uint64_t process_bytes(const void *pci, const char *proc, int64_t pid)
{
    char path[PATH_BYTES_MAX];
    uint64_t clients[CLIENTS_MAX], total = 0;
    int32_t known = 0;
    snprintf(path, sizeof path, "%s/%" PRId64 "/fdinfo", proc, pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return 0;
    struct dirent *entry = readdir(folder);
    for (int32_t seen = 0; entry != NULL && seen < FILES_MAX; seen++, entry = readdir(folder)) {
        struct drm_file file;
        bool repeated = false;
        snprintf(path, sizeof path, "%s/%" PRId64 "/fdinfo/%.20s", proc, pid, entry->d_name);
        drm_file_read(path, &file);
        for (int32_t i = 0; i < known; i++)
            repeated = repeated || clients[i] == file.client;
        if (repeated || file.bytes == 0 || strcmp(file.pci, pci) != 0 || known == CLIENTS_MAX)
            continue;
        clients[known++] = file.client;
        total += file.bytes;
    }
    closedir(folder);
    return total;
}

void opencl_vendor_holders(const struct opencl_backend *cl, const char *proc, int64_t own_pid,
                           struct backend_holders *out)
{
    char pci[PCI_TEXT_MAX];
    if (!cl->device.is_cpu && pci_text(cl, pci))
        backend_holders_scan(out, proc, own_pid, process_bytes, pci);
}
