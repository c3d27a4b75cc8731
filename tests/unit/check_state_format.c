/* Tests of state_format.c: the table, and the round trip of codes. */
#include <check.h>
#include <math.h>

#include "model/state_format.h"
#include "tests/unit/unit_main.h"

/* Returns the bytes per parameter of a large matrix in a block: weight, master, gradient and both
 * moments, including the exponents of 8-bit blocks. */
static double bytes_of(enum state_format format, enum dtype dtype)
{
    const struct state_dtypes dtypes = state_format_dtypes(format, dtype, false);
    const size_t states = dtype_size_bytes(dtypes.gradient) + 2 * dtype_size_bytes(dtypes.moment);
    return (double)(dtype_size_bytes(dtype) + states) + (dtypes.master ? 4.0 : 0.0) +
           (dtypes.moment == DTYPE_U8 ? 2.0 / STATE_BLOCK : 0.0);
}

TEST(bytes_are_those_of_the_table)
{
    ck_assert(bytes_of(STATE_MASTER, DTYPE_F32) == 16.0);
    ck_assert(bytes_of(STATE_MASTER, DTYPE_BF16) == 18.0);
    ck_assert(bytes_of(STATE_SR, DTYPE_BF16) == 14.0);
    ck_assert(bytes_of(STATE_SR_BF16, DTYPE_BF16) == 8.0);
    ck_assert(bytes_of(STATE_SR_8BIT, DTYPE_BF16) == 6.0 + 2.0 / 256.0);
    ck_assert(bytes_of(STATE_SR_8BIT_FULL, DTYPE_BF16) == 6.0 + 2.0 / 256.0);
}

/* Each step of the planner's order takes fewer bytes, and the order ends. */
TEST(order_goes_down)
{
    enum state_format format = STATE_MASTER;
    int steps = 0;
    while (state_format_next(format) != STATE_FORMATS) {
        const enum state_format next = state_format_next(format);
        ck_assert(next > format && state_format_is_lean(next));
        ck_assert(bytes_of(next, DTYPE_BF16) <= bytes_of(format, DTYPE_BF16));
        format = next;
        steps++;
    }
    ck_assert_int_eq(steps, 3);
    ck_assert_int_eq(format, STATE_SR_8BIT_FULL);
}

TEST(embeddings_keep_wider_moments)
{
    ck_assert_int_eq(state_format_dtypes(STATE_SR_8BIT, DTYPE_BF16, true).moment, DTYPE_BF16);
    ck_assert_int_eq(state_format_dtypes(STATE_SR_8BIT, DTYPE_BF16, false).moment, DTYPE_U8);
    ck_assert_int_eq(state_format_dtypes(STATE_SR_8BIT_FULL, DTYPE_BF16, true).moment, DTYPE_U8);
    for (int i = 0; i < STATE_FORMATS; i++) {
        const struct state_dtypes layernorm =
            state_format_dtypes((enum state_format)i, DTYPE_F32, false);
        ck_assert(!layernorm.master && layernorm.gradient == DTYPE_F32 &&
                  layernorm.moment == DTYPE_F32);
    }
}

/* All codes of a moment except the largest magnitude: a block with that one would get the next
 * exponent. */
TEST_LOOP(codes_come_back, 2)
{
    const enum state_moment moment = _i == 0 ? STATE_MOMENT_M : STATE_MOMENT_V;
    uint8_t codes[STATE_BLOCK], back[STATE_BLOCK];
    float values[STATE_BLOCK];
    for (int exponent = -30; exponent <= 45; exponent += 15) {
        for (int i = 0; i < STATE_BLOCK; i++) {
            bool largest =
                i == STATE_V_CODE_MAX || (moment == STATE_MOMENT_M && i == STATE_M_CODE_MAX);
            codes[i] = (uint8_t)(largest ? i - 1 : i);
        }
        state_codes_decode(moment, codes, (int8_t)exponent, STATE_BLOCK, values);
        ck_assert_int_eq(state_codes_encode(moment, values, STATE_BLOCK, back), exponent);
        ck_assert_mem_eq(codes, back, sizeof codes);
    }
}

TEST(codes_are_near_and_never_lose_v)
{
    float values[4] = {1.0f, 0.37f, 1e-20f, 0.0f}, back[4];
    uint8_t codes[4];
    int8_t exponent = state_codes_encode(STATE_MOMENT_V, values, 4, codes);
    state_codes_decode(STATE_MOMENT_V, codes, exponent, 4, back);
    ck_assert(fabsf(back[0] - 1.0f) <= 0.07f && fabsf(back[1] - 0.37f) <= 0.37f * 0.07f);
    ck_assert_uint_eq(codes[2], 1);
    ck_assert_uint_eq(codes[3], 0);
    ck_assert(back[3] == 0.0f);
    values[1] = -0.37f;
    exponent = state_codes_encode(STATE_MOMENT_M, values, 4, codes);
    state_codes_decode(STATE_MOMENT_M, codes, exponent, 4, back);
    ck_assert(fabsf(back[1] + 0.37f) <= 0.37f / 16.0f && back[2] == 0.0f);
}

TEST(extreme_blocks_have_an_exponent)
{
    float zeros[3] = {0.0f, 0.0f, 0.0f}, huge[2] = {3e38f, -1.0f}, back[3];
    uint8_t codes[3];
    ck_assert_int_eq(state_codes_encode(STATE_MOMENT_M, zeros, 3, codes), STATE_EXPONENT_MIN);
    ck_assert(codes[0] == 0 && codes[1] == 0 && codes[2] == 0);
    int8_t exponent = state_codes_encode(STATE_MOMENT_M, huge, 2, codes);
    ck_assert_int_eq(exponent, STATE_EXPONENT_MAX);
    state_codes_decode(STATE_MOMENT_M, codes, exponent, 2, back);
    ck_assert(isfinite(back[0]) && back[0] > 1e38f);
}
