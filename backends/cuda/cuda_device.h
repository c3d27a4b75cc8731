/* The primitives that kernels are written with: the few things that CUDA C++ spells in PTX, or that
 * a C++ compiler for the CPU cannot spell.  A kernel file is compiled twice: by nvcc for the cards
 * and, with GT_CUDA_EMULATED, by the host's C++ compiler for tests/cuda_on_cpu, whose emulator.h
 * replaces the PTX half.  Everything else keeps CUDA's own names (threadIdx, __syncthreads,
 * __shfl_xor_sync, __fmul_rn, __umulhi, ...).  There are no float atomics, because their order is
 * not fixed.
 *
 * Rules for kernel files: templates over dtype and sizes only; no launch chevrons (use LAUNCH), no
 * bare __shared__ (use SHARED, DYN_SHARED); 16-byte accesses through load_16_bytes/store_16_bytes,
 * load_values/store_values, which check alignment under emulation; asynchronous copies are
 * predicated, never skipped by a pointer test; exact ops through
 * __fmul_rn etc.  Under emulation a shared array is a pointer, so never take its sizeof.
 *
 * The layouts of fragments and the semantics of copies are those of the PTX ISA, sections "Data
 * Movement and Conversion Instructions" (cp.async, cp.async.commit_group, cp.async.wait_group),
 * "Warp Level Matrix Multiply-Accumulate Instructions" (ldmatrix; Matrix Fragments for mma.m16n8k8,
 * mma.m16n8k16 with floating point type).
 */
#ifndef GPT_TRAIN_CUDA_CUDA_DEVICE_H
#define GPT_TRAIN_CUDA_CUDA_DEVICE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define WARP_LANES 32
#define ALL_LANES 0xffffffffu
/* A loop over i = 0 .. count - 1 that is unrolled, so that arrays indexed by i stay in registers.
 */
#define UNROLLED(i, count) _Pragma("unroll") for (int i = 0; i < (count); i++)

template <typename T> inline constexpr bool is_bfloat16 = false;
template <> inline constexpr bool is_bfloat16<__nv_bfloat16> = true;

#ifdef GT_CUDA_EMULATED

/* emulator.h defines, with the meanings below: DEVICE, LAUNCH, SHARED, DYN_SHARED, CUDA_HAS_SM80,
 * threadIdx and the other built-in names, cp_async_*, ldmatrix_*, mma_*, fast_*, load_16_bytes*,
 * store_16_bytes*. */
#include "emulator.h"

#else

/* clang-format would split the launch chevrons. */
/* clang-format off */
/* A device function. */
#define DEVICE static __device__ __forceinline__

/* Starts kernel<<<grid, block, dynamic_shared bytes, stream>>>(...) and yields the cudaError_t of
 * the launch.  Parenthesise a kernel whose name has a comma: LAUNCH((k<T, 64>), ...).  A kernel
 * with more than 48 KiB of dynamic shared memory must opt in once beforehand:
 * cudaFuncSetAttribute((const void *)k<T, 64>, cudaFuncAttributeMaxDynamicSharedMemorySize,
 * bytes). */
#define LAUNCH(kernel, grid, block, dynamic_shared, stream, ...) \
    ((kernel)<<<(grid), (block), (dynamic_shared), (stream)>>>(__VA_ARGS__), cudaGetLastError())

/* An array of n elements in the block's shared memory; uninitialised. */
#define SHARED(type, name, n) __shared__ __align__(16) type name[n]
/* The launch's dynamic shared memory as `type *name`, aligned to 128 bytes; all uses in a kernel
 * refer to the same bytes. */
#define DYN_SHARED(type, name) \
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];                                             \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)
/* clang-format on */

/* 1 when this compilation may use what sm_80 introduced: mma m16n8k16, bf16 arithmetic.  Guard the
 * body of a kernel that uses it with #if CUDA_HAS_SM80, and choose the kernel at run time by
 * capability.  (Under emulation it is 1, and calling a wrapper that the configured device lacks is
 * an error.) */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define CUDA_HAS_SM80 0
#else
#define CUDA_HAS_SM80 1
#endif

DEVICE unsigned shared_address(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

/* Asynchronous copy of 16 or 4 bytes from global to shared memory; both are aligned to the size.
 * With fetch false the destination is zeroed and `global` is not read.  The copying thread sees the
 * bytes after cp_async_wait, the others after a barrier that follows it.  Before sm_80 the copy is
 * synchronous. PTX ISA: cp.async.cg (past L1) and .ca, with src-size 0. */
DEVICE void cp_async_16(void *shared, const void *global, bool fetch)
{
#if CUDA_HAS_SM80
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(fetch ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)shared = fetch ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
#endif
}

DEVICE void cp_async_4(void *shared, const void *global, bool fetch)
{
#if CUDA_HAS_SM80
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(fetch ? 4 : 0)
                 : "memory");
#else
    *(unsigned *)shared = fetch ? *(const unsigned *)global : 0u;
#endif
}

/* Commits this thread's copies since the last commit as a group; an empty group counts. */
DEVICE void cp_async_commit(void)
{
#if CUDA_HAS_SM80
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most `groups` of this thread's latest groups are in flight. */
template <int groups> DEVICE void cp_async_wait(void)
{
#if CUDA_HAS_SM80
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

/* Loads four 8x8 matrices of 16-bit elements from shared memory; the whole warp takes part.  Lane i
 * passes the address of row i % 8 of matrix i / 8: 16 bytes, aligned to 16.  Lane l receives in
 * r[m] the elements [l/4][l%4*2] (low half) and [l/4][l%4*2 + 1] (high half) of matrix m;
 * transposed: [l%4*2][l/4] and [l%4*2 + 1][l/4].  PTX ISA: ldmatrix .x4, .trans. */
#define LDMATRIX_X4(name, layout)                                                              \
    DEVICE void name(uint32_t(&r)[4], const void *row)                                         \
    {                                                                                          \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" layout ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                          \
                     : "r"(shared_address(row))                                                \
                     : "memory");                                                              \
    }
LDMATRIX_X4(ldmatrix_x4, "")
LDMATRIX_X4(ldmatrix_x4_trans, ".trans")

/* d[16,8] += a[16,16] b[16,8] by a warp, with fp32 sums.  With g = lane / 4 and t = lane % 4 * 2, a
 * register has a pair of columns (of a, d) or of rows (of b), the lower one in the low half:
 *   a[0]: a[g][t..]   a[1]: a[g+8][t..]   a[2]: a[g][t+8..]   a[3]: a[g+8][t+8..]
 *   b0: b[t..][g]     b1: b[t+8..][g]     d[0], d[1]: d[g][t], d[g][t+1]     d[2], d[3]: d[g+8][t],
 *                     d[g+8][t+1]
 * sm_80 and later.  PTX ISA: mma.sync.aligned.m16n8k16.row.col. */
#define MMA_M16N8K16(type)                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "         \
                 "{%0,%1,%2,%3};"                                       \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <typename T>
DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if CUDA_HAS_SM80
    if constexpr (is_bfloat16<T>)
        MMA_M16N8K16("bf16");
    else
        MMA_M16N8K16("f16");
#else
    __trap();
#endif
}

/* d[16,8] += a[16,16] b[16,8] in fp16, with fp16 sums: d[0] has d[g][t..], d[1] d[g+8][t..].  sm_80
 * and later.  PTX ISA: mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16. */
DEVICE void mma_m16n8k16_half(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if CUDA_HAS_SM80
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

/* d[16,8] += a[16,8] b[8,8] in fp16, with fp32 sums; sm_75 and later.  a[0], a[1], b and d are as
 * above, with only the rows t.. of b.  PTX ISA: mma.sync.aligned.m16n8k8.row.col. */
DEVICE void mma_m16n8k8_f16(float (&d)[4], const uint32_t (&a)[2], uint32_t b)
{
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* 2^x, at most two units off, and 1 / x, at most one unit off.  Subnormal arguments and results
 * become zeros.  PTX ISA: ex2.approx.ftz.f32, rcp.approx.ftz.f32. */
DEVICE float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* One 128-bit access; the address is aligned to 16. */
DEVICE uint4 load_16_bytes(const void *from)
{
    return *(const uint4 *)from;
}

DEVICE void store_16_bytes(void *to, uint4 value)
{
    *(uint4 *)to = value;
}

#endif

/* ---- the same for both halves ---- */

/* Conversions between storage dtypes and fp32, rounded to nearest, ties to even (beyond fp16's
 * range the result is infinite). */
DEVICE float to_float(float value)
{
    return value;
}

DEVICE float to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

DEVICE float to_float(__half value)
{
    return __half2float(value);
}

/* sum += part, the fp16 sums of mma_m16n8k16_half(); BEGIN: sum = part. */
template <bool BEGIN> DEVICE void half_sums_add(float (&sum)[4], const uint32_t (&part)[2])
{
    __half value[4];
    memcpy(static_cast<void *>(value), part, sizeof value);
    UNROLLED(e, 4)
        sum[e] = BEGIN ? to_float(value[e]) : sum[e] + to_float(value[e]);
}

/* Rounds the value to T: rounded<__half>(x). */
template <typename T> DEVICE T rounded(float value)
{
    if constexpr (is_bfloat16<T>)
        return __float2bfloat16_rn(value);
    else if constexpr (sizeof(T) == sizeof(float))
        return value;
    else
        return __float2half_rn(value);
}

/* Packs two values as 16-bit T into one register of a fragment, `low` in the low half. */
template <typename T> DEVICE uint32_t pack_pair(float low, float high)
{
    uint32_t bits;
    if constexpr (is_bfloat16<T>) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        memcpy(&bits, &pair, sizeof bits);
    } else {
        __half2 pair = __floats2half2_rn(low, high);
        memcpy(&bits, &pair, sizeof bits);
    }
    return bits;
}

/* The number of T in one 128-bit access: 8 of 16 bits, 4 of fp32. */
template <typename T> constexpr int vector_length = (int)(16 / sizeof(T));

/* vector_length<T> values as fp32.  load_values and store_values access memory once; it is aligned
 * to 16 bytes. */
template <typename T> DEVICE void unpack_values(float (&to)[vector_length<T>], uint4 bits)
{
    T values[vector_length<T>];
    memcpy(static_cast<void *>(values), &bits, sizeof bits);
    UNROLLED(i, vector_length<T>)
        to[i] = to_float(values[i]);
}

template <typename T> DEVICE uint4 pack_values(const float (&from)[vector_length<T>])
{
    T values[vector_length<T>];
    UNROLLED(i, vector_length<T>)
        values[i] = rounded<T>(from[i]);
    uint4 bits;
    memcpy(&bits, values, sizeof bits);
    return bits;
}

template <typename T> DEVICE void load_values(float (&to)[vector_length<T>], const T *from)
{
    unpack_values<T>(to, load_16_bytes(from));
}

template <typename T> DEVICE void store_values(T *to, const float (&from)[vector_length<T>])
{
    store_16_bytes(to, pack_values<T>(from));
}

/* Returns the sum over all 32 lanes in every lane, in an order that the lane numbers fix. */
DEVICE float warp_sum(float value)
{
#pragma unroll
    for (int distance = WARP_LANES / 2; distance > 0; distance /= 2)
        value = __fadd_rn(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Returns the largest value of all lanes; NaN when any lane has a NaN. */
DEVICE float warp_max(float value)
{
#pragma unroll
    for (int distance = WARP_LANES / 2; distance > 0; distance /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, distance);
        value = other > value || other != other ? other : value;
    }
    return value;
}

/* ---- sums and maxima over lanes or a block, in an order that the shape of the block fixes.  Each
 * warp reduces by shuffles; then every warp reduces the warps' results from shared memory, so that
 * each thread has the result.  Blocks are whole warps, and all threads take part. ---- */

/* Shared memory for the functions below, in floats: one for each warp of the largest block. */
#define CUDA_REDUCE_WORDS 32

DEVICE int cuda_lane(void)
{
    return (int)threadIdx.x % WARP_LANES;
}

DEVICE int cuda_warp(void)
{
    return (int)threadIdx.x / WARP_LANES;
}

DEVICE int cuda_warps(void)
{
    return (int)blockDim.x / WARP_LANES;
}

/* The sum, or the largest value, over each run of LANES lanes, in all of them. */
template <int LANES> DEVICE float cuda_lanes_sum(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

template <int LANES> DEVICE float cuda_lanes_max(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Returns in lane i the value of warp i's first lane, and `missing` in lanes beyond the last warp.
 * The second barrier lets the next call write `shared` again. */
DEVICE float cuda_warps_gather(float value, float missing, float *shared)
{
    if (cuda_lane() == 0)
        shared[cuda_warp()] = value;
    __syncthreads();
    const float gathered = cuda_lane() < cuda_warps() ? shared[cuda_lane()] : missing;
    __syncthreads();
    return gathered;
}

DEVICE float cuda_block_sum(float value, float *shared)
{
    return warp_sum(cuda_warps_gather(warp_sum(value), 0.0f, shared));
}

/* NaN when any thread has a NaN. */
DEVICE float cuda_block_max(float value, float *shared)
{
    return warp_max(cuda_warps_gather(warp_max(value), -INFINITY, shared));
}

#endif
