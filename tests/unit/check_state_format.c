/* Tests of state_format.c: the round trip of codes. */
#include <check.h>
#include <math.h>

#include "model/state_format.h"
#include "tests/unit/unit_main.h"

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
