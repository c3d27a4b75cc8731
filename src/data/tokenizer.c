/* Tokenizers: the vocabulary, its file, encoding and streamed decoding.
 *
 * The vocabulary of chars is an ascending list of code points, so an id is found by bisection, and
 * below U+0080 in one step. bpe.c has the vocabulary of bpe.  The file is untrusted JSON and is
 * checked field by field.  prepare.c and bpe_train.c make vocabularies from a corpus;
 * tokenizer_import.c reads other projects' files.
 */
#include "data/tokenizer.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/chat_kind.h"
#include "data/chat_templates.h"
#include "data/tokenizer_bpe.h"
#include "data/tokens.h"

#define FORMAT_NAME "gpt-train-tokenizer"
#define FORMAT_VERSION 1
#define FILE_BYTES_MAX ((size_t)64 << 20)

const char *const tokenizer_kind_names[TOKENIZER_KIND_COUNT] = {"bytes", "chars", "bpe"};

/* ---- creation ---- */

static enum gt_status tokenizer_make(const void *owner, enum tokenizer_kind kind, size_t count,
                                     struct tokenizer **out)
{
    const char *name = tokenizer_kind_names[kind];
    struct tokenizer *tokenizer;
    TRY(HOSTMEM_NEW(owner, 1, "tokenizer", &tokenizer));
    tokenizer->kind = kind;
    tokenizer->vocab_size = (int64_t)count;
    tokenizer->hash = file_crc32c(0, name, strlen(name));
    *out = tokenizer;
    return GT_OK;
}

enum gt_status tokenizer_create_bytes(const void *owner, struct tokenizer **out)
{
    return tokenizer_make(owner, TOKENIZER_BYTES, 256, out);
}

enum gt_status tokenizer_create_chars(const void *owner, const uint32_t *code_points, size_t count,
                                      struct tokenizer **out)
{
    assert(count >= 1 && count <= UTF8_CODE_POINTS);
    struct tokenizer *tokenizer = NULL;
    TRY(tokenizer_make(owner, TOKENIZER_CHARS, count, &tokenizer));
    const enum gt_status status =
        HOSTMEM_NEW(tokenizer, count, "vocabulary", &tokenizer->code_points);
    memset(tokenizer->direct, -1, sizeof tokenizer->direct);
    for (size_t i = 0; i < count && status == GT_OK; i++) {
        const uint32_t value = code_points[i];
        assert(utf8_is_scalar(value));
        assert(i == 0 || code_points[i - 1] < value);
        tokenizer->code_points[i] = value;
        tokenizer->hash = le_crc32c(tokenizer->hash, value);
        if (value < TOKENIZER_DIRECT)
            tokenizer->direct[value] = (int32_t)i;
    }
    return FINISH(status, out, tokenizer, hostmem_free);
}

enum gt_status tokenizer_create_bpe(const void *owner, struct bpe *bpe, struct tokenizer **out)
{
    struct tokenizer *tokenizer = NULL;
    const enum gt_status status = tokenizer_make(owner, TOKENIZER_BPE, bpe->vocab_size, &tokenizer);
    if (status != GT_OK) {
        hostmem_free(bpe);
        return status;
    }
    hostmem_give(bpe, tokenizer);
    tokenizer->bpe = bpe;
    tokenizer->hash = bpe->hash;
    *out = tokenizer;
    return GT_OK;
}

enum gt_status tokenizer_template_set(struct tokenizer *tokenizer, const char *jinja)
{
    bool exact;
    const size_t bytes = strlen(jinja) + 1;
    TRY(HOSTMEM_NEW(tokenizer, bytes, "a chat template", &tokenizer->template));
    memcpy(tokenizer->template, jinja, bytes);
    tokenizer->chat = chat_recognise(jinja, &exact);
    return GT_OK;
}

enum gt_status tokenizer_generation_set(struct tokenizer *tokenizer, const json_t *object)
{
    json_t *kept = json_copy((json_t *)object); /* changes nothing */
    char *text = NULL;
    if (kept == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: " GENERATION_NAME);
    (void)json_object_del(kept, "_from_model_config");
    (void)json_object_del(kept, "transformers_version");
    enum gt_status status = json_text(kept, 0, "", &text);
    json_decref(kept);
    if (status == GT_OK && strcmp(text, "{}") != 0) {
        status = HOSTMEM_NEW(tokenizer, strlen(text) + 1, GENERATION_NAME, &tokenizer->generation);
        if (status == GT_OK)
            memcpy(tokenizer->generation, text, strlen(text) + 1);
    }
    free(text);
    return status;
}

int32_t tokenizer_eot(const struct tokenizer *tokenizer)
{
    return tokenizer->bpe != NULL ? tokenizer->bpe->eot : -1;
}

const struct bpe_pipeline *tokenizer_pipeline(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && tokenizer->bpe != NULL ? &tokenizer->bpe->pipeline
                                                       : &bpe_pipeline_of_gpt2;
}

/* ---- the file ---- */

static enum gt_status code_points_read(const json_t *list, const char *path, uint32_t *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t value = json_is_integer(entry) ? json_integer_value(entry) : -1;
        if (value < 0 || value >= UTF8_CODE_POINTS || !utf8_is_scalar((uint32_t)value))
            return FAIL(GT_DATA,
                        "%s: field \"vocabulary\": entry %zu is not the code point of a character",
                        path, i);
        if (i > 0 && out[i - 1] >= (uint32_t)value)
            return FAIL(GT_DATA,
                        "%s: field \"vocabulary\": entry %zu (%" PRId64
                        ") is not above the one before it (%" PRIu32 ")",
                        path, i, (int64_t)value, out[i - 1]);
        out[i] = (uint32_t)value;
    }
    return GT_OK;
}

static enum gt_status vocabulary_read(const void *owner, const json_t *root, const char *path,
                                      struct tokenizer **out)
{
    const json_t *list = json_object_get(root, "vocabulary");
    const size_t count = json_array_size(list);
    uint32_t *code_points;
    if (!json_is_array(list) || count < 1 || count > UTF8_CODE_POINTS)
        return FAIL(GT_DATA,
                    "%s: field \"vocabulary\": expected a list of 1 to %u code points, found %zu",
                    path, UTF8_CODE_POINTS, count);
    TRY(HOSTMEM_NEW(owner, count, "vocabulary", &code_points));
    enum gt_status status = code_points_read(list, path, code_points);
    THEN(status, tokenizer_create_chars(owner, code_points, count, out));
    hostmem_free(code_points);
    return status;
}

static enum gt_status tokenizer_check_file(const json_t *root, const char *path,
                                           const struct tokenizer *tokenizer)
{
    int64_t vocab_size = 0;
    const char *hash = NULL;
    TRY(json_get_int(root, path, "vocab_size", 1, UTF8_CODE_POINTS, &vocab_size));
    TRY(json_get_string(root, path, "hash", &hash));
    if (vocab_size != tokenizer->vocab_size)
        return FAIL(GT_DATA,
                    "%s: field \"vocab_size\": %" PRId64 ", but the vocabulary has %" PRId64
                    " entries",
                    path, vocab_size, tokenizer->vocab_size);
    const char *expected = TOKENIZER_HASH_TEXT(tokenizer);
    if (strcmp(hash, expected) == 0)
        return GT_OK;
    return FAIL(GT_DATA, "%s: field \"hash\": the file says %s, its vocabulary gives %s", path,
                hash, expected);
}

static enum gt_status kind_read(const void *owner, const json_t *root, const char *path,
                                enum tokenizer_kind kind, struct tokenizer **out)
{
    struct bpe *bpe = NULL;
    if (kind == TOKENIZER_BYTES)
        return tokenizer_create_bytes(owner, out);
    if (kind == TOKENIZER_CHARS)
        return vocabulary_read(owner, root, path, out);
    TRY(tokenizer_bpe_read(owner, root, path, &bpe));
    return tokenizer_create_bpe(owner, bpe, out);
}

/* Reads the optional fields of the chat template and of the sampling settings. */
static enum gt_status chat_read(const json_t *root, const char *path, struct tokenizer *tokenizer)
{
    const char *word = json_string_value(json_object_get(root, "chat"));
    const char *jinja = json_string_value(json_object_get(root, "chat_template"));
    int kind = CHAT_NONE;
    const json_t *generation = json_object_get(root, "generation");
    if (jinja != NULL)
        TRY(tokenizer_template_set(tokenizer, jinja));
    if (json_is_object(generation))
        TRY(tokenizer_generation_set(tokenizer, generation));
    if (word == NULL)
        return GT_OK;
    while (kind < CHAT_KIND_COUNT && strcmp(word, chat_words[kind]) != 0)
        kind++;
    if (kind == CHAT_KIND_COUNT)
        return FAIL(GT_UNSUPPORTED,
                    "%s: field \"chat\": this release does not know the template \"%s\"", path,
                    word);
    tokenizer->chat = (enum chat_kind)kind;
    return GT_OK;
}

static enum gt_status tokenizer_from_json(const void *owner, const json_t *root, const char *path,
                                          struct tokenizer **out)
{
    const char *format = NULL, *kind = NULL;
    int64_t version = 0;
    TRY(json_get_string(root, path, "format", &format));
    if (strcmp(format, FORMAT_NAME) != 0)
        return FAIL(GT_DATA, "%s: field \"format\": expected \"%s\", found \"%s\"", path,
                    FORMAT_NAME, format);
    TRY(json_get_int(root, path, "version", 1, INT32_MAX, &version));
    TRY(json_get_string(root, path, "kind", &kind));
    int which = 0;
    while (which < TOKENIZER_KIND_COUNT && strcmp(kind, tokenizer_kind_names[which]) != 0)
        which++;
    if (version != FORMAT_VERSION || which == TOKENIZER_KIND_COUNT)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: version %" PRId64
            ", kind \"%s\"; this release reads version %d, kinds \"bytes\", \"chars\" and \"bpe\"",
            path, version, kind, FORMAT_VERSION);
    struct tokenizer *tokenizer = NULL;
    TRY(kind_read(owner, root, path, (enum tokenizer_kind)which, &tokenizer));
    enum gt_status status = tokenizer_check_file(root, path, tokenizer);
    THEN(status, chat_read(root, path, tokenizer));
    return FINISH(status, out, tokenizer, hostmem_free);
}

enum gt_status tokenizer_open_file(const void *owner, const char *path, struct tokenizer **out)
{
    json_t *root = NULL;
    TRY(json_parse_file(path, FILE_BYTES_MAX, &root));
    const enum gt_status status = tokenizer_from_json(owner, root, path, out);
    json_decref(root);
    return status;
}

enum gt_status tokenizer_open_dataset(const void *owner, const char *folder, struct tokenizer **out)
{
    const char *path = FILE_IN(folder, TOKENIZER_FILE_NAME);
    const char *pickle = FILE_IN(folder, TOKENIZER_PICKLE_NAME);
    TRY(prepared_folder_check(folder));
    bool exists;
    TRY(file_stat_exists(path, &exists));
    if (exists)
        return tokenizer_open_file(owner, path, out);
    if (file_exists(pickle))
        log_note("%s: a Python pickle is a program and is not read, so the vocabulary is unknown; "
                 "gpt-prepare --tokenizer=chars --out-dir=%s INPUT makes a %s in its place",
                 pickle, folder, TOKENIZER_FILE_NAME);
    *out = NULL;
    return GT_OK;
}

static json_t *vocabulary_to_json(const struct tokenizer *tokenizer)
{
    json_t *list = json_array();
    int failures = 0;
    for (int64_t i = 0; i < tokenizer->vocab_size; i++)
        failures |=
            json_array_append_new(list, json_integer((json_int_t)tokenizer->code_points[i]));
    return json_whole(list, failures);
}

enum gt_status tokenizer_text(const struct tokenizer *tokenizer, char **out)
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:I}", "format", FORMAT_NAME, "version",
                             FORMAT_VERSION, "kind", tokenizer_kind_names[tokenizer->kind],
                             "vocab_size", (json_int_t)tokenizer->vocab_size);
    int failures = 0;
    if (tokenizer->code_points != NULL)
        failures |= json_object_set_new(root, "vocabulary", vocabulary_to_json(tokenizer));
    if (tokenizer->bpe != NULL)
        failures |= tokenizer_bpe_write(tokenizer->bpe, root) ? 0 : -1;
    failures |= json_object_set_new(root, "hash", json_string(TOKENIZER_HASH_TEXT(tokenizer)));
    if (tokenizer->chat != CHAT_NONE)
        failures |= json_object_set_new(root, "chat", json_string(chat_words[tokenizer->chat]));
    if (tokenizer->template != NULL)
        failures |= json_object_set_new(root, "chat_template", json_string(tokenizer->template));
    if (tokenizer->generation != NULL)
        failures |=
            json_object_set_new(root, "generation", json_loads(tokenizer->generation, 0, NULL));
    root = json_whole(root, failures);
    const enum gt_status status = json_text(root, 0, "\n", out);
    json_decref(root);
    return status;
}

enum gt_status tokenizer_save(const struct tokenizer *tokenizer, const char *path)
{
    char *text;
    TRY(tokenizer_text(tokenizer, &text));
    const enum gt_status status = file_replace(path, text, strlen(text));
    free(text);
    return status;
}

/* ---- encoding ---- */

/* Returns the id when the character is a single token, else -1. */
static int32_t bpe_id_of(const struct bpe *bpe, uint32_t code_point)
{
    char text[4];
    int32_t ids[4];
    uint64_t unknown[256] = {0};
    size_t count = 0;
    struct bpe_scratch scratch = {.memory = NULL};
    if (!utf8_is_scalar(code_point))
        return -1;
    const size_t length = utf8_encode(code_point, text);
    const enum gt_status status = bpe_encode_piece(bpe, &scratch, text, length, ids, &count);
    bpe_scratch_release(&scratch);
    const bool whole =
        status == GT_OK && count == 1 && bpe_count_unknown(bpe, text, length, unknown) == 0;
    return whole ? ids[0] : -1;
}

int32_t tokenizer_id_of(const struct tokenizer *tokenizer, uint32_t code_point)
{
    if (tokenizer->kind == TOKENIZER_BYTES)
        return code_point < 256 ? (int32_t)code_point : -1;
    if (tokenizer->kind == TOKENIZER_BPE)
        return bpe_id_of(tokenizer->bpe, code_point);
    if (code_point < TOKENIZER_DIRECT)
        return tokenizer->direct[code_point];
    int64_t low = 0, high = tokenizer->vocab_size;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (tokenizer->code_points[middle] < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tokenizer->vocab_size && tokenizer->code_points[low] == code_point ? (int32_t)low
                                                                                    : -1;
}

/* ---- decoding ---- */

_Static_assert(TOKENIZER_TEXT_MAX > 3 * (BPE_TOKEN_BYTES_MAX + 4), "room for the longest token");

static size_t text_append(char *out, size_t count, uint32_t code_point)
{
    char encoded[4];
    const size_t length = utf8_encode(code_point, encoded);
    assert(count + length < TOKENIZER_TEXT_MAX);
    memcpy(out + count, encoded, length);
    out[count + length] = '\0';
    return count + length;
}

size_t tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, char scratch[static 4],
                             const char **out)
{
    *out = scratch;
    if (id < 0 || id >= tokenizer->vocab_size)
        return 0;
    if (tokenizer->kind == TOKENIZER_BPE)
        return bpe_token_shown(tokenizer->bpe, id, out);
    if (tokenizer->kind == TOKENIZER_CHARS)
        return utf8_encode(tokenizer->code_points[id], scratch);
    scratch[0] = (char)id;
    return 1;
}

bool tokenizer_has_same_tokens(const struct tokenizer *a, const struct tokenizer *b)
{
    for (int64_t id = 0; id < a->vocab_size && a->vocab_size == b->vocab_size; id++) {
        char scratch[2][4];
        const char *texts[2];
        const size_t count = tokenizer_token_bytes(a, (int32_t)id, scratch[0], &texts[0]);
        if (count != tokenizer_token_bytes(b, (int32_t)id, scratch[1], &texts[1]) ||
            memcmp(texts[0], texts[1], count) != 0)
            return false;
    }
    return a->vocab_size == b->vocab_size;
}

/* Moves complete characters from the held bytes to `out`, with U+FFFD for each byte that cannot
 * start one. */
static size_t stream_drain(struct tokenizer_stream *stream, size_t count,
                           char out[static TOKENIZER_TEXT_MAX])
{
    while (stream->held_count > 0) {
        uint32_t code_point = UTF8_REPLACEMENT;
        const int length = utf8_decode(stream->held, stream->held_count, &code_point);
        if (length == UTF8_INCOMPLETE)
            break;
        const size_t used = length == UTF8_INVALID ? 1 : (size_t)length;
        count = text_append(out, count, code_point);
        stream->held_count -= used;
        memmove(stream->held, stream->held + used, stream->held_count);
    }
    return count;
}

size_t tokenizer_stream_push(const struct tokenizer *tokenizer, struct tokenizer_stream *stream,
                             int32_t id, char out[static TOKENIZER_TEXT_MAX])
{
    out[0] = '\0';
    if (id < 0 || id >= tokenizer->vocab_size) {
        const size_t count = tokenizer_stream_end(stream, out);
        return text_append(out, count, UTF8_REPLACEMENT);
    }
    char scratch[4];
    const char *bytes = NULL;
    const size_t length = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    const bool strips =
        tokenizer_pipeline(tokenizer)->strips && !stream->begun && length > 0 && bytes[0] == ' ';
    size_t count = 0;
    stream->begun = true;
    for (size_t i = strips; i < length; i++) {
        assert(stream->held_count < sizeof stream->held);
        stream->held[stream->held_count++] = (unsigned char)bytes[i];
        count = stream_drain(stream, count, out);
    }
    return count;
}

size_t tokenizer_stream_end(struct tokenizer_stream *stream, char out[static TOKENIZER_TEXT_MAX])
{
    out[0] = '\0';
    if (stream->held_count == 0)
        return 0;
    stream->held_count = 0;
    return text_append(out, 0, UTF8_REPLACEMENT);
}
