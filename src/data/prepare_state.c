/* The state of an unfinished run: a small JSON file that is replaced whenever the token files have been synced.
 *
 * It records how far the inputs were read (documents.h), the token files and their lengths, and, in the last phase, the
 * files to rename.  It also contains the options and the list of inputs; a run with different ones is refused, because
 * its output would be a mix of two data sets.  The file is in the user's folder, so its fields are checked like any
 * other input's.
 */
#include "data/prepare_internal.h"

#define STATE_FORMAT "gpt-prepare-state"
#define STATE_VERSION 1
#define COUNT_MAX (INT64_MAX / 4)

/* A member of struct prepare_progress: a count of 64 bits, a number of 32 bits or a bool. */
struct state_field {
    const char *name;
    size_t offset, size;
    int64_t max;
};

#define FIELD(name, member, max)                                                                                \
    {                                                                                                           \
        name, offsetof(struct prepare_progress, member), sizeof(((struct prepare_progress *)NULL)->member), max \
    }

static const struct state_field state_fields[] = {
    FIELD("file", documents.file, COUNT_MAX),
    FIELD("text", documents.text, COUNT_MAX),
    FIELD("offset", documents.offset, COUNT_MAX),
    FIELD("line", documents.line, COUNT_MAX),
    FIELD("input_size_bytes", documents.input.size_bytes, COUNT_MAX),
    FIELD("input_files", documents.input.file_count, COUNT_MAX),
    FIELD("input_skipped", documents.input.skipped_count, COUNT_MAX),
    FIELD("documents", documents.document_count, COUNT_MAX),
    FIELD("empty", documents.empty_count, COUNT_MAX),
    FIELD("long", documents.long_count, COUNT_MAX),
    FIELD("bad_lines", documents.bad_line_count, COUNT_MAX),
    FIELD("files", documents.file_count, COUNT_MAX),
    FIELD("skipped", documents.skipped_count, COUNT_MAX),
    FIELD("text_bytes", documents.text_bytes, COUNT_MAX),
    FIELD("duplicates", counts.duplicates, COUNT_MAX),
    FIELD("forced_cuts", counts.forced_cuts, COUNT_MAX),
    FIELD("invalid_bytes", counts.invalid_bytes, COUNT_MAX),
    FIELD("invalid_documents", counts.invalid_documents, COUNT_MAX),
    FIELD("zero_documents", counts.zero_documents, COUNT_MAX),
    FIELD("train_documents", split_documents[TOKEN_TRAIN], COUNT_MAX),
    FIELD("val_documents", split_documents[TOKEN_VAL], COUNT_MAX),
    FIELD("characters", character_count, COUNT_MAX),
    FIELD("cut_conversations", counts.cut_conversations, COUNT_MAX),
    FIELD("answer_tokens", counts.answer_tokens, COUNT_MAX),
    FIELD("dedup_count", dedup.count, COUNT_MAX),
    FIELD("in_document", documents.in_document, true),
    FIELD("document_invalid", document_invalid, true),
    FIELD("document_zero", document_zero, true),
    FIELD("train_open_line", open_line[TOKEN_TRAIN], true),
    FIELD("val_open_line", open_line[TOKEN_VAL], true),
    FIELD("train_has_document", has_document[TOKEN_TRAIN], true),
    FIELD("val_has_document", has_document[TOKEN_VAL], true),
    FIELD("crc32c", documents.crc32c, UINT32_MAX),
    FIELD("dedup_crc32c", dedup.crc32c, UINT32_MAX),
    FIELD("input_crc32c", documents.input.crc32c, UINT32_MAX),
    FIELD("long_split", long_split, TOKEN_VAL),
};
enum { FIELD_COUNT = sizeof state_fields / sizeof state_fields[0] };
_Static_assert(sizeof(enum token_split) == sizeof(uint32_t) && sizeof(bool) == 1, "sizes tell the types apart");

/* ---- saving ---- */

static json_t *field_to_json(const struct prepare_progress *progress, const struct state_field *field)
{
    const char *at = (const char *)progress + field->offset;
    uint64_t count;
    uint32_t number;
    if (field->size == sizeof(bool))
        return json_boolean(*at);
    if (field->size == sizeof number) {
        memcpy(&number, at, sizeof number);
        return json_integer(number);
    }
    memcpy(&count, at, sizeof count);
    return json_integer((json_int_t)count);
}

static json_t *kinds_to_json(const struct documents_kind *kinds)
{
    json_t *object = json_object();
    int failures = 0;
    for (size_t i = 0; i < DOCUMENTS_KINDS_MAX && kinds[i].count > 0; i++)
        failures |= json_object_set_new(object, kinds[i].name, json_integer((json_int_t)kinds[i].count));
    return json_whole(object, failures);
}

static json_t *progress_to_json(const struct prepare_progress *progress)
{
    json_t *object = json_object();
    int failures = 0;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        failures |= json_object_set_new(object, state_fields[i].name, field_to_json(progress, &state_fields[i]));
    failures |= json_object_set_new(object, "skipped_kinds", kinds_to_json(progress->documents.kinds));
    return json_whole(object, failures);
}

/* Converts the records of INPUTs: the complete ones, or those of the first of two passes. */
static json_t *inputs_to_json(const struct prepare *prep, const struct documents_input *inputs)
{
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; i < prep->spec->input_count; i++)
        failures |= json_array_append_new(
            list, json_pack("[I, I, I, I]", (json_int_t)inputs[i].size_bytes, (json_int_t)inputs[i].crc32c,
                            (json_int_t)inputs[i].file_count, (json_int_t)inputs[i].skipped_count));
    return json_whole(list, failures);
}

static json_t *shards_to_json(const struct token_writer *writer, enum token_split split)
{
    const struct token_shard_state *shards = NULL;
    const size_t count = token_writer_shards(writer, split, &shards);
    json_t *list = json_array();
    int failures = 0;
    for (size_t i = 0; i < count; i++)
        failures |= json_array_append_new(
            list, json_pack("[I, I]", (json_int_t)shards[i].tokens, (json_int_t)shards[i].crc32c));
    return json_whole(list, failures);
}

static json_t *fingerprint_to_json(const struct prepare *prep)
{
    const struct document_hash hash = corpus_fingerprint(prep->corpus);
    char text[40];
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return json_string(text);
}

static json_t *state_make(const struct prepare *prep, enum prepare_phase phase)
{
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "format", STATE_FORMAT,
        "version", STATE_VERSION, "phase", (int)phase, "options", prepare_options_json(prep), "tokenizer_hash",
        prepare_json_crc(prep->tokenizer->hash), "input_files", (json_int_t)prep->corpus->file_count, "input_bytes",
        (json_int_t)prep->corpus->size_bytes, "inputs_hash", fingerprint_to_json(prep), "progress",
        progress_to_json(&prep->progress), "stdin_bytes", (json_int_t)prep->stdin_bytes, "stdin_crc32c",
        (json_int_t)prep->stdin_crc32c, "inputs", inputs_to_json(prep, prep->inputs), "first_inputs",
        inputs_to_json(prep, prep->first_inputs), "train", shards_to_json(prep->writer, TOKEN_TRAIN), "val",
        shards_to_json(prep->writer, TOKEN_VAL));
    if (prep->masks != NULL)
        root = json_whole(root,
                          json_object_set_new(root, "masks",
                                              json_pack("{s:o, s:o}", "train", shards_to_json(prep->masks, TOKEN_TRAIN),
                                                        "val", shards_to_json(prep->masks, TOKEN_VAL))));
    if (phase != PREPARE_PHASE_COMMIT)
        return root;
    return json_whole(root, json_object_set(root, "commit", prep->commit));
}

enum gt_status prepare_state_save(struct prepare *prep, enum prepare_phase phase)
{
    json_t *state = state_make(prep, phase);
    TRY(prepare_json_check(state, 0, "the state of the run"));
    const enum gt_status status = json_replace_file(prep->state_path, state, 1);
    json_decref(state);
    if (status == GT_OK)
        prep->saved = true;
    return status;
}

/* ---- loading ---- */

/* Compares the options with the stopped run's; one log line names the first that differs. */
static enum gt_status options_compare(const struct prepare *prep, const json_t *then)
{
    json_t *now = prepare_options_json(prep);
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
        log_error("%s: an unfinished run is here, with --%s %s, now %s; give its options again to continue it, or "
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
    const char *hash = NULL;
    int64_t files = 0, bytes = 0;
    TRY(json_get_string(prep->state, prep->state_path, "inputs_hash", &hash));
    TRY(json_get_int(prep->state, prep->state_path, "input_files", 0, COUNT_MAX, &files));
    TRY(json_get_int(prep->state, prep->state_path, "input_bytes", 0, COUNT_MAX, &bytes));
    json_t *now = fingerprint_to_json(prep);
    TRY(prepare_json_check(now, 0, "the inputs"));
    const bool same = strcmp(json_string_value(now), hash) == 0;
    json_decref(now);
    if (same)
        return GT_OK;
    return FAIL(GT_USAGE,
                "%s: an unfinished run is here, of %" PRId64 " files with %" PRId64
                " bytes; the inputs are now %zu files with %" PRIu64
                " bytes, or their names or times changed; start again with --restart",
                prep->spec->out_dir, files, bytes, prep->corpus->file_count, prep->corpus->size_bytes);
}

static enum gt_status state_check(struct prepare *prep)
{
    const char *format = NULL;
    const json_t *options = NULL;
    int64_t version = 0, phase = 0;
    TRY(json_get_string(prep->state, prep->state_path, "format", &format));
    TRY(json_get_int(prep->state, prep->state_path, "version", STATE_VERSION, STATE_VERSION, &version));
    TRY(json_get_int(prep->state, prep->state_path, "phase", PREPARE_PHASE_ENCODE, PREPARE_PHASE_COMMIT, &phase));
    TRY(json_get_object(prep->state, prep->state_path, "options", &options));
    if (strcmp(format, STATE_FORMAT) != 0)
        return FAIL(GT_DATA, "%s: field \"format\": expected \"%s\"", prep->state_path, STATE_FORMAT);
    TRY(options_compare(prep, options));
    TRY(inputs_compare(prep));
    prep->phase = (enum prepare_phase)phase;
    prep->saved = true;
    return GT_OK;
}

enum gt_status prepare_state_load(struct prepare *prep)
{
    prep->phase = PREPARE_PHASE_NEW;
    bool exists = false;
    if (!prep->spec->restart)
        TRY(file_look(prep->state_path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(prep->state_path, PREPARE_STATE_BYTES_MAX, &prep->state));
    return state_check(prep);
}

/* ---- restoring ---- */

enum gt_status prepare_state_refuse(const struct prepare *prep, const char *field)
{
    return FAIL(GT_DATA, "%s: field \"%s\" is damaged; start again with --restart", prep->state_path, field);
}

/* Reads the first `count` numbers of a row, of which the second is a checksum.  Returns false when one is missing or
 * out of range. */
static bool row_read(const json_t *row, size_t count, int64_t *out)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(row, i);
        out[i] = json_integer_value(value);
        if (!json_is_integer(value) || out[i] < 0 || out[i] > (i == 1 ? (int64_t)UINT32_MAX : COUNT_MAX))
            return false;
    }
    return true;
}

static enum gt_status inputs_restore(const struct prepare *prep, const char *name, struct documents_input *out)
{
    const json_t *list = json_object_get(prep->state, name);
    if (!json_is_array(list) || json_array_size(list) > prep->spec->input_count)
        return prepare_state_refuse(prep, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t row[4];
        if (!row_read(json_array_get(list, i), 4, row))
            return prepare_state_refuse(prep, name);
        out[i] = (struct documents_input){.size_bytes = (uint64_t)row[0],
                                          .crc32c = (uint32_t)row[1],
                                          .file_count = (uint64_t)row[2],
                                          .skipped_count = (uint64_t)row[3]};
    }
    return GT_OK;
}

static enum gt_status kinds_restore(const struct prepare *prep, json_t *object, struct documents_kind *out)
{
    const char *name = NULL;
    json_t *count = NULL;
    size_t used = 0;
    json_object_foreach(object, name, count)
    {
        if (used == DOCUMENTS_KINDS_MAX || name[0] == '\0' || strlen(name) >= DOCUMENTS_KIND_BYTES ||
            json_integer_value(count) < 1 || json_integer_value(count) > COUNT_MAX)
            return prepare_state_refuse(prep, "skipped_kinds");
        memcpy(out[used].name, name, strlen(name));
        out[used++].count = (uint64_t)json_integer_value(count);
    }
    return GT_OK;
}

static enum gt_status field_restore(struct prepare *prep, const json_t *object, const struct state_field *field)
{
    char *at = (char *)&prep->progress + field->offset;
    bool flag = false;
    int64_t value = 0;
    if (field->size == sizeof flag) {
        TRY(json_get_bool(object, prep->state_path, field->name, &flag));
        memcpy(at, &flag, sizeof flag);
        return GT_OK;
    }
    TRY(json_get_int(object, prep->state_path, field->name, 0, field->max, &value));
    const uint32_t number = (uint32_t)value;
    if (field->size == sizeof number)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &value, sizeof value);
    return GT_OK;
}

static enum gt_status progress_restore(struct prepare *prep, const json_t *object)
{
    struct prepare_progress *progress = &prep->progress;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        TRY(field_restore(prep, object, &state_fields[i]));
    TRY(kinds_restore(prep, json_object_get(object, "skipped_kinds"), progress->documents.kinds));
    if (progress->documents.file > prep->corpus->file_count ||
        (progress->documents.file == prep->corpus->file_count && progress->documents.text > 0) ||
        (progress->documents.text == 0 && progress->documents.offset > 0))
        return prepare_state_refuse(prep, "progress");
    return GT_OK;
}

enum gt_status prepare_state_restore(struct prepare *prep)
{
    const json_t *progress = NULL;
    int64_t bytes = 0, crc = 0;
    TRY(json_get_object(prep->state, prep->state_path, "progress", &progress));
    TRY(progress_restore(prep, progress));
    TRY(inputs_restore(prep, "inputs", prep->inputs));
    TRY(inputs_restore(prep, "first_inputs", prep->first_inputs));
    TRY(json_get_int(prep->state, prep->state_path, "stdin_bytes", 0, COUNT_MAX, &bytes));
    TRY(json_get_int(prep->state, prep->state_path, "stdin_crc32c", 0, UINT32_MAX, &crc));
    if (prepare_copies_stdin(prep) && (prep->stdin_bytes != (uint64_t)bytes || prep->stdin_crc32c != (uint32_t)crc))
        return FAIL(GT_DATA, "standard input: %" PRIu64 " bytes, not the same %" PRId64 " that the stopped run read",
                    prep->stdin_bytes, bytes);
    return GT_OK;
}

enum gt_status prepare_state_check_tokenizer(const struct prepare *prep)
{
    const char *then = NULL;
    char now[TOKENIZER_HASH_TEXT_BYTES];
    TRY(json_get_string(prep->state, prep->state_path, "tokenizer_hash", &then));
    if (strcmp(tokenizer_hash_text(prep->tokenizer, now), then) == 0)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the tokenizer changed since the run was stopped (hash %s, was %s); start again with --restart",
                prep->spec->out_dir, now, then);
}

static enum gt_status shards_restore(const struct prepare *prep, struct token_writer *writer, const json_t *object,
                                     enum token_split split)
{
    const char *name = token_split_name(split);
    const json_t *list = json_object_get(object, name);
    if (!json_is_array(list))
        return prepare_state_refuse(prep, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t row[2];
        if (!row_read(json_array_get(list, i), 2, row))
            return prepare_state_refuse(prep, name);
        const struct token_shard_state shard = {.tokens = row[0], .crc32c = (uint32_t)row[1]};
        TRY(token_writer_resume(writer, split, shard, i + 1 == json_array_size(list)));
    }
    return GT_OK;
}

enum gt_status prepare_state_shards(const struct prepare *prep)
{
    const json_t *masks = json_object_get(prep->state, "masks");
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        TRY(shards_restore(prep, prep->writer, prep->state, (enum token_split)split));
        if (prep->masks != NULL)
            TRY(shards_restore(prep, prep->masks, masks, (enum token_split)split));
    }
    return GT_OK;
}
