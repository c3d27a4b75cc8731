/* Tests of config/config_recompute: one level, two groups in both forms, and what is refused. */
#include <string.h>

#include "config/config.h"
#include "tests/unit/unit_main.h"

START_TEST(levels_and_groups_are_read)
{
    static const struct {
        const char *text;
        int64_t first_layers;
        int first, rest;
    } good[] = {
        {"none", 0, 0, 0},
        {"gelu", 0, 0, 1},
        {"layernorm", 0, 0, 2},
        {"mlp", 0, 0, 3},
        {"full", 0, 0, 4},
        {"full:12", 0, 0, 4},
        {"full:6,none", 6, 4, 0},
        {"full:6,none:6", 6, 4, 0},
        {"full x6 + none x6", 6, 4, 0},
        {"mlp:1,layernorm", 1, 3, 2},
        {" gelu:11 , none ", 11, 1, 0},
        {"gelu:3,gelu:9", 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config_recompute_mix mix;
        const char *why;
        ck_assert_msg(config_recompute(good[i].text, 12, &mix, &why), "%s: %s", good[i].text, why);
        ck_assert_int_eq(mix.first_layers, good[i].first_layers);
        ck_assert_int_eq(mix.first, good[i].first);
        ck_assert_int_eq(mix.rest, good[i].rest);
    }
}
END_TEST

START_TEST(what_is_no_level_is_refused)
{
    static const char *const bad[] = {"",
                                      "fully",
                                      "half",
                                      "full,none",
                                      "full:0,none",
                                      "full:-1",
                                      "full:x,none",
                                      "none:6,full:",
                                      "full:1,mlp:1,none",
                                      "full:6;none",
                                      "full:6,none,",
                                      "FULL",
                                      "full:99999999999999999999,none",
                                      "4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config_recompute_mix mix = {.rest = 77};
        const char *why;
        ck_assert_msg(!config_recompute(bad[i], 12, &mix, &why), "%s", bad[i]);
        ck_assert_msg(strstr(why, "full:6,none") != NULL, "%s: %s", bad[i], why);
        ck_assert_int_eq(mix.rest, 77);
    }
}
END_TEST

START_TEST(blocks_must_add_up)
{
    static const char *const bad[] = {"full:13,none", "full:6,none:5", "full:11", "full x6 + none x7"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config_recompute_mix mix;
        const char *why;
        ck_assert_msg(!config_recompute(bad[i], 12, &mix, &why), "%s", bad[i]);
        ck_assert_msg(strstr(why, "n_layer") != NULL, "%s: %s", bad[i], why);
        ck_assert_msg(config_recompute(bad[i], 0, &mix, &why), "%s: a model that is not known yet", bad[i]);
    }
}
END_TEST

Suite *config_recompute_suite(void)
{
    Suite *suite = suite_create("config_recompute");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, levels_and_groups_are_read);
    tcase_add_test(tcase, what_is_no_level_is_refused);
    tcase_add_test(tcase, blocks_must_add_up);
    suite_add_tcase(suite, tcase);
    return suite;
}

UNIT_MAIN(config_recompute)
