/* manifest.json: the sources of a data set, the options, and the contents; and the state of an
 * unfinished run.
 *
 * The manifest depends only on inputs and options, with no times and no number of threads, so that
 * two runs can be compared file by file.
 *
 * The state is a small JSON file that is replaced whenever the token files have been synced.  It
 * records how much of the text has been written, with a checksum, the numbers of tokens, and, in
 * the last phase, the files to rename.  It also contains the options and a checksum of the list of
 * inputs; a run with different ones is refused, because its output would be a mix of two data sets.
 * All counts are made again from the text, which a continued run reads from its beginning.  The
 * file is in the user's folder, so every length and name in it is checked like any other input.
 */
#include "data/prepare_manifest.h"

#include "base/utf8.h"
#include "data/chat_kind.h"
#include "data/prepare_spec.h"
#include "data/tokenizer_export.h"

#define STATE_FORMAT "gpt-prepare-state"
#define STATE_VERSION 3
#define COUNT_MAX (INT64_MAX / 4)

int prepare_tokenizer_files(const struct prepare *prep)
{
    return prep->learns && prep->spec->tokenizer == TOKENIZER_BPE ? TOKENIZER_FILES
                                                                  : TOKENIZER_FILE_OURS + 1;
}

enum gt_status prepare_json_check(const json_t *value, int failures, const char *what)
{
    if (value != NULL && failures == 0)
        return GT_OK;
    return FAIL(GT_NO_MEMORY, "out of memory for %s as JSON", what);
}

static json_t *json_crc(uint32_t crc32c)
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

static json_t *options_json(const struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    const bool is_chat = spec->chat != CHAT_NONE;
    const char *field = spec->field != NULL ? spec->field : is_chat ? "messages" : "text";
    json_t *object = json_pack("{s:s}", "tokenizer", tokenizer_kind_names[spec->tokenizer]);
    int failures = 0;
    if (spec->given != NULL)
        failures |= json_object_set_new(object, "tokenizer-hash", json_crc(spec->given->hash));
    if (spec->tokenizer == TOKENIZER_BPE && spec->given == NULL)
        failures |= json_object_set_new(object, "vocab-size", json_integer(spec->vocab_size));
    failures |= json_object_update_new(
        object, json_pack("{s:s, s:o, s:o, s:s, s:s, s:s, s:b, s:s, s:f, s:I, s:I}", "format",
                          documents_format_words[spec->format], "field", json_path(field),
                          "encoding", json_path(spec->encoding != NULL ? spec->encoding : "auto"),
                          "bad-lines", spec->skip_bad_lines ? "skip" : "stop", "documents",
                          documents_end_words[spec->end], "document-separator",
                          prepare_separator_words[prep->separator], "dedup", (int)spec->dedup,
                          "val-split", prepare_split_words[prep->split], "val-fraction",
                          spec->val_fraction, "seed", (json_int_t)(spec->seed & INT64_MAX),
                          "shard-tokens", (json_int_t)spec->shard_tokens));
    if (is_chat)
        failures |=
            json_object_update_new(object, json_pack("{s:s, s:I}", "chat", chat_words[spec->chat],
                                                     "block-size", (json_int_t)spec->block_size));
    /* Written only if they differ from the behaviour of earlier releases, so that stopped runs of
     * these can continue. */
    if (spec->system != NULL)
        failures |= json_object_set_new(object, "system", json_path(spec->system));
    if (spec->train_on != CHAT_TRAIN_ASSISTANT)
        failures |= json_object_set_new(object, "train-on",
                                        json_string(chat_train_on_words[spec->train_on]));
    return json_whole(object, failures);
}

/* ---- parts ---- */

static json_t *manifest_input(const char *path, const struct documents_input *input)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:o}", "path", json_path(path), "files",
                     (json_int_t)input->file_count, "skipped", (json_int_t)input->skipped_count,
                     "size_bytes", (json_int_t)input->size_bytes, "hash", json_crc(input->crc32c));
}

static json_t *manifest_documents(const struct prepare_progress *progress)
{
    const struct documents_state *documents = &progress->documents;
    const struct prepare_counts *counts = &progress->counts;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "count",
        documents->document_count, "text_bytes", documents->text_bytes, "duplicates_left_out",
        counts->duplicates, "empty_left_out", documents->empty_count, "bad_lines_left_out",
        documents->bad_line_count, "binary_left_out", documents->skipped_count, "not_utf8",
        counts->invalid_documents, "not_utf8_bytes", counts->invalid_bytes, "with_zero_bytes",
        counts->zero_documents, "longer_than_a_part", documents->long_count, "cuts_inside_words",
        counts->forced_cuts, "cut_conversations", counts->cut_conversations,
        "without_target_left_out", counts->targetless, "bytes_without_token", counts->unknown_bytes,
        "line_ends_converted", documents->line_end_count, "byte_order_marks_left_out",
        documents->mark_count);
}

static json_t *manifest_file(const struct token_file *file)
{
    return json_pack("{s:s, s:I, s:I, s:o}", "file", file->name, "tokens", (json_int_t)file->tokens,
                     "size_bytes", (json_int_t)file->size_bytes, "hash", json_crc(file->crc32c));
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
        failures |= json_object_set_new(
            object, "documents", json_integer((json_int_t)prep->progress.split_documents[split]));
    failures |= json_object_set_new(
        object, "dtype", json_string(prep->writer_spec.width_bytes == 4 ? "uint32" : "uint16"));
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
        failures |=
            json_array_append_new(inputs, manifest_input(spec->inputs[i], &prep->inputs[i]));
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "format",
                     PREPARE_MANIFEST_FORMAT, "version", 2, "tokenizer",
                     tokenizer_kind_names[spec->tokenizer], "tokenizer_hash",
                     json_crc(prep->tokenizer->hash), "tokenizer_files", manifest_exports(prep),
                     "vocab_size", (json_int_t)prep->tokenizer->vocab_size, "options",
                     options_json(prep), "inputs", json_whole(inputs, failures), "documents",
                     manifest_documents(&prep->progress), "train",
                     manifest_split(prep, TOKEN_TRAIN), "val", manifest_split(prep, TOKEN_VAL));
}

enum gt_status prepare_manifest_save(const struct prepare *prep, const char *path)
{
    json_t *manifest = manifest_make(prep);
    const enum gt_status status = json_replace_file(path, manifest, 2);
    json_decref(manifest);
    return status;
}

/* ---- saving the state ---- */

static json_t *state_make(const struct prepare *prep, enum prepare_phase phase)
{
    const struct prepare_text *text = &prep->progress.text;
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "format",
                  STATE_FORMAT, "version", STATE_VERSION, "phase", (int)phase, "options",
                  options_json(prep), "tokenizer_hash", json_crc(prep->tokenizer->hash),
                  "input_files", (json_int_t)prep->corpus->file_count, "input_bytes",
                  (json_int_t)prep->corpus->size_bytes, "input_crc32c",
                  (json_int_t)corpus_crc32c(prep->corpus), "text_parts", (json_int_t)text->parts,
                  "text_bytes", (json_int_t)text->bytes, "text_crc32c", (json_int_t)text->crc32c,
                  "train", (json_int_t)token_writer_tokens(prep->writer, TOKEN_TRAIN), "val",
                  (json_int_t)token_writer_tokens(prep->writer, TOKEN_VAL));
    if (phase != PREPARE_PHASE_COMMIT)
        return root;
    return json_whole(root, json_object_set(root, "commit", prep->commit));
}

enum gt_status prepare_state_save(struct prepare *prep, enum prepare_phase phase)
{
    json_t *state = state_make(prep, phase);
    const enum gt_status status = json_replace_file(prep->state_path, state, 1);
    json_decref(state);
    if (status == GT_OK)
        prep->saved = phase;
    return status;
}

/* ---- loading the state ---- */

/* Compares the options with the stopped run's; one log line names the first that differs. */
static enum gt_status options_compare(const struct prepare *prep, const json_t *then)
{
    json_t *now = options_json(prep);
    enum gt_status status = prepare_json_check(now, 0, "the options");
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(now, name, value)
    {
        const json_t *old = json_object_get(then, name);
        if (status != GT_OK || json_equal(value, old))
            continue;
        char *was = old != NULL ? json_dumps(old, JSON_ENCODE_ANY) : NULL;
        char *is = json_dumps(value, JSON_ENCODE_ANY);
        log_error(
            "%s: an unfinished run is here, with --%s %s, now %s; give its options again to continue it, or "
            "start again with --restart",
            prep->spec->out_dir, name, was != NULL ? was : "unset", is != NULL ? is : "another");
        free(was);
        free(is);
        status = GT_USAGE;
    }
    json_decref(now);
    return status;
}

static enum gt_status inputs_compare(const struct prepare *prep)
{
    int64_t files, bytes, crc32c;
    TRY(json_get_int(prep->state, prep->state_path, "input_files", 0, COUNT_MAX, &files));
    TRY(json_get_int(prep->state, prep->state_path, "input_bytes", 0, COUNT_MAX, &bytes));
    TRY(json_get_int(prep->state, prep->state_path, "input_crc32c", 0, UINT32_MAX, &crc32c));
    if (crc32c == corpus_crc32c(prep->corpus))
        return GT_OK;
    return FAIL(GT_USAGE,
                "%s: an unfinished run is here, of %" PRId64 " files with %" PRId64
                " bytes; the inputs are now %zu files with %" PRIu64
                " bytes, or their names or times changed; start again with --restart",
                prep->spec->out_dir, files, bytes, prep->corpus->file_count,
                prep->corpus->size_bytes);
}

static enum gt_status state_check(struct prepare *prep)
{
    const char *format = NULL;
    const json_t *options = NULL;
    int64_t version = 0, phase = 0;
    TRY(json_get_string(prep->state, prep->state_path, "format", &format));
    TRY(json_get_int(prep->state, prep->state_path, "version", STATE_VERSION, STATE_VERSION,
                     &version));
    TRY(json_get_int(prep->state, prep->state_path, "phase", PREPARE_PHASE_ENCODE,
                     PREPARE_PHASE_COMMIT, &phase));
    TRY(json_get_object(prep->state, prep->state_path, "options", &options));
    if (strcmp(format, STATE_FORMAT) != 0)
        return FAIL(GT_DATA, "%s: field \"format\": expected \"%s\"", prep->state_path,
                    STATE_FORMAT);
    TRY(options_compare(prep, options));
    TRY(inputs_compare(prep));
    TRY(json_get_int(prep->state, prep->state_path, "text_parts", 1, COUNT_MAX,
                     &prep->stopped.parts));
    TRY(json_get_int(prep->state, prep->state_path, "text_bytes", 0, COUNT_MAX,
                     &prep->stopped.bytes));
    TRY(json_get_int(prep->state, prep->state_path, "text_crc32c", 0, UINT32_MAX,
                     &prep->stopped.crc32c));
    prep->phase = prep->saved = (enum prepare_phase)phase;
    return GT_OK;
}

enum gt_status prepare_state_load(struct prepare *prep)
{
    prep->phase = PREPARE_PHASE_NEW;
    bool exists = false;
    if (!prep->spec->restart)
        TRY(file_stat_exists(prep->state_path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(prep->state_path, PREPARE_STATE_BYTES_MAX, &prep->state));
    return state_check(prep);
}

enum gt_status prepare_state_refuse(const struct prepare *prep, const char *field)
{
    return FAIL(GT_DATA, "%s: field \"%s\" is damaged; start again with --restart",
                prep->state_path, field);
}

enum gt_status prepare_state_check_tokenizer(const struct prepare *prep)
{
    const char *then = NULL;
    const char *now = TOKENIZER_HASH_TEXT(prep->tokenizer);
    TRY(json_get_string(prep->state, prep->state_path, "tokenizer_hash", &then));
    if (strcmp(now, then) == 0)
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: the tokenizer changed since the run was stopped (hash %s, was %s); start again with --restart",
        prep->spec->out_dir, now, then);
}

/* The mask of a row has a bit per token. */
enum gt_status prepare_state_shards(const struct prepare *prep)
{
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        int64_t tokens;
        const enum token_split which = (enum token_split)split;
        TRY(json_get_int(prep->state, prep->state_path, token_split_name(which), 0, COUNT_MAX,
                         &tokens));
        TRY(token_writer_resume(prep->writer, which, tokens));
        if (prep->masks != NULL)
            TRY(token_writer_resume(prep->masks, which, tokens / 8));
    }
    return GT_OK;
}
