/* Tests of src/data/bpe_split.c: GPT-2's split on texts with known pieces, bytes that are not
 * UTF-8, and cutting.  tests/e2e/tokenizer_json.py has every split on random texts. */
#include "data/bpe_split.h"

#include "data/documents.h"
#include "tests/unit/bpe_fixture.h"

static struct bpe_splitter *open_splitter_of(struct data_fixture *fixture, enum bpe_split split)
{
    struct bpe_splitter *splitter = NULL;
    fixture_open(fixture);
    ck_assert_int_eq(bpe_splitter_create(fixture->mem, split, &splitter), GT_OK);
    return splitter;
}

static struct bpe_splitter *open_splitter(struct data_fixture *fixture)
{
    return open_splitter_of(fixture, BPE_SPLIT_GPT2);
}

static void close_splitter(struct data_fixture *fixture, struct bpe_splitter *splitter)
{
    hostmem_free(splitter);
    fixture_close(fixture);
}

TEST(split_known_texts)
{
    /* Pieces separated by '|'; verified with the pattern in Python's regex module and with
     * tiktoken. */
    static const struct {
        const char *text, *pieces;
    } known[] = {
        {"Hello world", "Hello| world"},
        {"it's we'll 'ddd 'S", "it|'s| we|'ll| '|ddd| '|S"},
        {"'tis 're'vex", "'t|is| '|re|'ve|x"},
        {"'re'vex", "'re|'ve|x"},
        {"a  b   c", "a| | b|  | c"},
        {"a \n b", "a| \n| b"},
        {"end  ", "end|  "},
        {"end\n\n", "end|\n\n"},
        {"  lead", " | lead"},
        {"x1y22", "x|1|y|22"},
        {"(a+b)==c", "(|a|+|b|)==|c"},
        {" !? 12", " !?| 12"},
        {"\t\tx", "\t|\t|x"},
        {"caf\xC3\xA9 \xC3\xBC"
         "ber",
         "caf\xC3\xA9| \xC3\xBC"
         "ber"},
        {"\xE6\x97\xA5\xE6\x9C\xAC 5\xD9\xA3", "\xE6\x97\xA5\xE6\x9C\xAC| 5\xD9\xA3"},
        {"a\xC2\xA0\xC2\xA0"
         "b",
         "a|\xC2\xA0|\xC2\xA0|b"},
        {"a\xE1\xA0\x8E"
         "b",
         "a|\xE1\xA0\x8E|b"}, /* U+180E is not white space since Unicode 6.3 */
        {" \xF0\x91\xBC\x82 \xF0\x9E\x93\xB0",
         " \xF0\x91\xBC\x82| \xF0\x9E\x93\xB0"}, /* a letter and a digit of Unicode 15.0 */
        {"\xF0\x91\xBC\x82"
         "a\xF0\x9E\x93\xB0"
         "1",
         "\xF0\x91\xBC\x82"
         "a|\xF0\x9E\x93\xB0"
         "1"},
        {"\xF0\x9F\x98\x80!", "\xF0\x9F\x98\x80!"},
        /* Bytes that are not UTF-8 join the piece before them; the text after them starts a new
           piece. */
        {"\xFF", "\xFF"},
        {"\xFF\xFE hello", "\xFF\xFE| hello"},
        {"hello \xE2\x80", "hello| \xE2\x80"},
        {"a\x80 b", "a\x80| b"},
        {"a \x80"
         "b",
         "a| \x80|b"},
        {"a  \xFF b", "a|  \xFF| b"},
        {"x\xC3", "x\xC3"},
        {"\xED\xA0\x80", "\xED\xA0\x80"}, /* a surrogate */
    };
    struct data_fixture fixture;
    struct bpe_splitter *splitter = open_splitter(&fixture);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char joined[256] = "";
        const char *piece = NULL;
        bpe_splitter_begin(splitter, known[i].text, strlen(known[i].text));
        for (size_t length; (length = bpe_splitter_next(splitter, &piece)) > 0;) {
            if (joined[0] != '\0')
                strcat(joined, "|");
            strncat(joined, piece, length);
        }
        ck_assert_msg(strcmp(joined, known[i].pieces) == 0, "case %zu: \"%s\"", i, joined);
    }
    close_splitter(&fixture, splitter);
}

static size_t utf8_put(uint32_t code, char out[static 4])
{
    const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0) | code);
    return length;
}

/* Letters that Unicode 15 and 16 added, which older PCRE2 libraries do not know; UnicodeData.txt.
 */
TEST(new_letters_are_letters)
{
    static const uint32_t ranges[][2] = {
        {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
        {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240},
        {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5},
        {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
        {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F},
        {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C},
        {0x18CFF, 0x18CFF}, {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1DF25, 0x1DF2A},
        {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0},
        {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};
    struct data_fixture fixture;
    struct bpe_splitter *splitter = open_splitter(&fixture);
    for (size_t i = 0; i < 2 * (sizeof ranges / sizeof ranges[0]); i++) {
        char text[8] = "a";
        const char *piece = NULL;
        const size_t length = 1 + utf8_put(ranges[i / 2][i % 2], text + 1);
        bpe_splitter_begin(splitter, text, length);
        ck_assert_msg(bpe_splitter_next(splitter, &piece) == length, "U+%X is no letter",
                      ranges[i / 2][i % 2]);
    }
    close_splitter(&fixture, splitter);
}

/* Finds the ends of all pieces of a text. */
static size_t split_ends(struct bpe_splitter *splitter, const char *text, size_t count, size_t *out)
{
    const char *piece = NULL;
    size_t pieces = 0, at = 0;
    bpe_splitter_begin(splitter, text, count);
    for (size_t length; (length = bpe_splitter_next(splitter, &piece)) > 0;) {
        ck_assert_ptr_eq(piece, text + at);
        at += length;
        out[pieces++] = at;
    }
    ck_assert_uint_eq(at, count);
    return pieces;
}

/* For any text and split, the pieces add up to the text, and cutting at bpe_split_cut() changes
 * none of them, unless it is forced. */
TEST_LOOP(split_cut_changes_nothing, BPE_SPLIT_COUNT)
{
    struct data_fixture fixture;
    const bool joins = bpe_splits[_i].joins_newlines;
    struct bpe_splitter *splitter = open_splitter_of(&fixture, (enum bpe_split)_i);
    char text[300];
    size_t whole[300], part[300], cuts = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        const size_t count = 1 + random_below(4, i, sizeof text - 1);
        random_text(5000 + i, true, text, count);
        const size_t pieces = split_ends(splitter, text, count, whole);
        bool forced = false;
        const size_t cut =
            bpe_split_cut(text, 1 + random_below(5, i, (uint32_t)count), joins, &forced);
        if (forced)
            continue;
        cuts++;
        size_t next = split_ends(splitter, text, cut, part);
        ck_assert_mem_eq(part, whole, next * sizeof part[0]);
        const size_t rest = split_ends(splitter, text + cut, count - cut, part);
        ck_assert_uint_eq(next + rest, pieces);
        for (size_t k = 0; k < rest; k++)
            ck_assert_uint_eq(part[k] + cut, whole[next++]);
    }
    ck_assert_uint_gt(cuts, joins ? 1000 : 1500);
    close_splitter(&fixture, splitter);
}
