/* Float operands of any dtype, eight elements at a time, for memory-bound kernels.
 *
 * A thread fetches a group of eight consecutive elements as 128-bit words (one of 16-bit elements,
 * two of fp32), computes in fp32 and stores the group, rounded once, to nearest.  The dtype is
 * tested at run time, so that one kernel serves every mixture of dtypes: the branch is the same for
 * all threads and costs a few instructions per group. Kernels that are short of instructions have
 * instances for one 16-bit dtype (cuda_dtype_fix).  The loads of all operands are in flight before
 * the first is waited for.  Groups that are not whole, or not aligned, go element by element;
 * nothing beyond the count is accessed.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_FLOATS_H
#define GPT_TRAIN_CUDA_CUDA_FLOATS_H

#include <type_traits>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_kernels.h"

/* A group as stored: 16-bit elements fill `low`, fp32 elements both. */
struct cuda_group {
    uint4 low, high;
};

/* Elements first .. first + count - 1; count <= 8, and the span is empty when count <= 0.  whole:
 * eight elements, aligned. */
struct cuda_span {
    int64_t first;
    int count;
    bool whole;
};

DEVICE struct cuda_span cuda_span_make(int64_t first, int64_t end, bool aligned)
{
    const int64_t left = end - first;
    struct cuda_span span;
    span.first = first;
    span.count = left < CUDA_GROUP ? (int)left : CUDA_GROUP;
    span.whole = aligned && left >= CUDA_GROUP;
    return span;
}

/* Fixes the operands' dtype in an instance for DTYPE; DTYPE_COUNT is the instance for all others.
 */
template <int DTYPE, typename... Operand> DEVICE void cuda_dtype_fix(Operand *...operand)
{
    if constexpr (DTYPE != DTYPE_COUNT)
        ((operand->dtype = (enum dtype)DTYPE), ...);
}

/* Part `part` of `count` things: begin .. end - 1.  The first parts have one more, where they do
 * not divide evenly. */
struct cuda_part {
    int64_t begin, end;
};

DEVICE struct cuda_part cuda_part_of(int64_t count, int64_t parts, int64_t part)
{
    const int64_t rest = count % parts, begin = count / parts * part + (part < rest ? part : rest);
    struct cuda_part result = {begin, begin + count / parts + (part < rest ? 1 : 0)};
    return result;
}

/* Calls body(span) for the groups of this thread in a walk of `blocks` blocks, of which its own is
 * number `block`. */
template <typename Body>
DEVICE void cuda_walk_each(const struct cuda_walk &walk, Body body, unsigned block = blockIdx.x,
                           unsigned blocks = gridDim.x)
{
    const int64_t stride = CUDA_GROUP * ((int64_t)blocks * blockDim.x);
    for (int64_t first = CUDA_GROUP * ((int64_t)block * blockDim.x + threadIdx.x);
         first < walk.elements; first += stride)
        body(cuda_span_make(first, walk.elements, walk.aligned));
}

/* The arguments of one launch for several tensors.  Each block works on one of them. */
template <typename Args> struct cuda_tensors {
    unsigned end[CUDA_TENSORS_MAX]; /* the end of each tensor's blocks */
    Args at[CUDA_TENSORS_MAX];
};

/* Returns the tensor of this block, and sets *block to the block's number among the tensor's. */
template <typename Args>
DEVICE const Args &cuda_tensor_find(const struct cuda_tensors<Args> &tensors, unsigned *block)
{
    int i = 0;
    while (blockIdx.x >= tensors.end[i])
        i++;
    *block = blockIdx.x - (i > 0 ? tensors.end[i - 1] : 0u);
    return tensors.at[i];
}

/* Fetches the group element by element, with zeros beyond the count. */
DEVICE struct cuda_group cuda_fetch_elements(const struct cuda_floats &from,
                                             const struct cuda_span &span)
{
    uint32_t word[CUDA_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (from.dtype == DTYPE_F32) {
        const uint32_t *memory = (const uint32_t *)from.memory + span.first;
        UNROLLED(k, CUDA_GROUP)
            word[k] = k < span.count ? memory[k] : 0u;
    } else {
        const uint16_t *memory = (const uint16_t *)from.memory + span.first;
        UNROLLED(k, CUDA_GROUP)
            word[k / 2] |= (k < span.count ? (uint32_t)memory[k] : 0u) << 16 * (k % 2);
    }
    struct cuda_group group;
    memcpy(&group, word, sizeof group);
    return group;
}

DEVICE struct cuda_group cuda_fetch(const struct cuda_floats &from, const struct cuda_span &span)
{
    if (!span.whole)
        return cuda_fetch_elements(from, span);
    struct cuda_group group;
    group.high = make_uint4(0, 0, 0, 0);
    if (from.dtype == DTYPE_F32) {
        const float *memory = (const float *)from.memory + span.first;
        group.low = load_16_bytes(memory);
        group.high = load_16_bytes(memory + CUDA_GROUP / 2);
    } else {
        group.low = load_16_bytes((const uint16_t *)from.memory + span.first);
    }
    return group;
}

DEVICE void cuda_unpack(const struct cuda_group &group, enum dtype dtype,
                        float (&value)[CUDA_GROUP])
{
    if (dtype == DTYPE_BF16) {
        unpack_values<__nv_bfloat16>(value, group.low);
    } else if (dtype == DTYPE_F16) {
        unpack_values<__half>(value, group.low);
    } else {
        memcpy(value, &group, sizeof group);
    }
}

DEVICE struct cuda_group cuda_pack(enum dtype dtype, const float (&value)[CUDA_GROUP])
{
    struct cuda_group group;
    group.high = make_uint4(0, 0, 0, 0);
    if (dtype == DTYPE_BF16) {
        group.low = pack_values<__nv_bfloat16>(value);
    } else if (dtype == DTYPE_F16) {
        group.low = pack_values<__half>(value);
    } else {
        memcpy(&group, value, sizeof group);
    }
    return group;
}

DEVICE void cuda_put_elements(const struct cuda_floats &to, const struct cuda_span &span,
                              const struct cuda_group &group)
{
    uint32_t word[CUDA_GROUP];
    memcpy(word, &group, sizeof word);
    if (to.dtype == DTYPE_F32) {
        uint32_t *memory = (uint32_t *)to.memory + span.first;
        UNROLLED(k, CUDA_GROUP) {
            if (k < span.count)
                memory[k] = word[k];
        }
    } else {
        uint16_t *memory = (uint16_t *)to.memory + span.first;
        UNROLLED(k, CUDA_GROUP) {
            if (k < span.count)
                memory[k] = (uint16_t)(word[k / 2] >> 16 * (k % 2));
        }
    }
}

/* Writes the elements of the span; `group` is as stored. */
DEVICE void cuda_put(const struct cuda_floats &to, const struct cuda_span &span,
                     const struct cuda_group &group)
{
    if (!span.whole) {
        cuda_put_elements(to, span, group);
    } else if (to.dtype == DTYPE_F32) {
        float *memory = (float *)to.memory + span.first;
        store_16_bytes(memory, group.low);
        store_16_bytes(memory + CUDA_GROUP / 2, group.high);
    } else {
        store_16_bytes((uint16_t *)to.memory + span.first, group.low);
    }
}

/* Reads one group or more, each given as operand, span and values.  All are fetched before the
 * first is unpacked. */
DEVICE void cuda_read(void)
{
}

template <typename... More>
DEVICE void cuda_read(const struct cuda_floats &from, const struct cuda_span &span,
                      float (&value)[CUDA_GROUP], More &...more)
{
    const struct cuda_group group = cuda_fetch(from, span);
    cuda_read(more...);
    cuda_unpack(group, from.dtype, value);
}

DEVICE void cuda_write(const struct cuda_floats &to, const struct cuda_span &span,
                       const float (&value)[CUDA_GROUP])
{
    const struct cuda_group group = cuda_pack(to.dtype, value);
    cuda_put(to, span, group);
}

DEVICE float cuda_read_one(const struct cuda_floats &from, int64_t index)
{
    if (from.dtype == DTYPE_BF16)
        return to_float(((const __nv_bfloat16 *)from.memory)[index]);
    if (from.dtype == DTYPE_F16)
        return to_float(((const __half *)from.memory)[index]);
    return ((const float *)from.memory)[index];
}

DEVICE void cuda_write_one(const struct cuda_floats &to, int64_t index, float value)
{
    if (to.dtype == DTYPE_BF16)
        ((__nv_bfloat16 *)to.memory)[index] = rounded<__nv_bfloat16>(value);
    else if (to.dtype == DTYPE_F16)
        ((__half *)to.memory)[index] = rounded<__half>(value);
    else
        ((float *)to.memory)[index] = value;
}

/* ---- stochastic rounding: integer arithmetic, the same under nvcc and under emulation.  The
 * element alone determines its random bits (base/bits.h), so that no kernel keeps a state. ---- */

/* Returns the bits of the eight elements from `first` of the tensor on as one block.  `first` is a
 * multiple of eight; when index_base is not, two blocks are drawn and shifted together. */
DEVICE struct philox_block cuda_rounding_bits(const struct rounding &rounding, int64_t first,
                                              uint32_t stream)
{
    const uint64_t index = rounding.index_base + (uint64_t)first, group = index / 8;
    const uint32_t shift = (uint32_t)(index % 8);
    struct philox_block bits, next;
    rounding_words(&rounding, group, stream, bits.word);
    if (shift == 0)
        return bits;
    rounding_words(&rounding, group + 1, stream, next.word);
    uint32_t word[8];
    UNROLLED(k, 4) {
        word[k] = bits.word[k];
        word[k + 4] = next.word[k];
    }
    /* Shift by 4, 2 and 1 elements: every index is a constant, so that the words stay in registers.
     */
    UNROLLED(k, 6)
        word[k] = (shift & 4u) != 0 ? word[k + 2] : word[k];
    UNROLLED(k, 5)
        word[k] = (shift & 2u) != 0 ? word[k + 1] : word[k];
    UNROLLED(k, 4)
        bits.word[k] = (shift & 1u) != 0 ? word[k] >> 16 | word[k + 1] << 16 : word[k];
    return bits;
}

/* Writes a group: with stochastic rounding when `to` is bf16, unchanged when it is fp32.  The span
 * begins at a multiple of eight. */
DEVICE void cuda_write_rounded(const struct cuda_floats &to, const struct cuda_span &span,
                               const float (&value)[CUDA_GROUP], const struct rounding &rounding,
                               uint32_t stream)
{
    if (to.dtype != DTYPE_BF16) {
        cuda_write(to, span, value);
        return;
    }
    const struct philox_block random = cuda_rounding_bits(rounding, span.first, stream);
    uint32_t half[CUDA_GROUP];
    UNROLLED(k, CUDA_GROUP)
        half[k] = bf16_stochastic(value[k], philox_bits(random.word, k));
    struct cuda_group group;
    group.low = make_uint4(half[0] | half[1] << 16, half[2] | half[3] << 16,
                           half[4] | half[5] << 16, half[6] | half[7] << 16);
    group.high = make_uint4(0, 0, 0, 0);
    cuda_put(to, span, group);
}

/* In kernels and launch functions, whose arguments are `args`. */
#define CUDA_ACCUMULATES(slot) ((args.attrs.accumulate >> (slot)&1u) != 0)
#define CUDA_POINTER(type, slot) ((type *)args.operand[slot].memory)

/* ---- host side: for launch functions ---- */

/* Lets a kernel's blocks have `bytes` of dynamic shared memory each, and has the multiprocessor
 * keep all of its memory that may be shared for them: as many blocks as registers allow shall fit,
 * and what is left for the L1 cache is of little use to kernels that read everything once.  The
 * driver's own choice considers one block only. */
static inline cudaError_t cuda_shared_prefer(const void *kernel, size_t bytes)
{
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess || bytes <= CUDA_SHARED_DEFAULT_BYTES)
        return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Returns the operands' dtype if it is one of 16 bits and they all have it, else DTYPE_COUNT. */
template <typename... Slot>
static inline int cuda_dtype_common(const struct cuda_args &args, int first, Slot... others)
{
    const enum dtype dtype = args.operand[first].dtype;
    const bool is_common = ((args.operand[others].dtype == dtype) && ...);
    return is_common && (dtype == DTYPE_BF16 || dtype == DTYPE_F16) ? (int)dtype : (int)DTYPE_COUNT;
}

/* Returns instance(dtype) for a constant dtype: cuda_by_dtype(dtype, [](auto dtype) { return
 * kernel<dtype()>; }). */
template <typename Instance> static inline auto cuda_by_dtype(int dtype, Instance instance)
{
    return dtype == DTYPE_BF16  ? instance(std::integral_constant<int, DTYPE_BF16>())
           : dtype == DTYPE_F16 ? instance(std::integral_constant<int, DTYPE_F16>())
                                : instance(std::integral_constant<int, DTYPE_COUNT>());
}

/* Defines cuda_launch_NAME(), which launches a kernel. */
#define CUDA_LAUNCHER(name, kernel, grid, block)                                                \
    extern "C" cudaError_t cuda_launch_##name(cudaStream_t stream, const struct cuda_args *own) \
    {                                                                                           \
        const struct cuda_args &args = *own;                                                    \
        return LAUNCH((kernel), (grid), (block), 0, stream, args);                              \
    }
#define CUDA_WALK_LAUNCHER(name, kernel) \
    CUDA_LAUNCHER(name, kernel, dim3((unsigned)args.walk.blocks), dim3(CUDA_WALK_THREADS))
/* The same for several tensors in one launch, with arguments of a type for each, which what follows
 * initialises. */
#define CUDA_TENSORS_LAUNCHER(kernel, type, threads, ...)                                       \
    extern "C" cudaError_t cuda_launch_##kernel(cudaStream_t stream,                            \
                                                const struct cuda_args *tensors, int32_t count) \
    {                                                                                           \
        struct cuda_tensors<type> own = {};                                                     \
        unsigned blocks = 0;                                                                    \
        for (int32_t i = 0; i < count; i++) {                                                   \
            const struct cuda_args &args = tensors[i];                                          \
            own.end[i] = blocks += (unsigned)args.walk.blocks;                                  \
            own.at[i] = {__VA_ARGS__};                                                          \
        }                                                                                       \
        return LAUNCH((kernel), dim3(blocks), dim3(threads), 0, stream, own);                   \
    }

#endif
