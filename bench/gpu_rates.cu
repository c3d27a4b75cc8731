/* What a card can do, for bench/gpu-check: rates of mma of fp16 with fp32 and fp16 sums, how both
 * round, and the same of fp8 (0: not there); memory, L2, an empty node of a graph; the link to host
 * memory; and what cuBLASLt reaches for the products of a GPT-2, by workspace, tuned and not, and
 * our own kernel with fp16 and fp32 sums and with the ops that it may end with.
 *
 * usage: gpu_rates ROWS CHANNELS VOCABULARY RUNS    (rows of a micro-batch; runs of each
 * measurement) Prints one line of JSON.  Every time is the least of some rounds, by events, on
 * random numbers.  It also compiles for the emulator (tests/cuda_on_cpu), whose times mean nothing.
 * It allocates what it needs and checks no result.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <cublasLt.h>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_kernels.h"

#define THREADS 256
#define PRODUCTS 8 /* independent ones of a warp */
#define ROUNDS 3
#define NODES 200
#define ALGORITHMS 8
#define MIB ((size_t)1 << 20)

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

static bool good(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS;
}

static void *device_memory(size_t bytes)
{
    void *memory = nullptr;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

/* ---- times ---- */

static cudaEvent_t begun, ended;

/* Returns the seconds of one run: the least of some rounds of `runs`. */
template <typename Start> static double seconds_of(cudaStream_t stream, int runs, Start start)
{
    double least = 0.0;
    start();
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0.0f;
        must(cudaEventRecord(begun, stream), "cudaEventRecord");
        for (int i = 0; i < runs; i++)
            start();
        must(cudaEventRecord(ended, stream), "cudaEventRecord");
        must(cudaEventSynchronize(ended), "cudaEventSynchronize");
        must(cudaEventElapsedTime(&ms, begun, ended), "cudaEventElapsedTime");
        const double seconds = ms * 1e-3 / runs;
        least = round == 0 || seconds < least ? seconds : least;
    }
    return least;
}

/* ---- mma ---- */

/* Random numbers of about 1 in fp16: both halves. */
DEVICE uint32_t some_halves(uint32_t i)
{
    return (i * 0x9e3779b9u & 0x83ff83ffu) | 0x38003800u;
}

enum mma_kind {
    MMA_WIDE,
    MMA_HALF,
    MMA_FP8_WIDE,
    MMA_FP8_HALF
}; /* fp16 or e4m3; sums in fp32 or in fp16 */

/* d[16,8] += a[16,32] b[32,8] of e4m3; from 8.9 on.  PTX ISA: mma.sync.aligned.m16n8k32.row.col. */
template <mma_kind KIND>
DEVICE void mma_fp8(float (&wide)[4], uint32_t (&half)[2], const uint32_t (&a)[4], uint32_t b0,
                    uint32_t b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && CUDART_VERSION >= 12080
    if constexpr (KIND == MMA_FP8_WIDE)
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(wide[0]), "+f"(wide[1]), "+f"(wide[2]), "+f"(wide[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
            : "+r"(half[0]), "+r"(half[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <mma_kind KIND> static __global__ void mma_rate(uint32_t *out, int steps)
{
    uint32_t a[4], b[2 * PRODUCTS], half[PRODUCTS][2] = {}, total = 0;
    float wide[PRODUCTS][4] = {};
    for (uint32_t i = 0; i < 4; i++)
        a[i] = some_halves(4 * threadIdx.x + i);
    for (uint32_t i = 0; i < 2 * PRODUCTS; i++)
        b[i] = some_halves(77 * threadIdx.x + i);
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) {
            if constexpr (KIND == MMA_HALF)
                mma_m16n8k16_half(half[i], a, b[2 * i], b[2 * i + 1]);
            else if constexpr (KIND == MMA_WIDE)
                mma_m16n8k16<__half>(wide[i], a, b[2 * i], b[2 * i + 1]);
            else
                mma_fp8<KIND>(wide[i], half[i], a, b[2 * i], b[2 * i + 1]);
        }
    }
    for (int i = 0; i < PRODUCTS; i++)
        total += half[i][0] ^ half[i][1] ^ __float_as_uint(wide[i][0] + wide[i][3]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

template <mma_kind KIND> static double mma_flops(int blocks, int steps, int runs)
{
    uint32_t *out = (uint32_t *)device_memory((size_t)blocks * THREADS * sizeof *out);
    const double seconds = seconds_of(0, runs, [=] {
        must(LAUNCH(mma_rate<KIND>, dim3((unsigned)blocks), dim3(THREADS), 0, 0, out, steps),
             "mma_rate");
    });
    must(cudaFree(out), "cudaFree");
    const double depth = KIND == MMA_WIDE || KIND == MMA_HALF ? 16 : 32;
    return 2.0 * 16 * 8 * depth * PRODUCTS * steps * (blocks * THREADS / WARP_LANES) / seconds;
}

/* Returns true when this program's code for the card has the instructions of mma_fp8(): it may be
 * that of an older card. */
static bool has_fp8(void)
{
#if defined(GT_CUDA_EMULATED) || CUDART_VERSION < 12080
    return false;
#else
    cudaFuncAttributes code;
    must(cudaFuncGetAttributes(&code, (const void *)mma_rate<MMA_FP8_WIDE>),
         "cudaFuncGetAttributes");
    return code.ptxVersion >= 89;
#endif
}

/* Element [0][0] of c + a b, with products 0.75 (or one of 1.5) at k = 0 and k = `second`, from c =
 * 2048 in fp16 and 2^24 in fp32, whose next number is 2 larger. */
static __global__ void mma_rounding(float *out, int second)
{
    const uint32_t lane = threadIdx.x, product = second == 0 ? 0x3e00u : 0x3a00u,
                   one = 0x3c00u; /* 1.5, 0.75, 1 */
    uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0}, half[2] = {lane == 0 ? 0x6800u : 0u, 0};
    float wide[4] = {lane == 0 ? 16777216.0f : 0.0f, 0, 0, 0};
    if (lane == 0)
        a[0] = product, b[0] = one;
    if (second == 1 && lane == 0)
        a[0] |= product << 16, b[0] |= one << 16;
    if (second == 4 && lane == 2)
        a[0] = product, b[0] = one;
    if (second == 8 && lane == 0)
        a[2] = product, b[1] = one;
    mma_m16n8k16_half(half, a, b[0], b[1]);
    mma_m16n8k16<__half>(wide, a, b[0], b[1]);
    if (lane == 0) {
        out[0] = __half2float(*(const __half *)(const void *)&half[0]) - 2048.0f;
        out[1] = wide[0] - 16777216.0f;
    }
}

static void roundings_print(void)
{
    static const int second[] = {0, 1, 4, 8};
    float *out = (float *)device_memory(2 * sizeof *out), found[4][2];
    for (int i = 0; i < 4; i++) {
        must(LAUNCH(mma_rounding, dim3(1), dim3(WARP_LANES), 0, 0, out, second[i]), "mma_rounding");
        must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        must(cudaMemcpy(found[i], out, sizeof found[i], cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
    must(cudaFree(out), "cudaFree");
    for (int wide = 0; wide < 2; wide++)
        printf("\"%s_sums_plus\": [%g, %g, %g, %g], ", wide ? "fp32" : "fp16", found[0][wide],
               found[1][wide], found[2][wide], found[3][wide]);
}

/* ---- memory, and a graph's node ---- */

static __global__ void halves_fill(uint32_t *to, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = some_halves((uint32_t)i);
}

static __global__ void words_copy(const uint4 *from, uint4 *to, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

static __global__ void nothing(int unused)
{
    (void)unused;
}

/* Returns bytes a second, read and written, over `bytes` of each. */
static double copy_rate(size_t bytes, int blocks, int runs)
{
    uint4 *memory = (uint4 *)device_memory(2 * bytes);
    const size_t count = bytes / sizeof *memory;
    must(LAUNCH(halves_fill, dim3((unsigned)blocks), dim3(THREADS), 0, 0, (uint32_t *)memory,
                2 * bytes / 4),
         "halves_fill");
    const double seconds = seconds_of(0, runs, [=] {
        must(LAUNCH(words_copy, dim3((unsigned)blocks), dim3(THREADS), 0, 0, (const uint4 *)memory,
                    memory + count, count),
             "words_copy");
    });
    must(cudaFree(memory), "cudaFree");
    return 2.0 * (double)bytes / seconds;
}

static double node_seconds(int runs)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
         "cudaStreamBeginCapture");
    for (int i = 0; i < NODES; i++)
        must(LAUNCH(nothing, dim3(1), dim3(WARP_LANES), 0, stream, i), "nothing");
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiateWithFlags(&exec, graph, 0), "cudaGraphInstantiate");
    const double seconds =
        seconds_of(stream, runs, [=] { must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch"); });
    must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return seconds / NODES;
}

/* ---- the link ---- */

static void link_rate_print(const char *way, size_t bytes, double seconds)
{
    printf("\"link_%s_bytes\": %.4g, ", way, seconds > 0.0 ? (double)bytes / seconds : 0.0);
}

/* Prints the bytes a second of copies from host memory and to it, alone and beside each other (each
 * way), and of a kernel that reads host memory itself. */
static void link_print(size_t bytes, int blocks, int runs)
{
    void *host = nullptr, *card = device_memory(2 * bytes);
    cudaStream_t in, out;
    cudaEvent_t stored;
    must(cudaHostAlloc(&host, 2 * bytes, cudaHostAllocDefault), "cudaHostAlloc");
    for (size_t i = 0; i < 2 * bytes / 4; i++)
        ((uint32_t *)host)[i] = (uint32_t)i;
    must(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreateWithFlags(&stored, cudaEventDisableTiming), "cudaEventCreate");
    const auto fetch = [=] {
        must(cudaMemcpyAsync(card, host, bytes, cudaMemcpyHostToDevice, in), "cudaMemcpyAsync");
    };
    const auto store = [=] {
        must(cudaMemcpyAsync((char *)host + bytes, (char *)card + bytes, bytes,
                             cudaMemcpyDeviceToHost, out),
             "cudaMemcpyAsync");
    };
    const auto both = [=] {
        store();
        fetch();
        must(cudaEventRecord(stored, out), "cudaEventRecord");
        must(cudaStreamWaitEvent(in, stored, 0), "cudaStreamWaitEvent");
    };
    const auto read = [=] {
        must(LAUNCH(words_copy, dim3((unsigned)blocks), dim3(THREADS), 0, in, (const uint4 *)host,
                    (uint4 *)card, bytes / sizeof(uint4)),
             "words_copy");
    };
    link_rate_print("in", bytes, seconds_of(in, runs, fetch));
    link_rate_print("out", bytes, seconds_of(out, runs, store));
    link_rate_print("both", bytes, seconds_of(in, runs, both));
    link_rate_print("kernel", bytes, seconds_of(in, runs, read));
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaEventDestroy(stored), "cudaEventDestroy");
    must(cudaStreamDestroy(out), "cudaStreamDestroy");
    must(cudaStreamDestroy(in), "cudaStreamDestroy");
    must(cudaFreeHost(host), "cudaFreeHost");
    must(cudaFree(card), "cudaFree");
}

/* ---- products ---- */

/* d[m,n] = op(a) op(b), row-major, in fp16; sums and d of weight gradients in fp32. */
struct product {
    const char *name;
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
};

struct workbench {
    cublasLtHandle_t handle;
    void *a, *b, *d, *workspace;
    void *other, *result; /* of ops at the end of a product, in the second half of d */
    int runs;
};

static int splits_of(const cublasLtMatmulAlgo_t *algo)
{
#ifdef GT_CUDA_EMULATED
    (void)algo;
    return 1;
#else
    int splits = 0;
    size_t written = 0;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                               sizeof splits, &written);
    return splits;
#endif
}

static double tflops(const struct product *p, double seconds)
{
    return seconds > 0.0 ? 2e-12 * (double)p->m * (double)p->n * (double)p->k / seconds : 0.0;
}

/* `end`: what our own kernel ends with, or NULL for the library. */
static void row_print(const struct product *p, size_t workspace, bool half_sums, const char *end,
                      double first, double best, int splits, double waves)
{
    static bool begun_already;
    printf(
        "%s{\"product\": \"%s\", \"m\": %llu, \"n\": %llu, \"k\": %llu, \"workspace_mib\": %zu, \"half_sums\": %s, "
        "\"own\": %s, \"end\": \"%s\", \"tflops\": %.2f, \"tuned_tflops\": %.2f, \"splits\": %d, \"waves\": %.2f}",
        begun_already ? ", " : "", p->name, (unsigned long long)p->m, (unsigned long long)p->n,
        (unsigned long long)p->k, workspace / MIB, half_sums ? "true" : "false",
        end != NULL ? "true" : "false", end != NULL ? end : "", tflops(p, first), tflops(p, best),
        splits, waves);
    begun_already = true;
}

/* Prints what our own kernel reaches with tiles of 128 rows, and with the faster ones of 128 and
 * 256; if `kind` is not OP_GEMM, with that op at its end, as in a model: only before gelu the
 * product is stored as well. */
static void own_print(const struct workbench *bench, const struct product *p, bool half_sums,
                      enum op_kind kind)
{
    const size_t workspace = 32 * MIB;
    const char *const end = kind == OP_GELU_FORWARD    ? "gelu"
                            : kind == OP_GELU_BACKWARD ? "gelu slope"
                            : kind == OP_RESIDUAL      ? "residual"
                                                       : "";
    struct cuda_gemm_own_args args = {};
    args.a = bench->a;
    args.b = bench->b;
    args.end.sums = {bench->workspace, DTYPE_F32};
    args.end.d = {bench->d, p->transpose_a ? DTYPE_F32 : DTYPE_F16};
    args.end.rows = (int64_t)p->m;
    args.end.columns = (int64_t)p->n;
    args.sums_bytes = workspace;
    args.k = (int32_t)p->k;
    args.dtype = DTYPE_F16;
    args.half_sums = half_sums;
    args.transpose_a = p->transpose_a;
    args.transpose_b = p->transpose_b;
    if (kind != OP_GEMM) {
        args.next.kind = kind;
        args.next.gelu = GELU_ERF;
        args.next.result = {kind == OP_GELU_BACKWARD  ? bench->d
                            : kind == OP_GELU_FORWARD ? bench->other
                                                      : bench->result,
                            DTYPE_F16};
        if (kind != OP_GELU_FORWARD) {
            args.next.other = {bench->other, DTYPE_F16};
            args.end.d.memory = NULL;
        }
    }
    double seconds[2];
    for (int tall = 0; tall < 2; tall++) {
        args.tile_rows = tall && p->m % 256 == 0 && p->n % 128 == 0 && p->k % 32 == 0 ? 256 : 128;
        seconds[tall] = seconds_of(
            0, bench->runs, [&] { must(cuda_launch_gemm_own(0, &args), "cuda_launch_gemm_own"); });
    }
    row_print(p, workspace, half_sums, end, seconds[0], std::min(seconds[0], seconds[1]), 0, 0.0);
}

/* Prints what the library offers first and the fastest of what it offers, within `workspace` bytes.
 */
static void product_print(const struct workbench *bench, const struct product *p, size_t workspace)
{
    const bool ta = p->transpose_a, tb = p->transpose_b;
    const cublasOperation_t first = tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t out = ta ? CUDA_R_32F : CUDA_R_16F;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const float one = 1.0f, zero = 0.0f;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t b, a, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS] = {};
    int count = 0, best = 0;
    if (!good(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
        !good(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                             sizeof first)) ||
        !good(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                             sizeof second)) ||
        !good(cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, tb ? p->k : p->n, tb ? p->n : p->k,
                                         (int64_t)(tb ? p->k : p->n))) ||
        !good(cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, ta ? p->m : p->k, ta ? p->k : p->m,
                                         (int64_t)(ta ? p->m : p->k))) ||
        !good(cublasLtMatrixLayoutCreate(&d, out, p->n, p->m, (int64_t)p->n)) ||
        !good(cublasLtMatmulPreferenceCreate(&preference)) ||
        !good(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)) ||
        !good(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes)))
        must(cudaErrorInvalidValue, "describing a product");
    (void)cublasLtMatmulAlgoGetHeuristic(bench->handle, desc, b, a, d, d, preference, ALGORITHMS,
                                         found, &count);
    double least[ALGORITHMS];
    for (int i = 0; i < count; i++) {
        least[i] = seconds_of(0, bench->runs, [&] {
            if (!good(cublasLtMatmul(bench->handle, desc, &one, bench->b, b, bench->a, a, &zero,
                                     bench->d, d, bench->d, d, &found[i].algo, bench->workspace,
                                     workspace, 0)))
                must(cudaErrorInvalidValue, "starting a product");
        });
        best = least[i] < least[best] ? i : best;
    }
    row_print(p, workspace, false, NULL, count > 0 ? least[0] : 0.0, count > 0 ? least[best] : 0.0,
              count > 0 ? splits_of(&found[best].algo) : 0,
              count > 0 ? (double)found[best].wavesCount : 0.0);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    (void)cublasLtMatrixLayoutDestroy(d);
    (void)cublasLtMatrixLayoutDestroy(a);
    (void)cublasLtMatrixLayoutDestroy(b);
    (void)cublasLtMatmulDescDestroy(desc);
}

static void products_print(uint64_t rows, uint64_t width, uint64_t vocabulary, int runs)
{
    static const size_t workspaces[] = {8 * MIB, 32 * MIB, 64 * MIB};
    const struct {
        const char *name[3];
        uint64_t out, in;
        enum op_kind end[3]; /* OP_GEMM: none */
    } layers[] = {{{"attention in", "attention in dx", "attention in dw"},
                   3 * width,
                   width,
                   {OP_GEMM, OP_GEMM, OP_GEMM}},
                  {{"attention out", "attention out dx", "attention out dw"},
                   width,
                   width,
                   {OP_RESIDUAL, OP_GEMM, OP_GEMM}},
                  {{"mlp in", "mlp in dx", "mlp in dw"},
                   4 * width,
                   width,
                   {OP_GELU_FORWARD, OP_GEMM, OP_GEMM}},
                  {{"mlp out", "mlp out dx", "mlp out dw"},
                   width,
                   4 * width,
                   {OP_RESIDUAL, OP_GELU_BACKWARD, OP_GEMM}},
                  {{"head", "head dx", "head dw"}, vocabulary, width, {OP_GEMM, OP_GEMM, OP_GEMM}}};
    const uint64_t widest = vocabulary > 4 * width ? vocabulary : 4 * width,
                   most = (rows + 4 * width) * widest * 2;
    struct workbench bench = {nullptr,
                              device_memory(most),
                              device_memory(most),
                              device_memory(2 * most),
                              device_memory(64 * MIB),
                              nullptr,
                              nullptr,
                              runs};
    bench.other = (char *)bench.d + most;
    bench.result = (char *)bench.other + most / 2 / 256 * 256;
    for (void *to : {bench.a, bench.b})
        must(LAUNCH(halves_fill, dim3(64), dim3(THREADS), 0, 0, (uint32_t *)to, most / 4),
             "halves_fill");
    if (!good(cublasLtCreate(&bench.handle)))
        must(cudaErrorInvalidValue, "opening cuBLASLt");
    printf("\"products\": [");
    for (const auto &layer : layers) {
        const struct product products[] = {{layer.name[0], rows, layer.out, layer.in, false, true},
                                           {layer.name[1], rows, layer.in, layer.out, false, false},
                                           {layer.name[2], layer.out, layer.in, rows, true, false}};
        for (int i = 0; i < 3; i++) {
            for (const size_t workspace : workspaces)
                product_print(&bench, &products[i], workspace);
            own_print(&bench, &products[i], true, OP_GEMM);
            own_print(&bench, &products[i], false, OP_GEMM);
            if (layer.end[i] != OP_GEMM)
                own_print(&bench, &products[i], false, layer.end[i]);
        }
    }
    printf("]");
    (void)cublasLtDestroy(bench.handle);
    for (void *memory : {bench.a, bench.b, bench.d, bench.workspace})
        must(cudaFree(memory), "cudaFree");
}

int main(int argc, char **argv)
{
    int processors = 0, l2 = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: gpu_rates ROWS CHANNELS VOCABULARY RUNS\n");
        return 2;
    }
    const int runs = atoi(argv[4]);
    const bool small = runs <= 1;
    must(cudaSetDevice(0), "cudaSetDevice");
    if (!small) { /* the emulator has neither */
        must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0),
             "cudaDeviceGetAttribute");
        must(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0), "cudaDeviceGetAttribute");
    }
    must(cudaEventCreateWithFlags(&begun, cudaEventDefault), "cudaEventCreate");
    must(cudaEventCreateWithFlags(&ended, cudaEventDefault), "cudaEventCreate");
    const int blocks = small ? 1 : 8 * processors, steps = small ? 1 : 4096;
    (void)mma_flops<MMA_WIDE>(blocks, steps, runs); /* the clock climbs */
    printf("{\"l2_bytes\": %d, \"fp32_sums_flops\": %.4g, ", l2,
           mma_flops<MMA_WIDE>(blocks, steps, runs));
    printf("\"fp16_sums_flops\": %.4g, ", mma_flops<MMA_HALF>(blocks, steps, runs));
    const bool fp8 = has_fp8();
    printf("\"fp8_fp32_sums_flops\": %.4g, ",
           fp8 ? mma_flops<MMA_FP8_WIDE>(blocks, steps, runs) : 0.0);
    printf("\"fp8_fp16_sums_flops\": %.4g, ",
           fp8 ? mma_flops<MMA_FP8_HALF>(blocks, steps, runs) : 0.0);
    roundings_print();
    printf("\"memory_bytes\": %.4g, ",
           copy_rate(small ? MIB / 16 : 512 * MIB, small ? 1 : 16 * processors, runs));
    printf("\"l2_rate_bytes\": %.4g, ",
           copy_rate(small ? MIB / 16 : (size_t)l2 / 4, small ? 1 : 4 * processors, runs));
    printf("\"node_seconds\": %.4g, ", node_seconds(runs));
    link_print(small ? MIB / 16 : 256 * MIB, small ? 1 : 4 * processors, runs);
    products_print(strtoull(argv[1], nullptr, 10), strtoull(argv[2], nullptr, 10),
                   strtoull(argv[3], nullptr, 10), runs);
    printf("}\n");
    return 0;
}
