/* Splits text with PCRE2, and normalizes it with ICU.
 *
 * Each pattern is anchored and matches any character, so each match is the next piece.  Character
 * classes are written out, because PCRE2's \s has characters that Rust's and Python's \s lack, and
 * because PCRE2 10.42 only knows the letters, marks and numbers of Unicode 14.0; those of 15.0,
 * 15.1 and 16.0 are added.  Repeats of letters, numbers and signs are possessive, so backtracking
 * occurs only in white space and in words that are divided where their case changes.  This file
 * validates UTF-8 once and turns off PCRE2's own check.  ASCII words, which are most of most texts,
 * are found without PCRE2.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/bpe_split.h"

#include <pcre2.h>
#ifdef HAVE_ICU
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#endif

#include "base/utf8.h"

#define SPACE \
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define LETTER                                                                                                        \
    "A-Za-z\\p{L}\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}" \
    "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"        \
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"         \
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"                  \
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}"                   \
    "\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
/* Marks and letters without case belong to both UPPER and LOWER. */
#define MARK                                                                                         \
    "\\p{M}\\x{897}\\x{CF3}\\x{ECE}\\x{10D69}-\\x{10D6D}\\x{10EFC}-\\x{10EFF}\\x{11241}"             \
    "\\x{113B8}-\\x{113C0}\\x{113C2}\\x{113C5}\\x{113C7}-\\x{113CA}\\x{113CC}-\\x{113D0}\\x{113D2}"  \
    "\\x{113E1}-\\x{113E2}\\x{11F00}-\\x{11F01}\\x{11F03}\\x{11F34}-\\x{11F3A}\\x{11F3E}-\\x{11F42}" \
    "\\x{11F5A}\\x{13440}\\x{13447}-\\x{13455}\\x{1611E}-\\x{1612F}\\x{1E08F}\\x{1E4EC}-\\x{1E4EF}"  \
    "\\x{1E5EE}-\\x{1E5EF}"
#define UNCASED_LETTER                                                                               \
    "\\p{Lm}\\p{Lo}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D4F}\\x{10D6F}\\x{10EC2}-\\x{10EC4}"        \
    "\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}"  \
    "\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}"  \
    "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}" \
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}"  \
    "\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define UPPER                                                                                          \
    "\\p{Lu}\\p{Lt}\\x{1C89}\\x{A7CB}-\\x{A7CC}\\x{A7DA}\\x{A7DC}\\x{10D50}-\\x{10D65}" UNCASED_LETTER \
        MARK
#define LOWER                                                                                     \
    "\\p{Ll}\\x{1C8A}\\x{A7CD}\\x{A7DB}\\x{10D70}-\\x{10D85}\\x{1DF25}-\\x{1DF2A}" UNCASED_LETTER \
        MARK
#define NUMBER                                                                                                           \
    "0-9\\p{N}\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}" \
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"

#define ENDINGS "'(?:[sdmt]|ll|ve|re)"
#define SIGNS "\\x20?[^" SPACE LETTER NUMBER "]++"
/* A run of white space, less its last character where text follows.  Characters of `breaks` are not
 * text. */
#define SPACES(breaks) "|[" SPACE "]+(?![^" SPACE breaks "])|[" SPACE "]"
#define OF_LLAMA(number)                                                           \
    "(?i:" ENDINGS ")|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]++|" number "|" SIGNS \
    "[\\r\\n]*+|[" SPACE "]*[\\r\\n]++" SPACES("")
#define PREFIX "[^\\r\\n" LETTER NUMBER "]?"
#define ENDING "(?i:" ENDINGS ")?"
#define REGEX_ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define REGEX_UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define REGEX_LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define REGEX_PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define REGEX_OF_LLAMA(number)                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words that are divided where their case changes. */
#define OF_CASES(ending, number)                                                          \
    PREFIX "[" UPPER "]*[" LOWER "]+" ending "|" PREFIX "[" UPPER "]+[" LOWER "]*" ending \
           "|" number "|" SIGNS "[\\r\\n/]*+|[" SPACE "]*[\\r\\n]++" SPACES("")
#define REGEX_OF_CASES(ending, number)                                                          \
    REGEX_PREFIX "[" REGEX_UPPER "]*[" REGEX_LOWER "]+" ending "|" REGEX_PREFIX "[" REGEX_UPPER \
                 "]+[" REGEX_LOWER "]*" ending "|" number                                       \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const struct bpe_split_form bpe_splits[] = {
    [BPE_SPLIT_GPT2] = {"gpt2", "gpt-2", NULL,
                        ENDINGS "|\\x20?[" LETTER "]++|\\x20?[" NUMBER "]++|" SIGNS SPACES(""),
                        false},
    [BPE_SPLIT_SMOLLM] = {"smollm", "smollm", NULL,
                          ENDINGS "|\\x20?[" LETTER "]++|[" NUMBER "]|" SIGNS SPACES(NUMBER),
                          false},
    [BPE_SPLIT_LLAMA3] = {"llama3", "llama-bpe", REGEX_OF_LLAMA("\\p{N}{1,3}"),
                          OF_LLAMA("[" NUMBER "]{1,3}+"), true},
    [BPE_SPLIT_QWEN2] = {"qwen2", "qwen2", REGEX_OF_LLAMA("\\p{N}"), OF_LLAMA("[" NUMBER "]"),
                         true},
    [BPE_SPLIT_O200K] = {"o200k", "gpt-4o", REGEX_OF_CASES(REGEX_ENDING, "\\p{N}{1,3}"),
                         OF_CASES(ENDING, "[" NUMBER "]{1,3}+"), true},
    [BPE_SPLIT_TEKKEN] = {"tekken", "tekken", REGEX_OF_CASES("", "\\p{N}"),
                          OF_CASES("", "[" NUMBER "]"), true},
    [BPE_SPLIT_QWEN35] = {"qwen3.5", "qwen35",
                          "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" REGEX_PREFIX "[\\p{L}\\p{M}]+|\\p{N}| "
                          "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                          "(?i:" ENDINGS ")|" PREFIX "[" LETTER MARK "]++|[" NUMBER
                          "]|\\x20?[^" SPACE LETTER MARK NUMBER "]++[\\r\\n]*+|[" SPACE
                          "]*[\\r\\n]++" SPACES(""),
                          true},
    [BPE_SPLIT_MARKS] = {"marks", "default-marks", NULL, "(?s:.)", true},
};

struct bpe_splitter {
    enum bpe_split split;
    pcre2_code *code;
    pcre2_match_data *match;
    bool jit;
    const char *text;
    size_t count, at;
    size_t valid_end;   /* end of the valid text that contains `at` */
    size_t stretch_end; /* end of the invalid bytes after it, where the next valid text starts */
};

static enum gt_status pattern_compile(struct bpe_splitter *splitter)
{
    const char *pattern = bpe_splits[splitter->split].pattern;
    int error = 0;
    PCRE2_SIZE at = 0;
    splitter->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_ANCHORED, &error, &at, NULL);
    if (splitter->code == NULL) {
        char text[128] = "";
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        return FAIL(error == PCRE2_ERROR_HEAP_FAILED ? GT_NO_MEMORY : GT_FAILURE,
                    "PCRE2 refuses the pattern of the tokenizer's split at %zu: %s", (size_t)at,
                    text);
    }
    /* Without a JIT or executable memory, the interpreter gives the same matches. */
    splitter->jit = pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE) == 0;
    splitter->match = pcre2_match_data_create(1, NULL);
    if (splitter->match == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: PCRE2's match data");
    return GT_OK;
}

static void splitter_close(void *object)
{
    struct bpe_splitter *splitter = object;
    pcre2_match_data_free(splitter->match);
    pcre2_code_free(splitter->code);
}

enum gt_status bpe_splitter_create(const void *owner, enum bpe_split split,
                                   struct bpe_splitter **out)
{
    struct bpe_splitter *splitter;
    TRY(HOSTMEM_NEW(owner, 1, "splitter", &splitter));
    hostmem_at_free(splitter, splitter_close);
    splitter->split = split;
    const enum gt_status status = pattern_compile(splitter);
    return FINISH(status, out, splitter, hostmem_free);
}

/* ---- valid text ---- */

static void stretch_begin(struct bpe_splitter *splitter)
{
    const unsigned char *bytes = (const unsigned char *)splitter->text;
    uint32_t code_point;
    splitter->valid_end = utf8_valid_end(bytes, splitter->at, splitter->count);
    size_t end = splitter->valid_end;
    while (end < splitter->count &&
           utf8_decode(bytes + end, splitter->count - end, &code_point) <= 0)
        end++;
    splitter->stretch_end = end;
}

void bpe_splitter_begin(struct bpe_splitter *splitter, const char *text, size_t count)
{
    splitter->text = text;
    splitter->count = count;
    splitter->at = 0;
    stretch_begin(splitter);
}

/* ---- pieces ---- */

static bool is_letter(unsigned char byte)
{
    return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
}

static bool is_digit(unsigned char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Returns the length of the piece at `bytes`, or 0 if PCRE2 must find it.  The piece is an optional
 * space and ASCII letters, or digits in GPT-2's split.  Where case divides, only the first letter
 * may be a capital.  The byte after the piece must be ASCII, because that shows that the piece
 * ends. */
static size_t piece_plain(const unsigned char *bytes, size_t count, enum bpe_split split)
{
    size_t at = bytes[0] == ' ' ? 1 : 0;
    if (split == BPE_SPLIT_O200K || split == BPE_SPLIT_TEKKEN) {
        at += at < count && bytes[at] >= 'A' && bytes[at] <= 'Z' ? 1 : 0;
        const size_t begin = at;
        while (at < count && bytes[at] >= 'a' && bytes[at] <= 'z')
            at++;
        return at > begin && (at == count || (bytes[at] < 0x80 && bytes[at] != '\'')) ? at : 0;
    }
    if (at < count && is_letter(bytes[at]))
        while (at < count && is_letter(bytes[at]))
            at++;
    else if (split == BPE_SPLIT_GPT2 && at < count && is_digit(bytes[at]))
        while (at < count && is_digit(bytes[at]))
            at++;
    else
        return 0;
    return at == count || bytes[at] < 0x80 ? at : 0;
}

static size_t piece_match(const struct bpe_splitter *splitter, const char *text, size_t count)
{
    const PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int found;
    if (splitter->jit)
        found = pcre2_jit_match(splitter->code, subject, count, 0, PCRE2_NO_UTF_CHECK,
                                splitter->match, NULL);
    else
        found = pcre2_match(splitter->code, subject, count, 0, PCRE2_NO_UTF_CHECK, splitter->match,
                            NULL);
    assert(found == 1);
    const size_t length = found == 1 ? pcre2_get_ovector_pointer(splitter->match)[1] : 0;
    /* The pattern matches every character; if PCRE2 still hits a limit, the rest becomes one piece.
     */
    return length > 0 ? length : count;
}

size_t bpe_splitter_next(struct bpe_splitter *splitter, const char **out)
{
    const size_t begin = splitter->at;
    if (begin == splitter->count)
        return 0;
    if (begin < splitter->valid_end) {
        const char *text = splitter->text + begin;
        const size_t left = splitter->valid_end - begin;
        const size_t plain = piece_plain((const unsigned char *)text, left, splitter->split);
        splitter->at += plain > 0 ? plain : piece_match(splitter, text, left);
    }
    if (splitter->at == splitter->valid_end) {
        splitter->at = splitter->stretch_end;
        if (splitter->at < splitter->count)
            stretch_begin(splitter);
    }
    assert(splitter->at > begin && splitter->at <= splitter->count);
    *out = splitter->text + begin;
    return splitter->at - begin;
}

/* ---- cutting ---- */

/* Returns true when the character that ends at text[end - 1] is certainly not white space.
 * Unicode's white space begins with C2, E1 or E2, or is E3 80 80.  Returns false for bytes that are
 * not UTF-8. */
static bool ends_in_visible(const char *text, size_t end)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (bytes[end - 1] < 0x80)
        return bytes[end - 1] > 0x20 && bytes[end - 1] < 0x7F;
    for (size_t length = 2; length <= 4 && length <= end; length++) {
        uint32_t code_point = 0;
        if (utf8_decode(bytes + end - length, length, &code_point) != (int)length)
            continue;
        const unsigned char lead = bytes[end - length];
        return lead != 0xC2 && lead != 0xE1 && lead != 0xE2 && code_point != 0x3000;
    }
    return false;
}

/* Returns the last place up to `count` that is not inside a character, or `count` when these bytes
 * are not UTF-8. */
static size_t cut_between_characters(const char *text, size_t count)
{
    for (size_t back = 1; back <= 3 && back < count; back++) {
        uint32_t code_point = 0;
        const int length =
            utf8_decode((const unsigned char *)text + count - back, back, &code_point);
        if (length == UTF8_INCOMPLETE)
            return count - back;
        if (length > 0)
            return count;
    }
    return count;
}

/* Returns true when the character that begins at text[at] is certainly not white space. */
static bool begins_in_visible(const char *text, size_t at, size_t count)
{
    uint32_t code_point = 0;
    const int length = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
    return length > 0 && ends_in_visible(text, at + (size_t)length);
}

size_t bpe_split_cut(const char *text, size_t count, bool joins_newlines, bool *out_forced)
{
    assert(count >= 1);
    *out_forced = false;
    for (size_t at = count - 1; at > 0; at--) {
        if (joins_newlines && text[at - 1] == '\n' && text[at] != '/' &&
            begins_in_visible(text, at, count))
            return at;
        if ((text[at] == ' ' || (text[at] == '\n' && !joins_newlines)) && ends_in_visible(text, at))
            return at;
    }
    *out_forced = true;
    return cut_between_characters(text, count);
}

/* ---- normalization form C, with ICU ----
 *
 * Text without a byte above 0xCB is normalized already: below U+0300 no character combines.  Other
 * text goes through UTF-16, which ICU works in.  Each stretch of valid UTF-8 is normalized, and the
 * bytes between stretches are copied. */

#ifdef HAVE_ICU
#define FIRST_LEAD 0xCC /* of U+0300 */

const bool bpe_nfc_possible = true;

static bool is_plain(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)text[i] >= FIRST_LEAD)
            return false;
    return true;
}

/* Normalizes valid UTF-8 to `out`, which has room; `wide` is for 4 * count units.  Returns the
 * length. */
static size_t stretch_normalize(const char *text, size_t count, UChar *wide, char *out)
{
    UErrorCode error = U_ZERO_ERROR;
    int32_t units = 0, length = 0;
    UChar *normal = wide + count;
    const int32_t most = (int32_t)(BPE_NFC_GROWTH_MAX * count);
    u_strFromUTF8(wide, (int32_t)count, &units, text, (int32_t)count, &error);
    units = unorm2_normalize(unorm2_getNFCInstance(&error), wide, units, normal, most, &error);
    u_strToUTF8(out, most, &length, normal, units, &error);
    if (U_SUCCESS(error))
        return (size_t)length;
    memcpy(out, text, count); /* only when ICU has no memory */
    return count;
}

enum gt_status bpe_nfc(const char *text, size_t count, char **out, size_t *out_count)
{
    *out = NULL;
    if (is_plain(text, count))
        return GT_OK;
    if (count > INT32_MAX / BPE_NFC_GROWTH_MAX)
        return GT_NO_MEMORY;
    char *normal = malloc(BPE_NFC_GROWTH_MAX * count);
    UChar *wide = malloc((1 + BPE_NFC_GROWTH_MAX) * count * sizeof *wide);
    size_t length = 0;
    for (size_t at = 0; at < count && normal != NULL && wide != NULL;) {
        const size_t end = utf8_valid_end((const unsigned char *)text, at, count);
        length += stretch_normalize(text + at, end - at, wide, normal + length);
        if (end < count)
            normal[length++] = text[end];
        at = end + 1;
    }
    free(wide);
    if (wide == NULL || normal == NULL) {
        free(normal);
        return GT_NO_MEMORY;
    }
    *out = normal;
    *out_count = length;
    return GT_OK;
}
#else
const bool bpe_nfc_possible = false;

enum gt_status bpe_nfc(const char *text, size_t count, char **out, size_t *out_count)
{
    (void)text, (void)count, (void)out, (void)out_count;
    return GT_UNSUPPORTED;
}
#endif
