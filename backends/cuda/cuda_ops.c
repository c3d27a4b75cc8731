/* The host side of all ops but attention and products: operands, shapes, the split of rows, and
 * launches.
 *
 * A kernel gets its operands, its attributes and the sizes of one of the operands (struct
 * cuda_args).  The ops on states and gradients (adamw, adamw_lean, gradient_round, sum_parts,
 * muon's) only convert 16 bits and do not compute in them, so every card supports them.  Workspaces
 * and the number of parts of a sum depend on the shape only.
 */
#include "backends/cuda/cuda_ops.h"

#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_gemm.h"
#include "backends/cuda/cuda_memory.h"
#include "backends/cuda/cuda_nccl.h"
#include "backends/cuda/cuda_tuning.h"
#include "backends/delta.h"

/* Blocks for each multiprocessor: enough for a few waves, or for about one. */
#define BLOCKS_PER_MULTIPROCESSOR 32
#define BLOCKS_FEW 8

/* Returns the number of blocks that walk over the work.  The shape CUDA_WALK_ALL has a block for
 * each `work_per_block`.  Results do not depend on the number of blocks. */
static int32_t walk_blocks(const struct backend *backend, const struct op_call *call, int64_t work,
                           int64_t work_per_block)
{
    const int32_t shape = cuda_shape_of(backend, call);
    const int64_t each = shape == CUDA_WALK_FEW ? BLOCKS_FEW : BLOCKS_PER_MULTIPROCESSOR;
    const int64_t most = max_i64(cuda_from(backend)->multiprocessors * each, 1);
    const int64_t all = min_i64(size_ceil_div(work, work_per_block), CUDA_GRID_X_MAX);
    return (int32_t)(shape == CUDA_WALK_ALL ? all : min_i64(all, most));
}

/* Returns the arguments that all ops have, with the sizes of operand `slot`. */
static struct cuda_args args_of(const struct backend *backend, const struct op_call *call,
                                int32_t slot)
{
    struct cuda_args args = {.attrs = call->attrs,
                             .walk = {.elements = op_elements(call, slot),
                                      .aligned = cuda_operands_aligned(backend, call)},
                             .rows = op_rows(call, slot),
                             .columns = op_columns(call, slot)};
    for (int32_t i = 0; i < OP_OPERANDS_MAX; i++)
        args.operand[i] = cuda_floats_of(backend, call, i);
    return args;
}

/* As args_of(), for kernels that walk along rows: sets `aligned` only if each row begins at an
 * aligned address. */
static struct cuda_args row_args_of(const struct backend *backend, const struct op_call *call,
                                    int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    args.walk.aligned = args.walk.aligned && args.columns % CUDA_GROUP == 0;
    return args;
}

static enum gt_status start(struct backend *backend, const struct op_call *call,
                            cuda_launch *launch, const struct cuda_args *args)
{
    return cuda_check(backend, launch(cuda_stream(backend), args),
                      op_declaration(call->kind)->name);
}

/* Defines the op `name`, which one launch computes, with the arguments that args_by() returns for
 * `call` and `slot`. */
#define LAUNCHED(name, supported, launch, args_by, slot)                                  \
    static enum gt_status name##_run(struct backend *backend, const struct op_call *call) \
    {                                                                                     \
        const struct cuda_args args = args_by(backend, call, (slot));                     \
        return start(backend, call, cuda_launch_##launch, &args);                         \
    }                                                                                     \
    const struct op_impl cuda_##name = {.supports = (supported), .run = name##_run};

/* ---- elementwise: outputs may be inputs, because a thread reads its group before it writes it
 * ---- */

/* Returns the arguments of a walk over the elements of `slot`. */
static struct cuda_args walk_args_of(const struct backend *backend, const struct op_call *call,
                                     int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    args.walk.blocks =
        walk_blocks(backend, call, args.walk.elements, CUDA_GROUP * CUDA_WALK_THREADS);
    return args;
}

#define ELEMENTWISE(name, slot, supported) LAUNCHED(name, supported, name, walk_args_of, slot)

ELEMENTWISE(blend, BLEND_Y, cuda_operands_supported)
ELEMENTWISE(copy, COPY_X, cuda_operands_supported)
ELEMENTWISE(fill, FILL_Y, cuda_operands_supported)
ELEMENTWISE(gelu_backward, GELU_BACKWARD_X, cuda_operands_supported)
ELEMENTWISE(gelu_forward, GELU_FORWARD_X, cuda_operands_supported)
ELEMENTWISE(gradient_round, GRADIENT_ROUND_Y, NULL)
ELEMENTWISE(muon_momentum, MUON_MOMENTUM_U, NULL)
ELEMENTWISE(muon_normalize, MUON_NORMALIZE_Y, NULL)
ELEMENTWISE(muon_step, MUON_STEP_PARAM, NULL)
ELEMENTWISE(residual, RESIDUAL_R, cuda_operands_supported)

static struct cuda_args parts_args_of(const struct backend *backend, const struct op_call *call,
                                      int32_t slot)
{
    struct cuda_args args = walk_args_of(backend, call, slot);
    args.parts =
        call->operand[SUM_PARTS_OTHERS].present ? call->operand[SUM_PARTS_OTHERS].dims[0] + 1 : 1;
    args.walk.aligned = args.walk.aligned && args.walk.elements % CUDA_GROUP == 0;
    return args;
}

LAUNCHED(sum_parts, NULL, sum_parts, parts_args_of, SUM_PARTS_X)

/* fetch and store: copies that the card's copy engines make. */
const struct op_impl cuda_fetch = {.run = cuda_memory_copy_start};
const struct op_impl cuda_store = {.run = cuda_memory_copy_start};
const struct op_impl cuda_wait = {.run = cuda_memory_copy_wait};

/* A thread takes eight columns of a row of operand `y`, which has half the columns of [a | b]. */
static struct cuda_args swiglu_args_of(const struct backend *backend, const struct op_call *call,
                                       int32_t y)
{
    struct cuda_args args = row_args_of(backend, call, y);
    const int64_t groups = args.rows * size_ceil_div(args.columns, CUDA_GROUP);
    args.walk.blocks = walk_blocks(backend, call, groups, CUDA_WALK_THREADS);
    return args;
}

LAUNCHED(swiglu_forward, cuda_operands_supported, swiglu_forward, swiglu_args_of, SWIGLU_FORWARD_Y)
LAUNCHED(swiglu_backward, cuda_operands_supported, swiglu_backward, swiglu_args_of,
         SWIGLU_BACKWARD_DY)

/* The kernel walks over the elements of one sample; `parts` is the number of samples. */
static struct cuda_args dropout_args_of(const struct backend *backend, const struct op_call *call,
                                        int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    const int64_t elements = call->attrs.time * args.columns;
    args.parts = args.walk.elements / elements;
    args.walk.elements = elements;
    args.threshold = dropout_threshold(call->attrs.dropout);
    args.kept_scale = dropout_scale(call->attrs.dropout);
    args.walk.blocks = walk_blocks(backend, call, elements, CUDA_GROUP * CUDA_WALK_THREADS);
    args.walk.aligned = args.walk.aligned && elements % CUDA_GROUP == 0;
    return args;
}

LAUNCHED(dropout, cuda_operands_supported, dropout, dropout_args_of, DROPOUT_X)

/* ---- rows ---- */

/* A warp takes a row of `slot`. */
static struct cuda_args warp_rows_args_of(const struct backend *backend, const struct op_call *call,
                                          int32_t slot)
{
    struct cuda_args args = row_args_of(backend, call, slot);
    args.walk.blocks = walk_blocks(backend, call, args.rows, CUDA_ROW_WARPS);
    return args;
}

LAUNCHED(embed_forward, cuda_operands_supported, embed_forward, warp_rows_args_of, EMBED_FORWARD_Y)
LAUNCHED(layernorm_forward, cuda_operands_supported, layernorm_forward, warp_rows_args_of,
         LAYERNORM_FORWARD_X)
LAUNCHED(rmsnorm_forward, cuda_operands_supported, layernorm_forward, warp_rows_args_of,
         LAYERNORM_FORWARD_X)

/* Returns the columns, rounded up to whole tiles. */
static int64_t strip_floats_of(int64_t columns)
{
    return size_ceil_div(columns, CUDA_TILE_COLUMNS) * CUDA_TILE_COLUMNS;
}

/* Needs no workspace: the host has sorted the rows by id, so that one block sums each row of dwte.
 * If the op accumulates, the kernel leaves the rows of dwpe beyond the time unchanged; otherwise it
 * sets them to 0. */
static enum gt_status embed_backward_run(struct backend *backend, const struct op_call *call)
{
    const bool accumulates = op_accumulates(call, EMBED_BACKWARD_DWPE);
    struct cuda_args args = row_args_of(backend, call, EMBED_BACKWARD_DY);
    args.strip_floats = strip_floats_of(args.columns);
    args.walk.blocks = (int32_t)min_i64(args.rows, op_rows(call, EMBED_BACKWARD_DWTE));
    TRY(start(backend, call, cuda_launch_embed_backward_tokens, &args));
    if (!call->operand[EMBED_BACKWARD_DWPE].present)
        return GT_OK;
    args.walk.blocks = accumulates ? call->attrs.time : (int32_t)op_rows(call, EMBED_BACKWARD_DWPE);
    return start(backend, call, cuda_launch_embed_backward_positions, &args);
}

const struct op_impl cuda_embed_backward = {.supports = cuda_operands_supported,
                                            .run = embed_backward_run};

#define ENTROPY_THREADS_MAX 512

/* Returns the number of threads for a row: one for each group, in whole warps, at most
 * ENTROPY_THREADS_MAX. */
static int32_t entropy_threads(const struct op_call *call)
{
    const int64_t groups = size_ceil_div(op_columns(call, CROSS_ENTROPY_LOGITS), CUDA_GROUP);
    return (int32_t)min_i64(size_ceil_div(groups, 32) * 32, ENTROPY_THREADS_MAX);
}

/* Returns the number of shapes to choose from.  The second shape exists only for rows with work for
 * all threads.  It has half the threads: each takes twice the groups, and the block has fewer sums
 * to add at the end. */
int32_t cuda_cross_entropy_shapes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return entropy_threads(call) == ENTROPY_THREADS_MAX ? CUDA_ENTROPY_SHAPES : 1;
}

/* A block takes a row. */
static struct cuda_args entropy_args_of(const struct backend *backend, const struct op_call *call,
                                        int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    const uintptr_t logits = (uintptr_t)args.operand[slot].memory;
    args.walk.aligned =
        args.columns % CUDA_GROUP == 0 && logits % 16 == 0; /* losses need no alignment */
    args.threads =
        entropy_threads(call) / (cuda_shape_of(backend, call) == CUDA_ENTROPY_256 ? 2 : 1);
    return args;
}

LAUNCHED(cross_entropy, cuda_operands_supported, cross_entropy, entropy_args_of,
         CROSS_ENTROPY_LOGITS)

/* ---- sums over rows: a strip of fp32 columns in the workspace for each part of the rows and each
 * sum ---- */

#define PART_ROWS 16

/* Returns the number of parts.  Their strips never have more floats than OP_PARTIAL_ROWS rows,
 * because a plan for a card that is not present reserves the bytes of that many rows. */
static int64_t parts_of(int64_t rows, int64_t columns)
{
    return min_i64(size_ceil_div(rows, PART_ROWS),
                   OP_PARTIAL_ROWS * columns / strip_floats_of(columns));
}

static size_t strips_bytes(int64_t rows, int64_t columns, int32_t strips)
{
    return (size_t)(parts_of(rows, columns) * strips * strip_floats_of(columns)) * sizeof(float);
}

static struct cuda_args strip_args_of(const struct backend *backend, const struct op_call *call,
                                      int32_t slot, int32_t strips)
{
    struct cuda_args args = row_args_of(backend, call, slot);
    args.strips = strips;
    args.parts = parts_of(args.rows, args.columns);
    args.strip_floats = strip_floats_of(args.columns);
    args.workspace = cuda_workspace(backend, call, strips_bytes(args.rows, args.columns, strips));
    return args;
}

/* Starts the second stage.  The first sum goes to operand `first_out`; a second sum, if there is
 * one, to the next operand. */
static enum gt_status parts_sum(struct backend *backend, const struct op_call *call,
                                struct cuda_args *args, int32_t first_out)
{
    args->operand[0] = args->operand[first_out];
    args->operand[1] = args->operand[first_out + 1];
    args->attrs.accumulate >>= first_out;
    return start(backend, call, cuda_launch_parts_sum, args);
}

/* The same for parts whose sums are plain rows. */
static int64_t plain_parts(int64_t rows)
{
    return min_i64(size_ceil_div(rows, PART_ROWS), OP_PARTIAL_ROWS);
}

static enum gt_status plain_sum(struct backend *backend, const struct op_call *call,
                                struct cuda_args *args, int32_t out)
{
    args->operand[0] = args->operand[out];
    args->attrs.accumulate >>= out;
    args->columns = op_elements(call, out);
    args->walk.blocks = (int32_t)size_ceil_div(args->columns, CUDA_WALK_THREADS);
    return start(backend, call, cuda_launch_rows_add, args);
}

static size_t bias_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return strips_bytes(op_rows(call, BIAS_BACKWARD_DY), op_columns(call, BIAS_BACKWARD_DY), 1);
}

static enum gt_status bias_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args = strip_args_of(backend, call, BIAS_BACKWARD_DY, 1);
    TRY(start(backend, call, cuda_launch_bias_backward, &args));
    return parts_sum(backend, call, &args, BIAS_BACKWARD_DBIAS);
}

const struct op_impl cuda_bias_backward = {
    .supports = cuda_operands_supported, .workspace_bytes = bias_workspace_bytes, .run = bias_run};

/* Returns the number of sums over rows: dgain and dbias, or dgain alone. */
static int32_t layernorm_strips(const struct op_call *call)
{
    return call->operand[LAYERNORM_BACKWARD_MEAN].present ? 2 : 1;
}

static size_t layernorm_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return strips_bytes(op_rows(call, LAYERNORM_BACKWARD_X), op_columns(call, LAYERNORM_BACKWARD_X),
                        layernorm_strips(call));
}

/* A block has as many warps as have room for their strips in shared memory.  If there is no room
 * for even one, the block has one warp, which sums in the workspace. */
static enum gt_status layernorm_backward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args =
        strip_args_of(backend, call, LAYERNORM_BACKWARD_X, layernorm_strips(call));
    const size_t warp_bytes = (size_t)args.strips * (size_t)args.strip_floats * sizeof(float);
    const size_t fitting = size_min(CUDA_SHARED_DEFAULT_BYTES / warp_bytes, CUDA_ROW_WARPS);
    args.threads = 32 * (fitting > 0 ? (int32_t)fitting : 1);
    args.shared_bytes = fitting * warp_bytes;
    TRY(start(backend, call, cuda_launch_layernorm_backward, &args));
    const bool has_gain = call->operand[LAYERNORM_BACKWARD_DGAIN].present;
    return has_gain ? parts_sum(backend, call, &args, LAYERNORM_BACKWARD_DGAIN) : GT_OK;
}

const struct op_impl cuda_layernorm_backward = {.supports = cuda_operands_supported,
                                                .workspace_bytes = layernorm_workspace_bytes,
                                                .run = layernorm_backward_run};
const struct op_impl cuda_rmsnorm_backward = {.supports = cuda_operands_supported,
                                              .workspace_bytes = layernorm_workspace_bytes,
                                              .run = layernorm_backward_run};

/* ---- rope ---- */

/* Returns the arguments with the size of a head as columns.  In place only what turns is touched.
 */
static struct cuda_args rope_args_of(const struct backend *backend, const struct op_call *call,
                                     int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    const bool in_place = op_rope_in_place(call);
    const int64_t size = op_rope_size(call), turned = op_columns(call, ROPE_FORWARD_TABLE),
                  half = turned / 2, rest = (size - turned) / 2;
    const int32_t means = op_rope_means(call),
                  heads = call->attrs.heads + (in_place ? 1 : 2) * call->attrs.kv_heads;
    const int64_t items = means == 2 ? 32
                                     : size_ceil_div(half, CUDA_GROUP) +
                                           (in_place ? 0 : size_ceil_div(rest, CUDA_GROUP));
    args.operand[ROPE_FORWARD_X] = args.operand[slot];
    args.columns = size;
    args.turned = (int32_t)turned;
    args.walk.aligned = args.walk.aligned && half % CUDA_GROUP == 0 && rest % CUDA_GROUP == 0;
    args.strips = means;
    for (args.threads = 1; args.threads < 32 && args.threads < items;)
        args.threads *= 2;
    args.walk.blocks = walk_blocks(backend, call, args.rows * (means == 2 ? 3 : heads),
                                   CUDA_ROW_WARPS * 32 / args.threads);
    return args;
}

LAUNCHED(rope_forward, cuda_operands_supported, rope_forward, rope_args_of, op_rope_rows(call))

/* The parts' sums of dgain. */
static size_t rope_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t rows = op_rows(call, op_rope_rows(call)),
                  gains = op_elements(call, ROPE_BACKWARD_GAIN);
    (void)backend;
    return gains == 0 ? 0 : strips_bytes(rows, gains, 1);
}

static enum gt_status rope_backward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args = rope_args_of(backend, call, op_rope_rows(call));
    args.workspace = cuda_workspace(backend, call, rope_workspace_bytes(backend, call));
    const int64_t gains = op_elements(call, ROPE_BACKWARD_GAIN);
    if (gains == 0)
        return start(backend, call, cuda_launch_rope_backward, &args);
    args.parts = parts_of(args.rows, gains);
    args.strip_floats = strip_floats_of(gains);
    TRY(start(backend, call, cuda_launch_rope_backward, &args));
    args.columns = gains;
    args.strips = 1;
    return parts_sum(backend, call, &args, ROPE_BACKWARD_DGAIN);
}

const struct op_impl cuda_rope_backward = {.supports = cuda_operands_supported,
                                           .workspace_bytes = rope_workspace_bytes,
                                           .run = rope_backward_run};

/* ---- gates ---- */

/* r of each head, then the parts' sums of dgain. */
static size_t gate_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t rows = op_rows(call, GATE_BACKWARD_X),
                  gains = op_elements(call, GATE_BACKWARD_GAIN);
    (void)backend;
    return gains == 0
               ? 0
               : (size_t)(rows * call->attrs.heads + plain_parts(rows) * gains) * sizeof(float);
}

static struct cuda_args gate_args_of(const struct backend *backend, const struct op_call *call,
                                     int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    args.strip_floats = op_columns(call, GATE_FORWARD_Z);
    args.walk.blocks = walk_blocks(backend, call, args.rows * call->attrs.heads, CUDA_ROW_WARPS);
    return args;
}

LAUNCHED(gate_forward, cuda_operands_supported, gate_forward, gate_args_of, GATE_FORWARD_X)

static enum gt_status gate_backward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args = gate_args_of(backend, call, GATE_BACKWARD_X);
    args.workspace = cuda_workspace(backend, call, gate_workspace_bytes(backend, call));
    args.parts = plain_parts(args.rows);
    TRY(start(backend, call, cuda_launch_gate_backward, &args));
    if (!call->operand[GATE_BACKWARD_GAIN].present)
        return GT_OK;
    TRY(start(backend, call, cuda_launch_gate_gain, &args));
    args.workspace += args.rows * call->attrs.heads;
    return plain_sum(backend, call, &args, GATE_BACKWARD_DGAIN);
}

const struct op_impl cuda_gate_backward = {.supports = cuda_operands_supported,
                                           .workspace_bytes = gate_workspace_bytes,
                                           .run = gate_backward_run};

/* ---- the gated delta net ---- */

static struct cuda_args conv_args_of(const struct backend *backend, const struct op_call *call,
                                     int32_t slot)
{
    struct cuda_args args = args_of(backend, call, slot);
    args.strip_floats = op_elements(call, SHORT_CONV_FORWARD_WEIGHT) / call->attrs.taps;
    if (call->kind == OP_SHORT_CONV_CACHED) /* a thread for each column of a sample */
        args.walk.elements = args.rows / call->attrs.time * args.columns;
    args.walk.blocks = call->kind == OP_SHORT_CONV_CACHED
                           ? (int32_t)size_ceil_div(args.walk.elements, CUDA_WALK_THREADS)
                           : walk_blocks(backend, call, args.walk.elements, CUDA_WALK_THREADS);
    return args;
}

LAUNCHED(short_conv_forward, cuda_operands_supported, short_conv_forward, conv_args_of,
         SHORT_CONV_FORWARD_X)
LAUNCHED(short_conv_cached, cuda_operands_supported, short_conv_cached, conv_args_of,
         SHORT_CONV_CACHED_X)

static size_t conv_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return (size_t)(plain_parts(op_rows(call, SHORT_CONV_BACKWARD_DY)) *
                    op_elements(call, SHORT_CONV_BACKWARD_WEIGHT)) *
           sizeof(float);
}

static enum gt_status conv_backward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args = conv_args_of(backend, call, SHORT_CONV_BACKWARD_DY);
    args.workspace = cuda_workspace(backend, call, conv_workspace_bytes(backend, call));
    args.parts = plain_parts(args.rows);
    TRY(start(backend, call, cuda_launch_short_conv_backward, &args));
    TRY(start(backend, call, cuda_launch_short_conv_weight, &args));
    return plain_sum(backend, call, &args, SHORT_CONV_BACKWARD_DWEIGHT);
}

const struct op_impl cuda_short_conv_backward = {.supports = cuda_operands_supported,
                                                 .workspace_bytes = conv_workspace_bytes,
                                                 .run = conv_backward_run};

/* Blocks: of the forward for each head of a sample, of the backward for each key head. */
static int64_t delta_blocks(const struct op_call *call)
{
    return op_rows(call, GATED_DELTA_FORWARD_X) / call->attrs.time *
           (call->kind == OP_GATED_DELTA_BACKWARD ? call->attrs.kv_heads : call->attrs.heads);
}

static size_t delta_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const int64_t size = op_delta_size(call, GATED_DELTA_FORWARD_X), heads = call->attrs.heads,
                  samples = op_rows(call, GATED_DELTA_FORWARD_X) / call->attrs.time;
    (void)backend;
    return (size_t)(call->kind == OP_GATED_DELTA_BACKWARD
                        ? samples * 2 * heads +
                              delta_blocks(call) *
                                  DELTA_BACKWARD_FLOATS(size, heads / call->attrs.kv_heads)
                        : delta_blocks(call) * DELTA_FORWARD_FLOATS(size)) *
           sizeof(float);
}

static enum gt_status delta_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_args args = args_of(backend, call, GATED_DELTA_FORWARD_X);
    args.walk.blocks = (int32_t)delta_blocks(call);
    args.workspace = cuda_workspace(backend, call, delta_workspace_bytes(backend, call));
    if (call->kind != OP_GATED_DELTA_BACKWARD)
        return start(backend, call,
                     call->kind == OP_GATED_DELTA_CACHED ? cuda_launch_gated_delta_cached
                                                         : cuda_launch_gated_delta_forward,
                     &args);
    TRY(start(backend, call, cuda_launch_gated_delta_backward, &args));
    args.parts = args.rows / call->attrs.time;
    return plain_sum(backend, call, &args, GATED_DELTA_BACKWARD_DDECAY);
}

#define DELTA_OP                                                                       \
    {                                                                                  \
        .supports = cuda_operands_supported, .workspace_bytes = delta_workspace_bytes, \
        .run = delta_run                                                               \
    }
const struct op_impl cuda_gated_delta_forward = DELTA_OP, cuda_gated_delta_cached = DELTA_OP,
                     cuda_gated_delta_backward = DELTA_OP;

/* ---- sums over a tensor ---- */

LAUNCHED(loss_sum, cuda_operands_supported, loss_sum, args_of, LOSS_SUM_LOSSES)
LAUNCHED(clip_factor, cuda_operands_supported, clip_factor, args_of, CLIP_FACTOR_PARTIALS)

/* ---- one launch for several tensors: the norm and AdamW of an update ---- */

#define SQUARE_PARTS_MAX (OP_SQUARES_WORDS / CUDA_TENSORS_MAX)
#define SQUARE_PART_ELEMENTS 16384

static enum gt_status adamw_start(struct backend *backend, const struct op_call *calls,
                                  int32_t count)
{
    const bool lean = calls->kind == OP_ADAMW_LEAN;
    struct cuda_args args[CUDA_TENSORS_MAX] = {{.parts = 0}};
    for (int32_t i = 0; i < count; i++) {
        args[i] = walk_args_of(backend, &calls[i],
                               lean ? (int32_t)ADAMW_LEAN_PARAM : (int32_t)ADAMW_PARAM);
        args[i].rows =
            op_rows(&calls[i], lean ? (int32_t)ADAMW_LEAN_CORRECTIONS : (int32_t)ADAMW_CORRECTIONS);
    }
    cuda_launch_tensors *launch = lean ? cuda_launch_adamw_lean : cuda_launch_adamw;
    return cuda_check(backend, launch(cuda_stream(backend), args, count),
                      op_declaration(calls->kind)->name);
}

/* Returns the bytes of a word for each part of each tensor that one launch may take. */
static size_t square_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    (void)call;
    return OP_SQUARES_WORDS * sizeof(float);
}

/* The parts of a tensor depend on its size alone.  The parts of all tensors are in the first call's
 * workspace. */
static enum gt_status square_start(struct backend *backend, const struct op_call *calls,
                                   int32_t count)
{
    const cudaStream_t stream = cuda_stream(backend);
    struct cuda_args args[CUDA_TENSORS_MAX] = {{.parts = 0}};
    float *workspace = cuda_workspace(backend, calls, square_workspace_bytes(backend, calls));
    for (int32_t i = 0; i < count; i++) {
        args[i] = args_of(backend, &calls[i], SUM_OF_SQUARES_X);
        args[i].parts =
            min_i64(size_ceil_div(args[i].walk.elements, SQUARE_PART_ELEMENTS), SQUARE_PARTS_MAX);
        args[i].walk.blocks = (int32_t)args[i].parts;
        args[i].workspace = workspace + i * SQUARE_PARTS_MAX;
        args[i].walk.aligned =
            (uintptr_t)args[i].operand[SUM_OF_SQUARES_X].memory % 16 == 0; /* one word needs none */
    }
    TRY(cuda_check(backend, cuda_launch_sum_of_squares(stream, args, count), "sum_of_squares"));
    for (int32_t i = 0; i < count; i++)
        args[i].walk.blocks = 1;
    return cuda_check(backend, cuda_launch_partials_sum(stream, args, count), "sum_of_squares");
}

size_t cuda_calls_alike(const struct backend *backend, const struct op_call *calls, size_t count)
{
    const enum op_kind kind = calls->kind;
    size_t alike = 1;
    if (kind == OP_EXCHANGE)
        return cuda_exchanges_alike(backend, calls, count);
    if (kind == OP_GEMM)
        return cuda_gemm_is_pair(backend, calls, count) ? 2 : 1;
    if (kind != OP_ADAMW && kind != OP_ADAMW_LEAN && kind != OP_SUM_OF_SQUARES)
        return 1;
    while (alike < count && alike < CUDA_TENSORS_MAX && calls[alike].kind == kind)
        alike++;
    return alike;
}

enum gt_status cuda_alike_start(struct backend *backend, const struct op_call *calls, size_t count)
{
    if (calls->kind == OP_EXCHANGE)
        return cuda_exchanges_start(backend, calls, count);
    if (calls->kind == OP_GEMM)
        return cuda_gemm_pair_start(backend, calls);
    return calls->kind == OP_SUM_OF_SQUARES ? square_start(backend, calls, (int32_t)count)
                                            : adamw_start(backend, calls, (int32_t)count);
}

static enum gt_status alike_run(struct backend *backend, const struct op_call *call)
{
    return cuda_alike_start(backend, call, 1);
}

const struct op_impl cuda_adamw = {.run = alike_run};
const struct op_impl cuda_adamw_lean = {.run = alike_run};
const struct op_impl cuda_sum_of_squares = {.supports = cuda_operands_supported,
                                            .workspace_bytes = square_workspace_bytes,
                                            .run = alike_run};
