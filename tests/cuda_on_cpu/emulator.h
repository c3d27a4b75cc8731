/* The CPU's counterpart of backends/cuda/cuda_device.h: CUDA's built-in names and the PTX wrappers
 * as emulator functions.
 *
 * A kernel compiled with this header is a plain C++ function that emulator_run calls once per
 * thread, each on its own fiber.  Collective operations (barriers, shuffles, ldmatrix, mma) switch
 * to the scheduler in emulator.cpp; everything else runs as written.  Float atomics are missing on
 * purpose.
 */
#ifndef GPT_TRAIN_CUDA_ON_CPU_EMULATOR_H
#define GPT_TRAIN_CUDA_ON_CPU_EMULATOR_H

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Without nvcc the real headers define these as empty or as attributes.  As in them, __noinline__
 * is not a macro: the C++ library of gcc 14 and later writes __attribute__((__noinline__)). */
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __restrict__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

#define DEVICE static inline
#define CUDA_HAS_SM80 1

/* Each block gets a fresh allocation of exactly this size, filled with NaN. */
#define SHARED(type, name, n)        \
    static char emulator_tag_##name; \
    type *const name =               \
        static_cast<type *>(emulator_shared(&emulator_tag_##name, sizeof(type) * (n)))
#define DYN_SHARED(type, name) type *const name = static_cast<type *>(emulator_dynamic_shared())

#define LAUNCH(kernel, grid, block, dynamic_shared, stream, ...) \
    emulator_enqueue(#kernel, (grid), (block), (dynamic_shared), (stream), (kernel), ##__VA_ARGS__)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* ---- interface of emulator.cpp; the structures are one lane's part of a warp operation ---- */

enum emulator_op {
    EMULATOR_SHUFFLE,
    EMULATOR_SYNCWARP,
    EMULATOR_LDMATRIX,
    EMULATOR_LDMATRIX_TRANS,
    EMULATOR_MMA_16_BF16, /* k = 16 */
    EMULATOR_MMA_16_F16,
    EMULATOR_MMA_16_HALF, /* with fp16 sums */
    EMULATOR_MMA_8_F16    /* k = 8 */
};

struct emulator_shuffle {
    uint64_t value, result;
    int source;
};

struct emulator_ldmatrix {
    unsigned char row[16];
    uintptr_t address;
    uint32_t r[4];
};

struct emulator_mma {
    float d[4];
    uint32_t a[4], b[2];
};

[[noreturn]] void emulator_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int emulator_lane(void);
void *emulator_shared(const void *tag, size_t bytes);
void *emulator_dynamic_shared(void);
/* line: of the kernel's source.  Instructions that are .aligned in PTX fail where the lanes of a
 * warp are in different lines; 0: not aligned. */
void emulator_barrier(int line);
void emulator_collective(enum emulator_op op, unsigned mask, void *share, int line);
void emulator_copy_issue(void *to, const void *from, size_t bytes, bool fetch);
void emulator_copy_commit(void);
void emulator_copy_wait(int groups);
void emulator_need(int capability, const char *what);
/* rounding.cpp: true when sums and functions deviate as a card's may; y = f(x), moved by at most so
 * many units; the sum of a tensor core. */
#define EMULATOR_PRODUCTS 4 /* added at a time */
extern bool emulator_card_rounding;
float emulator_moved(float x, float y, int most);
float emulator_sum_truncated(float sum, const double *products, int count);
float emulator_sum_half(float sum, const double *products, int count); /* in fp16 */
/* In fake_runtime.cpp: checks the launch as a device would and enqueues it. */
cudaError_t emulator_submit(const char *kernel, const void *function, dim3 grid, dim3 block,
                            size_t dynamic_bytes, cudaStream_t stream, std::function<void()> body);

template <typename... P, typename... A>
cudaError_t emulator_enqueue(const char *name, dim3 grid, dim3 block, size_t dynamic_bytes,
                             cudaStream_t stream, void (*kernel)(P...), A &&...arguments)
{
    static_assert((std::is_trivially_copyable<P>::value && ...),
                  "a kernel's arguments are copied as bytes");
    static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel's arguments have at most 4 KiB");
    /* Converted and copied once, as a real launch does. */
    std::tuple<P...> copies(std::forward<A>(arguments)...);
    return emulator_submit(name, reinterpret_cast<const void *>(kernel), grid, block, dynamic_bytes,
                           stream, [kernel, copies] { std::apply(kernel, copies); });
}

/* ---- barriers, shuffles, */

static inline void __syncthreads(int line = __builtin_LINE())
{
    emulator_barrier(line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulator_collective(EMULATOR_SYNCWARP, mask, nullptr, 0);
}

template <typename T> static inline T emulator_shuffle_from(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles have values of 4 or 8 bytes");
    struct emulator_shuffle share = {0, 0, source};
    memcpy(&share.value, &value, sizeof value);
    emulator_collective(EMULATOR_SHUFFLE, mask, &share, 0);
    memcpy(&value, &share.result, sizeof value);
    return value;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source)
{
    return emulator_shuffle_from(mask, value, source & 31);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes)
{
    return emulator_shuffle_from(mask, value, emulator_lane() ^ lanes);
}

static inline void __trap(void)
{
    emulator_fail("a trap");
}

/* ---- bits, integers, floats ---- */

template <typename To, typename From> static inline To emulator_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the same bytes");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

static inline unsigned __float_as_uint(float value)
{
    return emulator_bits<unsigned>(value);
}

static inline float __uint_as_float(unsigned value)
{
    return emulator_bits<float>(value);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline float emulator_expf(float x)
{
    return emulator_card_rounding ? emulator_moved(x, expf(x), 2) : expf(x);
}

static inline float emulator_exp2f(float x)
{
    return emulator_card_rounding ? emulator_moved(x, exp2f(x), 2) : exp2f(x);
}

static inline float emulator_logf(float x)
{
    return emulator_card_rounding ? emulator_moved(x, logf(x), 1) : logf(x);
}

#define expf(x) emulator_expf(x)
#define exp2f(x) emulator_exp2f(x)
#define logf(x) emulator_logf(x)

using std::max;
using std::min;

/* ---- the wrappers that cuda_device.h documents ---- */

static inline void cp_async_16(void *shared, const void *global, bool fetch)
{
    emulator_copy_issue(shared, global, 16, fetch);
}

static inline void cp_async_4(void *shared, const void *global, bool fetch)
{
    emulator_copy_issue(shared, global, 4, fetch);
}

static inline void cp_async_commit(void)
{
    emulator_copy_commit();
}

template <int groups> static inline void cp_async_wait(void)
{
    emulator_copy_wait(groups);
}

static inline void emulator_ldmatrix_x4(enum emulator_op op, uint32_t (&r)[4], const void *row,
                                        int line)
{
    struct emulator_ldmatrix share;
    share.address = reinterpret_cast<uintptr_t>(row);
    if (share.address % 16 != 0)
        emulator_fail("ldmatrix of a row at %p, which is not aligned to 16 bytes", row);
    memcpy(share.row, row, sizeof share.row);
    emulator_collective(op, 0xffffffffu, &share, line);
    memcpy(r, share.r, sizeof share.r);
}

static inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, int line = __builtin_LINE())
{
    emulator_ldmatrix_x4(EMULATOR_LDMATRIX, r, row, line);
}

static inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, int line = __builtin_LINE())
{
    emulator_ldmatrix_x4(EMULATOR_LDMATRIX_TRANS, r, row, line);
}

static inline void emulator_mma_run(enum emulator_op op, float (&d)[4], const uint32_t *a,
                                    int registers, uint32_t b0, uint32_t b1, int line)
{
    struct emulator_mma share = {{d[0], d[1], d[2], d[3]}, {0, 0, 0, 0}, {b0, b1}};
    for (int i = 0; i < registers; i++)
        share.a[i] = a[i];
    emulator_collective(op, 0xffffffffu, &share, line);
    for (int i = 0; i < 4; i++)
        d[i] = share.d[i];
}

template <typename T>
static inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                int line = __builtin_LINE())
{
    constexpr bool is_bf16 = std::is_same<T, __nv_bfloat16>::value;
    emulator_need(80, is_bf16 ? "mma.m16n8k16 in bf16" : "mma.m16n8k16 in fp16");
    emulator_mma_run(is_bf16 ? EMULATOR_MMA_16_BF16 : EMULATOR_MMA_16_F16, d, a, 4, b0, b1, line);
}

static inline void mma_m16n8k16_half(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1, int line = __builtin_LINE())
{
    float sums[4];
    emulator_need(80, "mma.m16n8k16 with fp16 sums");
    for (int i = 0; i < 4; i++)
        sums[i] = __half2float(emulator_bits<__half>((uint16_t)(d[i / 2] >> 16 * (i % 2))));
    emulator_mma_run(EMULATOR_MMA_16_HALF, sums, a, 4, b0, b1, line);
    for (int i = 0; i < 2; i++)
        d[i] = emulator_bits<uint32_t>(__floats2half2_rn(sums[2 * i], sums[2 * i + 1]));
}

static inline void mma_m16n8k8_f16(float (&d)[4], const uint32_t (&a)[2], uint32_t b,
                                   int line = __builtin_LINE())
{
    emulator_need(75, "mma.m16n8k8 in fp16");
    emulator_mma_run(EMULATOR_MMA_8_F16, d, a, 2, b, 0, line);
}

static inline float emulator_flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static inline float fast_exp2(float x)
{
    return emulator_flushed(exp2f(emulator_flushed(x)));
}

static inline float fast_reciprocal(float x)
{
    const float y = 1.0f / emulator_flushed(x);
    return emulator_flushed(emulator_card_rounding ? emulator_moved(x, y, 1) : y);
}

static inline void emulator_aligned_to_16(const void *address, const char *what)
{
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
        emulator_fail("%s of 16 bytes at %p, which is not aligned to 16 bytes", what, address);
}

static inline uint4 load_16_bytes(const void *from)
{
    emulator_aligned_to_16(from, "a load");
    uint4 value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store_16_bytes(void *to, uint4 value)
{
    emulator_aligned_to_16(to, "a store");
    memcpy(to, &value, sizeof value);
}

#endif
