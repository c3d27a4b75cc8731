/* The gated delta net: a short convolution, and linear attention with the gated delta rule.
 *
 * A row of x is q and k of KV key heads of size D, v of H value heads of size D, then b and a of
 * the H heads: (2 KV + H) D + 2 H columns.  first[N] is where the document of a row begins, as in
 * attention; without it a sample is one document.
 *
 * short_conv: depthwise and causal over time, on the columns before b and a, W in all; the weight
 * has `taps` K elements for each of them, the last one for the row itself:
 *   u_t = sum_j w_j x_{t-K+1+j} over the rows of the document,  y = u s(u), s(u) = 1 / (1 + e^-u)
 *   du = dy s(u) (1 + u (1 - s(u))),  dx_t = sum_j w_j du_{t+K-1-j},  dw_j = sum du_t x_{t-K+1+j}
 * b and a are copied, and so is their gradient.
 *
 * gated_delta: head h reads key head h / (H / KV).  decay is [2 H]: A of the heads, then their
 * offset d.  With k = x_k / sqrt(sum x_k^2 + 1e-6), q likewise and divided by sqrt(D),
 *   beta = s(b),  g = -e^A log(1 + e^(a + d))
 *   S_t = e^g S_{t-1} + k (beta (v - e^g S_{t-1}' k))',  y = S_t' q,  S [D, D], 0 before a document
 *                               Yang et al. 2024, eq. 10; transformers' torch_recurrent_gated_
 *                               delta_rule(), modeling_qwen3_5.py
 * Kernels compute OP_DELTA_CHUNK rows at once.  From S at the beginning of such a chunk, and with
 * G_ij = e^(g_{j+1} + .. + g_i) for rows j <= i of one document, else 0, and c_i that of S:
 *   u_i = beta_i (v_i - c_i S'k_i - sum_{j<i} G_ij (k_i.k_j) u_j)      (forward substitution)
 *   y_i = c_i S'q_i + sum_{j<=i} G_ij (q_i.k_j) u_j,  S <- c_n S + sum_j G_nj k_j u_j'
 *                               Yang et al. 2024, section 3.3
 * states [B H, chunks, D, D] are S at the beginning of each chunk, for the backward pass, which
 * goes through the chunks from the last to the first with the gradient of S.
 *
 * The ops named cached compute `time` new rows of each sample, at positions POSITION and up: the
 * cache [B, K-1, W] has the rows before them, the oldest first, and the state [B H, D, D] has S.
 * At position 0 both count as 0.
 */
#include "base/size.h"
#include "ops/infer.h"

/* Checks that heads and columns of x fit together.  Sets R, D and C (B H, the head's size and the
 * chunks), and Y and Z (the columns of the values, and of b and a). */
static bool delta_check(const struct op_call *call, int32_t slot, struct infer_sizes *sizes)
{
    const int64_t heads = call->attrs.heads, key_heads = call->attrs.kv_heads,
                  columns = op_columns(call, slot), parts = 2 * key_heads + heads;
    if (!infer_time(call, slot) ||
        !infer_expect(heads >= 1 && key_heads >= 1 && heads % key_heads == 0, call,
                      "heads is %" PRId64 " and kv_heads %" PRId64
                      ", expected a multiple and its divisor",
                      heads, key_heads) ||
        !infer_expect(columns > 2 * heads && (columns - 2 * heads) % parts == 0, call,
                      "operand %s has %" PRId64 " columns, expected 2 x %" PRId64
                      " more than a multiple of %" PRId64,
                      op_operand_name(call->kind, slot), columns, heads, parts))
        return false;
    const int64_t size = (columns - 2 * heads) / parts;
    infer_size_set(sizes, 'R', op_rows(call, slot) / call->attrs.time * heads);
    infer_size_set(sizes, 'D', size);
    infer_size_set(sizes, 'C', op_delta_chunks(call));
    infer_size_set(sizes, 'Y', heads * size);
    infer_size_set(sizes, 'Z', 2 * heads);
    return true;
}

/* ---- short_conv ---- */

static bool short_conv_forward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    const int64_t taps = call->attrs.taps, weights = op_elements(call, SHORT_CONV_FORWARD_WEIGHT);
    (void)sizes;
    return infer_time(call, SHORT_CONV_FORWARD_X) &&
           infer_expect(taps >= 2 && taps <= OP_CONV_TAPS && weights % taps == 0 &&
                            weights / taps <= op_columns(call, SHORT_CONV_FORWARD_X),
                        call,
                        "operand weight is [%" PRId64 "], expected taps = %" PRId64
                        ", 2 to %d, for each of at most %" PRId64 " columns",
                        weights, taps, OP_CONV_TAPS, op_columns(call, SHORT_CONV_FORWARD_X));
}

/* A tap 2, the activation 4. */
static double short_conv_forward_flops(const struct op_call *call)
{
    return (2.0 * call->attrs.taps + 4.0) * cost_elements(call, SHORT_CONV_FORWARD_X);
}

const struct op_declaration op_short_conv_forward = {
    OP_NAMED(short_conv_forward, SHORT_CONV_FORWARD),
    .operand = {[SHORT_CONV_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NX"},
                [SHORT_CONV_FORWARD_WEIGHT] = {OPERAND_IN | OPERAND_SAVED, "W"},
                [SHORT_CONV_FORWARD_Y] = {OPERAND_OUT, "NX"},
                [SHORT_CONV_FORWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .recompute = RECOMPUTE_CLASS_NORM,
    .check = short_conv_forward_check,
    .flops = short_conv_forward_flops,
    .backward = OP_SHORT_CONV_BACKWARD,
};

_Static_assert((int)SHORT_CONV_BACKWARD_WEIGHT == (int)SHORT_CONV_FORWARD_WEIGHT,
               "one function serves both ops");
_Static_assert((int)SHORT_CONV_CACHED_WEIGHT == (int)SHORT_CONV_FORWARD_WEIGHT,
               "one function serves both ops");

/* The convolution again, then two products for each tap, and the activation's slope. */
static double short_conv_backward_flops(const struct op_call *call)
{
    return (6.0 * call->attrs.taps + 6.0) * cost_elements(call, SHORT_CONV_BACKWARD_DY);
}

/* Parts of the sums over rows. */
static size_t short_conv_backward_workspace_cap(const struct op_call *call)
{
    return OP_PARTIAL_ROWS * (size_t)op_elements(call, SHORT_CONV_BACKWARD_WEIGHT) * sizeof(float);
}

const struct op_declaration op_short_conv_backward = {
    OP_NAMED(short_conv_backward, SHORT_CONV_BACKWARD),
    .operand = {[SHORT_CONV_BACKWARD_DY] = {OPERAND_IN, "NX"},
                [SHORT_CONV_BACKWARD_WEIGHT] = {OPERAND_IN, "W"},
                [SHORT_CONV_BACKWARD_X] = {OPERAND_IN, "NX"},
                [SHORT_CONV_BACKWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32},
                [SHORT_CONV_BACKWARD_DX] = {OPERAND_OUT, "NX"},
                [SHORT_CONV_BACKWARD_DWEIGHT] = {OPERAND_OUT | OPERAND_ACCUMULATES, "W",
                                                 .like = SHORT_CONV_BACKWARD_WEIGHT}},
    .check = short_conv_forward_check,
    .flops = short_conv_backward_flops,
    .workspace_cap = short_conv_backward_workspace_cap,
};

static bool short_conv_cached_check(const struct op_call *call, struct infer_sizes *sizes)
{
    if (!short_conv_forward_check(call, sizes))
        return false;
    const int64_t taps = call->attrs.taps;
    return infer_check(call, SHORT_CONV_CACHED_CACHE, DTYPES_FLOAT,
                       SHAPE3(op_rows(call, SHORT_CONV_CACHED_X) / call->attrs.time, taps - 1,
                              op_elements(call, SHORT_CONV_CACHED_WEIGHT) / taps));
}

const struct op_declaration op_short_conv_cached = {
    OP_NAMED(short_conv_cached, SHORT_CONV_CACHED),
    .operand = {[SHORT_CONV_CACHED_X] = {OPERAND_IN, "NX"},
                [SHORT_CONV_CACHED_WEIGHT] = {OPERAND_IN, "W"},
                [SHORT_CONV_CACHED_SCALARS] = SCALARS(OPERAND_IN),
                [SHORT_CONV_CACHED_CACHE] = {OPERAND_INOUT | OPERAND_SAME_DTYPE, "???",
                                             .like = SHORT_CONV_CACHED_X},
                [SHORT_CONV_CACHED_Y] = {OPERAND_OUT, "NX"}},
    .check = short_conv_cached_check,
    .flops = short_conv_forward_flops,
};

/* ---- gated_delta ---- */

static bool gated_delta_forward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    return delta_check(call, GATED_DELTA_FORWARD_X, sizes) &&
           infer_check(call, GATED_DELTA_FORWARD_DECAY, DTYPES_FLOAT,
                       (struct infer_shape){1, {sizes->letter['Z' - 'A']}});
}

/* Returns the rows of all heads. */
static double delta_volume(const struct op_call *call, int32_t slot)
{
    return (double)op_rows(call, slot) * call->attrs.heads;
}

/* Three products with S, and two of pairs of rows and two with u, of which half counts. */
static double gated_delta_forward_flops(const struct op_call *call)
{
    const double size = (double)op_delta_size(call, GATED_DELTA_FORWARD_X);
    return delta_volume(call, GATED_DELTA_FORWARD_X) *
           (6.0 * size * size + 4.0 * OP_DELTA_CHUNK * size);
}

/* Returns the bytes of `groups` groups of a card's work-items, each with tiles of a chunk's rows
 * [chunk, D], squares of its pairs, eight numbers of each row, and S of some heads
 * (backends/delta.h). */
static size_t delta_groups_bytes(const struct op_call *call, int64_t groups, int64_t tiles,
                                 int64_t squares, int64_t heads)
{
    const int64_t size = op_delta_size(call, 0), rows = OP_DELTA_CHUNK;
    return (size_t)(groups * (rows * (tiles * size + squares * rows + 8) + heads * size * size)) *
           sizeof(float);
}

/* A group for each head of a sample. */
static size_t gated_delta_forward_workspace_cap(const struct op_call *call)
{
    const int64_t samples = op_rows(call, GATED_DELTA_FORWARD_X) / call->attrs.time;
    return delta_groups_bytes(call, samples * call->attrs.heads, 3, 2, 1);
}

const struct op_declaration op_gated_delta_forward = {
    OP_NAMED(gated_delta_forward, GATED_DELTA_FORWARD),
    .operand = {[GATED_DELTA_FORWARD_X] = {OPERAND_IN | OPERAND_SAVED, "NX"},
                [GATED_DELTA_FORWARD_DECAY] = {OPERAND_IN | OPERAND_SAVED, "?"},
                [GATED_DELTA_FORWARD_Y] = {OPERAND_OUT, "NY"},
                [GATED_DELTA_FORWARD_STATES] = {OPERAND_OUT | OPERAND_SAVED, "RCDD", DTYPES_F32},
                [GATED_DELTA_FORWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32}},
    .recompute = RECOMPUTE_CLASS_ATTENTION,
    .multiplies = true,
    .check = gated_delta_forward_check,
    .flops = gated_delta_forward_flops,
    .workspace_cap = gated_delta_forward_workspace_cap,
    .backward = OP_GATED_DELTA_BACKWARD,
};

static bool gated_delta_backward_check(const struct op_call *call, struct infer_sizes *sizes)
{
    if (!delta_check(call, GATED_DELTA_BACKWARD_X, sizes))
        return false;
    const int64_t *letter = sizes->letter, rows = op_rows(call, GATED_DELTA_BACKWARD_X),
                  size = letter['D' - 'A'];
    return infer_check(call, GATED_DELTA_BACKWARD_DY, DTYPES_FLOAT,
                       SHAPE2(rows, letter['Y' - 'A'])) &&
           infer_check(call, GATED_DELTA_BACKWARD_DECAY, DTYPES_FLOAT,
                       (struct infer_shape){1, {letter['Z' - 'A']}}) &&
           infer_check(call, GATED_DELTA_BACKWARD_STATES, DTYPES_F32,
                       SHAPE4(letter['R' - 'A'], letter['C' - 'A'], size, size));
}

/* Seven products with S or its gradient, and ten of pairs of rows. */
static double gated_delta_backward_flops(const struct op_call *call)
{
    const double size = (double)op_delta_size(call, GATED_DELTA_BACKWARD_X);
    return delta_volume(call, GATED_DELTA_BACKWARD_X) *
           (14.0 * size * size + 10.0 * OP_DELTA_CHUNK * size);
}

/* A group for each key head of a sample, which also has sums of columns and two gradients of each
 * head; then those of each sample. */
static size_t gated_delta_backward_workspace_cap(const struct op_call *call)
{
    const int64_t samples = op_rows(call, GATED_DELTA_BACKWARD_X) / call->attrs.time,
                  groups = samples * call->attrs.kv_heads,
                  sums = groups * op_delta_size(call, GATED_DELTA_BACKWARD_X) +
                         4 * samples * call->attrs.heads;
    return delta_groups_bytes(call, groups, 10, 5, call->attrs.heads / call->attrs.kv_heads) +
           (size_t)sums * sizeof(float);
}

const struct op_declaration op_gated_delta_backward = {
    OP_NAMED(gated_delta_backward, GATED_DELTA_BACKWARD),
    .operand = {[GATED_DELTA_BACKWARD_DY] = {OPERAND_IN, "??"},
                [GATED_DELTA_BACKWARD_X] = {OPERAND_IN, "NX"},
                [GATED_DELTA_BACKWARD_DECAY] = {OPERAND_IN, "?"},
                [GATED_DELTA_BACKWARD_STATES] = {OPERAND_IN, "????", DTYPES_F32},
                [GATED_DELTA_BACKWARD_FIRST] = {OPERAND_IN | OPERAND_OPTIONAL, "N", DTYPES_I32},
                [GATED_DELTA_BACKWARD_DX] = {OPERAND_OUT, "NX", .like = GATED_DELTA_BACKWARD_X},
                [GATED_DELTA_BACKWARD_DDECAY] = {OPERAND_OUT | OPERAND_ACCUMULATES, "Z",
                                                 .like = GATED_DELTA_BACKWARD_DECAY}},
    .multiplies = true,
    .check = gated_delta_backward_check,
    .flops = gated_delta_backward_flops,
    .workspace_cap = gated_delta_backward_workspace_cap,
};

static bool gated_delta_cached_check(const struct op_call *call, struct infer_sizes *sizes)
{
    return gated_delta_forward_check(call, sizes) &&
           infer_check(call, GATED_DELTA_CACHED_STATE, DTYPES_F32,
                       SHAPE3(sizes->letter['R' - 'A'], sizes->letter['D' - 'A'],
                              sizes->letter['D' - 'A']));
}

const struct op_declaration op_gated_delta_cached = {
    OP_NAMED(gated_delta_cached, GATED_DELTA_CACHED),
    .operand = {[GATED_DELTA_CACHED_X] = {OPERAND_IN, "NX"},
                [GATED_DELTA_CACHED_DECAY] = {OPERAND_IN, "?"},
                [GATED_DELTA_CACHED_SCALARS] = SCALARS(OPERAND_IN),
                [GATED_DELTA_CACHED_STATE] = {OPERAND_INOUT, "???", DTYPES_F32},
                [GATED_DELTA_CACHED_Y] = {OPERAND_OUT, "NY"}},
    .multiplies = true,
    .check = gated_delta_cached_check,
    .flops = gated_delta_forward_flops,
    .workspace_cap = gated_delta_forward_workspace_cap,
};
