/* Imports vocabularies of other projects: chooses the files, and reads the two line formats.
 *
 * A file is recognised by its name.  Merges are lines "LEFT RIGHT" in GPT-2's alphabet; a first line that starts with
 * #version is skipped.  tiktoken's lines are "BASE64 RANK".  tokenizer_import_json.c reads tokenizer.json and the maps
 * of texts to ids.
 */
#include "data/tokenizer_import.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer_import_json.h"

/* vocabulary, merges */
static const char *const pair_names[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};
enum { PAIR_COUNT = sizeof pair_names / sizeof pair_names[0] };

#define JSON_NAME "tokenizer.json"

/* ---- lines ---- */

struct lines {
    const char *text;
    size_t count, at;
    size_t number; /* of the current line, from 1 */
};

/* Returns the next line without its end ("\n" or "\r\n"); false after the last. */
static bool line_next(struct lines *lines, const char **out, size_t *out_count)
{
    if (lines->at == lines->count)
        return false;
    const char *begin = lines->text + lines->at;
    const char *end = memchr(begin, '\n', lines->count - lines->at);
    size_t length = end != NULL ? (size_t)(end - begin) : lines->count - lines->at;
    lines->at += length + (end != NULL);
    lines->number++;
    if (length > 0 && begin[length - 1] == '\r')
        length--;
    *out = begin;
    *out_count = length;
    return true;
}

/* Returns an upper bound on the number of lines. */
static size_t line_count(const char *text, size_t count)
{
    size_t lines = 1;
    for (size_t i = 0; i < count; i++)
        lines += text[i] == '\n';
    return lines;
}

static enum gt_status line_refuse(const struct lines *lines, const char *path, const char *what)
{
    log_error("%s: line %zu: %s", path, lines->number, what);
    return GT_DATA;
}

/* ---- vocab.bpe, merges.txt ---- */

static bool merge_read(struct bpe *bpe, const char *text, size_t count)
{
    const char *space = memchr(text, ' ', count);
    if (space == NULL)
        return false;
    const size_t left_count = (size_t)(space - text);
    const int32_t left = bpe_find_written(bpe, text, left_count);
    const int32_t right = bpe_find_written(bpe, space + 1, count - left_count - 1);
    return left >= 0 && right >= 0 && bpe_add_merge(bpe, left, right);
}

enum gt_status tokenizer_import_merges(struct bpe *bpe, const char *text, size_t count, const char *path)
{
    struct lines lines = {.text = text, .count = count};
    const char *line = NULL;
    size_t length = 0, blank = 0;
    while (line_next(&lines, &line, &length)) {
        if (lines.number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0)
            continue;
        if (length == 0) {
            blank = blank == 0 ? lines.number : blank;
            continue;
        }
        if (blank != 0) {
            lines.number = blank;
            return line_refuse(&lines, path, "is empty");
        }
        if (!merge_read(bpe, line, length))
            return line_refuse(&lines, path,
                               "expected two tokens of the vocabulary, one space between them, that make a third");
    }
    return GT_OK;
}

enum gt_status tokenizer_import_pair(struct hostmem *mem, const char *vocab, size_t vocab_count, const char *vocab_path,
                                     const char *merges, size_t merges_count, const char *merges_path,
                                     struct tokenizer **out)
{
    struct bpe *bpe = NULL;
    const size_t lines = line_count(merges, merges_count);
    if (lines > BPE_MERGES_MAX) {
        log_error("%s: %zu lines, at most %d", merges_path, lines, BPE_MERGES_MAX);
        return GT_DATA;
    }
    TRY(tokenizer_import_vocab(mem, vocab, vocab_count, vocab_path, lines, &bpe));
    enum gt_status status = tokenizer_import_merges(bpe, merges, merges_count, merges_path);
    if (status == GT_OK)
        status = bpe_finish(bpe, vocab_path);
    if (status == GT_OK)
        return tokenizer_create_bpe(mem, bpe, out);
    bpe_destroy(bpe);
    return status;
}

/* ---- NAME.tiktoken ---- */

static int base64_digit(char digit)
{
    if (digit >= 'A' && digit <= 'Z')
        return digit - 'A';
    if (digit >= 'a' && digit <= 'z')
        return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9')
        return digit - '0' + 52;
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

/* Decodes RFC 4648 with padding to out[count / 4 * 3]. */
static bool base64_read(const char *text, size_t count, char *out, size_t *out_count)
{
    size_t length = 0;
    if (count == 0 || count % 4 != 0)
        return false;
    const size_t padding = text[count - 1] != '=' ? 0 : text[count - 2] != '=' ? 1 : 2;
    for (size_t at = 0; at < count; at += 4) {
        uint32_t group = 0;
        const size_t digits = at + 4 == count ? 4 - padding : 4;
        for (size_t i = 0; i < 4; i++) {
            const int digit = i < digits ? base64_digit(text[at + i]) : 0;
            if (digit < 0)
                return false;
            group = group << 6 | (uint32_t)digit;
        }
        for (size_t i = 0; i + 1 < digits; i++)
            out[length++] = (char)(group >> (16 - 8 * i) & 0xFF);
    }
    *out_count = length;
    return true;
}

/* Returns an unsigned number below `limit`, or -1. */
static int32_t rank_read(const char *text, size_t count, size_t limit)
{
    size_t value = 0;
    if (count == 0 || count > 9)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (size_t)(text[i] - '0');
    }
    return value < limit ? (int32_t)value : -1;
}

static const char *tiktoken_line(struct bpe *bpe, size_t ranks, const char *line, size_t count)
{
    static const char form[] = "expected a token of 1 to 1024 bytes in base64, a space, and its rank";
    char bytes[BPE_TOKEN_BYTES_MAX + 4];
    size_t length = 0;
    const char *space = memchr(line, ' ', count);
    if (space == NULL)
        return form;
    const size_t digits = (size_t)(space - line);
    if (digits / 4 * 3 > sizeof bytes || !base64_read(line, digits, bytes, &length))
        return form;
    const int32_t rank = rank_read(space + 1, count - digits - 1, ranks);
    if (rank < 0)
        return "the rank is no number below that of the lines";
    switch (bpe_add_token(bpe, rank, bytes, length, false)) {
    case BPE_ADDED:
        return NULL;
    case BPE_ID_TAKEN:
        return "the rank is there twice";
    case BPE_TEXT_TAKEN:
        return "the token is there twice";
    case BPE_TEXT_BAD:
        break;
    }
    return form;
}

static enum gt_status tiktoken_read(struct bpe *bpe, size_t ranks, const char *text, size_t count, const char *path)
{
    struct lines lines = {.text = text, .count = count};
    const char *line = NULL;
    size_t length = 0;
    while (line_next(&lines, &line, &length)) {
        const char *problem = tiktoken_line(bpe, ranks, line, length);
        if (problem != NULL)
            return line_refuse(&lines, path, problem);
    }
    const enum bpe_add added = bpe_add_token(bpe, (int32_t)ranks, BPE_EOT_TEXT, strlen(BPE_EOT_TEXT), true);
    assert(added == BPE_ADDED);
    (void)added;
    return bpe_finish(bpe, path);
}

enum gt_status tokenizer_import_tiktoken(struct hostmem *mem, const char *text, size_t count, const char *path,
                                         struct tokenizer **out)
{
    struct bpe *bpe = NULL;
    const size_t ranks = line_count(text, count) - (count == 0 || text[count - 1] == '\n');
    if (ranks == 0 || ranks >= BPE_VOCAB_MAX || count > TOKENIZER_IMPORT_BYTES_MAX - 64) {
        log_error("%s: %zu lines, expected 256 to %d", path, ranks, BPE_VOCAB_MAX - 1);
        return GT_DATA;
    }
    const struct bpe_spec spec = {.vocab_size = ranks + 1, .text_bytes = count + 64, .rank = BPE_RANK_TOKEN};
    TRY(bpe_create(mem, &spec, &bpe));
    const enum gt_status status = tiktoken_read(bpe, ranks, text, count, path);
    if (status != GT_OK) {
        bpe_destroy(bpe);
        return status;
    }
    log_note("%s: this format does not say how text is split into pieces; GPT-2's pattern is used", path);
    return tokenizer_create_bpe(mem, bpe, out);
}

/* ---- choosing the files ---- */

static bool ends_with(const char *path, const char *end)
{
    const size_t count = strlen(path), end_count = strlen(end);
    return count >= end_count && strcmp(path + count - end_count, end) == 0;
}

static bool is_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, name) == 0;
}

static enum gt_status import_pair_files(struct hostmem *mem, const char *vocab_path, const char *merges_path,
                                        struct tokenizer **out)
{
    char *vocab = NULL, *merges = NULL;
    size_t vocab_count = 0, merges_count = 0;
    TRY(file_read_all(vocab_path, TOKENIZER_IMPORT_BYTES_MAX, &vocab, &vocab_count));
    enum gt_status status = file_read_all(merges_path, TOKENIZER_IMPORT_BYTES_MAX, &merges, &merges_count);
    if (status == GT_OK)
        status = tokenizer_import_pair(mem, vocab, vocab_count, vocab_path, merges, merges_count, merges_path, out);
    free(merges);
    free(vocab);
    return status;
}

/* Imports a pair, given one half; the other half is in the same folder. */
static enum gt_status import_half(struct hostmem *mem, const char *path, int pair, int half, struct tokenizer **out)
{
    char other[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    assert(length < sizeof folder);
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = '\0';
    TRY(file_join(other, folder, pair_names[pair][1 - half]));
    return half == 0 ? import_pair_files(mem, path, other, out) : import_pair_files(mem, other, path, out);
}

static enum gt_status import_one(struct hostmem *mem, const char *path,
                                 enum gt_status (*import)(struct hostmem *mem, const char *text, size_t count,
                                                          const char *path, struct tokenizer **out),
                                 struct tokenizer **out)
{
    char *text = NULL;
    size_t count = 0;
    TRY(file_read_all(path, TOKENIZER_IMPORT_BYTES_MAX, &text, &count));
    const enum gt_status status = import(mem, text, count, path, out);
    free(text);
    return status;
}

static enum gt_status import_file(struct hostmem *mem, const char *path, struct tokenizer **out)
{
    for (int pair = 0; pair < PAIR_COUNT; pair++)
        for (int half = 0; half < 2; half++)
            if (is_named(path, pair_names[pair][half]))
                return import_half(mem, path, pair, half, out);
    if (is_named(path, TOKENIZER_FILE_NAME))
        return tokenizer_open_file(mem, path, out);
    if (ends_with(path, ".json"))
        return import_one(mem, path, tokenizer_import_json, out);
    if (ends_with(path, ".tiktoken"))
        return import_one(mem, path, tokenizer_import_tiktoken, out);
    log_error(
        "%s: not the name of a vocabulary file; expected %s, vocab.bpe with encoder.json, merges.txt with vocab.json, "
        "NAME.tiktoken or %s",
        path, JSON_NAME, TOKENIZER_FILE_NAME);
    return GT_USAGE;
}

static enum gt_status folder_has(const char *folder, const char *name, char path[static FILE_PATH_MAX], bool *out)
{
    TRY(file_join(path, folder, name));
    return file_look(path, out);
}

/* Chooses the file of a folder to start with; *out_found is false when there is none. */
static enum gt_status folder_choose(const char *folder, char out[static FILE_PATH_MAX], bool *out_found)
{
    static const char *const names[] = {TOKENIZER_FILE_NAME, JSON_NAME};
    char other[FILE_PATH_MAX];
    *out_found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !*out_found; i++)
        TRY(folder_has(folder, names[i], out, out_found));
    for (int pair = 0; pair < PAIR_COUNT && !*out_found; pair++) {
        TRY(folder_has(folder, pair_names[pair][0], out, out_found));
        if (*out_found)
            TRY(folder_has(folder, pair_names[pair][1], other, out_found));
    }
    return GT_OK;
}

enum gt_status tokenizer_import_folder(const char *folder, bool *out)
{
    char path[FILE_PATH_MAX];
    return folder_choose(folder, path, out);
}

enum gt_status tokenizer_import(struct hostmem *mem, const char *path, struct tokenizer **out)
{
    char chosen[FILE_PATH_MAX];
    bool exists;
    if (file_is_folder(path)) {
        TRY(folder_choose(path, chosen, &exists));
        if (exists)
            return import_file(mem, chosen, out);
        log_error("%s: this folder has no %s, vocab.bpe with encoder.json, merges.txt with vocab.json, or %s", path,
                  JSON_NAME, TOKENIZER_FILE_NAME);
        return GT_USAGE;
    }
    TRY(file_look(path, &exists));
    if (!exists) {
        log_error("%s: no such file or folder", path);
        return GT_USAGE;
    }
    return import_file(mem, path, out);
}
