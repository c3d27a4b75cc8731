/* The shape and dtype rule of every op.
 *
 * One function per op checks the inputs against each other and fills its outputs.  An output that is already present is
 * bound to an existing tensor: it keeps its dtype and must have the inferred shape.  Statistics, losses and partial sums
 * are fp32; other outputs take the dtype of the main input.  A mismatch is logged once, naming op and operand.  Whether
 * a backend can run the combination is the backend's business, not decided here.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/size.h"
#include "model/op.h"

#define ANY (-1)
#define DTYPES_FLOAT (1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16)
#define DTYPES_F32 (1u << DTYPE_F32)
#define DTYPES_I32 (1u << DTYPE_I32)
#define DTYPES_WORD (1u << DTYPE_F32 | 1u << DTYPE_I32)
#define DTYPES_BF16 (1u << DTYPE_BF16)
#define DTYPES_U8 (1u << DTYPE_U8)
#define DTYPES_LEAN (1u << DTYPE_F32 | 1u << DTYPE_BF16)
#define DTYPES_MOMENT (DTYPES_LEAN | DTYPES_U8)
#define SHAPE_TEXT_MAX 128

struct shape {
    int32_t rank;
    int64_t dims[OP_RANK_MAX]; /* ANY matches every size */
};

#define SHAPE1(a) ((struct shape){1, {(a)}})
#define SHAPE2(a, b) ((struct shape){2, {(a), (b)}})
#define SHAPE3(a, b, c) ((struct shape){3, {(a), (b), (c)}})
#define SHAPE4(a, b, c, d) ((struct shape){4, {(a), (b), (c), (d)}})

static const char *op_name(const struct op_call *call)
{
    return op_declaration(call->kind)->name;
}

static const char *slot_name(const struct op_call *call, int32_t slot)
{
    return op_declaration(call->kind)->operand[slot].name;
}

/* "[768,*]" */
static const char *shape_text(char text[static SHAPE_TEXT_MAX], int32_t rank, const int64_t *dims)
{
    size_t used = 0;
    text[used++] = '[';
    for (int32_t i = 0; i < rank && i < OP_RANK_MAX; i++) {
        const char *comma = i == 0 ? "" : ",";
        int n = dims[i] == ANY ? snprintf(text + used, SHAPE_TEXT_MAX - used, "%s*", comma)
                               : snprintf(text + used, SHAPE_TEXT_MAX - used, "%s%" PRId64, comma, dims[i]);
        assert(n > 0 && used + (size_t)n < SHAPE_TEXT_MAX - 2);
        used += (size_t)n;
    }
    text[used++] = ']';
    text[used] = '\0';
    return text;
}

static struct shape operand_shape(const struct operand *operand)
{
    struct shape shape = {.rank = operand->rank};
    for (int32_t i = 0; i < operand->rank; i++)
        shape.dims[i] = operand->dims[i];
    return shape;
}

static bool shape_matches(const struct operand *operand, const struct shape *expected)
{
    if (operand->rank != expected->rank)
        return false;
    for (int32_t i = 0; i < expected->rank; i++) {
        if (expected->dims[i] != ANY && operand->dims[i] != expected->dims[i])
            return false;
    }
    return true;
}

/* Rank within bounds, every dimension positive, and a byte count that fits. */
static bool operand_sane(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    if ((unsigned)operand->dtype >= DTYPE_COUNT || operand->rank < 1 || operand->rank > OP_RANK_MAX) {
        log_error("%s: operand %s has dtype %d and rank %" PRId32 ", expected a dtype and a rank of 1 to %d",
                  op_name(call), slot_name(call, slot), (int)operand->dtype, operand->rank, OP_RANK_MAX);
        return false;
    }
    size_t bytes = dtype_size_bytes(operand->dtype);
    for (int32_t i = 0; i < operand->rank; i++) {
        bool fits = operand->dims[i] >= 1 && size_mul(bytes, (size_t)operand->dims[i], &bytes);
        if (!fits || bytes > INT64_MAX) {
            char text[SHAPE_TEXT_MAX];
            log_error("%s: operand %s is %s, expected positive sizes whose product fits", op_name(call),
                      slot_name(call, slot), shape_text(text, operand->rank, operand->dims));
            return false;
        }
    }
    return true;
}

static const char *dtypes_text(unsigned dtypes)
{
    switch (dtypes) {
    case DTYPES_FLOAT:
        return "float32, bfloat16 or float16";
    case DTYPES_F32:
        return "float32";
    case DTYPES_WORD:
        return "32-bit words (int32 or float32)";
    case DTYPES_BF16:
        return "bfloat16";
    case DTYPES_U8:
        return "uint8";
    case DTYPES_LEAN:
        return "float32 or bfloat16";
    case DTYPES_MOMENT:
        return "float32, bfloat16 or uint8";
    default:
        return "int32";
    }
}

/* An operand that is there has the dtype and shape of the rule; only an optional one may be absent. */
static bool check(const struct op_call *call, int32_t slot, unsigned dtypes, struct shape expected)
{
    const struct operand *operand = &call->operand[slot];
    if (!operand->present) {
        if (op_declaration(call->kind)->operand[slot].optional)
            return true;
        log_error("%s: operand %s is absent", op_name(call), slot_name(call, slot));
        return false;
    }
    if (!operand_sane(call, slot))
        return false;
    if ((dtypes >> operand->dtype & 1u) == 0) {
        log_error("%s: operand %s is %s, expected %s", op_name(call), slot_name(call, slot), dtype_name(operand->dtype),
                  dtypes_text(dtypes));
        return false;
    }
    if (!shape_matches(operand, &expected)) {
        char found[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
        log_error("%s: operand %s is %s, expected %s", op_name(call), slot_name(call, slot),
                  shape_text(found, operand->rank, operand->dims), shape_text(wanted, expected.rank, expected.dims));
        return false;
    }
    return true;
}

/* Output `slot`: checked where it is bound already, else made with `dtype`.  Optional ones stay absent. */
static bool fill(struct op_call *call, int32_t slot, enum dtype dtype, unsigned dtypes, struct shape shape)
{
    struct operand *operand = &call->operand[slot];
    bool accumulates = (call->attrs.accumulate >> slot & 1u) != 0;
    if (operand->present)
        return check(call, slot, dtypes, shape);
    if (accumulates) {
        log_error("%s: operand %s is absent, expected a tensor to accumulate into", op_name(call),
                  slot_name(call, slot));
        return false;
    }
    if (op_declaration(call->kind)->operand[slot].optional)
        return true;
    operand->present = true;
    operand->dtype = dtype;
    operand->rank = shape.rank;
    for (int32_t i = 0; i < shape.rank; i++)
        operand->dims[i] = shape.dims[i];
    return operand_sane(call, slot);
}

/* Any number of dimensions, as long as it is a tensor of floats. */
static bool check_float(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    struct shape own = {.rank = 1, .dims = {ANY}};
    if (operand->present && operand->rank >= 1 && operand->rank <= OP_RANK_MAX)
        own = operand_shape(operand);
    return check(call, slot, DTYPES_FLOAT, own);
}

static bool check_same_dtype(const struct op_call *call, int32_t first, int32_t second)
{
    const struct operand *a = &call->operand[first], *b = &call->operand[second];
    if (a->dtype == b->dtype)
        return true;
    log_error("%s: operand %s is %s, expected %s as operand %s", op_name(call), slot_name(call, second),
              dtype_name(b->dtype), dtype_name(a->dtype), slot_name(call, first));
    return false;
}

static bool check_scalars(const struct op_call *call, int32_t slot)
{
    return check(call, slot, DTYPES_WORD, SHAPE1(SCALAR_WORDS));
}

/* attrs.time rows per sample, a whole number of samples in `rows`. */
static bool check_time(const struct op_call *call, int64_t rows)
{
    if (call->attrs.time >= 1 && rows % call->attrs.time == 0)
        return true;
    log_error("%s: time is %" PRId32 ", expected a divisor of the %" PRId64 " rows", op_name(call), call->attrs.time,
              rows);
    return false;
}

static bool check_probability(const struct op_call *call)
{
    float p = call->attrs.dropout;
    if (p >= 0.0f && p < 1.0f && dropout_threshold(p) < 65536u)
        return true;
    log_error("%s: dropout is %g, expected 0 <= p < 1", op_name(call), (double)p);
    return false;
}

static int64_t rows_of(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].dims[0];
}

static int64_t columns_of(const struct op_call *call, int32_t slot)
{
    return call->operand[slot].dims[1];
}

static bool op_embed_forward_infer(struct op_call *call)
{
    if (!check(call, EMBED_FORWARD_IDS, DTYPES_I32, SHAPE1(ANY)) ||
        !check(call, EMBED_FORWARD_WTE, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = rows_of(call, EMBED_FORWARD_IDS), channels = columns_of(call, EMBED_FORWARD_WTE);
    if (!check(call, EMBED_FORWARD_WPE, DTYPES_FLOAT, SHAPE2(ANY, channels)) || !check_time(call, rows) ||
        !check_scalars(call, EMBED_FORWARD_SCALARS))
        return false;
    if (rows_of(call, EMBED_FORWARD_WPE) < call->attrs.time) {
        log_error("%s: operand wpe has %" PRId64 " positions, expected at least time = %" PRId32, op_name(call),
                  rows_of(call, EMBED_FORWARD_WPE), call->attrs.time);
        return false;
    }
    enum dtype dtype = call->operand[EMBED_FORWARD_WTE].dtype;
    return fill(call, EMBED_FORWARD_Y, dtype, DTYPES_FLOAT, SHAPE2(rows, channels));
}

/* `starts` holds the number of groups, and one more boundary than groups; there are at most min(N, V) groups. */
static bool embed_backward_starts_check(const struct op_call *call)
{
    int64_t rows = rows_of(call, EMBED_BACKWARD_DY), ids = rows_of(call, EMBED_BACKWARD_DWTE);
    int64_t needed = (rows < ids ? rows : ids) + 2;
    if (!check(call, EMBED_BACKWARD_STARTS, DTYPES_I32, SHAPE1(ANY)))
        return false;
    if (rows_of(call, EMBED_BACKWARD_STARTS) >= needed)
        return true;
    log_error("%s: operand starts is [%" PRId64 "], expected at least [%" PRId64 "]", op_name(call),
              rows_of(call, EMBED_BACKWARD_STARTS), needed);
    return false;
}

static bool op_embed_backward_infer(struct op_call *call)
{
    if (!check(call, EMBED_BACKWARD_DY, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = rows_of(call, EMBED_BACKWARD_DY), channels = columns_of(call, EMBED_BACKWARD_DY);
    if (!check(call, EMBED_BACKWARD_IDS, DTYPES_I32, SHAPE1(rows)) ||
        !check(call, EMBED_BACKWARD_ORDER, DTYPES_I32, SHAPE1(rows)) ||
        !check(call, EMBED_BACKWARD_DWTE, DTYPES_FLOAT, SHAPE2(ANY, channels)) || !embed_backward_starts_check(call) ||
        !check_time(call, rows))
        return false;
    const struct operand *dwpe = &call->operand[EMBED_BACKWARD_DWPE];
    int64_t positions = dwpe->present && dwpe->rank == 2 ? dwpe->dims[0] : call->attrs.time;
    if (positions < call->attrs.time) {
        log_error("%s: operand dwpe has %" PRId64 " positions, expected at least time = %" PRId32, op_name(call),
                  positions, call->attrs.time);
        return false;
    }
    enum dtype dtype = call->operand[EMBED_BACKWARD_DWTE].dtype;
    return fill(call, EMBED_BACKWARD_DWPE, dtype, DTYPES_FLOAT, SHAPE2(positions, channels));
}

static bool op_layernorm_forward_infer(struct op_call *call)
{
    if (!check(call, LAYERNORM_FORWARD_X, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = rows_of(call, LAYERNORM_FORWARD_X), channels = columns_of(call, LAYERNORM_FORWARD_X);
    if (!check(call, LAYERNORM_FORWARD_GAIN, DTYPES_FLOAT, SHAPE1(channels)) ||
        !check(call, LAYERNORM_FORWARD_BIAS, DTYPES_FLOAT, SHAPE1(channels)))
        return false;
    enum dtype dtype = call->operand[LAYERNORM_FORWARD_X].dtype;
    return fill(call, LAYERNORM_FORWARD_Y, dtype, DTYPES_FLOAT, SHAPE2(rows, channels)) &&
           fill(call, LAYERNORM_FORWARD_MEAN, DTYPE_F32, DTYPES_F32, SHAPE1(rows)) &&
           fill(call, LAYERNORM_FORWARD_RSTD, DTYPE_F32, DTYPES_F32, SHAPE1(rows));
}

static bool op_layernorm_backward_infer(struct op_call *call)
{
    if (!check(call, LAYERNORM_BACKWARD_DY, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = rows_of(call, LAYERNORM_BACKWARD_DY), channels = columns_of(call, LAYERNORM_BACKWARD_DY);
    if (!check(call, LAYERNORM_BACKWARD_X, DTYPES_FLOAT, SHAPE2(rows, channels)) ||
        !check(call, LAYERNORM_BACKWARD_GAIN, DTYPES_FLOAT, SHAPE1(channels)) ||
        !check(call, LAYERNORM_BACKWARD_MEAN, DTYPES_F32, SHAPE1(rows)) ||
        !check(call, LAYERNORM_BACKWARD_RSTD, DTYPES_F32, SHAPE1(rows)))
        return false;
    enum dtype dtype = call->operand[LAYERNORM_BACKWARD_DY].dtype;
    enum dtype gain_dtype = call->operand[LAYERNORM_BACKWARD_GAIN].dtype;
    return fill(call, LAYERNORM_BACKWARD_DX, dtype, DTYPES_FLOAT, SHAPE2(rows, channels)) &&
           fill(call, LAYERNORM_BACKWARD_DGAIN, gain_dtype, DTYPES_FLOAT, SHAPE1(channels)) &&
           fill(call, LAYERNORM_BACKWARD_DBIAS, gain_dtype, DTYPES_FLOAT, SHAPE1(channels));
}

static bool op_gemm_infer(struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    if (!check(call, GEMM_A, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t m = attrs->transpose_a ? columns_of(call, GEMM_A) : rows_of(call, GEMM_A);
    int64_t k = attrs->transpose_a ? rows_of(call, GEMM_A) : columns_of(call, GEMM_A);
    struct shape b = attrs->transpose_b ? SHAPE2(ANY, k) : SHAPE2(k, ANY);
    if (!check(call, GEMM_B, DTYPES_FLOAT, b) || !check_same_dtype(call, GEMM_A, GEMM_B))
        return false;
    int64_t n = attrs->transpose_b ? rows_of(call, GEMM_B) : columns_of(call, GEMM_B);
    if (!check(call, GEMM_BIAS, DTYPES_FLOAT, SHAPE1(n)))
        return false;
    if (call->operand[GEMM_BIAS].present && attrs->accumulate != 0) {
        log_error("%s: operand bias is present, expected none together with accumulation", op_name(call));
        return false;
    }
    return fill(call, GEMM_D, call->operand[GEMM_A].dtype, DTYPES_FLOAT, SHAPE2(m, n));
}

static bool op_bias_backward_infer(struct op_call *call)
{
    if (!check(call, BIAS_BACKWARD_DY, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    enum dtype dtype = call->operand[BIAS_BACKWARD_DY].dtype;
    return fill(call, BIAS_BACKWARD_DBIAS, dtype, DTYPES_FLOAT, SHAPE1(columns_of(call, BIAS_BACKWARD_DY)));
}

static bool gelu_kind_check(const struct op_call *call)
{
    if (call->attrs.gelu == GELU_ERF || call->attrs.gelu == GELU_TANH)
        return true;
    log_error("%s: gelu is %d, expected erf or tanh", op_name(call), (int)call->attrs.gelu);
    return false;
}

/* `out` has the shape and, when made here, the dtype of `in`. */
static bool infer_like(struct op_call *call, int32_t in, int32_t out)
{
    if (!check_float(call, in))
        return false;
    const struct operand *operand = &call->operand[in];
    return fill(call, out, operand->dtype, DTYPES_FLOAT, operand_shape(operand));
}

static bool op_gelu_forward_infer(struct op_call *call)
{
    return gelu_kind_check(call) && infer_like(call, GELU_FORWARD_X, GELU_FORWARD_Y);
}

static bool op_gelu_backward_infer(struct op_call *call)
{
    return gelu_kind_check(call) && check_float(call, GELU_BACKWARD_DY) &&
           check(call, GELU_BACKWARD_X, DTYPES_FLOAT, operand_shape(&call->operand[GELU_BACKWARD_DY])) &&
           infer_like(call, GELU_BACKWARD_DY, GELU_BACKWARD_DX);
}

/* Head counts that divide, and a row of (heads + 2 kv_heads) heads of equal size, which goes to *out_head_size. */
static bool attention_heads_check(const struct op_call *call, int32_t qkv, int64_t *out_head_size)
{
    int64_t heads = call->attrs.heads, kv_heads = call->attrs.kv_heads;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
        log_error("%s: heads is %" PRId64 " and kv_heads %" PRId64 ", expected a multiple and its divisor",
                  op_name(call), heads, kv_heads);
        return false;
    }
    if (!check(call, qkv, DTYPES_FLOAT, SHAPE2(ANY, ANY)) || !check_time(call, rows_of(call, qkv)))
        return false;
    int64_t parts = heads + 2 * kv_heads;
    if (columns_of(call, qkv) % parts != 0) {
        log_error("%s: operand qkv has %" PRId64 " columns, expected a multiple of heads + 2 kv_heads = %" PRId64,
                  op_name(call), columns_of(call, qkv), parts);
        return false;
    }
    *out_head_size = columns_of(call, qkv) / parts;
    return true;
}

static struct shape lse_shape(const struct op_call *call, int64_t rows)
{
    return SHAPE3(rows / call->attrs.time, call->attrs.heads, call->attrs.time);
}

static bool op_attention_forward_infer(struct op_call *call)
{
    int64_t head_size = 0;
    if (!attention_heads_check(call, ATTENTION_FORWARD_QKV, &head_size) || !check_probability(call) ||
        !check_scalars(call, ATTENTION_FORWARD_SCALARS))
        return false;
    int64_t rows = rows_of(call, ATTENTION_FORWARD_QKV);
    enum dtype dtype = call->operand[ATTENTION_FORWARD_QKV].dtype;
    return fill(call, ATTENTION_FORWARD_Y, dtype, DTYPES_FLOAT, SHAPE2(rows, call->attrs.heads * head_size)) &&
           fill(call, ATTENTION_FORWARD_LSE, DTYPE_F32, DTYPES_F32, lse_shape(call, rows));
}

static bool op_attention_backward_infer(struct op_call *call)
{
    int64_t head_size = 0;
    if (!attention_heads_check(call, ATTENTION_BACKWARD_QKV, &head_size) || !check_probability(call) ||
        !check_scalars(call, ATTENTION_BACKWARD_SCALARS))
        return false;
    int64_t rows = rows_of(call, ATTENTION_BACKWARD_QKV);
    struct shape y = SHAPE2(rows, call->attrs.heads * head_size);
    if (!check(call, ATTENTION_BACKWARD_DY, DTYPES_FLOAT, y) || !check(call, ATTENTION_BACKWARD_Y, DTYPES_FLOAT, y) ||
        !check(call, ATTENTION_BACKWARD_LSE, DTYPES_F32, lse_shape(call, rows)))
        return false;
    const struct operand *qkv = &call->operand[ATTENTION_BACKWARD_QKV];
    return fill(call, ATTENTION_BACKWARD_DQKV, qkv->dtype, DTYPES_FLOAT, operand_shape(qkv));
}

static bool op_attention_cached_infer(struct op_call *call)
{
    int64_t head_size = 0;
    if (!attention_heads_check(call, ATTENTION_CACHED_QKV, &head_size) ||
        !check_scalars(call, ATTENTION_CACHED_SCALARS))
        return false;
    int64_t rows = rows_of(call, ATTENTION_CACHED_QKV), time = call->attrs.time;
    struct shape cache = SHAPE4(2, rows / time, ANY, call->attrs.kv_heads * head_size);
    if (!check(call, ATTENTION_CACHED_CACHE, DTYPES_FLOAT, cache))
        return false;
    if (call->operand[ATTENTION_CACHED_CACHE].dims[2] < time) {
        log_error("%s: operand cache has a capacity of %" PRId64 ", expected at least time = %" PRId64, op_name(call),
                  call->operand[ATTENTION_CACHED_CACHE].dims[2], time);
        return false;
    }
    enum dtype dtype = call->operand[ATTENTION_CACHED_QKV].dtype;
    return fill(call, ATTENTION_CACHED_Y, dtype, DTYPES_FLOAT, SHAPE2(rows, call->attrs.heads * head_size));
}

static bool op_dropout_infer(struct op_call *call)
{
    return check(call, DROPOUT_X, DTYPES_FLOAT, SHAPE2(ANY, ANY)) && check_time(call, rows_of(call, DROPOUT_X)) &&
           check_probability(call) && check_scalars(call, DROPOUT_SCALARS) && infer_like(call, DROPOUT_X, DROPOUT_Y);
}

static bool op_residual_infer(struct op_call *call)
{
    return check_float(call, RESIDUAL_X) &&
           check(call, RESIDUAL_Y, DTYPES_FLOAT, operand_shape(&call->operand[RESIDUAL_X])) &&
           check_same_dtype(call, RESIDUAL_X, RESIDUAL_Y) && infer_like(call, RESIDUAL_X, RESIDUAL_R);
}

static bool op_cross_entropy_infer(struct op_call *call)
{
    if (!check(call, CROSS_ENTROPY_LOGITS, DTYPES_FLOAT, SHAPE2(ANY, ANY)))
        return false;
    int64_t rows = rows_of(call, CROSS_ENTROPY_LOGITS), width = columns_of(call, CROSS_ENTROPY_LOGITS);
    if (!check(call, CROSS_ENTROPY_TARGETS, DTYPES_I32, SHAPE1(rows)) || !check_scalars(call, CROSS_ENTROPY_SCALARS))
        return false;
    if (call->attrs.vocab < 1 || call->attrs.vocab > width) {
        log_error("%s: vocab is %" PRId32 ", expected 1 to the %" PRId64 " columns of logits", op_name(call),
                  call->attrs.vocab, width);
        return false;
    }
    return fill(call, CROSS_ENTROPY_LOSSES, DTYPE_F32, DTYPES_F32, SHAPE1(rows));
}

static bool op_loss_sum_infer(struct op_call *call)
{
    return check(call, LOSS_SUM_LOSSES, DTYPES_F32, SHAPE1(ANY)) && check_scalars(call, LOSS_SUM_SCALARS);
}

static bool op_sum_of_squares_infer(struct op_call *call)
{
    return check_float(call, SUM_OF_SQUARES_X) && fill(call, SUM_OF_SQUARES_PARTIAL, DTYPE_F32, DTYPES_F32, SHAPE1(1));
}

static bool op_clip_factor_infer(struct op_call *call)
{
    return check(call, CLIP_FACTOR_PARTIALS, DTYPES_F32, SHAPE1(ANY)) && check_scalars(call, CLIP_FACTOR_SCALARS);
}

static bool op_adamw_infer(struct op_call *call)
{
    if (!check_float(call, ADAMW_GRAD) || !check_scalars(call, ADAMW_SCALARS) ||
        !check(call, ADAMW_CORRECTIONS, DTYPES_F32, SHAPE2(ANY, 2)))
        return false;
    struct shape shape = operand_shape(&call->operand[ADAMW_GRAD]);
    return check(call, ADAMW_PARAM, DTYPES_FLOAT, shape) && check(call, ADAMW_MASTER, DTYPES_F32, shape) &&
           check(call, ADAMW_M, DTYPES_FLOAT, shape) && check(call, ADAMW_V, DTYPES_FLOAT, shape);
}

/* m and v alike, and exponents of their blocks beside 8-bit codes only. */
static bool adamw_lean_moments_check(const struct op_call *call, struct shape shape)
{
    const struct operand *scales = &call->operand[ADAMW_LEAN_SCALES];
    if (!check(call, ADAMW_LEAN_M, DTYPES_MOMENT, shape) || !check(call, ADAMW_LEAN_V, DTYPES_MOMENT, shape) ||
        !check_same_dtype(call, ADAMW_LEAN_M, ADAMW_LEAN_V))
        return false;
    bool codes = call->operand[ADAMW_LEAN_M].dtype == DTYPE_U8;
    if (codes != scales->present) {
        log_error("%s: operand scales is %s, expected %s with moments of %s", op_name(call),
                  scales->present ? "present" : "absent", codes ? "them" : "none",
                  dtype_name(call->operand[ADAMW_LEAN_M].dtype));
        return false;
    }
    return check(call, ADAMW_LEAN_SCALES, DTYPES_U8,
                 SHAPE2(2, state_blocks(operand_elements(&call->operand[ADAMW_LEAN_M]))));
}

static bool check_index_base(const struct op_call *call)
{
    if (call->attrs.index_base >= 0)
        return true;
    log_error("%s: index_base is %" PRId64 ", expected 0 or more", op_name(call), call->attrs.index_base);
    return false;
}

static bool op_adamw_lean_infer(struct op_call *call)
{
    if (!check_float(call, ADAMW_LEAN_GRAD) || !check_scalars(call, ADAMW_LEAN_SCALARS) ||
        !check(call, ADAMW_LEAN_CORRECTIONS, DTYPES_F32, SHAPE2(ANY, 2)) || !check_index_base(call))
        return false;
    struct shape shape = operand_shape(&call->operand[ADAMW_LEAN_GRAD]);
    return check(call, ADAMW_LEAN_GRAD, DTYPES_LEAN, shape) && check(call, ADAMW_LEAN_PARAM, DTYPES_BF16, shape) &&
           adamw_lean_moments_check(call, shape);
}

static bool op_gradient_round_infer(struct op_call *call)
{
    if (!check_float(call, GRADIENT_ROUND_X) || !check_scalars(call, GRADIENT_ROUND_SCALARS) || !check_index_base(call))
        return false;
    struct shape shape = operand_shape(&call->operand[GRADIENT_ROUND_X]);
    return check(call, GRADIENT_ROUND_X, DTYPES_F32, shape) &&
           fill(call, GRADIENT_ROUND_Y, DTYPE_BF16, DTYPES_BF16, shape);
}

static bool op_blend_infer(struct op_call *call)
{
    return check_float(call, BLEND_X) && check(call, BLEND_Z, DTYPES_FLOAT, operand_shape(&call->operand[BLEND_X])) &&
           check_same_dtype(call, BLEND_X, BLEND_Z) && infer_like(call, BLEND_X, BLEND_Y);
}

static bool op_muon_momentum_infer(struct op_call *call)
{
    if (!check_float(call, MUON_MOMENTUM_GRAD) || !check_scalars(call, MUON_MOMENTUM_SCALARS) ||
        !check_index_base(call))
        return false;
    struct shape shape = operand_shape(&call->operand[MUON_MOMENTUM_GRAD]);
    return check(call, MUON_MOMENTUM_GRAD, DTYPES_LEAN, shape) && check(call, MUON_MOMENTUM_M, DTYPES_LEAN, shape) &&
           fill(call, MUON_MOMENTUM_U, DTYPE_F32, DTYPES_F32, shape);
}

static bool op_muon_normalize_infer(struct op_call *call)
{
    if (!check_float(call, MUON_NORMALIZE_X))
        return false;
    struct shape shape = operand_shape(&call->operand[MUON_NORMALIZE_X]);
    return check(call, MUON_NORMALIZE_X, DTYPES_F32, shape) && check(call, MUON_NORMALIZE_SUM, DTYPES_F32, SHAPE1(1)) &&
           fill(call, MUON_NORMALIZE_Y, DTYPE_BF16, DTYPES_FLOAT, shape);
}

/* Without a master fp16 has no way to be rounded without bias. */
static bool op_muon_step_infer(struct op_call *call)
{
    if (!check_float(call, MUON_STEP_O) || !check_scalars(call, MUON_STEP_SCALARS) || !check_index_base(call))
        return false;
    struct shape shape = operand_shape(&call->operand[MUON_STEP_O]);
    bool mastered = call->operand[MUON_STEP_MASTER].present;
    return check(call, MUON_STEP_PARAM, mastered ? DTYPES_FLOAT : DTYPES_LEAN, shape) &&
           check(call, MUON_STEP_MASTER, DTYPES_F32, shape);
}

/* There is nothing to infer from: the output must be bound. */
static bool op_fill_infer(struct op_call *call)
{
    return check_float(call, FILL_Y);
}

static bool op_copy_infer(struct op_call *call)
{
    return infer_like(call, COPY_X, COPY_Y);
}

/* The outputs that an op can add to, as ops.def writes "(+)=".  A bit elsewhere would be ignored by every kernel. */
static uint32_t accumulate_allowed(enum op_kind kind)
{
    switch (kind) {
    case OP_EMBED_BACKWARD:
        return 1u << EMBED_BACKWARD_DWPE;
    case OP_LAYERNORM_BACKWARD:
        return 1u << LAYERNORM_BACKWARD_DX | 1u << LAYERNORM_BACKWARD_DGAIN | 1u << LAYERNORM_BACKWARD_DBIAS;
    case OP_GEMM:
        return 1u << GEMM_D;
    case OP_BIAS_BACKWARD:
        return 1u << BIAS_BACKWARD_DBIAS;
    case OP_COPY:
        return 1u << COPY_Y;
    case OP_GRADIENT_ROUND:
        return 1u << GRADIENT_ROUND_Y;
    default:
        return 0;
    }
}

bool op_infer(struct op_call *call)
{
    static bool (*const rules[])(struct op_call *) = {
#define OP_BEGIN(KIND, name, text) [OP_##KIND] = op_##name##_infer,
#define OPERAND(KIND, SLOT, name, direction, flags)
#define OP_END(KIND, name)
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END
    };
    _Static_assert(sizeof rules / sizeof rules[0] == OP_KIND_COUNT, "every op has a rule");
    assert((unsigned)call->kind < OP_KIND_COUNT);
    uint32_t refused = call->attrs.accumulate & ~accumulate_allowed(call->kind);
    if (refused != 0) {
        log_error("%s: accumulate is 0x%" PRIx32 ", expected only bits of 0x%" PRIx32, op_name(call),
                  call->attrs.accumulate, accumulate_allowed(call->kind));
        return false;
    }
    return rules[call->kind](call);
}
