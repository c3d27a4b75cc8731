/* Tests every wrapper of cuda_device.h against the formula that the PTX ISA gives for it, on one
 * warp with exact numbers.
 *
 * It runs in two ways: compiled by nvcc on a card, where it shows that the PTX does what the
 * emulator assumes (bench/gpu-check), and in the emulator, as one of `make check`'s programs.  The
 * formulas are written independently of emulator.cpp, from the text of the PTX ISA 8.7: "Matrix
 * Fragments for mma.m16n8k16 with floating point type", "... for mma.m16n8k8", "ldmatrix",
 * "cp.async".  Exit status: 0 all passed, 1 a failure, 77 no device.  In the emulator an argument
 * selects a mistake that it must find.
 */
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "backends/cuda/cuda_device.h"

struct totals {
    int passed, failed;
};

static void report(struct totals *totals, const char *name, bool good)
{
    printf("%s smoke-%s\n", good ? "PASS" : "FAIL", name);
    totals->passed += good;
    totals->failed += !good;
}

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("FAIL smoke: %s: %s (%s)\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

/* Allocates device memory, initialised from `from` unless it is NULL. */
static void *device_copy(const void *from, size_t bytes)
{
    void *memory = nullptr;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    if (from)
        must(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    return memory;
}

static void device_take(void *to, void *memory, size_t bytes)
{
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaMemcpy(to, memory, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
    must(cudaFree(memory), "cudaFree");
}

/* ---- cp.async: lane i copies bytes 16 i .. of the source; odd lanes fetch nothing and get zeros
 * ---- */

static __global__ void copies_kernel(const unsigned char *from, unsigned char *out)
{
    SHARED(unsigned char, all, 512 + 128);
    int lane = threadIdx.x;
    cp_async_16(all + 16 * lane, from + 16 * lane, lane % 2 == 0);
    cp_async_commit();
    cp_async_4(all + 512 + 4 * lane, from + 4 * lane, lane % 2 == 0);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    for (int i = lane; i < 512; i += WARP_LANES)
        out[i] = all[i];
    cp_async_wait<0>();
    __syncthreads();
    for (int i = lane; i < 128; i += WARP_LANES)
        out[512 + i] = all[512 + i];
}

static bool copied(const unsigned char *out, const unsigned char *from, int bytes)
{
    for (int i = 0; i < 32 * bytes; i++)
        if (out[i] != (i / bytes % 2 == 0 ? from[i] : 0))
            return false;
    return true;
}

static void check_copies(struct totals *totals)
{
    unsigned char from[512], out[512 + 128];
    for (int i = 0; i < 512; i++)
        from[i] = (unsigned char)(i * 37 + 1);
    void *device_from = device_copy(from, sizeof from),
         *device_out = device_copy(nullptr, sizeof out);
    must(LAUNCH(copies_kernel, dim3(1), dim3(32), 0, 0, (const unsigned char *)device_from,
                (unsigned char *)device_out),
         "copies_kernel");
    device_take(out, device_out, sizeof out);
    device_take(from, device_from, sizeof from);
    report(totals, "cp_async_16", copied(out, from, 16));
    report(totals, "cp_async_4", copied(out + 512, from, 4));
}

/* ---- ldmatrix: matrix m, row r, column c is 64 m + 8 r + c ---- */

static __global__ void ldmatrix_kernel(uint32_t *out)
{
    SHARED(uint16_t, matrices, 4 * 64);
    int lane = threadIdx.x;
    for (int i = lane; i < 4 * 64; i += WARP_LANES)
        matrices[i] = (uint16_t)i;
    __syncthreads();
    uint32_t plain[4], transposed[4];
    ldmatrix_x4(plain, matrices + 8 * lane);
    ldmatrix_x4_trans(transposed, matrices + 8 * lane);
    for (int m = 0; m < 4; m++) {
        out[4 * lane + m] = plain[m];
        out[128 + 4 * lane + m] = transposed[m];
    }
}

#ifdef GT_CUDA_EMULATED
/* The mistake that .aligned forbids: half a warp is at another ldmatrix, or at another barrier. */
static __global__ void apart_kernel(uint32_t *out, bool at_barrier)
{
    SHARED(uint16_t, matrices, 4 * 64);
    const int lane = threadIdx.x;
    uint32_t r[4] = {};
    if (lane < 16) {
        if (at_barrier)
            __syncthreads();
        else
            ldmatrix_x4(r, matrices + 8 * lane);
    } else {
        if (at_barrier)
            __syncthreads();
        else
            ldmatrix_x4(r, matrices + 8 * lane);
    }
    out[lane] = r[0];
}

/* The emulator ends the process. */
static int apart(bool at_barrier)
{
    uint32_t out[WARP_LANES];
    void *device = device_copy(nullptr, sizeof out);
    must(LAUNCH(apart_kernel, dim3(1), dim3(WARP_LANES), 0, 0, (uint32_t *)device, at_barrier),
         "apart_kernel");
    device_take(out, device, sizeof out);
    return EXIT_SUCCESS;
}
#endif

static void check_ldmatrix(struct totals *totals)
{
    uint32_t out[256];
    bool good[2] = {true, true};
    void *device_out = device_copy(nullptr, sizeof out);
    must(LAUNCH(ldmatrix_kernel, dim3(1), dim3(32), 0, 0, (uint32_t *)device_out),
         "ldmatrix_kernel");
    device_take(out, device_out, sizeof out);
    /* Row r goes to threads 4 r .. 4 r + 3, two adjacent elements each; .trans loads in
     * column-major order. */
    for (int m = 0; m < 4; m++)
        for (int r = 0; r < 8; r++)
            for (int c = 0; c < 8; c++) {
                uint32_t plain = out[4 * (4 * r + c / 2) + m] >> 16 * (c % 2) & 0xffff;
                uint32_t transposed = out[128 + 4 * (4 * c + r / 2) + m] >> 16 * (r % 2) & 0xffff;
                good[0] = good[0] && plain == (uint32_t)(64 * m + 8 * r + c);
                good[1] = good[1] && transposed == (uint32_t)(64 * m + 8 * r + c);
            }
    report(totals, "ldmatrix_x4", good[0]);
    report(totals, "ldmatrix_x4_trans", good[1]);
}

/* ---- mma: the positions of a thread's elements ai, bi, ci ---- */

enum product_kind { BF16_16, F16_16, F16_8, HALF_16 };

struct place {
    int row, column;
};

static struct place place_of_a(int lane, int i, int depth)
{
    int group = lane >> 2, in_group = lane % 4;
    if (depth == 8)
        return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
    return {i < 2 || (4 <= i && i < 6) ? group : group + 8,
            in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}

static struct place place_of_b(int lane, int i)
{
    return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane >> 2};
}

static struct place place_of_c(int lane, int i)
{
    return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

/* Each lane has 4 registers of a, 2 of b and 4 numbers of c. */
template <enum product_kind kind>
static __global__ void product_kernel(const uint32_t *ab, float *c)
{
    int lane = threadIdx.x;
    uint32_t a[4] = {ab[6 * lane], ab[6 * lane + 1], ab[6 * lane + 2], ab[6 * lane + 3]};
    uint32_t b[2] = {ab[6 * lane + 4], ab[6 * lane + 5]};
    float sum[4] = {c[4 * lane], c[4 * lane + 1], c[4 * lane + 2], c[4 * lane + 3]};
    if constexpr (kind == F16_8) {
        uint32_t half[2] = {a[0], a[1]};
        mma_m16n8k8_f16(sum, half, b[0]);
    } else if constexpr (kind == HALF_16) {
        uint32_t half[2] = {pack_pair<__half>(sum[0], sum[1]), pack_pair<__half>(sum[2], sum[3])};
        mma_m16n8k16_half(half, a, b[0], b[1]);
        for (int i = 0; i < 4; i++) {
            const uint16_t bits = (uint16_t)(half[i / 2] >> 16 * (i % 2));
            __half one;
            memcpy(static_cast<void *>(&one), &bits, sizeof one);
            sum[i] = to_float(one);
        }
    } else if constexpr (kind == F16_16) {
        mma_m16n8k16<__half>(sum, a, b[0], b[1]);
    } else {
        mma_m16n8k16<__nv_bfloat16>(sum, a, b[0], b[1]);
    }
    for (int i = 0; i < 4; i++)
        c[4 * lane + i] = sum[i];
}

static uint16_t bits_of(enum product_kind kind, float value)
{
    uint16_t bits;
    if (kind == BF16_16) {
        __nv_bfloat16 rounded = __float2bfloat16_rn(value);
        memcpy(&bits, &rounded, sizeof bits);
    } else {
        __half rounded = __float2half_rn(value);
        memcpy(&bits, &rounded, sizeof bits);
    }
    return bits;
}

/* Small integers, whose products and sums are exact in every dtype. */
static float number(int i)
{
    return (float)((i * 29 + i / 7 * 3) % 13 - 6);
}

template <enum product_kind kind> static bool product_is_right(void)
{
    const int depth = kind == F16_8 ? 8 : 16;
    uint32_t ab[6 * 32] = {};
    float c[4 * 32];
    bool good = true;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < depth / 2; i++) {
            struct place at = place_of_a(lane, i, depth);
            ab[6 * lane + i / 2] |= (uint32_t)bits_of(kind, number(at.row * 16 + at.column))
                                    << 16 * (i % 2);
        }
        for (int i = 0; i < depth / 4; i++) {
            struct place at = place_of_b(lane, i);
            ab[6 * lane + 4 + i / 2] |=
                (uint32_t)bits_of(kind, number(400 + at.row * 8 + at.column)) << 16 * (i % 2);
        }
        for (int i = 0; i < 4; i++) {
            struct place at = place_of_c(lane, i);
            c[4 * lane + i] = number(900 + at.row * 8 + at.column);
        }
    }
    void *device_ab = device_copy(ab, sizeof ab), *device_c = device_copy(c, sizeof c);
    must(LAUNCH(product_kernel<kind>, dim3(1), dim3(32), 0, 0, (const uint32_t *)device_ab,
                (float *)device_c),
         "product_kernel");
    device_take(c, device_c, sizeof c);
    device_take(ab, device_ab, sizeof ab);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            struct place at = place_of_c(lane, i);
            float sum = number(900 + at.row * 8 + at.column);
            for (int k = 0; k < depth; k++)
                sum += number(at.row * 16 + k) * number(400 + k * 8 + at.column);
            good = good && c[4 * lane + i] == sum;
        }
    return good;
}

/* ---- dtypes, 16-byte accesses, exact arithmetic, sums of a warp ---- */

#define VALUES 32

struct values {
    float in[VALUES], other[VALUES];
    float f32[VALUES], bf16[VALUES],
        f16[VALUES]; /* stored and reloaded by one 16-byte access each */
    float sum[VALUES], difference[VALUES], product[VALUES], quotient[VALUES], root[VALUES];
    uint32_t high[VALUES], pair_bf16[VALUES], pair_f16[VALUES];
    float power[VALUES], reciprocal[VALUES];
    float warp_sum, warp_max;
};

template <typename T> DEVICE void stored(T *memory, const float *in, float *out)
{
    for (int i = threadIdx.x * vector_length<T>; i < VALUES; i += WARP_LANES * vector_length<T>) {
        float some[vector_length<T>];
        for (int k = 0; k < vector_length<T>; k++)
            some[k] = in[i + k];
        store_values(memory + i, some);
        load_values(some, memory + i);
        for (int k = 0; k < vector_length<T>; k++)
            out[i + k] = some[k];
    }
    __syncthreads();
}

static __global__ void values_kernel(struct values *all)
{
    SHARED(float, memory, VALUES);
    int i = threadIdx.x;
    float x = all->in[i], y = all->other[i];
    stored(memory, all->in, all->f32);
    stored((__nv_bfloat16 *)(void *)memory, all->in, all->bf16);
    stored((__half *)(void *)memory, all->in, all->f16);
    all->sum[i] = __fadd_rn(__fmul_rn(x, y), x);
    all->difference[i] = __fsub_rn(__fmul_rn(x, y), y);
    all->product[i] = __fmul_rn(x, y);
    all->quotient[i] = __fdiv_rn(x, y);
    all->root[i] = __fsqrt_rn(fabsf(x));
    all->power[i] = fast_exp2(x);
    all->reciprocal[i] = fast_reciprocal(x);
    all->high[i] = __umulhi(__float_as_uint(x), __float_as_uint(y));
    all->pair_bf16[i] = pack_pair<__nv_bfloat16>(x, y);
    all->pair_f16[i] = pack_pair<__half>(x, y);
    float sum = warp_sum((float)(i * i)), largest = warp_max((float)((i * 7) % 32));
    if (i == 13) {
        all->warp_sum = sum;
        all->warp_max = largest;
    }
}

/* Rounds to nearest, ties to even, by arithmetic alone: `digits` fraction bits, steps of at least
 * 2^smallest. */
static float rounded_by_hand(float value, int digits, int smallest, float largest)
{
    int exponent;
    if (!(fabsf(value) > 0.0f) || value - value != 0.0f)
        return value;
    frexpf(value, &exponent);
    int step = exponent - 1 - digits > smallest ? exponent - 1 - digits : smallest;
    double scaled = ldexp((double)value, -step), below = floor(scaled), rest = scaled - below;
    if (rest > 0.5 || (rest == 0.5 && fmod(below, 2.0) != 0.0))
        below += 1.0;
    double result = ldexp(below, step);
    return copysignf(fabs(result) > largest ? INFINITY : (float)fabs(result), value);
}

static bool same_bits(float a, float b)
{
    return a != a ? b != b : memcmp(&a, &b, sizeof a) == 0;
}

static bool all_same(const float *a, const float *b)
{
    for (int i = 0; i < VALUES; i++)
        if (!same_bits(a[i], b[i]))
            return false;
    return true;
}

static void values_fill(struct values *all)
{
    static const float some[VALUES] = {
        0.0f,     -0.0f,    1.0f,         -1.0f,      3.14159274f, -2.71828175f, 1e-3f,
        65504.0f, 65519.0f, 65520.0f,     -70000.0f,  1e30f,       3.4e38f,      6e-8f,
        5.9e-8f,  2.9e-8f,  1e-40f,       -1e-42f,    1.00390625f, 1.01171875f,  2049.0f,
        2051.0f,  0x1p-14f, 0x1.ffcp-15f, 0x1.8p-25f, 0x1p-25f,    INFINITY,     -INFINITY,
        NAN,      255.5f,   257.0f,       0.1f};
    memset(all, 0, sizeof *all);
    for (int i = 0; i < VALUES; i++) {
        all->in[i] = some[i];
        all->other[i] = (float)(i + 1) / 3.0f;
    }
}

static bool arithmetic_is_right(const struct values *all)
{
    bool good = true;
    for (int i = 0; i < VALUES; i++) {
        volatile float x = all->in[i], y = all->other[i], product = x * y;
        uint32_t bits[2];
        memcpy(&bits[0], &all->in[i], 4);
        memcpy(&bits[1], &all->other[i], 4);
        good = good && same_bits(all->product[i], product) && same_bits(all->sum[i], product + x) &&
               same_bits(all->difference[i], product - y) && same_bits(all->quotient[i], x / y) &&
               same_bits(all->root[i], sqrtf(fabsf(x))) &&
               all->high[i] == (uint64_t)bits[0] * bits[1] >> 32;
    }
    return good;
}

/* Subnormal numbers are zeros. */
static double flushed(double x)
{
    return fabs(x) < 0x1p-126 ? copysign(0.0, x) : x;
}

/* At most `units` units off, where a unit is 2^-23 of the result. */
static bool is_near(float result, double exact, double units)
{
    const double wanted =
        fabs(exact) > (double)FLT_MAX ? copysign(HUGE_VAL, exact) : flushed(exact);
    if (wanted != wanted || wanted - wanted != 0.0 || wanted == 0.0)
        return wanted != wanted ? result != result : (double)result == wanted;
    return fabs((double)result - wanted) <= units * 0x1p-23 * fabs(wanted);
}

static bool fast_is_near(const struct values *all)
{
    bool good = true;
    for (int i = 0; i < VALUES; i++) {
        const double x = flushed((double)all->in[i]);
        good = good && is_near(all->power[i], exp2(x), 2.0) &&
               is_near(all->reciprocal[i], 1.0 / x, 1.0);
    }
    return good;
}

static bool pairs_are_right(const struct values *all)
{
    bool good = true;
    for (int i = 0; i < VALUES; i++)
        good = good && (all->pair_bf16[i] & 0xffff) == bits_of(BF16_16, all->in[i]) &&
               all->pair_bf16[i] >> 16 == bits_of(BF16_16, all->other[i]) &&
               (all->pair_f16[i] & 0xffff) == bits_of(F16_16, all->in[i]) &&
               all->pair_f16[i] >> 16 == bits_of(F16_16, all->other[i]);
    return good;
}

static void check_values(struct totals *totals)
{
    struct values all;
    float bf16[VALUES], f16[VALUES];
    values_fill(&all);
    for (int i = 0; i < VALUES; i++) {
        bf16[i] = rounded_by_hand(all.in[i], 7, -133, 0x1.fep127f);
        f16[i] = rounded_by_hand(all.in[i], 10, -24, 65504.0f);
    }
    void *device = device_copy(&all, sizeof all);
    must(LAUNCH(values_kernel, dim3(1), dim3(32), 0, 0, (struct values *)device), "values_kernel");
    device_take(&all, device, sizeof all);
    report(totals, "values-float32", all_same(all.f32, all.in));
    report(totals, "values-bfloat16", all_same(all.bf16, bf16));
    report(totals, "values-float16", all_same(all.f16, f16));
    report(totals, "exact-arithmetic", arithmetic_is_right(&all));
    report(totals, "fast-functions", fast_is_near(&all));
    report(totals, "pairs", pairs_are_right(&all));
    report(totals, "warp_sum", all.warp_sum == 10416.0f);
    report(totals, "warp_max", all.warp_max == 31.0f);
}

int main(int argc, char **argv)
{
#ifdef GT_CUDA_EMULATED
    if (argc > 1)
        return apart(strcmp(argv[1], "barrier") == 0);
#else
    (void)argc, (void)argv;
#endif
    struct totals totals = {0, 0};
    int devices = 0, major = 0, minor = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("SKIP smoke: no CUDA device\nchecks: 0 passed, 0 failed, 1 skipped\n");
        return 77;
    }
    must(cudaSetDevice(0), "cudaSetDevice");
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
         "cudaDeviceGetAttribute");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0),
         "cudaDeviceGetAttribute");
    printf("device 0: sm_%d%d\n", major, minor);
    check_copies(&totals);
    check_ldmatrix(&totals);
    if (major >= 8) {
        report(&totals, "mma_m16n8k16_bf16", product_is_right<BF16_16>());
        report(&totals, "mma_m16n8k16_f16", product_is_right<F16_16>());
        report(&totals, "mma_m16n8k16_half", product_is_right<HALF_16>());
    }
    report(&totals, "mma_m16n8k8_f16", product_is_right<F16_8>());
    check_values(&totals);
    printf("checks: %d passed, %d failed, 0 skipped\n", totals.passed, totals.failed);
    return totals.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
