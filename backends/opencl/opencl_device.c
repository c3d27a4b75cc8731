/* The ICD loader, opened at run time, and platforms and devices through it; names of error codes.
 *
 * The loader itself decides which drivers it finds (OCL_ICD_VENDORS, /etc/OpenCL/vendors).  Devices
 * are numbered over all platforms in the loader's order, as in clinfo.  Device properties are not
 * trusted: texts are cleaned, sizes are bounded by what we can use, and none proves that memory
 * exists (opencl_memory.c commits it).  Only advertised optional abilities are used; none is
 * required.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif

#include "backends/opencl/opencl_device.h"

#include <dlfcn.h>
#include <glob.h>

#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_gemm.h"
#include "base/module.h"
#include "base/platform.h"

#define PLATFORMS_MAX 16
#define EXTENSIONS_BYTES_MAX 16384
#define INTEL_ALLOCATION_BYTES_MAX (((uint64_t)4 << 30) - ((uint64_t)64 << 20))
#define MATRIX_TEXT_MAX 64
#define BASE_ALIGN_BITS_MAX 65536u
/* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, MINOR: cl_nv_device_attribute_query. */
#define CAPABILITY_MAJOR_NV 0x4000u
#define CAPABILITY_MINOR_NV 0x4001u
#define BOARD_NAME_AMD 0x4038u /* CL_DEVICE_BOARD_NAME_AMD: cl_amd_device_attribute_query */

static const struct library_entry entries[] = {
#define OPENCL_FUNCTION(function) {#function, offsetof(struct opencl_api, function)},
#include "backends/opencl/opencl_api.def"
#undef OPENCL_FUNCTION
};

/* GPT_TRAIN_OPENCL_LIBRARY replaces libOpenCL.so.1, for systems with another location and for
 * tests. */
static const char *loader_name(void)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_LIBRARY");
    return wanted != NULL && *wanted != '\0' ? wanted : PLATFORM_OPENCL;
}

void *opencl_loader_open(int mode)
{
    return dlopen(loader_name(), RTLD_NOW | mode);
}

/* The loader stays loaded, because drivers leave threads and exit handlers behind. */
enum gt_status opencl_api_open(struct opencl_api *out)
{
    struct opencl_api api;
    void *library = opencl_loader_open(RTLD_LOCAL);
    if (library == NULL)
        return FAIL(
            GT_DEVICE,
            "opencl: the ICD loader cannot be opened: %s (Debian: apt-get install ocl-icd-libopencl1)",
            dlerror());
    const char *missing = library_table(library, entries, sizeof entries / sizeof entries[0], &api);
    if (missing != NULL) {
        dlclose(library);
        return FAIL(GT_DEVICE, "opencl: %s has no %s: it is older than OpenCL 1.2", loader_name(),
                    missing);
    }
    *out = api;
    return GT_OK;
}

void opencl_name_clean(char *text)
{
    size_t out = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        const char c = text[i] > ' ' && text[i] <= '~' ? text[i] : ' ';
        if (c != ' ' || (out > 0 && text[out - 1] != ' '))
            text[out++] = c;
    }
    out -= out > 0 && text[out - 1] == ' ';
    text[out] = '\0';
}

/* Reads a text of a device, or of a platform if `id` is NULL; truncates it to fit. */
static void text_read(const struct opencl_api *api, cl_platform_id platform, cl_device_id id,
                      cl_uint what, char *out)
{
    char text[4 * OPENCL_NAME_MAX] = "";
    const cl_int code = id != NULL
                            ? api->clGetDeviceInfo(id, what, sizeof text - 1, text, NULL)
                            : api->clGetPlatformInfo(platform, what, sizeof text - 1, text, NULL);
    opencl_name_clean(text);
    snprintf(out, OPENCL_NAME_MAX, "%.*s", code == CL_SUCCESS ? OPENCL_NAME_MAX - 1 : 0, text);
}

/* Reads a number of 4 or 8 bytes, which this little-endian processor extends with zeros. */
static uint64_t device_number(const struct opencl_api *api, cl_device_id id, cl_device_info what)
{
    uint64_t value = 0;
    return api->clGetDeviceInfo(id, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static bool device_has(const struct opencl_api *api, cl_device_id id, const char *extension)
{
    static const size_t limit = EXTENSIONS_BYTES_MAX;
    char text[EXTENSIONS_BYTES_MAX + 2] = " ", wanted[64];
    if (api->clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, limit - 1, text + 1, NULL) != CL_SUCCESS)
        return false;
    snprintf(text + strlen(text), 2, " ");
    snprintf(wanted, sizeof wanted, " %s ", extension);
    return strstr(text, wanted) != NULL;
}

/* Returns true for a version below 1.2, such as Clover's "OpenCL 1.1 Mesa 22.3.6", and false for
 * texts in other forms. */
static bool is_too_old(const char *version)
{
    int major, minor;
    return sscanf(version, "OpenCL %d.%d", &major, &minor) == 2 &&
           (major < 1 || (major == 1 && minor < 2));
}

/* Returns "" when the device can be used, else the reason why not. */
static const char *device_lacks(const struct opencl_api *api, const struct opencl_device *device)
{
    if (is_too_old(device->version))
        return "its driver has OpenCL 1.1, but 1.2 is needed (Mesa: rusticl instead of Clover, with RUSTICL_ENABLE)";
    if (device_number(api, device->id, CL_DEVICE_AVAILABLE) == 0)
        return "it is not available";
    if (device_number(api, device->id, CL_DEVICE_COMPILER_AVAILABLE) == 0)
        return "its driver has no compiler";
    if (device_number(api, device->id, CL_DEVICE_ENDIAN_LITTLE) == 0)
        return "it is big-endian";
    if (device->work_group_max < 32 || device->local_bytes < 4096)
        return "its work-groups are too small";
    return "";
}

static void device_read(const struct opencl_api *api, cl_platform_id platform, cl_device_id id,
                        struct opencl_device *out)
{
    struct opencl_device device = {.platform = platform, .id = id};
    char vendor[OPENCL_NAME_MAX];
    text_read(api, platform, NULL, CL_PLATFORM_NAME, device.platform_name);
    text_read(api, platform, id, CL_DEVICE_NAME, device.name);
    text_read(api, platform, id, BOARD_NAME_AMD, device.board);
    text_read(api, platform, id, CL_DEVICE_VERSION, device.version);
    text_read(api, platform, id, CL_DRIVER_VERSION, device.driver);
    text_read(api, platform, id, CL_DEVICE_VENDOR, vendor);
    const bool is_intel = strcasestr(vendor, "intel") != NULL;
    const uint64_t type = device_number(api, id, CL_DEVICE_TYPE),
                   fp32 = device_number(api, id, CL_DEVICE_SINGLE_FP_CONFIG);
    device.global_bytes = device_number(api, id, CL_DEVICE_GLOBAL_MEM_SIZE);
    device.allocation_bytes =
        size_min(device.global_bytes, device_number(api, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
    if (is_intel) /* larger buffers need options for every kernel build */
        device.allocation_bytes = size_min(device.allocation_bytes, INTEL_ALLOCATION_BYTES_MAX);
    device.local_bytes = device_number(api, id, CL_DEVICE_LOCAL_MEM_SIZE);
    device.work_group_max = (size_t)device_number(api, id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    device.compute_units = (uint32_t)device_number(api, id, CL_DEVICE_MAX_COMPUTE_UNITS);
    device.clock_mhz = (uint32_t)device_number(api, id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    const uint64_t align_bits = device_number(api, id, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    device.alignment_bytes = OPENCL_ALIGNMENT_BYTES_MIN;
    while (device.alignment_bytes * 8 < align_bits && align_bits <= BASE_ALIGN_BITS_MAX)
        device.alignment_bytes *= 2;
    device.is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    device.is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    device.has_narrow_units = !device.is_cpu && is_intel;
    device.is_host_memory = device_number(api, id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
    const char *division = getenv("GPT_TRAIN_OPENCL_DIVISION"); /* for tests: "software" */
    device.has_exact_division = (fp32 & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0 &&
                                (division == NULL || strcmp(division, "software") != 0);
    device.has_subnormals = (fp32 & CL_FP_DENORM) != 0;
    device.has_fma = (fp32 & CL_FP_FMA) != 0;
    device.has_fp16_arithmetic = device_has(api, id, "cl_khr_fp16");
    if (device_has(api, id, "cl_nv_device_attribute_query"))
        device.nvidia_capability =
            (int32_t)(device_number(api, id, CAPABILITY_MAJOR_NV) % 100 * 10 +
                      device_number(api, id, CAPABILITY_MINOR_NV) % 10);
    snprintf(device.lacks, sizeof device.lacks, "%s", device_lacks(api, &device));
    *out = device;
}

enum gt_status opencl_devices_list(const struct opencl_api *api, struct opencl_listing *out)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint platform_count = 0;
    char text[OPENCL_CODE_TEXT_MAX];
    const cl_int code = api->clGetPlatformIDs(PLATFORMS_MAX, platforms, &platform_count);
    if (code == OPENCL_PLATFORM_NOT_FOUND || (code == CL_SUCCESS && platform_count == 0))
        return FAIL(
            GT_DEVICE,
            "opencl: no platform, so no driver is installed (Debian: pocl-opencl-icd for the processor; "
            "intel-opencl-icd, nvidia-opencl-icd, or mesa-opencl-icd with RUSTICL_ENABLE=radeonsi for a card)");
    if (code != CL_SUCCESS)
        return FAIL(GT_DEVICE, "opencl: clGetPlatformIDs: %s", opencl_code_text(text, code));
    out->count = 0;
    for (cl_uint p = 0; p < platform_count && p < PLATFORMS_MAX; p++) {
        cl_device_id ids[OPENCL_DEVICES_MAX];
        cl_uint found = 0;
        if (api->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, OPENCL_DEVICES_MAX, ids,
                                &found) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < found && d < OPENCL_DEVICES_MAX && out->count < OPENCL_DEVICES_MAX;
             d++) {
            device_read(api, platforms[p], ids[d], &out->device[out->count]);
            out->device[out->count].number = out->count;
            out->count++;
        }
    }
    if (out->count > 0)
        return GT_OK;
    return FAIL(GT_DEVICE, "opencl: %u platform%s, but no device in %s", platform_count,
                platform_count == 1 ? "" : "s", platform_count == 1 ? "it" : "them");
}

int32_t opencl_card_choose(const struct opencl_listing *listing)
{
    int32_t best = -1;
    for (int32_t i = 0; i < listing->count; i++) {
        const struct opencl_device *listed = &listing->device[i],
                                   *before = &listing->device[best < 0 ? i : best];
        if (listed->lacks[0] != '\0' || !listed->is_gpu)
            continue;
        const bool is_better = listed->is_host_memory == before->is_host_memory
                                   ? listed->global_bytes > before->global_bytes
                                   : before->is_host_memory;
        best = best < 0 || is_better ? i : best;
    }
    return best;
}

/* Returns the index of the first usable device whose name, board or platform contains `name`;
 * without one, the first unusable match; -1 when nothing matches. */
static int32_t name_find(const struct opencl_listing *listing, const char *name)
{
    int32_t found = -1;
    for (int32_t i = 0; i < listing->count; i++) {
        const struct opencl_device *device = &listing->device[i];
        if (strcasestr(device->name, name) == NULL && strcasestr(device->board, name) == NULL &&
            strcasestr(device->platform_name, name) == NULL)
            continue;
        if (device->lacks[0] == '\0')
            return i;
        found = found < 0 ? i : found;
    }
    return found;
}

enum gt_status opencl_device_find(const struct opencl_api *api, int32_t index, const char *name,
                                  struct opencl_device *out)
{
    struct opencl_listing listing;
    TRY(opencl_devices_list(api, &listing));
    if (name != NULL)
        index = name_find(&listing, name);
    if (name != NULL && index < 0)
        return FAIL(GT_USAGE,
                    "opencl: no device has \"%s\" in its name (--list_devices shows them)", name);
    if (index < 0 || index >= listing.count)
        return FAIL(GT_DEVICE,
                    "opencl: device %" PRId32 " does not exist; there %s %" PRId32
                    ", numbered from 0 (--list_devices)",
                    index, listing.count == 1 ? "is" : "are", listing.count);
    *out = listing.device[index];
    if (out->lacks[0] == '\0')
        return GT_OK;
    return FAIL(GT_DEVICE, "opencl: device %" PRId32 ", %s, cannot be used: %s", index, out->name,
                out->lacks);
}

void opencl_device_texts(const struct opencl_backend *cl, struct backend_info *info)
{
    static const char *const names[] = {"", "bfloat16", "float16", "bfloat16, float16"};
    static const char *const others[] = {"", "float16, ", "bfloat16, ", ""};
    const struct opencl_device *device = &cl->device;
    const uint32_t on_units =
        (cl->matrix.dtypes >> DTYPE_BF16 & 1u) + 2 * (cl->matrix.dtypes >> DTYPE_F16 & 1u);
    const char *board = device->board;
    char has[MATRIX_TEXT_MAX] = "",
         lacks[MATRIX_TEXT_MAX] = "a processor: the cpu backend is faster";
    if (on_units != 0) {
        snprintf(has, sizeof has, "%s products on %smatrix units", names[on_units],
                 cl->matrix.is_emulated ? "emulated " : "");
        snprintf(lacks, sizeof lacks, "%sfloat32 products and attention on vector units",
                 others[on_units]);
    } else if (!device->is_cpu) {
        snprintf(has, sizeof has, "products on vector units");
        snprintf(lacks, sizeof lacks, "no matrix units: %.46s", cl->matrix.lost);
    }
    snprintf(info->device, sizeof info->device, "%.60s%s%.40s%s, %u units", device->name,
             *board != '\0' ? " (" : "", board, *board != '\0' ? ")" : "", device->compute_units);
    snprintf(info->detail, sizeof info->detail, "%.27s, driver %.20s%s%s%.60s",
             device->platform_name, device->driver, cl->tuning.gemm_clblast ? ", CLBlast" : "",
             has[0] != '\0' ? ", " : "", has);
    snprintf(info->limits, sizeof info->limits, "%s%s", lacks,
             device->has_subnormals ? ""
                                    : "; no fp32 subnormals: no lean states, no muon, one part");
}

bool opencl_card_is_present(void)
{
    static const char *const nodes[] = {"/dev/dri/renderD*", "/dev/kfd",   "/dev/nvidiactl",
                                        "/dev/dxg",          "/dev/mali0", "/dev/kgsl-3d0"};
    bool found = false;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0] && !found; i++) {
        glob_t paths;
        found = glob(nodes[i], 0, NULL, &paths) == 0;
        globfree(&paths);
    }
    return found;
}
