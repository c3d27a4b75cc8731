/* Tests of the texts that end a sample: parsing, and finding them in any cut of the stream, against a search of the
 * whole. */
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
        (void)stop_text_push(&state, &texts, text + at, length - at < piece ? length - at : piece, show, out);
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

/* Uses texts and streams over two letters, where everything overlaps. */
TEST(finds_what_a_search_finds)
{
    srand((unsigned)unit_seed());
    for (int round = 0; round < 20000; round++) {
        char list[64] = "", text[LENGTH_MAX] = "";
        const int count = 1 + rand() % 3, length = rand() % 40;
        for (int i = 0; i < count; i++) {
            const size_t used = strlen(list);
            const int own = 1 + rand() % 6;
            if (i > 0)
                list[used] = ',';
            for (int k = 0; k < own; k++)
                list[used + (i > 0) + (size_t)k] = (char)('a' + rand() % 2);
        }
        for (int i = 0; i < length; i++)
            text[i] = (char)('a' + rand() % 2);
        parse(list);
        /* The text that is complete first wins; of those that end together, the longest. */
        size_t end_least = SIZE_MAX, begin = strlen(text);
        for (size_t i = 0; i < texts.count; i++) {
            char one[STOP_TEXT_BYTES_MAX + 1] = "";
            memcpy(one, texts.at[i].bytes, texts.at[i].count);
            const char *at = strstr(text, one);
            if (at == NULL)
                continue;
            const size_t end = (size_t)(at - text) + texts.at[i].count;
            if (end < end_least || (end == end_least && (size_t)(at - text) < begin))
                begin = (size_t)(at - text);
            end_least = end < end_least ? end : end_least;
        }
        struct shown shown;
        const bool found = stream(text, 1 + (size_t)rand() % 5, &shown);
        ck_assert_int_eq(found, end_least != SIZE_MAX);
        ck_assert_uint_eq(shown.count, begin);
        ck_assert_mem_eq(shown.bytes, text, begin);
    }
}
