/* Tests of the texts that end a sample: parsing, and finding them in any cut of the stream, against
 * a search of the whole. */
#include "data/stop_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

#define LENGTH_MAX 64

static struct stop_texts texts;

struct shown {
    size_t count;
    char bytes[LENGTH_MAX + 1];
};

static void show(void *context, const char *bytes, size_t count)
{
    struct shown *shown = context;
    ck_assert_uint_gt(count, 0);
    ck_assert_uint_le(shown->count + count, LENGTH_MAX);
    memcpy(shown->bytes + shown->count, bytes, count);
    shown->count += count;
    shown->bytes[shown->count] = '\0';
}

static void parse(const char *list)
{
    ck_assert_int_eq(stop_texts_parse(list, "stop", &texts), GT_OK);
}

/* Pushes `text` in pieces of `piece` bytes into *out; returns true when a stop text was found. */
static bool stream(const char *text, size_t piece, struct shown *out)
{
    struct stop_text state = {0};
    const size_t length = strlen(text);
    *out = (struct shown){0};
    for (size_t at = 0; at < length; at += piece)
        (void)stop_text_push(&state, &texts, text + at, length - at < piece ? length - at : piece,
                             show, out);
    if (!state.found)
        stop_text_end(&state, show, out);
    return state.found;
}

TEST(parses_lists)
{
    parse("");
    ck_assert_uint_eq(texts.count, 0);
    parse("ab");
    ck_assert_uint_eq(texts.count, 1);
    ck_assert_uint_eq(texts.at[0].count, 2);
    parse("a\\,b,\\n\\n,\\\\t,\\t");
    ck_assert_uint_eq(texts.count, 4);
    ck_assert_mem_eq(texts.at[0].bytes, "a,b", 3);
    ck_assert_mem_eq(texts.at[1].bytes, "\n\n", 2);
    ck_assert_mem_eq(texts.at[2].bytes, "\\t", 2);
    ck_assert_mem_eq(texts.at[3].bytes, "\t", 1);
}

static void refused(const char *list, const char *part)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(stop_texts_parse(list, "stop", &texts), GT_USAGE);
    log_capture_end();
    log_capture_one_error(&capture, part);
}

TEST(refuses_bad_lists)
{
    char longest[STOP_TEXT_BYTES_MAX + 2];
    refused(",", "empty text");
    refused("a,", "empty text");
    refused("a,,b", "empty text");
    refused("\\x", "backslash");
    refused("a\\", "backslash");
    refused("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16");
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refused(longest, "more than 256");
    longest[sizeof longest - 2] = '\0';
    parse(longest);
    ck_assert_uint_eq(texts.at[0].count, STOP_TEXT_BYTES_MAX);
}

TEST(ends_at_the_first)
{
    static const struct {
        const char *list, *text, *shown;
        bool found;
    } cases[] = {
        {"", "anything", "anything", false},
        {"end", "the end of it", "the ", true},
        {"end", "the en", "the en", false},
        {"aab", "aaaab", "aa", true},
        {"abcd,bc", "xabcd", "xa", true},
        {"abcd,bc", "xabd", "xabd", false},
        {"abcabd", "abcabcabd!", "abc", true},
        {"a", "a", "", true},
        {"\\n\\n,USER:", "Hi\nUSER:x", "Hi\n", true},
        {"abab", "abaabab", "aba", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece < 12; piece++) {
            struct shown shown;
            parse(cases[i].list);
            ck_assert_int_eq(stream(cases[i].text, piece, &shown), cases[i].found);
            ck_assert_str_eq(shown.bytes, cases[i].shown);
        }
    }
}
