/* Tests of the decoder of src/data/text_kind.c: several encodings, read through buffers of every size, characters on the border of
 * two reads, and bytes that are invalid in an encoding.  A build without iconv refuses by name. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/text_kind.h"

#include "tests/unit/data_fixture.h"

#define RAW_BYTES ((size_t)1 << 20)

/* Reads the file from byte `taken` on, `capacity` bytes at a time; the caller frees the text. */
static enum gt_status decode(struct data_fixture *fixture, const char *encoding, size_t taken, size_t capacity,
                             char **out)
{
    struct text_decoder *decoder = NULL;
    struct input *input = NULL;
    const struct corpus_file file = {.path = fixture_path(fixture, "a.txt")};
    unsigned char *first = malloc(taken + 1), *text = malloc(8 * RAW_BYTES);
    size_t got = 0, length = 0;
    bool found;
    ck_assert_int_eq(input_open(fixture->mem, &file, NULL, 0, false, &input), GT_OK);
    ck_assert_int_eq(input_next(input, &found), GT_OK);
    if (taken > 0)
        ck_assert_int_eq(input_read(input, first, taken, &got), GT_OK);
    enum gt_status status = text_decoder_begin(fixture->mem, &decoder, encoding, input, first, got, 0);
    for (got = 1; status == GT_OK && got > 0; length += got) {
        status = text_decoder_read(decoder, input, text + length, capacity, &got);
        if (status != GT_OK)
            got = 0;
    }
    text[length] = '\0';
    *out = (char *)text;
    hostmem_free(decoder);
    hostmem_free(input);
    free(first);
    return status;
}

static void expect_text(struct data_fixture *fixture, const char *encoding, const char *expected)
{
    for (size_t taken = 0; taken < 5; taken++)
        for (size_t capacity = 64; capacity < 67; capacity++) {
            char *text = NULL;
            ck_assert_int_eq(decode(fixture, encoding, taken, capacity, &text), GT_OK);
            ck_assert_str_eq(text, expected);
            free(text);
        }
}

#ifdef HAVE_ICONV
TEST(encodings)
{
    static const struct {
        const char *encoding, *bytes, *text;
        size_t count;
    } texts[] = {
        {"UTF-16LE",
         "\x42\x30\x3d\xd8\0\xde"
         "a",
         "あ😀a", 8},
        {"UTF-16BE", "\x30\x42\0a", "あa", 4},
        {"latin1",
         "Gr\xf6\xdf"
         "e",
         "Größe", 5},
        {"windows-1252", "l\x92\xe9glise \x80", "l’église €", 10},
        {"SHIFT_JIS", "\x93\xfa\x96{\xbb", "日本ｻ", 5},
        {"EUC-JP", "\xc6\xfc\xcb\xdc\n", "日本\n", 5},
        {"ISO-2022-JP", "\x1b$BF|K\\\x1b(B.", "日本.", 11},
        {"UTF-8", "\xe6\x97\xa5", "日", 3},
        {"latin1", "", "", 0},
    };
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fixture_write(&fixture, "a.txt", texts[i].bytes, texts[i].count);
        expect_text(&fixture, texts[i].encoding, texts[i].text);
    }
    fixture_close(&fixture);
}

/* Two-byte characters at both parities around the border of the raw buffer, in a text of three raw buffers. */
TEST(characters_across_buffers)
{
    struct data_fixture fixture;
    const size_t pairs = 3 * RAW_BYTES / 2;
    char *bytes = malloc(2 * pairs + 1), *text = NULL;
    fixture_open(&fixture);
    for (size_t shift = 0; shift < 2; shift++) {
        bytes[0] = 'x';
        for (size_t i = 0; i < pairs; i++)
            memcpy(bytes + shift + 2 * i, "\x82\xa0", 2);
        fixture_write(&fixture, "a.txt", bytes, shift + 2 * pairs);
        ck_assert_int_eq(decode(&fixture, "SHIFT_JIS", RAW_BYTES, RAW_BYTES, &text), GT_OK);
        ck_assert_uint_eq(strlen(text), shift + 3 * pairs);
        ck_assert(shift == 0 || text[0] == 'x');
        for (size_t i = 0; i < pairs; i++)
            ck_assert_int_eq(memcmp(text + shift + 3 * i, "あ", 3), 0);
        free(text);
    }
    free(bytes);
    fixture_close(&fixture);
}

TEST(invalid_bytes_are_named)
{
    static const struct {
        const char *encoding, *bytes, *says;
        size_t count;
    } bad[] = {{"SHIFT_JIS", "abc\x82", "a.txt: byte 3 is not valid in SHIFT_JIS", 4},
               {"SHIFT_JIS", "ab\x82\xa0\xff", "a.txt: byte 4 is not valid", 5},
               {"UTF-16LE",
                "a\0\0\xdc"
                "b",
                "a.txt: byte 2 is not valid", 6},
               {"UTF-16LE", "a\0b", "a.txt: byte 2 is not valid", 3},
               {"UTF-8", "abcd\xe4", "a.txt: byte 4 is not valid", 5}};
    struct data_fixture fixture;
    char *text = NULL;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture_write(&fixture, "a.txt", bad[i].bytes, bad[i].count);
        ck_assert_int_eq(decode(&fixture, bad[i].encoding, 0, 64, &text), GT_DATA);
        FIXTURE_SAYS(&fixture, bad[i].says);
        free(text);
    }
    char *bytes = calloc(RAW_BYTES, 2);
    memset(bytes, 'a', 2 * RAW_BYTES);
    bytes[RAW_BYTES + 77] = (char)0xE4;
    fixture_write(&fixture, "a.txt", bytes, 2 * RAW_BYTES);
    ck_assert_int_eq(decode(&fixture, "UTF-8", 0, 100, &text), GT_DATA);
    FIXTURE_SAYS(&fixture, "byte 1048653 ");
    free(text);
    free(bytes);
    fixture_close(&fixture);
}

TEST(encodings_are_checked)
{
    struct data_fixture fixture;
    bool is_ascii = false;
    fixture_open(&fixture);
    ck_assert_int_eq(text_encoding_check("klingon", &is_ascii), GT_USAGE);
    FIXTURE_SAYS(&fixture, "--encoding=klingon");
    ck_assert_int_eq(text_encoding_check("SHIFT_JIS", &is_ascii), GT_OK);
    ck_assert(is_ascii);
    ck_assert_int_eq(text_encoding_check("UTF-16LE", &is_ascii), GT_OK);
    ck_assert(!is_ascii);
    hostmem_free(NULL);
    fixture_close(&fixture);
}

#else

TEST(without_iconv)
{
    struct data_fixture fixture;
    bool is_ascii = false;
    fixture_open(&fixture);
    ck_assert_int_eq(text_encoding_check("latin1", &is_ascii), GT_UNSUPPORTED);
    FIXTURE_SAYS(&fixture, "iconv -f latin1 -t UTF-8");
    fixture_close(&fixture);
}

#endif
