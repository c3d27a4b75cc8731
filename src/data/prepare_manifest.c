/* manifest.json: the sources of a data set, the options, and the contents.
 *
 * It depends only on inputs and options, with no times and no number of threads, so that two runs can be compared file
 * by file.  A stopped run can be continued only with the same options.
 *
 * Readers compare a data set with it.  The number of tokens detects files that were cut, extended, added or removed.
 * The hash detects a different tokenizer, whose ids would mean other text.  The contents of token files are not hashed,
 * because that would read all of them at each start.
 */
#include "base/utf8.h"
#include "data/prepare_internal.h"

#define REMEDY "run gpt-prepare again, or delete " PREPARE_MANIFEST_NAME " if you meant to change it"

json_t *prepare_json_crc(uint32_t crc32c)
{
    return json_string(TEXT(24, "crc32c:%08" PRIx32, crc32c));
}

/* Paths need not be UTF-8 but JSON must be: invalid bytes become '?'. */
static json_t *json_path(const char *path)
{
    char text[FILE_PATH_MAX];
    size_t count = 0, at = 0;
    const size_t length = strlen(path);
    while (at < length && count + 4 < sizeof text) {
        uint32_t code_point = 0;
        const int used = utf8_decode((const unsigned char *)path + at, length - at, &code_point);
        count += utf8_encode(used > 0 ? code_point : '?', text + count);
        at += used > 0 ? (size_t)used : 1;
    }
    text[count] = '\0';
    return json_string(text);
}

json_t *prepare_options_json(const struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    json_t *object = json_pack("{s:s}", "tokenizer", tokenizer_kind_name(spec->tokenizer));
    int failures = 0;
    if (spec->given != NULL)
        failures |= json_object_set_new(object, "tokenizer-hash", prepare_json_crc(spec->given->hash));
    if (spec->tokenizer == TOKENIZER_BPE && spec->given == NULL)
        failures |= json_object_set_new(object, "vocab-size", json_integer(spec->vocab_size));
    failures |= json_object_update_new(
        object, json_pack("{s:s, s:o, s:o, s:s, s:s, s:s, s:b, s:s, s:f, s:I, s:I}", "format",
                          documents_format_words[spec->format], "field", json_path(spec->field), "encoding",
                          json_path(spec->encoding != NULL ? spec->encoding : "auto"), "bad-lines",
                          spec->skip_bad_lines ? "skip" : "stop", "documents", documents_end_words[spec->end],
                          "document-separator", prepare_separator_words[prep->separator], "dedup", (int)spec->dedup,
                          "val-split", prepare_split_words[prep->split], "val-fraction", spec->val_fraction, "seed",
                          (json_int_t)(spec->seed & INT64_MAX), "shard-tokens", (json_int_t)spec->shard_tokens));
    if (spec->chat != CHAT_NONE)
        failures |= json_object_update_new(object, json_pack("{s:s, s:I}", "chat", chat_words[spec->chat], "block-size",
                                                             (json_int_t)spec->block_size));
    return json_whole(object, failures);
}

/* ---- parts ---- */

static json_t *manifest_input(const char *path, const struct documents_input *input)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:o}", "path", json_path(path), "files", (json_int_t)input->file_count,
                     "skipped", (json_int_t)input->skipped_count, "size_bytes", (json_int_t)input->size_bytes, "hash",
                     prepare_json_crc(input->crc32c));
}

static json_t *manifest_documents(const struct prepare_progress *progress)
{
    const struct documents_state *documents = &progress->documents;
    const struct prepare_counts *counts = &progress->counts;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "count", documents->document_count,
                     "text_bytes", documents->text_bytes, "duplicates_left_out", counts->duplicates, "empty_left_out",
                     documents->empty_count, "bad_lines_left_out", documents->bad_line_count, "binary_left_out",
                     documents->skipped_count, "not_utf8", counts->invalid_documents, "not_utf8_bytes",
                     counts->invalid_bytes, "with_zero_bytes", counts->zero_documents, "longer_than_a_part",
                     documents->long_count, "cuts_inside_words", counts->forced_cuts, "cut_conversations",
                     counts->cut_conversations);
}

static json_t *manifest_file(const struct token_file *file)
{
    return json_pack("{s:s, s:I, s:I, s:o}", "file", file->name, "tokens", (json_int_t)file->tokens, "size_bytes",
                     (json_int_t)file->size_bytes, "hash", prepare_json_crc(file->crc32c));
}

static json_t *manifest_split(const struct prepare *prep, enum token_split split)
{
    json_t *object = json_object(), *files = json_array();
    int failures = 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < prep->file_count; i++)
        if (prep->files[i].split == split) {
            tokens += prep->files[i].tokens;
            failures |= json_array_append_new(files, manifest_file(&prep->files[i]));
        }
    failures |= json_object_set_new(object, "tokens", json_integer(tokens));
    if (prep->split == PREPARE_SPLIT_DOCUMENT)
        failures |=
            json_object_set_new(object, "documents", json_integer((json_int_t)prep->progress.split_documents[split]));
    failures |=
        json_object_set_new(object, "dtype", json_string(prep->writer_spec.width_bytes == 4 ? "uint32" : "uint16"));
    failures |= json_object_set_new(object, "files", files);
    for (size_t i = 0; i < prep->mask_count; i++)
        if (prep->mask_files[i].split == split)
            failures |= json_object_set_new(object, "mask", manifest_file(&prep->mask_files[i])) |
                        json_object_del(json_object_get(object, "mask"), "tokens");
    return json_whole(object, failures);
}

static json_t *manifest_exports(const struct prepare *prep)
{
    json_t *list = json_array();
    int failures = 0;
    for (int i = TOKENIZER_FILE_OURS; i < prepare_tokenizer_files(prep); i++)
        failures |= json_array_append_new(list, json_string(tokenizer_file_names[i]));
    return json_whole(list, failures);
}

/* ---- the whole manifest ---- */

static json_t *manifest_make(const struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    json_t *inputs = json_array();
    int failures = 0;
    for (size_t i = 0; i < spec->input_count; i++)
        failures |= json_array_append_new(inputs, manifest_input(spec->inputs[i], &prep->inputs[i]));
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "format", PREPARE_MANIFEST_FORMAT,
                     "version", 2, "tokenizer", tokenizer_kind_name(spec->tokenizer), "tokenizer_hash",
                     prepare_json_crc(prep->tokenizer->hash), "tokenizer_files", manifest_exports(prep), "vocab_size",
                     (json_int_t)prep->tokenizer->vocab_size, "options", prepare_options_json(prep), "inputs",
                     json_whole(inputs, failures), "documents", manifest_documents(&prep->progress), "train",
                     manifest_split(prep, TOKEN_TRAIN), "val", manifest_split(prep, TOKEN_VAL));
}

enum gt_status prepare_manifest_save(const struct prepare *prep, const char *path)
{
    json_t *manifest = manifest_make(prep);
    TRY(prepare_json_check(manifest, 0, "the manifest"));
    const enum gt_status status = json_replace_file(path, manifest, 2);
    json_decref(manifest);
    return status;
}

/* ---- comparing ---- */

static enum gt_status content_check(const json_t *root, const char *path, const int64_t tokens[static 2],
                                    const struct tokenizer *tokenizer)
{
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const char *name = token_split_name((enum token_split)split);
        const json_t *said = json_object_get(json_object_get(root, name), "tokens");
        if (json_is_integer(said) && json_integer_value(said) != tokens[split])
            return FAIL(GT_DATA,
                        "%s lists %" JSON_INTEGER_FORMAT " tokens for the %s split, but its files hold %" PRId64
                        ": the data set has changed since it was made; " REMEDY,
                        path, json_integer_value(said), name, tokens[split]);
    }
    const char *hash = json_string_value(json_object_get(root, "tokenizer_hash"));
    const char *now = tokenizer != NULL ? TOKENIZER_HASH_TEXT(tokenizer) : "";
    if (hash == NULL || tokenizer == NULL || strcmp(hash, now) == 0)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s names tokenizer %.32s, but " TOKENIZER_FILE_NAME
                " beside it is %s: its ids would stand for other text; " REMEDY,
                path, hash, now);
}

enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2], const struct tokenizer *tokenizer)
{
    json_t *root;
    bool exists;
    const char *path = FILE_IN(folder, PREPARE_MANIFEST_NAME);
    TRY(file_look(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(path, PREPARE_MANIFEST_BYTES_MAX, &root));
    const char *format = json_string_value(json_object_get(root, "format"));
    const bool ours = format != NULL && strcmp(format, PREPARE_MANIFEST_FORMAT) == 0;
    const enum gt_status status = ours ? content_check(root, path, tokens, tokenizer) : GT_OK;
    json_decref(root);
    return status;
}
