/* Tests of base/recompute: levels and their blocks in both forms, refusals, and what offload
 * recomputes. */
#include "base/recompute.h"

#include <string.h>

#include "tests/unit/unit_main.h"

#define LAYERS 12

static const struct {
    const char *text, *colons, *sums;
} good[] = {
    {"none", "none", "none"},
    {"gelu", "gelu", "gelu"},
    {"full:12", "full", "full"},
    {"full:6,none", "full:6,none:6", "full x6 + none x6"},
    {"full x6 + none x6", "full:6,none:6", "full x6 + none x6"},
    {"none:6,full:6", "full:6,none:6", "full x6 + none x6"},
    {" gelu:11 , none ", "gelu:11,none:1", "gelu x11 + none x1"},
    {"gelu:3,gelu:9", "gelu", "gelu"},
    {"full:2,mlp:3,none", "full:2,mlp:3,none:7", "full x2 + mlp x3 + none x7"},
    {"none:1,gelu:2,layernorm:3,mlp:4,full", "full:2,mlp:4,layernorm:3,gelu:2,none:1",
     "full x2 + mlp x4 + layernorm x3 + gelu x2 + none x1"},
};

TEST_LOOP(levels_and_blocks_are_read_and_written, (int)(sizeof good / sizeof good[0]))
{
    struct recompute_mix mix, again;
    const char *why;
    char text[RECOMPUTE_TEXT_MAX];
    ck_assert_msg(recompute_read(good[_i].text, LAYERS, &mix, &why), "%s: %s", good[_i].text, why);
    ck_assert_str_eq(recompute_text(text, &mix, LAYERS, ":", ","), good[_i].colons);
    ck_assert(recompute_read(text, LAYERS, &again, &why) && recompute_equal(&mix, &again));
    ck_assert_str_eq(recompute_text(text, &mix, LAYERS, " x", " + "), good[_i].sums);
    ck_assert(recompute_read(text, LAYERS, &again, &why) && recompute_equal(&mix, &again));
}

TEST(what_is_no_level_is_refused)
{
    static const char *const bad[] = {"",
                                      "fully",
                                      "half",
                                      "full,none",
                                      "full:0,none",
                                      "full:-1",
                                      "full:x,none",
                                      "none:6,full:",
                                      "mlp,full:1,none",
                                      "full:6;none",
                                      "full:6,none,",
                                      "FULL",
                                      "full:99999999999999999999,none",
                                      "4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct recompute_mix mix = {.blocks = {77}};
        const char *why;
        ck_assert_msg(!recompute_read(bad[i], LAYERS, &mix, &why), "%s", bad[i]);
        ck_assert_msg(strstr(why, "full:6,none") != NULL, "%s: %s", bad[i], why);
        ck_assert_int_eq(mix.blocks[0], 77);
    }
}

TEST(blocks_must_add_up)
{
    static const char *const bad[] = {"full:13,none", "full:6,none:5", "full:11",
                                      "full x6 + none x7", "full:6,mlp:6,gelu:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct recompute_mix mix;
        const char *why;
        ck_assert_msg(!recompute_read(bad[i], LAYERS, &mix, &why), "%s", bad[i]);
        ck_assert_msg(strstr(why, "n_layer") != NULL, "%s: %s", bad[i], why);
        ck_assert_msg(recompute_read(bad[i], 0, &mix, &why), "%s: a model that is not known yet",
                      bad[i]);
    }
}

TEST(the_first_blocks_have_the_highest_level)
{
    struct recompute_mix mix;
    const char *why;
    ck_assert(recompute_read("mlp:2,none:3,full:1", 6, &mix, &why));
    static const enum recompute_level expected[] = {RECOMPUTE_FULL, RECOMPUTE_MLP,  RECOMPUTE_MLP,
                                                    RECOMPUTE_NONE, RECOMPUTE_NONE, RECOMPUTE_NONE};
    for (int32_t layer = 0; layer < 6; layer++)
        ck_assert_int_eq(recompute_level_of(&mix, layer), expected[layer]);
    recompute_shrink(&mix, 2);
    ck_assert_int_eq(recompute_blocks(&mix, RECOMPUTE_FULL, 2), 1);
    ck_assert_int_eq(recompute_blocks(&mix, RECOMPUTE_MLP, 2), 1);
    ck_assert_int_eq(recompute_blocks(&mix, RECOMPUTE_NONE, 2), 0);
}

/* recompute.sh compares the bytes of the other levels. */
TEST(offload_recomputes_what_full_does)
{
    for (int c = RECOMPUTE_CLASS_PLAIN; c <= RECOMPUTE_CLASS_ATTENTION; c++)
        ck_assert_int_eq(recompute_includes(RECOMPUTE_OFFLOAD, (enum recompute_class)c),
                         recompute_includes(RECOMPUTE_FULL, (enum recompute_class)c));
}
