/* Tests of the op declarations, the shape rules and the costs.
 *
 * Each rule is tested with operands that fit and with ones that do not; a refusal must log exactly
 * one line.
 */
#include "ops/infer.h"
#include "ops/op.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct operand matrix(enum dtype dtype, int64_t rows, int64_t columns)
{
    return (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {rows, columns}};
}

static struct operand vector(enum dtype dtype, int64_t count)
{
    return (struct operand){.present = true, .dtype = dtype, .rank = 1, .dims = {count}};
}

/* Expects that op_infer() refuses with one line that contains `text`. */
static void refuses(struct op_call call, const char *text)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_msg(!op_infer(&call), "accepted, but expected: %s", text);
    log_capture_end();
    log_capture_one_error(&capture, text);
}

static struct op_call gemm(int64_t m, int64_t n, int64_t k)
{
    struct op_call call = {.kind = OP_GEMM};
    call.operand[GEMM_A] = matrix(DTYPE_BF16, m, k);
    call.operand[GEMM_B] = matrix(DTYPE_BF16, k, n);
    return call;
}

static struct op_call attention(int32_t heads, int32_t kv_heads, int64_t size)
{
    struct op_call call = {.kind = OP_ATTENTION_FORWARD,
                           .attrs = {.time = 8, .heads = heads, .kv_heads = kv_heads}};
    call.operand[ATTENTION_FORWARD_QKV] = matrix(DTYPE_F32, 24, (heads + 2 * kv_heads) * size);
    call.operand[ATTENTION_FORWARD_SCALARS] = vector(DTYPE_I32, SCALAR_WORDS);
    return call;
}

TEST(gemm_shapes)
{
    for (int t = 0; t < 4; t++) {
        struct op_call call = gemm(5, 7, 11);
        call.attrs.transpose_a = (t & 1) != 0;
        call.attrs.transpose_b = (t & 2) != 0;
        if (call.attrs.transpose_a)
            call.operand[GEMM_A] = matrix(DTYPE_BF16, 11, 5);
        if (call.attrs.transpose_b)
            call.operand[GEMM_B] = matrix(DTYPE_BF16, 7, 11);
        ck_assert(op_infer(&call));
        ck_assert_int_eq(call.operand[GEMM_D].dims[0], 5);
        ck_assert_int_eq(call.operand[GEMM_D].dims[1], 7);
        ck_assert_int_eq(call.operand[GEMM_D].dtype, DTYPE_BF16);
        ck_assert(op_flops(&call) == 2.0 * 5 * 7 * 11);
        ck_assert(op_bytes(&call) == 2.0 * (55 + 77 + 35));
    }
}

TEST(bound_outputs_keep_their_dtype)
{
    struct op_call call = gemm(5, 7, 11);
    call.operand[GEMM_D] = matrix(DTYPE_F32, 5, 7);
    call.attrs.accumulate = 1u << GEMM_D;
    ck_assert(op_infer(&call));
    ck_assert_int_eq(call.operand[GEMM_D].dtype, DTYPE_F32);
    ck_assert(op_bytes(&call) == 2.0 * (55 + 77) + 2.0 * 4.0 * 35);
    call.operand[GEMM_D] = matrix(DTYPE_F32, 7, 5);
    refuses(call, "gemm: operand d is [7,5], expected [5,7]");
}

TEST(gemm_refusals)
{
    struct op_call call = gemm(4, 768, 3072);
    call.operand[GEMM_A] = matrix(DTYPE_BF16, 4, 768);
    refuses(call, "gemm: operand b is [3072,768], expected [768,*]");
    call = gemm(4, 4, 4);
    call.operand[GEMM_A].present = false;
    refuses(call, "gemm: operand a is absent");
    call = gemm(4, 4, 4);
    call.operand[GEMM_B].dtype = DTYPE_I32;
    refuses(call, "gemm: operand b is int32");
    call.operand[GEMM_B].dtype = DTYPE_F32;
    refuses(call, "expected bfloat16 as operand a");
    call = gemm(4, 4, 4);
    call.operand[GEMM_A].dims[0] = 0;
    refuses(call, "expected positive sizes");
    call = gemm(INT64_MAX / 2, 4, INT64_MAX / 2);
    refuses(call, "whose product fits");
    call = gemm(4, 4, 4);
    call.operand[GEMM_A].rank = 9;
    refuses(call, "rank 9");
    call = gemm(4, 4, 4);
    call.attrs.accumulate = 1u << GEMM_D;
    refuses(call, "operand d is absent");
    call.operand[GEMM_D] = matrix(DTYPE_F32, 4, 4);
    call.operand[GEMM_BIAS] = vector(DTYPE_BF16, 4);
    refuses(call, "none together with accumulation");
    call = gemm(4, 4, 4);
    call.attrs.accumulate = 1u << GEMM_A;
    refuses(call, "accumulate is 0x1");
}

TEST(attention_shapes_and_refusals)
{
    struct op_call call = attention(4, 2, 48);
    ck_assert(op_infer(&call));
    ck_assert_int_eq(call.operand[ATTENTION_FORWARD_Y].dims[1], 192);
    ck_assert_int_eq(call.operand[ATTENTION_FORWARD_LSE].rank, 3);
    ck_assert_int_eq(call.operand[ATTENTION_FORWARD_LSE].dims[0], 3);
    ck_assert_int_eq(call.operand[ATTENTION_FORWARD_LSE].dims[1], 4);
    ck_assert_int_eq(call.operand[ATTENTION_FORWARD_LSE].dtype, DTYPE_F32);
    ck_assert(op_flops(&call) == 2.0 * 24 * 192 * 8);
    call.attrs.window = 2;
    ck_assert(op_flops(&call) == 2.0 * 24 * 192 * 8 * (1.0 - 0.75 * 0.75));
    call.attrs.window = -1;
    refuses(call, "window is -1");
    refuses(attention(4, 3, 16), "heads is 4 and kv_heads 3");
    call = attention(4, 4, 16);
    call.attrs.time = 7;
    refuses(call, "time is 7");
    call = attention(4, 4, 16);
    call.attrs.dropout = 1.0f;
    refuses(call, "dropout is 1");
    call = attention(4, 4, 16);
    call.operand[ATTENTION_FORWARD_QKV].dims[1]++;
    refuses(call, "has 193 columns");
    call = attention(4, 4, 16);
    call.operand[ATTENTION_FORWARD_SCALARS].dims[0] = 3;
    refuses(call, "operand scalars is [3], expected [16]");
    call = attention(4, 4, 16);
    call.operand[ATTENTION_FORWARD_FIRST] = vector(DTYPE_I32, 24);
    ck_assert(op_infer(&call));
    call.operand[ATTENTION_FORWARD_FIRST] = vector(DTYPE_I32, 8);
    refuses(call, "operand first is [8], expected [24]");
}

TEST(optional_operands_stay_absent)
{
    struct op_call call = {.kind = OP_LAYERNORM_BACKWARD};
    call.operand[LAYERNORM_BACKWARD_DY] = call.operand[LAYERNORM_BACKWARD_X] =
        matrix(DTYPE_BF16, 6, 10);
    call.operand[LAYERNORM_BACKWARD_GAIN] = vector(DTYPE_F32, 10);
    call.operand[LAYERNORM_BACKWARD_MEAN] = call.operand[LAYERNORM_BACKWARD_RSTD] =
        vector(DTYPE_F32, 6);
    ck_assert(op_infer(&call));
    ck_assert(call.operand[LAYERNORM_BACKWARD_DX].present &&
              call.operand[LAYERNORM_BACKWARD_DGAIN].present);
    ck_assert(!call.operand[LAYERNORM_BACKWARD_DBIAS].present);
    ck_assert_int_eq(call.operand[LAYERNORM_BACKWARD_DX].dtype, DTYPE_BF16);
    ck_assert_int_eq(call.operand[LAYERNORM_BACKWARD_DGAIN].dtype, DTYPE_F32);
    struct op_call bound = call;
    call.attrs.accumulate = 1u << LAYERNORM_BACKWARD_DBIAS;
    refuses(call, "operand dbias is absent");
    bound.operand[LAYERNORM_BACKWARD_DX] = matrix(DTYPE_BF16, 6, 9);
    refuses(bound, "operand dx is [6,9], expected [6,10]");
    bound.operand[LAYERNORM_BACKWARD_DX] = matrix(DTYPE_BF16, 6, 10);
    bound.operand[LAYERNORM_BACKWARD_DGAIN] = vector(DTYPE_F32, 6);
    refuses(bound, "operand dgain is [6], expected [10]");
    bound.operand[LAYERNORM_BACKWARD_DGAIN] = vector(DTYPE_F32, 10);
    bound.operand[LAYERNORM_BACKWARD_DBIAS] = vector(DTYPE_F32, 6);
    refuses(bound, "operand dbias is [6], expected [10]");
    call = (struct op_call){.kind = OP_RMSNORM_BACKWARD};
    call.operand[RMSNORM_BACKWARD_DY] = call.operand[RMSNORM_BACKWARD_X] =
        matrix(DTYPE_BF16, 6, 10);
    call.operand[RMSNORM_BACKWARD_RSTD] = vector(DTYPE_F32, 6);
    ck_assert(op_infer(&call));
    ck_assert(call.operand[RMSNORM_BACKWARD_DX].present &&
              !call.operand[RMSNORM_BACKWARD_DGAIN].present);
    call.operand[RMSNORM_BACKWARD_DGAIN] = vector(DTYPE_F32, 10);
    refuses(call, "rmsnorm_backward: operand dgain is present, expected none without operand gain");
    call.operand[RMSNORM_BACKWARD_GAIN] = vector(DTYPE_F32, 9);
    refuses(call, "operand gain is [9], expected [10]");
}

/* Of 2 samples of 4 rows: 2 key heads and 4 heads of 6 channels, and two numbers of each head. */
static struct op_call delta(enum op_kind kind)
{
    struct op_call call = {.kind = kind,
                           .attrs = {.time = 4, .heads = 4, .kv_heads = 2, .taps = 3}};
    call.operand[SHORT_CONV_FORWARD_X] = matrix(DTYPE_BF16, 8, 8 * 6 + 8);
    call.operand[SHORT_CONV_FORWARD_WEIGHT] =
        vector(DTYPE_F32, kind == OP_SHORT_CONV_FORWARD ? 48 * 3 : 8);
    return call;
}

TEST(delta_net_shapes_and_refusals)
{
    struct op_call conv = delta(OP_SHORT_CONV_FORWARD), rule = delta(OP_GATED_DELTA_FORWARD);
    struct op_call good = conv, net = rule;
    ck_assert(op_infer(&good) && op_infer(&net));
    ck_assert_int_eq(good.operand[SHORT_CONV_FORWARD_Y].dims[1], 56);
    ck_assert_int_eq(net.operand[GATED_DELTA_FORWARD_Y].dims[1], 24);
    const int64_t states[] = {8, 1, 6, 6};
    ck_assert(memcmp(net.operand[GATED_DELTA_FORWARD_STATES].dims, states, sizeof states) == 0);
    conv.attrs.taps = 9;
    refuses(conv, "operand weight is [144], expected taps = 9, 2 to 8, for each of at most 56");
    conv.attrs.taps = 1;
    refuses(conv, "expected taps = 1, 2 to 8");
    conv.attrs.taps = 2;
    refuses(conv, "expected taps = 2, 2 to 8, for each of at most 56 columns");
    conv.attrs.taps = 3;
    conv.attrs.time = 3;
    refuses(conv, "short_conv_forward");
    rule.attrs.kv_heads = 3;
    refuses(rule, "heads is 4 and kv_heads 3, expected a multiple and its divisor");
    rule.attrs.kv_heads = 0;
    refuses(rule, "heads is 4 and kv_heads 0");
    rule.attrs.kv_heads = 2;
    rule.operand[GATED_DELTA_FORWARD_X].dims[1] = 57;
    refuses(rule, "operand x has 57 columns, expected 2 x 4 more than a multiple of 8");
    rule = delta(OP_GATED_DELTA_FORWARD);
    rule.operand[GATED_DELTA_FORWARD_DECAY].dims[0] = 7;
    refuses(rule, "decay");
    struct op_call cached = delta(OP_GATED_DELTA_CACHED);
    cached.operand[GATED_DELTA_CACHED_SCALARS] = vector(DTYPE_I32, SCALAR_WORDS);
    cached.operand[GATED_DELTA_CACHED_STATE] =
        (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 3, .dims = {8, 6, 6}};
    ck_assert(op_infer(&cached));
    cached.operand[GATED_DELTA_CACHED_STATE].dims[0] = 4;
    refuses(cached, "state");
}

TEST(gate_shapes_and_refusals)
{
    struct op_call call = {.kind = OP_GATE_FORWARD, .attrs = {.heads = 3, .gate = GATE_SILU}};
    call.operand[GATE_FORWARD_X] = matrix(DTYPE_BF16, 4, 12);
    call.operand[GATE_FORWARD_Z] = matrix(DTYPE_BF16, 4, 30);
    struct op_call good = call;
    ck_assert(op_infer(&good));
    ck_assert_int_eq(good.operand[GATE_FORWARD_Y].dims[1], 12);
    call.operand[GATE_FORWARD_Z].dims[1] = 23;
    refuses(call, "operand z has 23 columns, expected 12, or at least twice as many");
    call.operand[GATE_FORWARD_Z].dims[1] = 12;
    call.operand[GATE_FORWARD_GAIN] = vector(DTYPE_F32, 3);
    refuses(call, "operand gain is [3], expected [4]");
    call.operand[GATE_FORWARD_GAIN].dims[0] = 4;
    call.attrs.gate = GATE_GELU;
    refuses(call, "expected silu or sigmoid");
    call.attrs.heads = 5;
    refuses(call, "operand x has 12 columns, expected a multiple of heads = 5");
}

TEST(rope_shapes_and_refusals)
{
    struct op_call call = {.kind = OP_ROPE_FORWARD,
                           .attrs = {.time = 4, .heads = 3, .kv_heads = 1}};
    call.operand[ROPE_FORWARD_X] = matrix(DTYPE_BF16, 8, 30);
    call.operand[ROPE_FORWARD_TABLE] = matrix(DTYPE_F32, 4, 6);
    call.operand[ROPE_FORWARD_SCALARS] = vector(DTYPE_I32, SCALAR_WORDS);
    refuses(call,
            "operand x must be present exactly with gains or gates; otherwise y rotates in place");
    call.operand[ROPE_FORWARD_Y] = call.operand[ROPE_FORWARD_X];
    call.operand[ROPE_FORWARD_X].present = false;
    call.attrs.accumulate = 1u << ROPE_FORWARD_Y;
    struct op_call good = call;
    ck_assert(op_infer(&good));
    ck_assert(op_flops(&good) == 3.0 * 8 * 24);
    ck_assert(op_bytes(&good) == 2.0 * 2 * 8 * 24 + 4.0 * (4 * 6 + SCALAR_WORDS));
    call.operand[ROPE_FORWARD_TABLE].dims[0] = 3;
    refuses(call, "rope_forward: operand table has 3 positions, expected at least time = 4");
    call.operand[ROPE_FORWARD_TABLE] = matrix(DTYPE_F32, 4, 5);
    refuses(
        call,
        "y has 30 columns, expected those of 3 heads and 2 x 1 key-value heads of an even size");
    call.operand[ROPE_FORWARD_TABLE].dims[1] = 8;
    refuses(call, "of which the table turns 8");
    good.operand[ROPE_FORWARD_TABLE].dims[1] = 4;
    ck_assert(op_infer(&good));
    call.operand[ROPE_FORWARD_TABLE].dims[1] = 6;
    call.operand[ROPE_FORWARD_X] = matrix(DTYPE_BF16, 8, 30);
    call.operand[ROPE_FORWARD_Y].present = false;
    call.operand[ROPE_FORWARD_GAIN] = vector(DTYPE_F32, 12);
    call.attrs.accumulate = 0;
    ck_assert(op_infer(&call));
    ck_assert_int_eq(call.operand[ROPE_FORWARD_Y].dims[1], 30);
    call.operand[ROPE_FORWARD_GAIN] = vector(DTYPE_F32, 6);
    refuses(call, "operand gain is [6], expected [12] or [24]");
    struct op_call back = good;
    back.kind = OP_ROPE_BACKWARD;
    ck_assert(op_infer(&back));
    back.operand[ROPE_BACKWARD_DY] = matrix(DTYPE_BF16, 8, 30);
    back.operand[ROPE_BACKWARD_GAIN] = vector(DTYPE_F32, 24);
    back.attrs.accumulate = 0;
    refuses(back, "operands x and dgain must be present exactly when operand gain is");
    back.operand[ROPE_BACKWARD_X] = matrix(DTYPE_BF16, 8, 30);
    back.operand[ROPE_BACKWARD_DGAIN] = vector(DTYPE_F32, 24);
    ck_assert(op_infer(&back));
    /* Gates: 3 more heads of 6 columns, whose gradient is there already. */
    back.attrs.gated = true;
    back.operand[ROPE_BACKWARD_X] = back.operand[ROPE_BACKWARD_DX] = matrix(DTYPE_BF16, 8, 48);
    refuses(back, "dx must accumulate exactly when it rotates in place or x has gates");
    back.attrs.accumulate = 1u << ROPE_BACKWARD_DX;
    ck_assert(op_infer(&back));
    back.operand[ROPE_BACKWARD_DX].dims[1] = 30;
    refuses(back, "dx");
}
