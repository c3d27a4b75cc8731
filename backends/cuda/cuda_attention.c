/* attention_forward, attention_backward and attention_cached: shapes, choice of kernels, launches.
 *
 * Calls whose operands are all bf16, or all fp16, use the tensor-core kernels; all others use the
 * fp32 kernels, which take any mixture.  So do heads above 128 columns on a card before sm_80,
 * whose shared memory is too small for their tiles.  A few rows against a cache have their own
 * kernels.  Head sizes go up to 256.  The choice depends on the call and on the card's capability,
 * never on values.
 */
#include "backends/cuda/cuda_attention.h"

#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_tuning.h"

static int32_t qkv_of(const struct op_call *call)
{
    return call->kind == OP_ATTENTION_FORWARD    ? (int32_t)ATTENTION_FORWARD_QKV
           : call->kind == OP_ATTENTION_BACKWARD ? (int32_t)ATTENTION_BACKWARD_QKV
                                                 : (int32_t)ATTENTION_CACHED_QKV;
}

static int64_t head_size_of(const struct op_call *call)
{
    return op_columns(call, qkv_of(call)) / (call->attrs.heads + 2 * call->attrs.kv_heads);
}

/* Returns the elements that one access may move, given the head size and the start of the operands;
 * operands of the arena begin at multiples of 256 bytes. */
static int32_t unit_of(const struct backend *backend, const struct op_call *call, int64_t size)
{
    if (!cuda_operands_aligned(backend, call))
        return 1;
    return size % CUDA_GROUP == 0 ? CUDA_GROUP : size % 2 == 0 ? 2 : 1;
}

/* Returns the view of `of` whose head 0 begins at element `first` of a row: `width` elements a row,
 * `time` rows a sample. */
static struct cuda_attention_rows rows_of(struct cuda_floats of, int64_t first, int64_t width,
                                          int64_t time)
{
    return (struct cuda_attention_rows){
        .of = of, .first = first, .row = width, .sample = width * time};
}

/* Returns true when a call of fp16 has fp16 sums.  A cache's rows are never trained on. */
static bool has_half_sums(const struct backend *backend, const struct op_call *call)
{
    return cuda_from(backend)->half_sums && call->kind != OP_ATTENTION_CACHED &&
           call->operand[qkv_of(call)].dtype == DTYPE_F16 &&
           head_size_of(call) <= CUDA_ATTENTION_HEAD_SIZE_SMALL;
}

/* The part that all calls have in common: shapes, q, k, v of qkv, and dropout. */
static struct cuda_attention attention_of(const struct backend *backend, const struct op_call *call,
                                          int32_t scalars)
{
    const int32_t qkv = qkv_of(call);
    const struct op_attrs *attrs = &call->attrs;
    const struct cuda_floats of = cuda_floats_of(backend, call, qkv);
    const int64_t size = head_size_of(call), width = op_columns(call, qkv), heads = attrs->heads;
    return (struct cuda_attention){
        .q = rows_of(of, 0, width, attrs->time),
        .k = rows_of(of, heads * size, width, attrs->time),
        .v = rows_of(of, (heads + attrs->kv_heads) * size, width, attrs->time),
        .scalars = cuda_operand(backend, call, scalars),
        .tensor_k16 = cuda_from(backend)->capability >= CUDA_CAPABILITY_BF16,
        .half_sums = has_half_sums(backend, call),
        .samples = (int32_t)(op_rows(call, qkv) / attrs->time),
        .time = attrs->time,
        .heads = attrs->heads,
        .kv_heads = attrs->kv_heads,
        .head_size = (int32_t)size,
        .window = attrs->window,
        .ring = INT32_MAX,
        .unit = unit_of(backend, call, size),
        .warps = CUDA_ATTENTION_WARPS,
        .stages = 1,
        .scale = attrs->softmax_scale,
        .site = attrs->site,
        .threshold = dropout_threshold(attrs->dropout),
        .kept_scale = dropout_scale(attrs->dropout),
    };
}

/* y or dy: the rows of all heads. */
static struct cuda_attention_rows result_rows(const struct backend *backend,
                                              const struct op_call *call, int32_t slot)
{
    return rows_of(cuda_floats_of(backend, call, slot), 0, op_columns(call, slot),
                   call->attrs.time);
}

/* Returns true when the operands have one 16-bit dtype.  Slots in `others` (scalars, lse and first)
 * are ignored. */
static bool is_half(const struct op_call *call, uint32_t others)
{
    uint32_t dtypes = 0;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        if (call->operand[slot].present && (others >> slot & 1u) == 0)
            dtypes |= 1u << call->operand[slot].dtype;
    return dtypes == 1u << DTYPE_BF16 || dtypes == 1u << DTYPE_F16;
}

/* Returns true when tensor cores compute the call.  `bytes`: the shared memory that they need. */
static bool is_tiled(const struct backend *backend, const struct op_call *call, uint32_t others,
                     size_t bytes)
{
    const struct cuda_backend *cuda = cuda_from(backend);
    const bool fits = cuda->capability >= CUDA_CAPABILITY_BF16 && bytes <= cuda->shared_bytes_max;
    return is_half(call, others) && (fits || head_size_of(call) <= CUDA_ATTENTION_HEAD_SIZE_SMALL);
}

static bool forward_is_tiled(const struct backend *backend, const struct op_call *call,
                             uint32_t others)
{
    return is_tiled(backend, call, others,
                    cuda_attention_forward_shared_bytes((int32_t)head_size_of(call)));
}

static bool is_supported(const struct backend *backend, const struct op_call *call)
{
    return cuda_operands_supported(backend, call) &&
           head_size_of(call) <= CUDA_ATTENTION_HEAD_SIZE_MAX;
}

/* ---- attention_forward ---- */

#define FORWARD_OTHERS \
    (1u << ATTENTION_FORWARD_SCALARS | 1u << ATTENTION_FORWARD_LSE | 1u << ATTENTION_FORWARD_FIRST)

int32_t cuda_attention_forward_shapes(const struct backend *backend, const struct op_call *call)
{
    const struct cuda_backend *cuda = cuda_from(backend);
    const size_t eight = cuda_attention_forward_eight_bytes((int32_t)head_size_of(call));
    const bool has_eight =
        eight > 0 && eight <= cuda->shared_bytes_max && cuda->capability >= CUDA_CAPABILITY_BF16;
    return has_eight && is_half(call, FORWARD_OTHERS) && !has_half_sums(backend, call)
               ? CUDA_FORWARD_SHAPES
               : 1;
}

static enum gt_status forward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_attention attention = attention_of(backend, call, ATTENTION_FORWARD_SCALARS);
    attention.y = result_rows(backend, call, ATTENTION_FORWARD_Y);
    attention.lse = cuda_operand(backend, call, ATTENTION_FORWARD_LSE);
    attention.begin = cuda_operand(backend, call, ATTENTION_FORWARD_FIRST);
    if (cuda_shape_of(backend, call) == CUDA_FORWARD_EIGHT_WARPS)
        attention.warps = 2 * CUDA_ATTENTION_WARPS;
    const cudaStream_t stream = cuda_stream(backend);
    const cudaError_t error = forward_is_tiled(backend, call, FORWARD_OTHERS)
                                  ? cuda_launch_attention_forward_tiles(stream, &attention)
                                  : cuda_launch_attention_forward_plain(stream, &attention);
    return cuda_check(backend, error, "attention_forward");
}

const struct op_impl cuda_attention_forward = {.supports = is_supported, .run = forward_run};

/* ---- attention_backward ---- */

#define BACKWARD_OTHERS                                                \
    (1u << ATTENTION_BACKWARD_SCALARS | 1u << ATTENTION_BACKWARD_LSE | \
     1u << ATTENTION_BACKWARD_FIRST)

/* Returns true when tensor cores compute the call and so much shared memory is there: from sm_80
 * on. */
static bool backward_fits(const struct backend *backend, const struct op_call *call, int32_t stages,
                          bool at_once)
{
    const struct cuda_backend *cuda = cuda_from(backend);
    return cuda->capability >= CUDA_CAPABILITY_BF16 && is_half(call, BACKWARD_OTHERS) &&
           cuda_attention_backward_shared_bytes((int32_t)head_size_of(call), stages, at_once) <=
               cuda->shared_bytes_max;
}

static bool backward_is_tiled(const struct backend *backend, const struct op_call *call)
{
    const int32_t size = (int32_t)head_size_of(call);
    return is_tiled(backend, call, BACKWARD_OTHERS,
                    cuda_attention_backward_shared_bytes(size, 1, false));
}

/* Returns the blocks that compute all gradients at once, one on each multiprocessor.  Returns 0
 * where more than a fifth of the multiprocessors' time would be idle, for want of heads: two passes
 * compute 7 products instead of 5. */
static int32_t backward_blocks(const struct backend *backend, const struct op_call *call)
{
    const int64_t heads =
        op_rows(call, ATTENTION_BACKWARD_QKV) / call->attrs.time * call->attrs.kv_heads;
    const int64_t most = max_i64(cuda_from(backend)->multiprocessors, 1);
    const bool busy = 5 * heads >= 4 * most * size_ceil_div(heads, most);
    return busy && backward_fits(backend, call, 1, true) ? (int32_t)min_i64(heads, most) : 0;
}

/* One stage leaves room for more blocks on a multiprocessor. */
int32_t cuda_attention_backward_shapes(const struct backend *backend, const struct op_call *call)
{
    const int32_t two_passes = backward_fits(backend, call, 2, false) ? 2 : 1;
    return two_passes + (backward_blocks(backend, call) > 0);
}

/* Returns the floats of query_sums. */
static int64_t query_sums_floats(const struct backend *backend, const struct op_call *call)
{
    const int64_t step = CUDA_ATTENTION_STEP, group = call->attrs.heads / call->attrs.kv_heads;
    return backward_blocks(backend, call) * group * size_ceil_div(call->attrs.time, step) * step *
           size_ceil_div(head_size_of(call), step) * step;
}

/* query_sums, then delta: one number for each element of lse. */
static size_t backward_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    return (size_t)(query_sums_floats(backend, call) + op_elements(call, ATTENTION_BACKWARD_LSE)) *
           sizeof(float);
}

static enum gt_status backward_run(struct backend *backend, const struct op_call *call)
{
    struct cuda_attention attention = attention_of(backend, call, ATTENTION_BACKWARD_SCALARS);
    const struct cuda_floats dqkv = cuda_floats_of(backend, call, ATTENTION_BACKWARD_DQKV);
    attention.y = result_rows(backend, call, ATTENTION_BACKWARD_Y);
    attention.dy = result_rows(backend, call, ATTENTION_BACKWARD_DY);
    attention.dq = attention.q;
    attention.dk = attention.k;
    attention.dv = attention.v;
    attention.dq.of = attention.dk.of = attention.dv.of = dqkv; /* has the layout of qkv */
    attention.lse = cuda_operand(backend, call, ATTENTION_BACKWARD_LSE);
    attention.begin = cuda_operand(backend, call, ATTENTION_BACKWARD_FIRST);
    attention.query_sums = cuda_workspace(backend, call, backward_workspace_bytes(backend, call));
    attention.delta = attention.query_sums + query_sums_floats(backend, call);
    const int32_t shapes = cuda_attention_backward_shapes(backend, call);
    const int32_t shape = cuda_shape_of(backend, call) + CUDA_BACKWARD_SHAPES - shapes;
    if (shape == CUDA_BACKWARD_AT_ONCE)
        attention.blocks = backward_blocks(backend, call);
    if (shape != CUDA_BACKWARD_STAGES_ONE && backward_fits(backend, call, 2, attention.blocks > 0))
        attention.stages = 2;
    const cudaStream_t stream = cuda_stream(backend);
    cudaError_t error = cuda_launch_attention_delta(stream, &attention);
    if (error == cudaSuccess)
        error = backward_is_tiled(backend, call)
                    ? cuda_launch_attention_backward_tiles(stream, &attention)
                    : cuda_launch_attention_backward_plain(stream, &attention);
    return cuda_check(backend, error, "attention_backward");
}

const struct op_impl cuda_attention_backward = {
    .supports = is_supported, .workspace_bytes = backward_workspace_bytes, .run = backward_run};

/* ---- attention_cached ---- */

static int64_t cache_capacity(const struct op_call *call)
{
    return call->operand[ATTENTION_CACHED_CACHE].dims[2];
}

static bool cached_rows_are_few(const struct op_call *call)
{
    return call->attrs.time < CUDA_ATTENTION_FEW_ROWS;
}

/* Returns the keys of a part, such that there are at most CUDA_ATTENTION_SPLITS_MAX parts, and one
 * more with a window. */
static int64_t cached_split_keys(const struct op_call *call)
{
    const int64_t keys = size_ceil_div(op_cache_keys(call), CUDA_ATTENTION_SPLITS_MAX);
    return max_i64(CUDA_ATTENTION_SPLIT_KEYS, size_ceil_div(keys, 32) * 32);
}

static size_t cached_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    const int64_t splits = op_cache_parts(call, cached_split_keys(call));
    if (!cached_rows_are_few(call) || splits == 1)
        return 0;
    const int64_t size = head_size_of(call), rows = op_rows(call, ATTENTION_CACHED_QKV);
    return (size_t)(rows * call->attrs.heads * splits * (size + 2)) * sizeof(float);
}

static enum gt_status cached_run(struct backend *backend, const struct op_call *call)
{
    const int64_t capacity = cache_capacity(call), split_keys = cached_split_keys(call);
    const int64_t width = op_columns(call, ATTENTION_CACHED_CACHE);
    const struct cuda_floats cache = cuda_floats_of(backend, call, ATTENTION_CACHED_CACHE);
    struct cuda_attention_cache cached = {
        .attention = attention_of(backend, call, ATTENTION_CACHED_SCALARS),
        .splits = (int32_t)op_cache_parts(call, split_keys),
        .split_keys = (int32_t)split_keys,
        .partial = cuda_workspace(backend, call, cached_workspace_bytes(backend, call)),
    };
    struct cuda_attention *attention = &cached.attention;
    cached.new_k = attention->k;
    cached.new_v = attention->v;
    attention->k = rows_of(cache, 0, width, capacity);
    attention->v = rows_of(cache, attention->samples * capacity * width, width, capacity);
    attention->y = result_rows(backend, call, ATTENTION_CACHED_Y);
    attention->positioned = true;
    attention->ring = (int32_t)capacity;
    const cudaStream_t stream = cuda_stream(backend);
    cudaError_t error = cuda_launch_attention_append(stream, &cached);
    if (error == cudaSuccess && cached_rows_are_few(call))
        error = cuda_launch_attention_few_rows(stream, &cached);
    else if (error == cudaSuccess)
        error = forward_is_tiled(backend, call, 1u << ATTENTION_CACHED_SCALARS)
                    ? cuda_launch_attention_forward_tiles(stream, attention)
                    : cuda_launch_attention_forward_plain(stream, attention);
    return cuda_check(backend, error, "attention_cached");
}

const struct op_impl cuda_attention_cached = {
    .supports = is_supported, .workspace_bytes = cached_workspace_bytes, .run = cached_run};
