/* The interface between cuda_attention.c and the attention kernels.
 *
 * There are three families of kernels: `tiles` (bf16 and fp16, tensor cores), `plain` (fp32, and
 * any mixture of dtypes, in fp32 arithmetic) and `cached` (a few new rows against a key-value
 * cache).  The host side chooses by dtypes, capability and rows.  The functions below only pick the
 * instance for the head size and launch it; they return the error of the launch itself.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_ATTENTION_H
#define GPT_TRAIN_CUDA_CUDA_ATTENTION_H

#include <cuda_runtime.h>

#include "backends/cuda/cuda_kernels.h"

#define CUDA_ATTENTION_HEAD_SIZE_MAX 256
/* Up to this head size the tiled kernels run on every card, and a block has registers for all of
 * its gradients.  Above it they need the shared memory of sm_80 and later: see
 * attention_tile_backward.cu. */
#define CUDA_ATTENTION_HEAD_SIZE_SMALL 128
/* A block of the tiled kernels owns this many queries or keys. */
#define CUDA_ATTENTION_TILE 64
#define CUDA_ATTENTION_WARPS 4 /* warps of such a block */
#define CUDA_ATTENTION_STEP 32 /* rows of a step of the tiled backward */
/* A block of the few-rows kernel reads this many keys, or more when the cache is long. */
#define CUDA_ATTENTION_SPLIT_KEYS 128
#define CUDA_ATTENTION_SPLITS_MAX 32
/* From this many new rows per sample on, tiles are faster than a block for each row and part of the
 * cache. */
#define CUDA_ATTENTION_FEW_ROWS 16

/* An operand viewed as [sample, row, head, head size]: element (b, t, h, d) is at first + b sample
 * + t row + h head_size + d, counted in elements. */
struct cuda_attention_rows {
    struct cuda_floats of;
    int64_t first, row, sample;
};

/* The arguments of one call.  The forward writes y and the backward reads it; dq, dk and dv are
 * parts of dqkv. */
struct cuda_attention {
    struct cuda_attention_rows q, k, v, y, dy, dq, dk, dv;
    float *lse;        /* [samples, heads, time]; NULL: not needed */
    float *delta;      /* backward: [samples, heads, time], workspace */
    float *query_sums; /* backward at once: [blocks, heads / kv_heads, time, head size], workspace;
                          the latter two are rounded up to CUDA_ATTENTION_STEP */
    const union scalar_word *scalars; /* on the device */
    const int32_t *begin; /* [samples, time]: where the document of each query begins; NULL: 0 */
    bool positioned;      /* query t is at scalars[POSITION] + t, and sees the keys up to there */
    bool tensor_k16;      /* use mma m16n8k16; if false, fp16 uses m16n8k8 (before sm_80) */
    bool half_sums;       /* fp16, tiles, and heads of at most CUDA_ATTENTION_HEAD_SIZE_SMALL: sums
                             of 32 products are fp16; see cuda_gemm.c for when */
    int32_t samples, time, heads, kv_heads, head_size;
    int32_t window; /* keys that a query sees, the last of which is its own; 0: all up to it */
    int32_t ring;   /* positioned: key j is row j % ring of a cache; a tile of keys never wraps */
    int32_t unit;  /* elements that one access may move: 8 if all rows begin at multiples of 8, else
                      2 or 1 */
    int32_t warps; /* forward, tiles: 4, or 8 with twice the queries; a warp owns 16 rows */
    int32_t stages;     /* backward, tiles: 2 if a tile can load while another is in use (sm_80) and
                           both fit */
    int32_t blocks;     /* backward, tiles: these compute dq, dk and dv at once; 0: in two passes */
    float scale;        /* of the scores; > 0 */
    int32_t site;       /* of the dropout masks */
    uint32_t threshold; /* op.h's dropout_threshold(); 0: no dropout */
    float kept_scale;   /* op.h's dropout_scale() */
};

/* The arguments of attention_cached with few rows.  attention.k and attention.v are those of the
 * cache. */
struct cuda_attention_cache {
    struct cuda_attention attention;
    struct cuda_attention_rows new_k, new_v; /* rows to append */
    int32_t splits, split_keys;              /* parts that a row sees, and keys in each part */
    float *partial; /* [samples, time, heads, splits, head size + 2], workspace; unused with one
                       split */
};

#ifdef __cplusplus
extern "C" {
#endif

struct backend;
struct op_call;

/* Return how many launch shapes a call has on this card: the last ones of its op, at least 1. */
int32_t cuda_attention_forward_shapes(const struct backend *backend, const struct op_call *call);
int32_t cuda_attention_backward_shapes(const struct backend *backend, const struct op_call *call);

/* Returns the bytes of shared memory that the forward of `tiles` needs with eight warps, or 0 when
 * there is no such kernel for the head size. */
size_t cuda_attention_forward_eight_bytes(int32_t head_size);
/* Returns the bytes of shared memory that the forward of `tiles` needs with four warps. */
size_t cuda_attention_forward_shared_bytes(int32_t head_size);
/* Returns the bytes of shared memory that the backward of `tiles` needs, at once or in passes.
 * Returns SIZE_MAX when there is no such kernel for the head size. */
size_t cuda_attention_backward_shared_bytes(int32_t head_size, int32_t stages, bool at_once);

/* q, k, v and y have the same 16-bit dtype. */
cudaError_t cuda_launch_attention_forward_tiles(cudaStream_t stream,
                                                const struct cuda_attention *attention);
cudaError_t cuda_launch_attention_forward_plain(cudaStream_t stream,
                                                const struct cuda_attention *attention);
/* delta[b,h,t] = sum over d of dy y; both backwards need it first. */
cudaError_t cuda_launch_attention_delta(cudaStream_t stream,
                                        const struct cuda_attention *attention);
/* q, k, v, dy, dq, dk and dv have the same 16-bit dtype. */
cudaError_t cuda_launch_attention_backward_tiles(cudaStream_t stream,
                                                 const struct cuda_attention *attention);
cudaError_t cuda_launch_attention_backward_plain(cudaStream_t stream,
                                                 const struct cuda_attention *attention);

/* Copies the new rows of k and v into the cache. */
cudaError_t cuda_launch_attention_append(cudaStream_t stream,
                                         const struct cuda_attention_cache *cached);
/* Computes softmax attention over the cache for every row, in parts, and then combines the parts in
 * order. */
cudaError_t cuda_launch_attention_few_rows(cudaStream_t stream,
                                           const struct cuda_attention_cache *cached);

#ifdef __cplusplus
}
#endif

#endif
