/* Imports vocabularies of other projects: chooses the files, and reads them.
 *
 * A file is recognised by its name.  Merges are lines "LEFT RIGHT" in GPT-2's alphabet; a first
 * line that starts with #version is skipped.  tiktoken's lines are "BASE64 RANK".  tokenizer_bpe.c
 * reads the other parts of tokenizer.json.
 */
#include "data/tokenizer_import.h"

#include <ctype.h>

#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"
#include "data/chat_kind.h"
#include "data/tokenizer_bpe.h"
#include "data/tokenizer_export.h"
#include "data/tokenizer_generation.h"

/* The files of a folder in the order of preference; merges are NULL when the file is complete by
 * itself. */
static const struct {
    const char *name, *merges;
} forms[] = {{TOKENIZER_FILE_NAME, NULL},
             {"tokenizer.json", NULL},
             {"encoder.json", "vocab.bpe"},
             {"vocab.json", "merges.txt"}};
enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

/* ---- a vocabulary whose file does not say how text is split ---- */

#define DIVIDED_SHARE 50 /* GPT-2's split may divide at most one token in this many */

#define NUMBERS_FROM 16384 /* a vocabulary of so many tokens has one of several digits */

/* Returns true if the text has two digits side by side. */
static bool has_number(const char *text, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (isdigit((unsigned char)text[i]) && isdigit((unsigned char)text[i - 1]))
            return true;
    return false;
}

/* Refuses a vocabulary that was not made with GPT-2's split: a merge never makes a token that the
 * vocabulary's own split divides.  Tokens that are not UTF-8 prove nothing. */
static enum gt_status split_check(const struct bpe *bpe, const char *path)
{
    struct bpe_splitter *splitter;
    const bool merges = bpe->rank == BPE_RANK_MERGE;
    const size_t count = merges ? bpe->merge_count : bpe->vocab_size;
    size_t divided = 0;
    bool numbers = count < NUMBERS_FROM;
    const char *token, *piece, *example = "";
    int example_bytes = 0;
    TRY(bpe_splitter_create(bpe, BPE_SPLIT_GPT2, &splitter));
    for (size_t i = 0; i < count; i++) {
        const int32_t id = merges ? bpe->merges[i].result : (int32_t)i;
        const size_t length = bpe_is_special(bpe, id) ? 0 : bpe_token(bpe, id, &token);
        if (length == 0 || utf8_valid_end((const unsigned char *)token, 0, length) < length)
            continue;
        numbers = numbers || has_number(token, length);
        bpe_splitter_begin(splitter, token, length);
        if (bpe_splitter_next(splitter, &piece) == length)
            continue;
        divided++;
        if (example_bytes == 0 && length < 32) {
            example = token;
            example_bytes = (int)length;
        }
    }
    hostmem_free(splitter);
    if (divided * DIVIDED_SHARE <= count && numbers)
        return GT_OK;
    if (divided * DIVIDED_SHARE <= count)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: none of the %zu tokens has two digits, so that digits are split apart, as "
            "SmolLM's are, which the file does not say; give the tokenizer.json of the same "
            "model: hf download OWNER/NAME tokenizer.json",
            path, count);
    return FAIL(GT_UNSUPPORTED,
                "%s: this vocabulary was not made with GPT-2's split of text, which divides %zu of "
                "its %zu tokens, such as \"%.*s\", and the file does not say how it was; give the "
                "tokenizer.json of the same model: hf download OWNER/NAME tokenizer.json",
                path, divided, count, example_bytes, example);
}

/* Finishes the vocabulary, or releases it after an error. */
static enum gt_status import_end(const void *owner, enum gt_status status, struct bpe *bpe,
                                 const char *path, struct tokenizer **out)
{
    THEN(status, bpe_finish(bpe, path));
    if (status == GT_OK)
        return tokenizer_create_bpe(owner, bpe, out);
    hostmem_free(bpe);
    return status;
}

/* ---- lines ---- */

struct lines {
    const struct tokenizer_source *source;
    size_t at;
    size_t number; /* of the current line, from 1 */
};

/* Returns the next line without its end ("\n" or "\r\n"); false after the last. */
static bool line_next(struct lines *lines, const char **out, size_t *out_count)
{
    const char *begin = lines->source->text + lines->at;
    const size_t left = lines->source->count - lines->at;
    const char *end = left > 0 ? memchr(begin, '\n', left) : NULL;
    size_t length = end != NULL ? (size_t)(end - begin) : left;
    lines->at += length + (end != NULL);
    lines->number++;
    if (length > 0 && begin[length - 1] == '\r')
        length--;
    *out = begin;
    *out_count = length;
    return left > 0;
}

/* Returns an upper bound on the number of lines. */
static size_t line_count(const struct tokenizer_source *source)
{
    size_t lines = 1;
    for (size_t i = 0; i < source->count; i++)
        lines += source->text[i] == '\n';
    return lines;
}

static enum gt_status line_refuse(const struct lines *lines, const char *what)
{
    return FAIL(GT_DATA, "%s: line %zu: %s", lines->source->path, lines->number, what);
}

/* ---- a map of texts to ids ---- */

struct vocab_reading {
    const char *path;
    const json_t *vocab; /* from text to id */
    bool characters;     /* of the vocabulary, not bytes */
    json_t *added;       /* tokenizer.json's added tokens, from text to id, or NULL */
    size_t id_count;     /* ids are below this */
    struct bpe *bpe;
};

static enum gt_status token_refuse(const struct vocab_reading *reading, const char *text,
                                   const char *what)
{
    return FAIL(GT_DATA, "%s: the token \"%.*s\": %s", reading->path, 64, text, what);
}

static enum gt_status token_put(struct vocab_reading *reading, const char *text,
                                const json_t *id_value, bool special)
{
    static const char *const problems[] = {
        [BPE_ID_TAKEN] = "another token has its id",
        [BPE_TEXT_TAKEN] = "occurs twice",
        [BPE_TEXT_BAD] = "expected 1 to 1024 bytes",
        [BPE_TEXT_FOREIGN] = "has a character that is not of GPT-2's alphabet of bytes"};
    const json_int_t id = json_is_integer(id_value) ? json_integer_value(id_value) : -1;
    if (id < 0 || id >= (json_int_t)reading->id_count)
        return FAIL(
            GT_DATA,
            "%s: the token \"%.*s\": the id is not a number from 0 to %zu, which the number of tokens allows",
            reading->path, 64, text, reading->id_count - 1);
    const enum bpe_add added =
        bpe_add_written(reading->bpe, (int32_t)id, text, strlen(text), special);
    return added == BPE_ADDED ? GT_OK : token_refuse(reading, text, problems[added]);
}

/* Adds the vocabulary except the added tokens, which added_put() adds. */
static enum gt_status vocab_put(struct vocab_reading *reading)
{
    const char *text = NULL;
    json_t *id = NULL;
    json_t *vocab =
        (json_t *)
            reading->vocab; /* jansson's iteration needs a non-const pointer but changes nothing */
    json_object_foreach(vocab, text, id)
    {
        const bool special = reading->added == NULL && strcmp(text, BPE_EOT_TEXT) == 0;
        if (reading->added == NULL || json_object_get(reading->added, text) == NULL)
            TRY(token_put(reading, text, id, special));
    }
    return GT_OK;
}

static enum gt_status added_put(struct vocab_reading *reading)
{
    const char *text = NULL;
    json_t *id = NULL;
    json_object_foreach(reading->added, text, id)
    {
        const json_t *inside = json_object_get(reading->vocab, text);
        if (inside != NULL && !json_equal(inside, id))
            return token_refuse(reading, text,
                                "its id in \"added_tokens\" is not that in \"vocab\"");
        TRY(token_put(reading, text, id, true));
    }
    return GT_OK;
}

static enum gt_status vocab_build(const void *owner, struct vocab_reading *reading,
                                  size_t merge_count)
{
    size_t text_bytes = 0;
    const char *text = NULL;
    json_t *id = NULL;
    json_t *vocab = (json_t *)reading->vocab;
    reading->id_count = json_object_size(vocab);
    json_object_foreach(vocab, text, id) text_bytes += strlen(text);
    json_object_foreach(reading->added, text, id)
    {
        text_bytes += strlen(text);
        reading->id_count += json_object_get(vocab, text) == NULL;
    }
    if (reading->id_count == 0 || reading->id_count > BPE_VOCAB_MAX ||
        text_bytes > BPE_TEXT_BYTES_MAX)
        return FAIL(GT_DATA, "%s: %zu tokens of %zu bytes; expected 256 to %d tokens",
                    reading->path, reading->id_count, text_bytes, BPE_VOCAB_MAX);
    const struct bpe_spec spec = {.vocab_size = reading->id_count,
                                  .text_bytes = text_bytes,
                                  .merge_count = merge_count,
                                  .rank = BPE_RANK_MERGE,
                                  .characters = reading->characters};
    TRY(bpe_create(owner, &spec, &reading->bpe));
    TRY(vocab_put(reading));
    return added_put(reading);
}

/* ---- vocab.bpe, merges.txt ---- */

static bool merge_read(struct bpe *bpe, const char *text, size_t count)
{
    const char *space = memchr(text, ' ', count);
    if (space == NULL)
        return false;
    const size_t left_count = (size_t)(space - text);
    return bpe_add_written_merge(bpe, text, left_count, space + 1, count - left_count - 1);
}

enum gt_status tokenizer_import_merges(struct bpe *bpe, const struct tokenizer_source *merges)
{
    struct lines lines = {.source = merges};
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
            return line_refuse(&lines, "is empty");
        }
        if (!merge_read(bpe, line, length))
            return line_refuse(
                &lines,
                "expected two tokens of the vocabulary, one space between them, that make a third");
    }
    return GT_OK;
}

enum gt_status tokenizer_import_pair(const void *owner, const struct tokenizer_source *vocab,
                                     const struct tokenizer_source *merges, struct tokenizer **out)
{
    json_t *root = NULL;
    const size_t lines = line_count(merges);
    if (lines > BPE_MERGES_MAX)
        return FAIL(GT_DATA, "%s: %zu lines, at most %d", merges->path, lines, BPE_MERGES_MAX);
    TRY(json_parse(vocab->text, vocab->count, vocab->path, &root));
    struct vocab_reading reading = {.path = vocab->path, .vocab = root};
    enum gt_status status = GT_DATA;
    if (json_is_object(root))
        status = vocab_build(owner, &reading, lines);
    else
        log_error("%s: expected an object of tokens and ids", vocab->path);
    json_decref(root);
    THEN(status, tokenizer_import_merges(reading.bpe, merges));
    THEN(status, split_check(reading.bpe, vocab->path));
    return import_end(owner, status, reading.bpe, vocab->path, out);
}

/* ---- NAME.tiktoken ---- */

static int base64_digit(char digit)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = memchr(digits, digit, sizeof digits - 1);
    return at != NULL ? (int)(at - digits) : -1;
}

/* Decodes RFC 4648 with padding to out[count / 4 * 3]. */
static bool base64_read(const char *text, size_t count, char *out, size_t *out_count)
{
    size_t length = 0;
    uint32_t bits = 0;
    if (count == 0 || count % 4 != 0)
        return false;
    const size_t padding = text[count - 1] != '=' ? 0 : text[count - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < count - padding; i++) {
        const int digit = base64_digit(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 > 0)
            out[length++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xFF);
    }
    *out_count = length;
    return true;
}

/* Returns an unsigned number below `limit`, or -1. */
static int32_t rank_read(const char *text, size_t count, size_t limit)
{
    const char *digits = TEXT(16, "%.*s", (int)size_min(count, 15), text);
    if (count == 0 || count > 9 || strspn(digits, "0123456789") != count)
        return -1;
    const long value = strtol(digits, NULL, 10);
    return (size_t)value < limit ? (int32_t)value : -1;
}

static const char *tiktoken_line(struct bpe *bpe, size_t ranks, const char *line, size_t count)
{
    static const char form[] =
        "expected a token of 1 to 1024 bytes in base64, a space, and its rank";
    static const char *const problems[] = {[BPE_ADDED] = NULL,
                                           [BPE_ID_TAKEN] = "the rank occurs twice",
                                           [BPE_TEXT_TAKEN] = "the token occurs twice",
                                           [BPE_TEXT_BAD] = form};
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
        return "the rank is not a number below that of the lines";
    return problems[bpe_add_token(bpe, rank, bytes, length, false)];
}

static enum gt_status tiktoken_read(struct bpe *bpe, size_t ranks,
                                    const struct tokenizer_source *source)
{
    struct lines lines = {.source = source};
    const char *line = NULL;
    size_t length = 0;
    while (line_next(&lines, &line, &length)) {
        const char *problem = tiktoken_line(bpe, ranks, line, length);
        if (problem != NULL)
            return line_refuse(&lines, problem);
    }
    return bpe_add_eot(bpe, ranks);
}

enum gt_status tokenizer_import_tiktoken(const void *owner, const struct tokenizer_source *source,
                                         struct tokenizer **out)
{
    struct bpe *bpe = NULL;
    const size_t count = source->count;
    const size_t ranks = line_count(source) - (count == 0 || source->text[count - 1] == '\n');
    if (ranks == 0 || ranks >= BPE_VOCAB_MAX || count > TOKENIZER_IMPORT_BYTES_MAX - 64)
        return FAIL(GT_DATA, "%s: %zu lines, expected 256 to %d", source->path, ranks,
                    BPE_VOCAB_MAX - 1);
    const struct bpe_spec spec = {
        .vocab_size = ranks + 1, .text_bytes = count + 64, .rank = BPE_RANK_TOKEN};
    TRY(bpe_create(owner, &spec, &bpe));
    enum gt_status status = tiktoken_read(bpe, ranks, source);
    THEN(status, split_check(bpe, source->path));
    TRY(import_end(owner, status, bpe, source->path, out));
    log_note("%s: this format does not say how text is split into pieces; GPT-2's pattern is used",
             source->path);
    return GT_OK;
}

/* ---- tokenizer.json ---- */

/* "LEFT RIGHT" or, since tokenizers 0.20, ["LEFT", "RIGHT"]. */
static bool merge_put(struct bpe *bpe, const json_t *merge)
{
    const char *text = json_string_value(merge);
    const char *left = json_string_value(json_array_get(merge, 0)),
               *right = json_string_value(json_array_get(merge, 1));
    if (text != NULL)
        return merge_read(bpe, text, strlen(text));
    return left != NULL && right != NULL && json_array_size(merge) == 2 &&
           bpe_add_written_merge(bpe, left, strlen(left), right, strlen(right));
}

static enum gt_status merges_put(struct bpe *bpe, const json_t *merges, const char *path)
{
    for (size_t i = 0; i < json_array_size(merges); i++)
        if (!merge_put(bpe, json_array_get(merges, i)))
            return FAIL(
                GT_DATA,
                "%s: field \"model.merges\": entry %zu: expected two tokens of the vocabulary that "
                "make a third",
                path, i);
    return GT_OK;
}

/* Returns the added tokens as an object from text to id, NULL when out of memory. */
static json_t *added_object(const json_t *list)
{
    json_t *object = json_object();
    int failures = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        json_t *id = json_object_get(token, "id");
        failures |=
            json_object_set_new(object, json_string_value(json_object_get(token, "content")),
                                id != NULL ? json_incref(id) : json_null());
    }
    return json_whole(object, failures);
}

static enum gt_status json_import(const void *owner, const json_t *root, const char *path,
                                  struct tokenizer **out)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    struct bpe_pipeline pipeline;
    TRY(tokenizer_pipeline_read(root, path, &pipeline));
    if (!json_is_object(vocab) || !json_is_array(merges) ||
        json_array_size(merges) > BPE_MERGES_MAX)
        return FAIL(
            GT_DATA,
            "%s: field \"model\": expected \"vocab\", an object, and \"merges\", a list of at most %d",
            path, BPE_MERGES_MAX);
    struct vocab_reading reading = {.path = path,
                                    .vocab = vocab,
                                    .characters = pipeline.characters,
                                    .added = added_object(json_object_get(root, "added_tokens"))};
    if (reading.added == NULL)
        return FAIL(GT_NO_MEMORY, "%s: out of memory for its added tokens", path);
    enum gt_status status = vocab_build(owner, &reading, json_array_size(merges));
    json_decref(reading.added);
    THEN(status, tokenizer_pipeline_set(reading.bpe, root, path, &pipeline));
    THEN(status, merges_put(reading.bpe, merges, path));
    return import_end(owner, status, reading.bpe, path, out);
}

enum gt_status tokenizer_import_json(const void *owner, const struct tokenizer_source *source,
                                     struct tokenizer **out)
{
    json_t *root = NULL;
    TRY(json_parse(source->text, source->count, source->path, &root));
    const enum gt_status status = json_import(owner, root, source->path, out);
    json_decref(root);
    return status;
}

/* ---- choosing the files ---- */

static const char expected[] =
    "tokenizer.json, vocab.bpe with encoder.json, merges.txt with vocab.json";

static bool ends_with(const char *path, const char *end)
{
    const size_t count = strlen(path), end_count = strlen(end);
    return count >= end_count && strcmp(path + count - end_count, end) == 0;
}

/* Reads and imports the file at `path`, or with `merges_path` a pair. */
static enum gt_status import_files(const void *owner, const char *path, const char *merges_path,
                                   struct tokenizer **out)
{
    struct tokenizer_source source = {.path = path}, merges = {.path = merges_path};
    char *text = NULL, *merges_text = NULL;
    TRY(file_read_all(path, TOKENIZER_IMPORT_BYTES_MAX, &text, &source.count));
    enum gt_status status = GT_OK;
    if (merges_path != NULL)
        status =
            file_read_all(merges_path, TOKENIZER_IMPORT_BYTES_MAX, &merges_text, &merges.count);
    source.text = text;
    merges.text = merges_text;
    if (status == GT_OK && merges_path != NULL)
        status = tokenizer_import_pair(owner, &source, &merges, out);
    else if (status == GT_OK && ends_with(path, ".json"))
        status = tokenizer_import_json(owner, &source, out);
    else
        THEN(status, tokenizer_import_tiktoken(owner, &source, out));
    free(merges_text);
    free(text);
    return status;
}

/* ---- files that are known and cannot be read ---- */

static const struct {
    const char *name, *kind;
} foreign[] = {{"tokenizer.model", "SentencePiece"}, /* or tiktoken's form */
               {"tekken.json", NULL},                /* the same as tiktoken's, in JSON */
               {"spiece.model", "SentencePiece"},
               {"sentencepiece.bpe.model", "SentencePiece"},
               {"vocab.txt", "WordPiece"}};
enum { FOREIGN_COUNT = sizeof foreign / sizeof foreign[0] };

/* Sets *out to whether the first line of a file is one of tiktoken's. */
static enum gt_status tiktoken_recognise(const char *path, bool *out)
{
    char *text = NULL, bytes[BPE_TOKEN_BYTES_MAX + 4];
    const char *line = NULL;
    size_t length = 0, count = 0;
    struct tokenizer_source source = {.path = path};
    TRY(file_read_all(path, TOKENIZER_IMPORT_BYTES_MAX, &text, &source.count));
    source.text = text;
    (void)line_next(&(struct lines){.source = &source}, &line, &length);
    const char *space = memchr(line, ' ', size_min(length, sizeof bytes));
    const size_t digits = space != NULL ? (size_t)(space - line) : 0;
    *out = space != NULL && base64_read(line, digits, bytes, &count) &&
           rank_read(space + 1, length - digits - 1, BPE_VOCAB_MAX) >= 0;
    free(text);
    return GT_OK;
}

/* Refuses a file of the list above. */
static enum gt_status foreign_refuse(const char *path, const char *kind)
{
    bool is_tiktoken = kind == NULL;
    if (kind != NULL)
        TRY(tiktoken_recognise(path, &is_tiktoken));
    if (!is_tiktoken && strcmp(kind, "SentencePiece") == 0)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: a SentencePiece model by itself cannot be read; transformers makes a tokenizer.json from it: "
            "python3 -c \"from transformers import AutoTokenizer as T; T.from_pretrained('.').save_pretrained"
            "('.')\" in its folder",
            path);
    if (!is_tiktoken)
        return tokenizer_pipeline_refuse_kind(path, kind);
    return FAIL(
        GT_UNSUPPORTED,
        "%s: this vocabulary is in tiktoken's form (as in Meta's download of Llama 3), which does not say how "
        "text is split; give the tokenizer.json of the same model: hf download OWNER/NAME tokenizer.json",
        path);
}

/* Refuses vocab.json and merges.txt of a class other than GPT-2's, or without the added tokens:
 * these files say neither how text is split nor which tokens were added. */
static enum gt_status pair_check(const char *folder)
{
    static const char *const switches[] = {"add_prefix_space", "add_bos_token"};
    const char *path = FILE_IN(folder, tokenizer_file_names[TOKENIZER_FILE_CONFIG]);
    json_t *root = NULL;
    json_error_t error;
    bool adds;
    TRY(file_stat_exists(FILE_IN(folder, "added_tokens.json"), &adds));
    TRY(json_parse_optional(path, TOKENIZER_IMPORT_BYTES_MAX, &error, &root));
    const char *class = json_string_value(json_object_get(root, "tokenizer_class"));
    const bool other = class != NULL && strncmp(class, "GPT2Tokenizer", 13) != 0 &&
                       strcmp(class, "PreTrainedTokenizerFast") != 0;
    adds = adds || json_object_size(json_object_get(root, "added_tokens_decoder")) > 1;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        adds = adds || json_is_true(json_object_get(root, switches[i]));
    const enum gt_status status =
        other || adds
            ? FAIL(
                  GT_UNSUPPORTED,
                  "%s: vocab.json and merges.txt do not have all of this %.60s; transformers "
                  "makes a tokenizer.json from it: python3 -c \"from transformers import "
                  "AutoTokenizer as T; T.from_pretrained('.').save_pretrained('.')\" in its folder",
                  path, other ? class : "tokenizer")
            : GT_OK;
    json_decref(root);
    return status;
}

static enum gt_status import_file(const void *owner, const char *path, struct tokenizer **out)
{
    char folder[FILE_PATH_MAX];
    const char *name = file_name_of(path);
    file_folder_of(folder, path);
    for (int i = 0; i < FORM_COUNT; i++)
        if (forms[i].merges != NULL &&
            (strcmp(name, forms[i].name) == 0 || strcmp(name, forms[i].merges) == 0)) {
            TRY(pair_check(folder));
            return import_files(owner, FILE_IN(folder, forms[i].name),
                                FILE_IN(folder, forms[i].merges), out);
        }
    if (strcmp(name, TOKENIZER_FILE_NAME) == 0)
        return tokenizer_open_file(owner, path, out);
    for (int i = 0; i < FOREIGN_COUNT; i++)
        if (strcmp(name, foreign[i].name) == 0)
            return foreign_refuse(path, foreign[i].kind);
    if (ends_with(path, ".json") || ends_with(path, ".tiktoken"))
        return import_files(owner, path, NULL, out);
    return FAIL(GT_USAGE, "%s: not the name of a vocabulary file; expected %s, NAME.tiktoken or %s",
                path, expected, TOKENIZER_FILE_NAME);
}

/* Chooses the file of a folder to start with; *out_found is false when there is none. */
static enum gt_status folder_choose(const char *folder, char out[static FILE_PATH_MAX],
                                    bool *out_found)
{
    *out_found = false;
    for (int i = 0; i < FORM_COUNT && !*out_found; i++) {
        TRY(file_stat_exists(file_join(out, folder, forms[i].name), out_found));
        if (*out_found && forms[i].merges != NULL)
            TRY(file_stat_exists(FILE_IN(folder, forms[i].merges), out_found));
    }
    return GT_OK;
}

enum gt_status tokenizer_import_folder(const char *folder, bool *out)
{
    char path[FILE_PATH_MAX];
    return folder_choose(folder, path, out);
}

/* Refuses a folder without a vocabulary that can be read. */
static enum gt_status folder_refuse(const char *folder)
{
    bool exists = false;
    for (int i = 0; i < FOREIGN_COUNT; i++) {
        TRY(file_stat_exists(FILE_IN(folder, foreign[i].name), &exists));
        if (exists)
            return foreign_refuse(FILE_IN(folder, foreign[i].name), foreign[i].kind);
    }
    return FAIL(
        GT_USAGE,
        "%s: this folder has no %s, or %s; of a model on Hugging Face's Hub: hf download OWNER/NAME "
        "tokenizer.json",
        folder, expected, TOKENIZER_FILE_NAME);
}

/* Gives the tokenizer the template in `value`: a text, or the text named "default" in a list. */
static enum gt_status chat_template_read(struct tokenizer *tokenizer, const json_t *value)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            text = json_string_value(json_object_get(entry, "template"));
    }
    tokenizer->has_template =
        tokenizer->has_template || json_string_length(value) + json_array_size(value) > 0;
    if (text == NULL || text[0] == '\0' || tokenizer->template != NULL ||
        tokenizer->chat != CHAT_NONE)
        return GT_OK;
    return tokenizer_template_set(tokenizer, text);
}

/* Reads the template of a JSON file, if the file exists; a broken file has none. */
static enum gt_status template_json(const char *path, struct tokenizer *tokenizer)
{
    json_t *root;
    json_error_t error;
    TRY(json_parse_optional(path, TOKENIZER_IMPORT_BYTES_MAX, &error, &root));
    const enum gt_status status =
        chat_template_read(tokenizer, json_object_get(root, "chat_template"));
    json_decref(root);
    return status;
}

static enum gt_status template_read(const char *folder, struct tokenizer *tokenizer)
{
    const char *path = FILE_IN(folder, "chat_template.jinja");
    char *text = NULL;
    size_t count = 0;
    json_t *value = NULL;
    if (!file_exists(path)) {
        TRY(template_json(FILE_IN(folder, tokenizer_file_names[TOKENIZER_FILE_CONFIG]), tokenizer));
        return template_json(FILE_IN(folder, "chat_template.json"), tokenizer);
    }
    TRY(file_read_all(path, TOKENIZER_IMPORT_BYTES_MAX, &text, &count));
    value = json_stringn(text, count); /* NULL: not UTF-8 */
    const enum gt_status status = chat_template_read(tokenizer, value);
    json_decref(value);
    free(text);
    return status;
}

enum gt_status tokenizer_template_read(const char *folder, struct tokenizer *tokenizer)
{
    TRY(template_read(folder, tokenizer));
    return tokenizer_generation_read(folder, tokenizer);
}

enum gt_status tokenizer_folder_has_template(const char *folder, bool *out)
{
    struct tokenizer chosen = {
        .chat = CHAT_CHATML}; /* a chosen template: the folder's text is not kept */
    TRY(template_read(folder, &chosen));
    *out = chosen.has_template;
    return GT_OK;
}

enum gt_status tokenizer_import(const void *owner, const char *path, struct tokenizer **out)
{
    char chosen[FILE_PATH_MAX];
    bool exists;
    if (file_is_folder(path)) {
        TRY(folder_choose(path, chosen, &exists));
        if (!exists)
            return folder_refuse(path);
        TRY(import_file(owner, chosen, out));
        return tokenizer_template_read(path, *out);
    }
    TRY(file_stat_exists(path, &exists));
    if (!exists)
        return FAIL(GT_USAGE, "%s: no such file or folder", path);
    TRY(import_file(owner, path, out));
    file_folder_of(chosen, path);
    return tokenizer_template_read(chosen, *out);
}
