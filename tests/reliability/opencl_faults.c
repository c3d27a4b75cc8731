/* A library between a program and OpenCL's loader, in which one call goes wrong.
 *
 * OPENCL_FAULT=FUNCTION:N:KIND selects the N-th call of FUNCTION by the program itself, not by children that it forks
 * to try a driver.  With `memory` (CL_MEM_OBJECT_ALLOCATION_FAILURE) or `launch` (CL_OUT_OF_RESOURCES) the call fails
 * once; with `lost` (CL_DEVICE_NOT_AVAILABLE) it fails, and so does every later call except releases; with `hang` it
 * never returns.  OPENCL_FAULT_REPORT names a file, written when the process exits: the counts of calls, "FUNCTION N" a
 * line; of calls refused after `lost`, "refused:FUNCTION N"; and of objects created but never released, "left N".
 * Everything else goes to libOpenCL.so.1, which this library is linked with.  Compiled by the test that uses it.
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/opencl_real.h"

#define FUNCTIONS_MAX 64

static struct {
    const char *name[FUNCTIONS_MAX];
    unsigned long calls[FUNCTIONS_MAX], refused[FUNCTIONS_MAX];
    int count;
    long left; /* unreleased contexts, queues, buffers, programs and kernels */
    bool is_child, is_lost;
} faults;

/* Returns true in a child that was forked without exec: it has its parent's program. */
static bool is_child(void)
{
    char path[64], own[PATH_MAX], parents[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%ld/exe", (long)getppid());
    const ssize_t a = readlink("/proc/self/exe", own, sizeof own), b = readlink(path, parents, sizeof parents);
    return a > 0 && a == b && memcmp(own, parents, (size_t)a) == 0;
}

static void report(void)
{
    const char *path = getenv("OPENCL_FAULT_REPORT");
    FILE *file = path != NULL && !faults.is_child ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    for (int i = 0; i < faults.count; i++)
        fprintf(file, "%s %lu\nrefused:%s %lu\n", faults.name[i], faults.calls[i], faults.name[i], faults.refused[i]);
    fprintf(file, "left %ld\n", faults.left);
    fclose(file);
}

__attribute__((constructor)) static void loaded(void)
{
    faults.is_child = is_child();
    atexit(report);
}

/* Counts the call and returns the function's index. */
static int counted(const char *name)
{
    int i = 0;
    while (i < faults.count && strcmp(faults.name[i], name) != 0)
        i++;
    if (i == FUNCTIONS_MAX)
        abort();
    if (i == faults.count) {
        faults.name[i] = name;
        faults.count++;
    }
    faults.calls[i]++;
    return i;
}

/* Returns the error that the call must return, or CL_SUCCESS. */
static cl_int fault(const char *name)
{
    const char *wanted = getenv("OPENCL_FAULT");
    char function[64], kind[16];
    unsigned long number;
    const bool gives_back = strncmp(name, "clRelease", 9) == 0;
    if (faults.is_child)
        return CL_SUCCESS;
    const int called = counted(name);
    const bool due = wanted != NULL && sscanf(wanted, "%63[A-Za-z]:%lu:%15s", function, &number, kind) == 3 &&
                     faults.calls[called] == number && strcmp(function, name) == 0;
    while (due && strcmp(kind, "hang") == 0)
        pause();
    faults.refused[called] += faults.is_lost && !gives_back;
    faults.is_lost = faults.is_lost || (due && strcmp(kind, "lost") == 0);
    if (faults.is_lost && !gives_back)
        return CL_DEVICE_NOT_AVAILABLE;
    if (!due || faults.is_lost)
        return CL_SUCCESS;
    return strcmp(kind, "memory") == 0 ? CL_MEM_OBJECT_ALLOCATION_FAILURE : CL_OUT_OF_RESOURCES;
}

/* Functions that return their error, functions that return an object and the error through `code`, and releases. */
#define RETURNS_CODE(name, parameters, arguments)         \
    cl_int name parameters                                \
    {                                                     \
        const cl_int error = fault(#name);                \
        if (error != CL_SUCCESS)                          \
            return error;                                 \
        return ((__typeof__(&name))real(#name))arguments; \
    }
#define RETURNS_OBJECT(type, name, parameters, arguments)        \
    type name parameters                                         \
    {                                                            \
        const cl_int error = fault(#name);                       \
        if (error != CL_SUCCESS) {                               \
            if (code != NULL)                                    \
                *code = error;                                   \
            return NULL;                                         \
        }                                                        \
        type object = ((__typeof__(&name))real(#name))arguments; \
        faults.left += object != NULL;                           \
        return object;                                           \
    }
#define RELEASES(name, type)                                                           \
    cl_int name(type object)                                                           \
    {                                                                                  \
        const cl_int error = fault(#name);                                             \
        /* A failed release still takes the object away from the program. */           \
        faults.left--;                                                                 \
        return error != CL_SUCCESS ? error : ((__typeof__(&name))real(#name))(object); \
    }

typedef void(CL_CALLBACK *notify_fn)(const char *, const void *, size_t, void *);
typedef void(CL_CALLBACK *built_fn)(cl_program, void *);

RETURNS_CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *found), (n, out, found))
RETURNS_CODE(clGetPlatformInfo, (cl_platform_id p, cl_platform_info what, size_t n, void *out, size_t *found),
             (p, what, n, out, found))
RETURNS_CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *out, cl_uint *found),
             (p, type, n, out, found))
RETURNS_CODE(clGetDeviceInfo, (cl_device_id d, cl_device_info what, size_t n, void *out, size_t *found),
             (d, what, n, out, found))
RETURNS_OBJECT(cl_context, clCreateContext,
               (const cl_context_properties *p, cl_uint n, const cl_device_id *d, notify_fn notify, void *user,
                cl_int *code),
               (p, n, d, notify, user, code))
RELEASES(clReleaseContext, cl_context)
RETURNS_OBJECT(cl_command_queue, clCreateCommandQueue,
               (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *code), (c, d, p, code))
RELEASES(clReleaseCommandQueue, cl_command_queue)
RETURNS_OBJECT(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags flags, size_t n, void *host, cl_int *code),
               (c, flags, n, host, code))
RETURNS_OBJECT(cl_mem, clCreateSubBuffer,
               (cl_mem m, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *code),
               (m, flags, type, info, code))
RELEASES(clReleaseMemObject, cl_mem)
RETURNS_OBJECT(cl_program, clCreateProgramWithSource,
               (cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *code),
               (c, n, texts, lengths, code))
RETURNS_OBJECT(cl_program, clCreateProgramWithBinary,
               (cl_context c, cl_uint n, const cl_device_id *d, const size_t *lengths, const unsigned char **binaries,
                cl_int *states, cl_int *code),
               (c, n, d, lengths, binaries, states, code))
RETURNS_CODE(clBuildProgram,
             (cl_program p, cl_uint n, const cl_device_id *d, const char *options, built_fn built, void *user),
             (p, n, d, options, built, user))
RETURNS_CODE(clGetProgramInfo, (cl_program p, cl_program_info what, size_t n, void *out, size_t *found),
             (p, what, n, out, found))
RETURNS_CODE(clGetProgramBuildInfo,
             (cl_program p, cl_device_id d, cl_program_build_info what, size_t n, void *out, size_t *found),
             (p, d, what, n, out, found))
RELEASES(clReleaseProgram, cl_program)
RETURNS_OBJECT(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, code))
RELEASES(clReleaseKernel, cl_kernel)
RETURNS_CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *value), (k, i, n, value))
RETURNS_CODE(clGetKernelWorkGroupInfo,
             (cl_kernel k, cl_device_id d, cl_kernel_work_group_info what, size_t n, void *out, size_t *found),
             (k, d, what, n, out, found))
RETURNS_CODE(clEnqueueNDRangeKernel,
             (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global,
              const size_t *local, cl_uint waits, const cl_event *wait, cl_event *event),
             (q, k, dims, offset, global, local, waits, wait, event))
RETURNS_CODE(clEnqueueReadBuffer,
             (cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t n, void *to, cl_uint waits,
              const cl_event *wait, cl_event *event),
             (q, m, blocking, offset, n, to, waits, wait, event))
RETURNS_CODE(clEnqueueWriteBuffer,
             (cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t n, const void *from, cl_uint waits,
              const cl_event *wait, cl_event *event),
             (q, m, blocking, offset, n, from, waits, wait, event))
RETURNS_CODE(clEnqueueCopyBuffer,
             (cl_command_queue q, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t n, cl_uint waits,
              const cl_event *wait, cl_event *event),
             (q, from, to, from_offset, to_offset, n, waits, wait, event))
RETURNS_CODE(clEnqueueFillBuffer,
             (cl_command_queue q, cl_mem m, const void *pattern, size_t pattern_bytes, size_t offset, size_t n,
              cl_uint waits, const cl_event *wait, cl_event *event),
             (q, m, pattern, pattern_bytes, offset, n, waits, wait, event))
RETURNS_CODE(clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint waits, const cl_event *wait, cl_event *event),
             (q, waits, wait, event))
RETURNS_CODE(clEnqueueBarrierWithWaitList, (cl_command_queue q, cl_uint waits, const cl_event *wait, cl_event *event),
             (q, waits, wait, event))
RETURNS_CODE(clReleaseEvent, (cl_event event), (event))
RETURNS_CODE(clFlush, (cl_command_queue q), (q))
RETURNS_CODE(clFinish, (cl_command_queue q), (q))
