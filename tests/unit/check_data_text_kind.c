/* Tests of src/data/text_kind.c: files that are not text, byte-order marks, and text that looks like Latin-1. */
#include "data/text_kind.h"

#include "tests/unit/data_fixture.h"

static void expect_kind(const char *bytes, size_t count, bool is_json, const char *name)
{
    const struct text_kind *kind = text_kind_of((const unsigned char *)bytes, count, is_json);
    ck_assert_msg((kind != NULL) == (name != NULL), "%s", name != NULL ? name : bytes);
    if (name != NULL)
        ck_assert_msg(strstr(kind->name, name) != NULL, "%s is not %s", kind->name, name);
}

TEST(kinds_by_their_first_bytes)
{
    static const struct {
        size_t count;
        const char *bytes, *name;
    } files[] = {{4, "PAR1", "Parquet"},
                 {30, "PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "zip"},
                 {8, "%PDF-1.7", "PDF"},
                 {8, "\x89PNG\r\n\x1a\n", "PNG"},
                 {4, "\xff\xd8\xff\xe0", "JPEG"},
                 {6, "GIF89a", "GIF"},
                 {8, "GGUF\3\0\0\0", "GGUF"},
                 {10, "\x93NUMPY\1\0\x76\0", "NumPy"},
                 {4, "\x80\2}q", "pickle"},
                 {16, "SQLite format 3", "SQLite"},
                 {6,
                  "\x7f"
                  "ELF\2\1",
                  "program"},
                 {18, "\x58\2\0\0\0\0\0\0{\"lm_head\"", "safetensors"},
                 {4, "\x1f\x8b\x08\0", "gzip"},
                 {6,
                  "\xfd"
                  "7zXZ\0",
                  "xz"},
                 {4, "\x28\xb5\x2f\xfd", "zstd"},
                 {10, "BZh91AY&SY", "bzip2"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        expect_kind(files[i].bytes, files[i].count, false, files[i].name);
        for (size_t cut = 0; cut < (files[i].count < 3 ? files[i].count : 2); cut++)
            expect_kind(files[i].bytes, cut, true, NULL); /* too short to decide */
    }
}

TEST(texts_are_no_kind)
{
    static const char *const texts[] = {
        "",       "P",       "PAR",       "PART 1", "PK",           "Gif",         "{\"a\": 1}",
        "[link]", "% notes", "7z is one", "BZh9",   "\xef\xbb\xbf", "\xe3\x81\x82"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect_kind(texts[i], strlen(texts[i]), false, NULL);
    expect_kind("[link]", 6, true, "list");
    expect_kind(" \r\n\t[", 5, true, "list");
    expect_kind("\xef\xbb\xbf[1]", 6, true, "list");
    expect_kind("{\"a\": []}", 9, true, NULL);
    expect_kind("  ", 2, true, NULL);
}

TEST(byte_order_marks)
{
    static const struct {
        size_t count, length;
        const char *bytes, *encoding;
    } marks[] = {{4, 2,
                  "\xff\xfe"
                  "a",
                  "UTF-16LE"},
                 {2, 2, "\xfe\xff", "UTF-16BE"},
                 {5, 4, "\xff\xfe\0\0a", "UTF-32LE"},
                 {4, 4, "\0\0\xfe\xff", "UTF-32BE"},
                 {3, 3, "\xef\xbb\xbf", "UTF-8"},
                 {3, 2, "\xff\xfe\0", "UTF-16LE"},
                 {1, 0, "\xff", NULL},
                 {2, 0, "\xef\xbb", NULL},
                 {4, 0, "text", NULL},
                 {0, 0, "", NULL}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        size_t length = 99;
        const char *encoding = text_mark_of((const unsigned char *)marks[i].bytes, marks[i].count, &length);
        ck_assert_uint_eq(length, marks[i].length);
        ck_assert_pstr_eq(encoding, marks[i].encoding);
    }
}

TEST(what_looks_like_latin)
{
    static const struct {
        const char *text, *guess;
    } texts[] = {{"plain", NULL},
                 {"", NULL},
                 {"Gr\xf6\xdf"
                  "er wird es nicht, h\xe4ngen \xfc"
                  "ber H\xf6"
                  "fen",
                  "latin1"},
                 {"pr\xe8s de l\x92\xe9glise, \x93on\x94 r\xe9pare \xe0 c\xf4t\xe9", "windows-1252"},
                 {"\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd", NULL},  /* Shift_JIS */
                 {"\xc2\xe5\xf7\xe5\xf0\xee\xec \xed\xe0\xe4", NULL}, /* Windows-1251 */
                 {"\x83J\x83^\x83J\x83i", NULL},                      /* katakana in Shift_JIS */
                 {"\xc4\xfa\xba\xc3", NULL}};                         /* GBK */
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_pstr_eq(text_guess_latin(texts[i].text, strlen(texts[i].text)), texts[i].guess);
}
