/* Attention on the card: what cuda_attention.c and the kernels agree on.
 *
 * Three families of kernels: `tiles` (bf16 and fp16, tensor cores), `plain` (fp32, and any mixture of dtypes, in fp32
 * arithmetic) and `cached` (a few new rows against a key-value cache).  The host side chooses by dtypes, capability and
 * rows; the functions below only pick the instance for the head size, and start it.  Launches return the error of the
 * launch itself.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_ATTENTION_H
#define GPT_TRAIN_CUDA_CUDA_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "backends/cuda/cuda_floats.h"
#include "ops/op.h"

#define CUDA_ATTENTION_HEAD_SIZE_MAX 128
/* Dynamic shared memory that a kernel has without cudaFuncSetAttribute. */
#define CUDA_ATTENTION_SHARED_DEFAULT_BYTES 49152u
/* Queries, or keys, that a block of the tiled kernels owns; kernels of fp32 gradients own half of that. */
#define CUDA_ATTENTION_TILE 64
#define CUDA_ATTENTION_WARPS 4 /* of a block that owns so many */
#define CUDA_ATTENTION_PLAIN_GRADIENT_TILE 32
/* Blocks of the kernel for few rows see so many keys each, or more where the cache is long. */
#define CUDA_ATTENTION_SPLIT_KEYS 128
#define CUDA_ATTENTION_SPLITS_MAX 32
/* From so many new rows on a sample, tiles are faster than a block for each row and part of the cache. */
#define CUDA_ATTENTION_FEW_ROWS 16

/* One operand, seen as [sample, row, head, head size]: element (b, t, h, d) is at first + b sample + t row + h head_size +
 * d, counted in elements. */
struct cuda_attention_rows {
    struct cuda_floats of;
    int64_t first, row, sample;
};

/* All of one call.  y is what the forward writes and the backward reads; dq, dk, dv are parts of dqkv. */
struct cuda_attention {
    struct cuda_attention_rows q, k, v, y, dy, dq, dk, dv;
    float *lse;                       /* [samples, heads, time]; NULL: not wanted */
    float *delta;                     /* backward: [samples, heads, time], workspace */
    const union scalar_word *scalars; /* on the device */
    bool positioned;                  /* query t is at scalars[POSITION] + t, and sees keys 0 .. position + t */
    bool tensor_k16;                  /* mma m16n8k16; without it, fp16 by m16n8k8 (before sm_80) */
    int32_t samples, time, heads, kv_heads, head_size;
    int32_t unit;       /* elements of a row that may move at once: 8, where all begin at multiples of 8, else 2 or 1 */
    int32_t warps;      /* forward, tiles: 4, or 8 with twice the queries; of 16 rows each */
    int32_t stages;     /* backward, tiles: 2 where a tile can be under way beside the one in use (sm_80), and fits */
    float scale;        /* of the scores; > 0 */
    int32_t site;       /* of the dropout masks */
    uint32_t threshold; /* op.h's dropout_threshold(); 0: no dropout */
    float kept_scale;   /* op.h's dropout_scale() */
};

/* attention_cached with few rows: what the kernels need beside the above; k and v are those of the cache. */
struct cuda_attention_cache {
    struct cuda_attention attention;
    struct cuda_attention_rows new_k, new_v; /* rows to append */
    int32_t splits, split_keys;              /* parts of the cache, and keys of a part */
    float *partial; /* [samples, time, heads, splits, head size + 2], workspace; unused with one split */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of shared memory that the forward of `tiles` needs with eight warps; 0: no such kernel for the head size. */
size_t cuda_attention_forward_eight_bytes(int32_t head_size);
/* Bytes of shared memory that the backward of `tiles` needs for a head size with so many stages. */
size_t cuda_attention_backward_shared_bytes(int32_t head_size, int32_t stages);

/* Once after opening: lets every kernel that needs more than the default of shared memory have it, as far as
 * `shared_bytes_max` allows. */
cudaError_t cuda_launch_attention_prepare(size_t shared_bytes_max);

/* q, k, v and y of one 16-bit dtype. */
cudaError_t cuda_launch_attention_forward_tiles(cudaStream_t stream, const struct cuda_attention *attention);
cudaError_t cuda_launch_attention_forward_plain(cudaStream_t stream, const struct cuda_attention *attention);
/* delta[b,h,t] = sum over d of dy y, which both backwards need first. */
cudaError_t cuda_launch_attention_delta(cudaStream_t stream, const struct cuda_attention *attention);
/* q, k, v, dy, dq, dk and dv of one 16-bit dtype. */
cudaError_t cuda_launch_attention_backward_tiles(cudaStream_t stream, const struct cuda_attention *attention);
cudaError_t cuda_launch_attention_backward_plain(cudaStream_t stream, const struct cuda_attention *attention);

/* The new rows of k and v into the cache. */
cudaError_t cuda_launch_attention_append(cudaStream_t stream, const struct cuda_attention_cache *cached);
/* Softmax over the cache for every row, by parts; then the parts are put together, in order. */
cudaError_t cuda_launch_attention_few_rows(cudaStream_t stream, const struct cuda_attention_cache *cached);

/* Of the parts of cuda_launch_attention_prepare(). */
cudaError_t cuda_attention_forward_tiles_prepare(size_t shared_bytes_max);
cudaError_t cuda_attention_backward_tiles_prepare(size_t shared_bytes_max);
cudaError_t cuda_attention_forward_plain_prepare(size_t shared_bytes_max);
cudaError_t cuda_attention_backward_plain_prepare(size_t shared_bytes_max);

#ifdef __cplusplus
}
#endif

#endif
