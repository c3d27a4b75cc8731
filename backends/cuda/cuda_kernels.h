/* What the host side and the kernels have in common: the arguments of all kernels but attention's,
 * and the functions that launch them.
 *
 * Operands are found by the slots of ops.def: operand[BLEND_X].  cuda_ops.c fills in the arguments,
 * which most kernels take unchanged.  A kernel that updates several tensors takes a shorter list of
 * arguments for each of them.
 *
 * Sums over rows take two stages: each part of the rows is summed into a row of the workspace, and
 * those rows are summed in order into the result.  A row of the workspace ("strip") stores its
 * columns in tile order.  In a tile of 256 columns, lane l of a warp has the group 8 l .. 8 l + 7;
 * strips are laid out as [tile][element of the group][lane], so that neither shared memory nor the
 * workspace is accessed with a stride.  A strip is a whole number of tiles.  Elements beyond the
 * last column are never read.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_KERNELS_H
#define GPT_TRAIN_CUDA_CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "ops/op.h"

#define CUDA_GROUP 8 /* elements that a thread fetches at once */
#define CUDA_WALK_THREADS 256
#define CUDA_TENSORS_MAX 24 /* tensors of one launch: their arguments take less than 4 KiB */
/* Warps of a block whose warps take rows; layernorm_backward has at most as many. */
#define CUDA_ROW_WARPS 8
#define CUDA_TILE_COLUMNS (32 * CUDA_GROUP)
/* The dynamic shared memory of a block that has not opted in. */
#define CUDA_SHARED_DEFAULT_BYTES ((size_t)48 << 10)
#define CUDA_GRID_YZ_MAX 65535 /* the limit of a grid's second and third dimension */

/* An operand on the device, usually floats; memory is NULL when it is absent. */
struct cuda_floats {
    void *memory;
    enum dtype dtype;
};

/* A walk over elements by the threads of a fixed number of blocks.  With `aligned`, a group whose
 * first element is a multiple of eight (of its row, where a kernel walks along rows) is aligned in
 * every operand. */
struct cuda_walk {
    int64_t elements;
    int32_t blocks;
    bool aligned;
};

struct cuda_args {
    struct cuda_floats operand[OP_OPERANDS_MAX];
    struct op_attrs attrs;
    struct cuda_walk walk;
    int64_t rows, columns; /* of an operand that cuda_ops.c names */
    int64_t parts;         /* of the rows of a sum; dropout: samples */
    int64_t strip_floats;  /* columns rounded up to whole tiles */
    float *workspace;      /* [parts][strips][strip_floats]; sum_of_squares: [parts] */
    size_t shared_bytes;   /* layernorm_backward: the warps' own strips; 0: the one warp sums in the
                              workspace */
    uint32_t threshold;    /* dropout_threshold(attrs.dropout) */
    float kept_scale;      /* dropout_scale(attrs.dropout) */
    int32_t threads;       /* of a block, where they are not fixed */
    int32_t strips;        /* sums of each part */
    int32_t turned;        /* rope: elements of a head that turn */
};

/* d[rows, columns] = sums + addend, rounded once: the end of a product.  sums is fp32 [parts, rows,
 * columns] and not d. The addend is a bias [columns] with its own dtype, or a matrix [rows,
 * columns] of d's dtype, which may be d, or absent. */
struct cuda_sums_add_args {
    struct cuda_floats sums, addend, d;
    bool addend_is_matrix;
    int32_t parts;
    int64_t rows, columns;
};

/* An op that reads a product and whose result the product makes too: gelu_forward, swiglu_forward,
 * their backwards with x as `other`, or residual.  `other` has 16 bits. */
struct cuda_gemm_next {
    enum op_kind kind;
    enum gelu_kind gelu;
    enum gate_kind gate;
    struct cuda_floats other, result; /* result: NULL without such an op */
};

/* The end's d = op(a) op(b) + addend, of bf16 or fp16 matrices, with fp32 sums or, of fp16, fp16
 * sums.  Of a and b at most one is transposed.  The lengths of all rows in memory are multiples of
 * 8, and everything is aligned to 16 bytes.  The launch function splits K, as far as the sums fit
 * in `sums_bytes`; with parts there is no `next`.  Before `next` d may be NULL, and is not written.
 * Before swiglu_forward b is transposed, and y has a multiple of CUDA_GEMM_SIDE columns. */
#define CUDA_GEMM_SIDE 64
struct cuda_gemm_own_args {
    const void *a, *b;
    struct cuda_sums_add_args end;
    struct cuda_gemm_next next;
    size_t sums_bytes;
    int32_t k;
    int32_t tile_rows; /* 128; or 256, where rows and columns of d are multiples of a tile's and k
                          is one of 32 */
    int32_t apart; /* columns of d from a tile's first half to its second; the launch function sets
                      it */
    enum dtype dtype;
    bool half_sums, transpose_a, transpose_b;
};

#ifdef __cplusplus
extern "C" {
#endif
typedef cudaError_t cuda_launch(cudaStream_t stream, const struct cuda_args *args);
/* One launch for `count` tensors, each with its own arguments and walk.blocks. */
typedef cudaError_t cuda_launch_tensors(cudaStream_t stream, const struct cuda_args *args,
                                        int32_t count);
cuda_launch_tensors cuda_launch_adamw, cuda_launch_adamw_lean, cuda_launch_partials_sum,
    cuda_launch_sum_of_squares;
/* Elementwise. */
cuda_launch cuda_launch_blend, cuda_launch_copy, cuda_launch_dropout, cuda_launch_fill,
    cuda_launch_gelu_backward, cuda_launch_gelu_forward, cuda_launch_gradient_round,
    cuda_launch_muon_momentum, cuda_launch_muon_normalize, cuda_launch_muon_step,
    cuda_launch_residual, cuda_launch_sum_parts, cuda_launch_swiglu_backward,
    cuda_launch_swiglu_forward;
/* A row for each warp, or for each block. */
cuda_launch cuda_launch_cross_entropy, cuda_launch_embed_forward, cuda_launch_layernorm_forward;
/* A team of `threads` lanes for each head, or for each of `strips` means of a row. */
cuda_launch cuda_launch_rope_backward, cuda_launch_rope_forward;
/* The gated delta net; strip_floats is the width of the convolution, or that of a row of gates.
 * rows_add: operand[0][columns] (+)= the sum of workspace[parts, columns]. */
cuda_launch cuda_launch_gate_backward, cuda_launch_gate_forward, cuda_launch_gate_gain,
    cuda_launch_gated_delta_backward, cuda_launch_gated_delta_cached,
    cuda_launch_gated_delta_forward, cuda_launch_rows_add, cuda_launch_short_conv_backward,
    cuda_launch_short_conv_cached, cuda_launch_short_conv_forward, cuda_launch_short_conv_weight;
/* A block for each of `blocks` rows of dwte, or of dwpe. */
cuda_launch cuda_launch_embed_backward_tokens, cuda_launch_embed_backward_positions;
/* The first stage of sums over rows; then operand[k][columns] (+)= the sum of strip k over the
 * parts. */
cuda_launch cuda_launch_bias_backward, cuda_launch_layernorm_backward, cuda_launch_parts_sum;
/* Sums over a tensor. */
cuda_launch cuda_launch_clip_factor, cuda_launch_loss_sum;

cudaError_t cuda_launch_sums_add(cudaStream_t stream, const struct cuda_sums_add_args *args);
cudaError_t cuda_launch_gemm_own(cudaStream_t stream, const struct cuda_gemm_own_args *args);
/* Returns the parts of K; they depend on the shapes only. */
int32_t cuda_gemm_own_parts(const struct cuda_gemm_own_args *args);
#ifdef __cplusplus
}
#endif

#endif
