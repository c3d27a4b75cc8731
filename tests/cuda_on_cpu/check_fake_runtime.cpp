/* Tests the fake CUDA run-time library and the fake cuBLASLt: lazy execution, strict argument checks, counters, failure
 * on demand, and products.
 *
 * Each check runs in a child process, so that no error or setting of one reaches another.  Products of small integers
 * are compared with sums in double, which are exact.
 */
#include "backends/cuda/cuda_device.h"

#include <cstdio>
#include <cstdlib>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cublasLt.h>

#include "fake_runtime.h"

/* Ends the check with the line that failed. */
#define WANT(condition)                                        \
    do {                                                       \
        if (!(condition)) {                                    \
            printf("    line %d: %s\n", __LINE__, #condition); \
            return false;                                      \
        }                                                      \
    } while (0)
#define OK(call) WANT((call) == cudaSuccess)
#define LT_OK(call) WANT((call) == CUBLAS_STATUS_SUCCESS)

#define COUNT 1000
#define HANG_MS 200 /* a call that takes this long hangs */

static __global__ void increment(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] += 1;
}

static cudaError_t increment_launch(int *values, cudaStream_t stream)
{
    return LAUNCH(increment, dim3(8), dim3(128), 0, stream, values, COUNT);
}

/* Nothing runs before the host waits.  A stream that does not wait for another one reads the old values. */
static bool check_lazy(void)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    void *device, *pinned;
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMalloc(&device, COUNT * 4));
    OK(cudaHostAlloc(&pinned, COUNT * 4, cudaHostAllocDefault));
    int *values = (int *)device, *host = (int *)pinned;
    WANT(host[0] == -1 && values[COUNT - 1] == -1);
    OK(cudaMemsetAsync(device, 0, COUNT * 4, first));
    OK(increment_launch(values, first));
    OK(cudaMemcpyAsync(pinned, device, COUNT * 4, cudaMemcpyDeviceToHost, first));
    WANT(host[0] == -1);
    OK(cudaStreamSynchronize(first));
    WANT(host[0] == 1 && host[COUNT - 1] == 1);
    OK(increment_launch(values, first));
    OK(cudaMemcpyAsync(pinned, device, COUNT * 4, cudaMemcpyDeviceToHost, second));
    OK(cudaStreamSynchronize(second));
    WANT(host[0] == 1);
    OK(cudaEventRecord(event, first));
    OK(cudaStreamWaitEvent(second, event, 0));
    OK(cudaMemcpyAsync(pinned, device, COUNT * 4, cudaMemcpyDeviceToHost, second));
    OK(cudaStreamSynchronize(second));
    WANT(host[0] == 2);
    /* Pageable memory is read before the call returns. */
    int plain[COUNT] = {7};
    OK(cudaMemcpyAsync(device, plain, sizeof plain, cudaMemcpyHostToDevice, first));
    WANT(values[0] == 7 && values[1] == 0);
    /* Pinned memory is read when the stream reaches the copy. */
    host[0] = 8;
    OK(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, first));
    host[0] = 9;
    OK(cudaStreamSynchronize(first));
    WANT(values[0] == 9);
    return true;
}

/* Copies that overlap kernels are counted.  "early" copies run at once, unless the stream has earlier work.  Events
 * read a clock that only work advances. */
static bool check_copies(void)
{
    cudaStream_t work, copies;
    cudaEvent_t begin, end, ready;
    void *device, *image, *pinned;
    struct fake_cuda_counters counters;
    float ms[2];
    OK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    OK(cudaMalloc(&device, COUNT * 4));
    OK(cudaMalloc(&image, COUNT * 4));
    OK(cudaHostAlloc(&pinned, COUNT * 4, cudaHostAllocDefault));
    int *host = (int *)pinned, *at = (int *)image;
    fake_cuda_reset();
    host[0] = 5;
    OK(cudaMemcpyAsync(image, pinned, 4, cudaMemcpyHostToDevice, copies));
    OK(cudaMemsetAsync(device, 0, COUNT * 4, work));
    OK(increment_launch((int *)device, work));
    fake_cuda_counters_get(&counters);
    WANT(counters.copies_beside == 0 && at[0] == -1);
    OK(cudaMemcpyAsync(image, pinned, 4, cudaMemcpyHostToDevice, work));
    fake_cuda_counters_get(&counters);
    WANT(counters.copies_beside == 0);
    OK(cudaMemcpyAsync(image, pinned, 4, cudaMemcpyHostToDevice, copies));
    fake_cuda_counters_get(&counters);
    WANT(counters.copies_beside == 1 && at[0] == -1);
    OK(cudaDeviceSynchronize());
    WANT(at[0] == 5 && !fake_cuda_copies_set("soon") && fake_cuda_copies_set("early"));
    host[0] = 6;
    OK(cudaMemcpyAsync(image, pinned, 4, cudaMemcpyHostToDevice, copies));
    WANT(at[0] == 6);
    OK(increment_launch((int *)device, work));
    OK(cudaEventRecord(ready, work));
    OK(cudaStreamWaitEvent(copies, ready, 0));
    host[0] = 7;
    OK(cudaMemcpyAsync(image, pinned, 4, cudaMemcpyHostToDevice, copies));
    WANT(at[0] == 6);
    OK(cudaStreamSynchronize(copies));
    WANT(at[0] == 7 && fake_cuda_copies_set("late"));
    for (int i = 0; i < 2; i++) {
        OK(cudaEventRecord(begin, work));
        OK(increment_launch((int *)device, work));
        OK(cudaEventRecord(end, work));
        OK(cudaEventSynchronize(end));
        OK(cudaEventElapsedTime(&ms[i], begin, end));
    }
    WANT(ms[0] > 0.0f && ms[0] == ms[1]);
    return true;
}

/* Captured work runs once per replay, and reads the values present at that time. */
static bool check_graph(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec, same;
    void *device, *pinned;
    struct fake_cuda_counters counters;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&device, COUNT * 4));
    OK(cudaHostAlloc(&pinned, COUNT * 4, cudaHostAllocDefault));
    int *host = (int *)pinned;
    OK(cudaMemsetAsync(device, 0, COUNT * 4, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    WANT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorInvalidValue);
    OK(increment_launch((int *)device, stream));
    OK(cudaMemcpyAsync(pinned, device, COUNT * 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaStreamSynchronize(stream));
    WANT(host[0] == -1);
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cudaGraphInstantiateWithFlags(&same, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphUpload(exec, stream));
    for (int i = 0; i < 5; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaMemsetAsync(device, 0, 4, stream));
    OK(cudaGraphLaunch(same, stream));
    OK(cudaStreamSynchronize(stream));
    WANT(host[0] == 1 && host[COUNT - 1] == 6);
    fake_cuda_counters_get(&counters);
    WANT(counters.replayed == 12 && counters.launches == 6);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphExecDestroy(same));
    return true;
}

/* A forbidden call invalidates the capture, and all captured work is discarded. */
static bool check_spoilt_capture(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    void *device, *more;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&device, COUNT * 4));
    for (int what = 0; what < 3; what++) {
        struct fake_cuda_counters before, after;
        fake_cuda_counters_get(&before);
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(increment_launch((int *)device, stream));
        if (what == 0)
            WANT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
        if (what == 1)
            WANT(cudaMalloc(&more, 4) == cudaErrorStreamCaptureUnsupported && !more);
        if (what == 2)
            WANT(fake_cuda_fail_set("cudaStreamEndCapture:1"));
        WANT(cudaStreamEndCapture(stream, &graph) ==
             (what == 2 ? cudaErrorStreamCaptureUnsupported : cudaErrorStreamCaptureInvalidated));
        WANT(!graph && cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnmatched);
        fake_cuda_counters_get(&after);
        WANT(before.objects_alive == after.objects_alive);
    }
    return true;
}

/* Calls that a device refuses. */
static bool check_refusals(void)
{
    void *device, *none;
    OK(cudaMalloc(&device, COUNT * 4));
    int *values = (int *)device;
    WANT(LAUNCH(increment, dim3(1), dim3(1025), 0, 0, values, 1) == cudaErrorInvalidConfiguration);
    WANT(LAUNCH(increment, dim3(1, 65536), dim3(1), 0, 0, values, 1) == cudaErrorInvalidConfiguration);
    WANT(LAUNCH(increment, dim3(0), dim3(1), 0, 0, values, 1) == cudaErrorInvalidConfiguration);
    WANT(LAUNCH(increment, dim3(1), dim3(1), 49153, 0, values, 1) == cudaErrorInvalidValue);
    const void *function = (const void *)increment;
    WANT(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, 101377) == cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, 101376));
    WANT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    OK(LAUNCH(increment, dim3(1), dim3(1), 49153, 0, values, 0));
    int host[2];
    WANT(cudaMemcpy(host, host + 1, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    WANT(cudaMemcpy(host, values + COUNT - 1, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    WANT(cudaMemcpy(device, host, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    WANT(cudaFree(values + 1) == cudaErrorInvalidValue && cudaFree(nullptr) == cudaSuccess);
    WANT(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
    WANT(cudaMalloc(&none, (size_t)13 << 30) == cudaErrorMemoryAllocation && !none);
    return true;
}

static bool check_devices(void)
{
    struct cudaDeviceProp properties;
    int count = -1;
    size_t free_bytes, total;
    char id[16];
    WANT(fake_cuda_devices_set("120:32g:NVIDIA GeForce RTX 5090,75:8g:Turing"));
    OK(cudaGetDeviceCount(&count));
    OK(cudaGetDeviceProperties(&properties, 1));
    WANT(count == 2 && properties.major == 7 && properties.minor == 5 && strcmp(properties.name, "Turing") == 0);
    WANT(properties.sharedMemPerBlockOptin == 65536 && properties.totalGlobalMem == (size_t)8 << 30);
    OK(cudaDeviceGetPCIBusId(id, sizeof id, 1));
    WANT(strcmp(id, "0000:02:00.0") == 0);
    OK(cudaSetDevice(1));
    OK(cudaMemGetInfo(&free_bytes, &total));
    WANT(total == (size_t)8 << 30 && free_bytes == total - FAKE_CONTEXT_BYTES);
    WANT(fake_cuda_taken_set("3g"));
    OK(cudaMemGetInfo(&free_bytes, &total));
    WANT(free_bytes == total - FAKE_CONTEXT_BYTES - ((size_t)3 << 30));
    WANT(!fake_cuda_devices_set("86") && !fake_cuda_devices_set("86:x:NAME") && !fake_cuda_taken_set("3g@cudaMalloc"));
    WANT(fake_cuda_devices_set("none") && cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    WANT(fake_cuda_driver_set("12040"));
    WANT(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    return true;
}

/* The n-th call fails, once.  A device error appears at the next wait, and persists. */
static bool check_failures(void)
{
    void *memory[3];
    int *values;
    size_t free_bytes, total;
    WANT(fake_cuda_fail_set("cudaMalloc:2"));
    OK(cudaMalloc(&memory[0], COUNT * 4));
    WANT(cudaMalloc(&memory[1], 4) == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory[1], 4));
    WANT(fake_cuda_taken_set("11g@cudaMalloc:1"));
    OK(cudaMemGetInfo(&free_bytes, &total));
    WANT(cudaMalloc(&memory[2], free_bytes - ((size_t)2 << 20)) == cudaErrorMemoryAllocation);
    WANT(fake_cuda_fail_set("launch:1:cudaErrorNoKernelImageForDevice"));
    values = (int *)memory[0];
    WANT(increment_launch(values, 0) == cudaErrorNoKernelImageForDevice);
    OK(increment_launch(values, 0));
    WANT(fake_cuda_fail_set("launch:1:cudaErrorIllegalAddress"));
    OK(increment_launch(values, 0));
    OK(increment_launch(values, 0));
    WANT(values[0] == -1 && cudaDeviceSynchronize() == cudaErrorIllegalAddress && values[0] == 0);
    WANT(cudaMalloc(&memory[2], 4) == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress &&
         cudaGetLastError() == cudaErrorIllegalAddress && increment_launch(values, 0) == cudaErrorIllegalAddress);
    WANT(cudaFree(memory[0]) == cudaErrorIllegalAddress && cudaFree(memory[1]) == cudaErrorIllegalAddress);
    fake_cuda_reset();
    WANT(fake_cuda_fail_set("any:3"));
    OK(cudaDeviceSynchronize());
    OK(cudaDeviceSynchronize());
    WANT(cudaDeviceSynchronize() == cudaErrorUnknown && cudaDeviceSynchronize() == cudaSuccess);
    WANT(!fake_cuda_fail_set("cudaMalloc") && !fake_cuda_fail_set("cudaMalloc:0") && !fake_cuda_fail_set("any:1:oops"));
    return true;
}

/* Returns true when a child that runs `what` writes one byte and then makes no progress for HANG_MS. */
static bool hangs_in(bool (*what)(int pipe_fd))
{
    int ends[2], status;
    char said[2];
    WANT(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(what(ends[1]) ? 0 : 1);
    WANT(child > 0 && read(ends[0], said, 1) == 1);
    struct pollfd more = {ends[0], POLLIN, 0};
    const bool hung = poll(&more, 1, HANG_MS) == 0 && waitpid(child, &status, WNOHANG) == 0;
    kill(child, SIGKILL);
    WANT(waitpid(child, &status, 0) == child);
    close(ends[0]);
    close(ends[1]);
    return hung;
}

static bool second_malloc(int pipe_fd)
{
    void *memory;
    WANT(fake_cuda_fail_set("cudaMalloc:2:hang"));
    OK(cudaMalloc(&memory, 4));
    WANT(write(pipe_fd, "1", 1) == 1);
    (void)cudaMalloc(&memory, 4);
    return write(pipe_fd, "2", 1) == 1;
}

static bool handle_of_products(int pipe_fd)
{
    cublasLtHandle_t handle;
    WANT(fake_cuda_fail_set("cublasLtCreate:1:hang"));
    WANT(write(pipe_fd, "1", 1) == 1);
    (void)cublasLtCreate(&handle);
    return write(pipe_fd, "2", 1) == 1;
}

/* The launch returns; the wait does not. */
static bool second_kernel(int pipe_fd)
{
    void *memory;
    WANT(fake_cuda_fail_set("launch:2:hang"));
    OK(cudaMalloc(&memory, COUNT * 4));
    OK(increment_launch((int *)memory, 0));
    OK(cudaDeviceSynchronize());
    OK(increment_launch((int *)memory, 0));
    WANT(write(pipe_fd, "1", 1) == 1);
    (void)cudaDeviceSynchronize();
    return write(pipe_fd, "2", 1) == 1;
}

static bool no_fault(int pipe_fd)
{
    return write(pipe_fd, "12", 2) == 2;
}

static bool check_hangs(void)
{
    WANT(hangs_in(second_malloc));
    WANT(hangs_in(handle_of_products));
    WANT(hangs_in(second_kernel));
    WANT(!hangs_in(no_fault));
    WANT(!fake_cuda_fail_set("cudaMalloc:1:hangs") && !fake_cuda_fail_set("cudaMalloc:hang"));
    return true;
}

static bool check_counters(void)
{
    struct fake_cuda_counters counters;
    void *memory, *pinned;
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&memory, COUNT * 4));
    OK(cudaHostAlloc(&pinned, 100, cudaHostAllocDefault));
    OK(increment_launch((int *)memory, stream));
    OK(cudaStreamSynchronize(stream));
    fake_cuda_counters_get(&counters);
    WANT(counters.allocations == 1 && counters.allocated_bytes == COUNT * 4 && counters.live_bytes == COUNT * 4);
    WANT(counters.launches == 1 && counters.waits == 1 && counters.pinned_bytes == 100 && counters.calls == 5);
    WANT(counters.objects_alive == 3 && fake_cuda_calls_of("cudaMalloc") == 1);
    OK(cudaFree(memory));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
    fake_cuda_counters_get(&counters);
    WANT(counters.objects_alive == 0 && counters.live_bytes == 0 && counters.live_bytes_peak == COUNT * 4);
    return true;
}

/* ---- products ---- */

struct product_case {
    int m, n, k;
    bool transpose_a, transpose_b, bias;
    float alpha, beta;
    cudaDataType type, result;
};

#define MATRIX_MAX 4096

static float stored_value(const void *matrix, cudaDataType type, int i)
{
    if (type == CUDA_R_32F)
        return ((const float *)matrix)[i];
    return type == CUDA_R_16BF ? to_float(((const __nv_bfloat16 *)matrix)[i]) : to_float(((const __half *)matrix)[i]);
}

static void store_value(void *matrix, cudaDataType type, int i, float value)
{
    if (type == CUDA_R_32F)
        ((float *)matrix)[i] = value;
    else if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)matrix)[i] = rounded<__nv_bfloat16>(value);
    else
        ((__half *)matrix)[i] = rounded<__half>(value);
}

static void *matrix_make(cudaDataType type, int salt)
{
    void *memory = nullptr;
    if (cudaMalloc(&memory, MATRIX_MAX * 4) != cudaSuccess)
        _exit(3);
    for (int i = 0; i < MATRIX_MAX; i++)
        store_value(memory, type, i, (float)((i * 7 + salt) % 5 - 2));
    return memory;
}

/* A rows x cols matrix with a longer leading dimension. */
static cublasLtMatrixLayout_t layout_make(cudaDataType type, int rows, int cols, int *ld)
{
    cublasLtMatrixLayout_t layout = nullptr;
    *ld = rows + 3;
    if (cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)cols, *ld) != CUBLAS_STATUS_SUCCESS)
        _exit(3);
    return layout;
}

struct matrices {
    void *a, *b, *d;
    const void *bias;
    float before[MATRIX_MAX];
    int lda, ldb, ldd;
};

static bool product_is_right(const struct product_case *shape, const struct matrices *all)
{
    for (int i = 0; i < shape->m; i++)
        for (int j = 0; j < shape->n; j++) {
            double sum = 0.0;
            for (int k = 0; k < shape->k; k++) {
                int a = shape->transpose_a ? k + i * all->lda : i + k * all->lda;
                int b = shape->transpose_b ? j + k * all->ldb : k + j * all->ldb;
                sum += (double)stored_value(all->a, shape->type, a) * stored_value(all->b, shape->type, b);
            }
            int at = i + j * all->ldd;
            sum = shape->alpha * sum + (shape->beta != 0.0f ? shape->beta * all->before[at] : 0.0);
            sum += shape->bias ? stored_value(all->bias, shape->result, i) : 0.0f;
            WANT(stored_value(all->d, shape->result, at) == (float)sum);
        }
    return true;
}

static bool product_check(const struct product_case *shape)
{
    struct matrices all;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    cublasOperation_t op_a = shape->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = shape->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = shape->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    uint64_t workspace_bytes = 65536;
    int found = 0;
    all.a = matrix_make(shape->type, 1);
    all.b = matrix_make(shape->type, 2);
    all.d = matrix_make(shape->result, 3);
    all.bias = matrix_make(shape->result, 4);
    for (int i = 0; i < MATRIX_MAX; i++)
        all.before[i] = stored_value(all.d, shape->result, i);
    if (shape->beta == 0.0f) /* with beta 0 the old values are not read and may be anything */
        memset(all.d, 0xff, MATRIX_MAX * 4);
    LT_OK(cublasLtCreate(&handle));
    LT_OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &all.bias, sizeof all.bias);
    cublasLtMatrixLayout_t a = layout_make(shape->type, shape->transpose_a ? shape->k : shape->m,
                                           shape->transpose_a ? shape->m : shape->k, &all.lda);
    cublasLtMatrixLayout_t b = layout_make(shape->type, shape->transpose_b ? shape->n : shape->k,
                                           shape->transpose_b ? shape->k : shape->n, &all.ldb);
    cublasLtMatrixLayout_t d = layout_make(shape->result, shape->m, shape->n, &all.ldd);
    LT_OK(cublasLtMatmulPreferenceCreate(&preference));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                         sizeof workspace_bytes);
    LT_OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &result, &found));
    WANT(found == 1 && result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes);
    void *workspace = nullptr;
    OK(cudaMalloc(&workspace, 65536));
    memset(workspace, 0, 65536);
    LT_OK(cublasLtMatmul(handle, desc, &shape->alpha, all.a, a, all.b, b, &shape->beta, all.d, d, all.d, d,
                         &result.algo, workspace, 65536, nullptr));
    WANT(((unsigned char *)workspace)[0] == 0);
    OK(cudaDeviceSynchronize());
    WANT(((unsigned char *)workspace)[65535] == 0xff);
    WANT(product_is_right(shape, &all));
    /* An algorithm of another product, or with less workspace than it needs. */
    if (result.workspaceSize > 0)
        WANT(cublasLtMatmul(handle, desc, &shape->alpha, all.a, a, all.b, b, &shape->beta, all.d, d, all.d, d,
                            &result.algo, workspace, result.workspaceSize - 1, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
    if (shape->m != shape->n)
        WANT(cublasLtMatmul(handle, desc, &shape->alpha, all.a, a, all.b, b, &shape->beta, all.d, a, all.d, a,
                            &result.algo, workspace, 65536, nullptr) != CUBLAS_STATUS_SUCCESS);
    WANT(cublasLtMatmul(handle, desc, &shape->alpha, (char *)all.a + 4, a, all.b, b, &shape->beta, all.d, d, all.d, d,
                        &result.algo, workspace, 65536, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
    return true;
}

static bool check_products(void)
{
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F};
    for (int bits = 0; bits < 32; bits++)
        for (cudaDataType type : types) {
            struct product_case shape = {13,
                                         6,
                                         bits & 1 ? 70 : 9,
                                         (bits & 2) != 0,
                                         (bits & 4) != 0,
                                         (bits & 8) != 0,
                                         0.5f,
                                         bits & 8 ? 0.0f : 1.0f,
                                         type,
                                         bits & 16 ? CUDA_R_32F : type};
            WANT(product_check(&shape));
        }
    return true;
}

static bool check_product_refusals(void)
{
    cublasLtMatmulDesc_t desc;
    cublasLtHandle_t handle = nullptr;
    int32_t value = 1;
    WANT(fake_cuda_fail_set("cublasLtCreate:1") && cublasLtCreate(&handle) == CUBLAS_STATUS_ALLOC_FAILED && !handle);
    WANT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    WANT(cublasLtMatmulDescSetAttribute(desc, (cublasLtMatmulDescAttributes_t)25, &value, sizeof value) ==
         CUBLAS_STATUS_NOT_SUPPORTED);
    WANT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, 1) == CUBLAS_STATUS_INVALID_VALUE);
    return true;
}

/* TF32 keeps ten fraction bits: 1 + 2^-11 becomes 1 + 2^-10 or 1, never itself. */
static bool check_tf32(void)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t one;
    void *memory;
    float alpha = 1.0f, beta = 0.0f;
    OK(cudaMalloc(&memory, 64));
    float *values = (float *)memory;
    values[0] = 1.0f + 0x1p-11f;
    values[4] = 1.0f;
    LT_OK(cublasLtCreate(&handle));
    LT_OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F));
    LT_OK(cublasLtMatrixLayoutCreate(&one, CUDA_R_32F, 1, 1, 1));
    LT_OK(cublasLtMatmul(handle, desc, &alpha, values, one, values + 4, one, &beta, values + 8, one, values + 8, one,
                         nullptr, nullptr, 0, nullptr));
    OK(cudaDeviceSynchronize());
    WANT(values[8] == 1.0f + 0x1p-10f);
    WANT(fake_cuda_calls_of("cublasLtMatmulAlgoGetHeuristic") == 1); /* without an algorithm, cublasLtMatmul looks one
                                                                      * up itself */
    return true;
}

int main(void)
{
    static const struct {
        const char *name;
        bool (*check)(void);
    } checks[] = {{"lazy", check_lazy},
                  {"copies", check_copies},
                  {"graph", check_graph},
                  {"spoilt capture", check_spoilt_capture},
                  {"refusals", check_refusals},
                  {"devices", check_devices},
                  {"failures", check_failures},
                  {"hangs", check_hangs},
                  {"counters", check_counters},
                  {"products", check_products},
                  {"product-refusals", check_product_refusals},
                  {"tf32", check_tf32}};
    int passed = 0, failed = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const auto &entry : checks) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(entry.check() ? 0 : 1);
        bool good = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        printf("%s fake-%s\n", good ? "PASS" : "FAIL", entry.name);
        passed += good;
        failed += !good;
    }
    printf("checks: %d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
