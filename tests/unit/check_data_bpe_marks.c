/* Tests of data/bpe_marks: where marks go, and where pieces end. */
#include "data/bpe_marks.h"

#include <stdlib.h>

#include "tests/unit/unit_main.h"

#define M BPE_MARK

TEST(marks_go_where_the_place_says)
{
    static const struct {
        struct bpe_marks marks;
        enum bpe_place place;
        const char *text, *marked; /* NULL: the text itself */
    } cases[] = {
        {{true, BPE_MARK_EVEN}, BPE_PLACE_BEGIN, " a", M M "a"},
        {{true, BPE_MARK_EVEN}, BPE_PLACE_AFTER, "a", M "a"},
        {{true, BPE_MARK_EVEN}, BPE_PLACE_WITHIN, " a", M "a"},
        {{true, BPE_MARK_ALWAYS}, BPE_PLACE_AFTER, "a", M "a"},
        {{true, BPE_MARK_ALWAYS}, BPE_PLACE_BEGIN, " a", M "a"},
        {{true, BPE_MARK_ALWAYS}, BPE_PLACE_BEGIN, M "a", NULL},
        {{true, BPE_MARK_FIRST}, BPE_PLACE_BEGIN, "a b", M "a" M "b"},
        {{true, BPE_MARK_FIRST}, BPE_PLACE_AFTER, "a", NULL},
        {{false, BPE_MARK_NEVER}, BPE_PLACE_BEGIN, " a", NULL},
        {{true, BPE_MARK_EVEN}, BPE_PLACE_BEGIN, "", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *out;
        size_t count = 0;
        ck_assert_int_eq(bpe_marks_put(cases[i].marks, cases[i].place, cases[i].text,
                                       strlen(cases[i].text), &out, &count),
                         GT_OK);
        ck_assert_int_eq(out == NULL, cases[i].marked == NULL);
        if (out != NULL)
            ck_assert(count == strlen(cases[i].marked) && memcmp(out, cases[i].marked, count) == 0);
        free(out);
    }
}

TEST(pieces_end_before_words)
{
    static const char text[] = M M "ab" M "c";
    char out[sizeof text];
    ck_assert_uint_eq(bpe_marks_piece(text, sizeof text - 1, false), 8);
    ck_assert_uint_eq(bpe_marks_piece(text, sizeof text - 1, true), 3);
    ck_assert_uint_eq(bpe_marks_piece("\xE2\x96", 2, true), 2);
    ck_assert(bpe_marks_inside("a" M, 4) && bpe_marks_inside("\na", 2));
    ck_assert(!bpe_marks_inside(M M "a", 7) && !bpe_marks_inside("a\n\n", 3));
    ck_assert_uint_eq(bpe_marks_read(text, sizeof text - 1, out), 6);
    ck_assert(memcmp(out, "  ab c", 6) == 0);
}
