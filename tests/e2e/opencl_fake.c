/* An ICD loader with a defect, inserted between gpt-train and the real one;
 * OPENCL_FAKE=WORD[:NUMBER] selects it.
 *
 *   abort       clGetPlatformIDs ends the process, as broken drivers do
 *   skip:N      from launch N + 1 on, kernels silently do not run
 *   lost:N      launch N + 1 and all later calls fail as on a card that was lost
 *   source      a line that does not compile is added to each program
 *   refuse      clCreateBuffer of 1 MiB and more fails
 *   nvidia      the device reports NVIDIA's capability 8.6, and so matrix units that its compiler
 *               does not know
 *   unit-build, unit-abort, unit-skip programs for matrix units do not build, end the process, or
 *               are not run
 *   old         the devices have OpenCL 1.1, as Mesa's Clover
 *   exclusive   a device serves one process: the holder of the lock on the file OPENCL_FAKE_LOCK
 *   clblast-skip   CLBlast's kernels are not run; the library must be preloaded, as CLBlast finds
 *                  the loader by itself
 * Everything else goes to libOpenCL.so.1, which this library is linked with.  Compiled by the test
 * that uses it.
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "tests/e2e/opencl_real.h"

#define REFUSED_BYTES ((size_t)1 << 20)
#define SOURCES_MAX 8
#define CAPABILITY_MAJOR 0x4000 /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
#define CAPABILITY_MINOR 0x4001

static int launches;

/* Returns the number after `word` in OPENCL_FAKE, 0 without one; -1 when another defect is
 * selected. */
static int defect(const char *word)
{
    const char *wanted = getenv("OPENCL_FAKE");
    const size_t length = strlen(word);
    if (wanted == NULL || strncmp(wanted, word, length) != 0)
        return -1;
    return wanted[length] == ':' ? atoi(wanted + length + 1) : 0;
}

cl_int clGetPlatformIDs(cl_uint count, cl_platform_id *platforms, cl_uint *found)
{
    if (defect("abort") >= 0)
        abort();
    return ((__typeof__(&clGetPlatformIDs))real("clGetPlatformIDs"))(count, platforms, found);
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count,
                           const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                           void *data, cl_int *code)
{
    static int lock = -1;
    if (defect("exclusive") >= 0 && lock < 0) {
        lock = open(getenv("OPENCL_FAKE_LOCK"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
            *code = CL_INVALID_DEVICE;
            return NULL;
        }
    }
    return ((__typeof__(&clCreateContext))real("clCreateContext"))(properties, count, devices,
                                                                   notify, data, code);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code)
{
    if (defect("refuse") >= 0 && size > REFUSED_BYTES) {
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    return ((__typeof__(&clCreateBuffer))real("clCreateBuffer"))(context, flags, size, host, code);
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                     const size_t *lengths, cl_int *code)
{
    static const char line[] = "\n#error planted\n";
    const char *more[SOURCES_MAX];
    size_t more_lengths[SOURCES_MAX];
    __typeof__(&clCreateProgramWithSource) create =
        (__typeof__(&clCreateProgramWithSource))real("clCreateProgramWithSource");
    if (defect("source") < 0 || count >= SOURCES_MAX)
        return create(context, count, texts, lengths, code);
    memcpy(more, texts, count * sizeof *more);
    memcpy(more_lengths, lengths, count * sizeof *more_lengths);
    more[count] = line;
    more_lengths[count] = sizeof line - 1;
    return create(context, count + 1, more, more_lengths, code);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *value,
                       size_t *used)
{
    static const char extension[] = " cl_nv_device_attribute_query";
    const cl_int code =
        ((__typeof__(&clGetDeviceInfo))real("clGetDeviceInfo"))(device, what, size, value, used);
    if (defect("old") >= 0 && what == CL_DEVICE_VERSION && code == CL_SUCCESS && value != NULL)
        memcpy(value, "OpenCL 1.1", sizeof "OpenCL 1.1" - 1);
    if (defect("nvidia") < 0)
        return code;
    if (what == CL_DEVICE_EXTENSIONS && code == CL_SUCCESS && value != NULL &&
        strlen(value) + sizeof extension <= size)
        strcat(value, extension);
    if (what != CAPABILITY_MAJOR && what != CAPABILITY_MINOR)
        return code;
    *(cl_uint *)value = what == CAPABILITY_MAJOR ? 8 : 6;
    return CL_SUCCESS;
}

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                      void *data)
{
    const int of_units = strstr(options, "-DGT_UNIT=") != NULL;
    if (of_units && defect("unit-abort") >= 0)
        abort();
    if (of_units && defect("unit-build") >= 0)
        return CL_BUILD_PROGRAM_FAILURE;
    return ((__typeof__(&clBuildProgram))real("clBuildProgram"))(program, count, devices, options,
                                                                 notify, data);
}

/* Returns true when the kernel's name starts with `begin`: "gt_gemm_matrix" uses matrix units,
 * CLBlast's start with "Xgemm". */
static int is_of(cl_kernel kernel, const char *begin)
{
    char name[64] = "";
    ((__typeof__(&clGetKernelInfo))real("clGetKernelInfo"))(kernel, CL_KERNEL_FUNCTION_NAME,
                                                            sizeof name, name, NULL);
    return strncmp(name, begin, strlen(begin)) == 0;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                              const size_t *offset, const size_t *global, const size_t *local,
                              cl_uint waits, const cl_event *wait, cl_event *event)
{
    launches++;
    if (defect("skip") >= 0 && launches > defect("skip"))
        return CL_SUCCESS;
    if ((defect("unit-skip") >= 0 && is_of(kernel, "gt_gemm_matrix")) ||
        (defect("clblast-skip") >= 0 && is_of(kernel, "Xgemm")))
        return CL_SUCCESS;
    if (defect("lost") >= 0 && launches > defect("lost"))
        return CL_OUT_OF_RESOURCES;
    return ((__typeof__(&clEnqueueNDRangeKernel))real("clEnqueueNDRangeKernel"))(
        queue, kernel, dims, offset, global, local, waits, wait, event);
}
