/* The table of the cuda backend's ops, and of the launch shapes that some of them have.
 *
 * Ops and tuning reach each other through these tables.
 */
#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/cuda_gemm.h"
#include "backends/cuda/cuda_ops.h"
#include "backends/cuda/cuda_tuning.h"

#define OP(KIND, name, operands) [OP_##KIND] = &cuda_##name,
const struct op_impl *const cuda_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP

#define WALK_IGNORING(slots)                      \
    {                                             \
        .name = {[CUDA_WALK_WAVES] = "32 blocks", \
                 [CUDA_WALK_FEW] = "8 blocks",    \
                 [CUDA_WALK_ALL] = "all blocks"}, \
        .ignored = (slots)                        \
    }
#define WALK WALK_IGNORING(0u)

const struct cuda_shapes_of_op cuda_shapes_of_ops[OP_KIND_COUNT] = {
    [OP_RESIDUAL] = WALK,
    [OP_GELU_FORWARD] = WALK,
    [OP_GELU_BACKWARD] = WALK,
    [OP_LAYERNORM_FORWARD] = WALK,
    [OP_RMSNORM_FORWARD] = WALK,
    [OP_SWIGLU_FORWARD] = WALK,
    [OP_SWIGLU_BACKWARD] = WALK,
    [OP_ROPE_FORWARD] = WALK_IGNORING(1u << ROPE_FORWARD_TABLE),
    [OP_ADAMW] = WALK_IGNORING(1u << ADAMW_CORRECTIONS),
    [OP_ADAMW_LEAN] = WALK_IGNORING(1u << ADAMW_LEAN_CORRECTIONS),
    [OP_MUON_MOMENTUM] = WALK,
    [OP_MUON_STEP] = WALK,
    [OP_ATTENTION_FORWARD] =
        {.count = cuda_attention_forward_shapes,
         .name = {[CUDA_FORWARD_FOUR_WARPS] = "4 warps", [CUDA_FORWARD_EIGHT_WARPS] = "8 warps"}},
    [OP_ATTENTION_BACKWARD] = {.count = cuda_attention_backward_shapes,
                               .name = {[CUDA_BACKWARD_AT_ONCE] = "at once",
                                        [CUDA_BACKWARD_STAGES_MOST] = "2 stages",
                                        [CUDA_BACKWARD_STAGES_ONE] = "1 stage"}},
    [OP_GEMM] = {.count = cuda_gemm_shapes,
                 .group = cuda_gemm_group,
                 .name = {[CUDA_GEMM_HALF_128] = "fp16 sums",
                          [CUDA_GEMM_HALF_256] = "fp16 sums, 256 rows",
                          [CUDA_GEMM_LIBRARY] = "fp32 sums",
                          [CUDA_GEMM_OWN_128] = "own fp32 sums",
                          [CUDA_GEMM_OWN_256] = "own fp32 sums, 256 rows"}},
    [OP_CROSS_ENTROPY] =
        {.count = cuda_cross_entropy_shapes,
         .name = {[CUDA_ENTROPY_512] = "512 threads", [CUDA_ENTROPY_256] = "256 threads"}},
};
