/* Tests of rope_angles.c: the scaling's text, and frequencies computed by hand. */
#include "base/rope_angles.h"

#include <math.h>

#include "tests/unit/unit_main.h"

static const struct {
    const char *text;
    bool good;
    double pair[4]; /* the frequencies of a head of 8 numbers, theta 10000: 1, 0.1, 0.01, 0.001 */
} scalings[] = {
    {"", true, {1.0, 0.1, 0.01, 0.001}},
    {"linear:4", true, {0.25, 0.025, 0.0025, 0.00025}},
    /* Waves in 400 tokens: 63.7, 6.37, 0.637, 0.0637; of the second (6.37 - 1) / 7 stays, the slow ones are an eighth. */
    {"llama3:8,1,8,400",
     true,
     {1.0, (1.0 - (40.0 / 6.283185307179586 - 1.0) / 7.0) * 0.1 / 8.0 + (40.0 / 6.283185307179586 - 1.0) / 7.0 * 0.1,
      0.00125, 0.000125}},
    {"linear:", false, {0}},
    {"linear:0.5", false, {0}},
    {"linear:4x", false, {0}},
    {"linear:nan", false, {0}},
    {"llama3:8,1,8", false, {0}},
    {"llama3:8,8,1,400", false, {0}},
    {"llama3:8,0,1,400", false, {0}},
    {"llama3:8,1,8,0", false, {0}},
    {"yarn:4", false, {0}},
};

TEST_LOOP(frequencies, (int)(sizeof scalings / sizeof scalings[0]))
{
    struct rope_config rope = {.theta = 1e4}, again = {.theta = 1e4};
    char text[ROPE_SCALING_TEXT_MAX];
    ck_assert_int_eq(rope_scaling_read(scalings[_i].text, &rope), scalings[_i].good);
    if (!scalings[_i].good)
        return;
    for (int32_t i = 0; i < 4; i++)
        ck_assert_double_eq_tol(rope_frequency(&rope, 8, i), scalings[_i].pair[i], 1e-12);
    ck_assert_str_eq(rope_scaling_text(text, &rope), scalings[_i].text);
    ck_assert(rope_scaling_read(text, &again) && again.scaling == rope.scaling);
}
