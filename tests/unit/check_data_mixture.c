/* Tests of mixture.c: names and shares, what is refused, and which data set each sample comes from. */
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "data/mixture.h"
#include "tests/unit/data_fixture.h"

TEST(folders_as_in_nanogpt)
{
    struct mixture mixture;
    ck_assert_int_eq(mixture_parse("openwebtext", &mixture), GT_OK);
    ck_assert_int_eq(mixture.count, 1);
    ck_assert_str_eq(mixture.parts[0].folder, "data/openwebtext");
    ck_assert_int_eq(mixture_parse("./mine", &mixture), GT_OK);
    ck_assert_int_eq(strncmp(mixture.parts[0].folder, "./mine", 6), 0);
    for (int64_t n = 0; n < 100; n++) {
        const struct mixture_place place = mixture_place(&mixture, n * n);
        ck_assert(place.part == 0 && place.number == n * n);
    }
}

TEST(shares_are_divided_by_their_sum)
{
    struct mixture mixture;
    ck_assert_int_eq(mixture_parse("old:2.1,./a:b/mine:0.9", &mixture), GT_OK);
    ck_assert_int_eq(mixture.count, 2);
    ck_assert_str_eq(mixture.parts[0].folder, "data/old");
    ck_assert_int_eq(strncmp(mixture.parts[1].folder, "./a:b/mine", 10), 0);
    ck_assert(fabs(mixture.parts[0].share - 0.7) < 1e-15 && fabs(mixture.parts[1].share - 0.3) < 1e-15);
    ck_assert(mixture.parts[1].name_length == 10 && strncmp(mixture.parts[1].name, "./a:b/mine", 10) == 0);
}

TEST(a_folder_with_a_colon_is_one_data_set)
{
    struct data_fixture fixture;
    struct mixture mixture;
    char name[300];
    fixture_open(&fixture);
    snprintf(name, sizeof name, "%s/at-12:30", fixture.folder);
    ck_assert_int_eq(mkdir(name, 0777), 0);
    ck_assert_int_eq(mixture_parse(name, &mixture), GT_OK);
    ck_assert_int_eq(mixture.count, 1);
    fixture_close(&fixture);
}

/* The same folder by a link and by another path; two folders that do not exist are two. */
TEST(a_folder_with_two_names_is_refused)
{
    struct data_fixture fixture;
    struct mixture mixture;
    char text[900], link_path[300];
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "a");
    snprintf(link_path, sizeof link_path, "%s/link", fixture.folder);
    ck_assert_int_eq(symlink("a", link_path), 0);
    static const char *const others[] = {"link", "a/", "./a", "a/../a", "link/."};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(text, sizeof text, "%s/a:1,%s/%s:1", fixture.folder, fixture.folder, others[i]);
        ck_assert_int_eq(mixture_parse(text, &mixture), GT_USAGE);
        FIXTURE_SAYS(&fixture, "named twice");
        FIXTURE_SAYS(&fixture, others[i]);
    }
    snprintf(text, sizeof text, "%s/b:1,%s/c:1", fixture.folder, fixture.folder);
    ck_assert_int_eq(mixture_parse(text, &mixture), GT_OK);
    fixture_close(&fixture);
}

TEST(bad_mixtures_are_refused)
{
    static const char *const texts[][2] = {{"a,b", "'a' is not NAME:SHARE"},
                                           {"a:0.5,b", "'b' is not NAME:SHARE"},
                                           {"a:0.5,b:", "'b:' is not NAME:SHARE"},
                                           {"a:0.5,b:half", "'b:half' is not NAME:SHARE"},
                                           {"a:0.5,b:0", "'b:0' is not NAME:SHARE"},
                                           {"a:1.5,b:-0.5", "'b:-0.5' is not NAME:SHARE"},
                                           {"a:inf,b:1", "'a:inf' is not NAME:SHARE"},
                                           {"a:nan,b:1", "'a:nan' is not NAME:SHARE"},
                                           {"a:1e308,b:1e308", "'b:1e308' is not NAME:SHARE"},
                                           {"a:0.5,:0.5", "':0.5' is not NAME:SHARE"},
                                           {"a:0.5,", "'' is not NAME:SHARE"},
                                           {"a:0.5,b:0.25,a:0.25", "a is named twice"},
                                           {"a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1", "at most 8 data sets"}};
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mixture mixture;
        ck_assert_int_eq(mixture_parse(texts[i][0], &mixture), GT_USAGE);
        ck_assert_msg(strstr(fixture.line, texts[i][1]) != NULL, "%s: %s", texts[i][0], fixture.line);
    }
    fixture_close(&fixture);
}

/* Any run of samples holds each data set's share to within one sample per data set, and each data set's samples are
 * numbered without a gap. */
TEST(samples_are_divided_by_share)
{
    static const char *const texts[] = {"a:0.7,b:0.3", "a:1,b:1,c:1", "a:1e-6,b:0.9,c:0.05,d:0.05", "a:0.999,b:0.001"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mixture mixture;
        int64_t counts[MIXTURE_MAX] = {0};
        ck_assert_int_eq(mixture_parse(texts[i], &mixture), GT_OK);
        for (int64_t n = 0; n < 20000; n++) {
            const struct mixture_place place = mixture_place(&mixture, n);
            ck_assert_int_eq(place.number, counts[place.part]++);
            for (int part = 0; part < mixture.count; part++)
                ck_assert_msg(fabs((double)counts[part] - mixture.parts[part].share * (double)(n + 1)) <= mixture.count,
                              "%s: %" PRId64 " of %" PRId64, texts[i], counts[part], n + 1);
        }
        /* The last samples that a run may have are numbered as well. */
        const int64_t last = INT64_MAX - 2;
        const struct mixture_place place = mixture_place(&mixture, last);
        const double expected = mixture.parts[place.part].share * (double)last;
        ck_assert_msg(fabs((double)place.number - expected) <= 1e-3 * expected, "%s: %" PRId64, texts[i], place.number);
    }
}
