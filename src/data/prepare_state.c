/* The state of an unfinished run: a small JSON file that is replaced whenever the token files have been synced.
 *
 * It records how far the inputs were read (documents.h), the token files and their lengths, and, in the last phase, the
 * files to rename.  It also contains the options and the list of inputs; a run with different ones is refused, because
 * its output would be a mix of two data sets.  The file is in the user's folder, so its fields are checked like any
 * other input's.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/prepare_internal.h"

#define STATE_FORMAT "gpt-prepare-state"
#define STATE_VERSION 1
#define COUNT_MAX (INT64_MAX / 4)

/* A number of the state: its name and its offset in struct prepare_progress. */
struct state_field {
    const char *name;
    size_t offset;
};

#define FIELD(name, member)                             \
    {                                                   \
        name, offsetof(struct prepare_progress, member) \
    }

static const struct state_field state_counts[] = {
    FIELD("file", documents.file),
    FIELD("text", documents.text),
    FIELD("offset", documents.offset),
    FIELD("line", documents.line),
    FIELD("input_size_bytes", documents.input.size_bytes),
    FIELD("input_files", documents.input.file_count),
    FIELD("input_skipped", documents.input.skipped_count),
    FIELD("documents", documents.document_count),
    FIELD("empty", documents.empty_count),
    FIELD("long", documents.long_count),
    FIELD("bad_lines", documents.bad_line_count),
    FIELD("files", documents.file_count),
    FIELD("skipped", documents.skipped_count),
    FIELD("text_bytes", documents.text_bytes),
    FIELD("duplicates", duplicate_count),
    FIELD("forced_cuts", forced_cut_count),
    FIELD("invalid_bytes", invalid_byte_count),
    FIELD("invalid_documents", invalid_document_count),
    FIELD("zero_documents", zero_document_count),
    FIELD("train_documents", split_documents[TOKEN_TRAIN]),
    FIELD("val_documents", split_documents[TOKEN_VAL]),
    FIELD("characters", character_count),
    FIELD("dedup_count", dedup.count),
};

static const struct state_field state_flags[] = {
    FIELD("in_document", documents.in_document),
    FIELD("document_invalid", document_invalid),
    FIELD("document_zero", document_zero),
    FIELD("train_open_line", open_line[TOKEN_TRAIN]),
    FIELD("val_open_line", open_line[TOKEN_VAL]),
    FIELD("train_has_document", has_document[TOKEN_TRAIN]),
    FIELD("val_has_document", has_document[TOKEN_VAL]),
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void *field_at(struct prepare_progress *progress, const struct state_field *field)
{
    return (char *)progress + field->offset;
}

/* ---- saving ---- */

static json_t *input_to_json(const struct documents_input *input)
{
    return json_pack("[I, I, I, I]", (json_int_t)input->size_bytes, (json_int_t)input->crc32c,
                     (json_int_t)input->file_count, (json_int_t)input->skipped_count);
}

static json_t *kinds_to_json(const struct documents_kind *kinds)
{
    json_t *object = json_object();
    for (size_t i = 0; i < DOCUMENTS_KINDS_MAX && kinds[i].count > 0; i++)
        if (json_object_set_new(object, kinds[i].name, json_integer((json_int_t)kinds[i].count)) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *progress_to_json(struct prepare_progress *progress)
{
    json_t *object = json_object();
    int failures = 0;
    for (size_t i = 0; i < COUNT_OF(state_counts); i++) {
        uint64_t value;
        memcpy(&value, field_at(progress, &state_counts[i]), sizeof value);
        failures |= json_object_set_new(object, state_counts[i].name, json_integer((json_int_t)value));
    }
    for (size_t i = 0; i < COUNT_OF(state_flags); i++) {
        bool value;
        memcpy(&value, field_at(progress, &state_flags[i]), sizeof value);
        failures |= json_object_set_new(object, state_flags[i].name, json_boolean(value));
    }
    failures |= json_object_set_new(object, "crc32c", json_integer(progress->documents.crc32c));
    failures |= json_object_set_new(object, "input_crc32c", json_integer(progress->documents.input.crc32c));
    if (progress->dedup.is_summed)
        failures |= json_object_set_new(object, "dedup_crc32c", json_integer(progress->dedup.crc32c));
    failures |= json_object_set_new(object, "long_split", json_integer(progress->long_split));
    failures |= json_object_set_new(object, "skipped_kinds", kinds_to_json(progress->documents.kinds));
    if (failures == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Converts the records of INPUTs: the complete ones, or those of the first of two passes. */
static json_t *inputs_to_json(const struct documents_input *inputs, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(list, input_to_json(&inputs[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *shards_to_json(const struct prepare *prep, enum token_split split)
{
    const struct token_shard_state *shards = NULL;
    const size_t count = token_writer_shards(prep->writer, split, &shards);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(
                list, json_pack("[I, I]", (json_int_t)shards[i].tokens, (json_int_t)shards[i].crc32c)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *fingerprint_to_json(const struct prepare *prep)
{
    const struct document_hash hash = corpus_fingerprint(prep->corpus);
    char text[40];
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return json_string(text);
}

static json_t *state_make(struct prepare *prep, enum prepare_phase phase)
{
    const struct prepare_spec *spec = prep->spec;
    json_t *root = json_object();
    int failures = json_object_set_new(root, "format", json_string(STATE_FORMAT));
    failures |= json_object_set_new(root, "version", json_integer(STATE_VERSION));
    failures |= json_object_set_new(root, "phase", json_integer(phase));
    failures |= json_object_set_new(root, "options", prepare_options_json(prep));
    failures |= json_object_set_new(root, "tokenizer_hash", prepare_json_crc(tokenizer_hash(prep->tokenizer)));
    failures |= json_object_set_new(root, "input_files", json_integer((json_int_t)prep->corpus->file_count));
    failures |= json_object_set_new(root, "input_bytes", json_integer((json_int_t)prep->corpus->size_bytes));
    failures |= json_object_set_new(root, "inputs_hash", fingerprint_to_json(prep));
    failures |= json_object_set_new(root, "progress", progress_to_json(&prep->progress));
    failures |= json_object_set_new(root, "stdin_bytes", json_integer((json_int_t)prep->stdin_bytes));
    failures |= json_object_set_new(root, "stdin_crc32c", json_integer(prep->stdin_crc32c));
    const struct documents_input *inputs = prep->documents != NULL ? documents_inputs(prep->documents) : prep->inputs;
    const size_t known = prep->corpus->files[prep->corpus->file_count - 1].input + 1;
    failures |= json_object_set_new(root, "inputs", inputs_to_json(inputs, known));
    failures |= json_object_set_new(root, "first_inputs", inputs_to_json(prep->first_inputs, spec->input_count));
    failures |= json_object_set_new(root, "train", shards_to_json(prep, TOKEN_TRAIN));
    failures |= json_object_set_new(root, "val", shards_to_json(prep, TOKEN_VAL));
    if (phase == PREPARE_PHASE_COMMIT)
        failures |= json_object_set(root, "commit", prep->commit);
    if (failures == 0)
        return root;
    json_decref(root);
    return NULL;
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
    log_error("%s: an unfinished run is here, of %" PRId64 " files with %" PRId64
              " bytes; the inputs are now %zu files "
              "with %" PRIu64 " bytes, or their names or times changed; start again with --restart",
              prep->spec->out_dir, files, bytes, prep->corpus->file_count, prep->corpus->size_bytes);
    return GT_USAGE;
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
    if (strcmp(format, STATE_FORMAT) != 0) {
        log_error("%s: field \"format\": expected \"%s\"", prep->state_path, STATE_FORMAT);
        return GT_DATA;
    }
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

static enum gt_status list_refuse(const struct prepare *prep, const char *name)
{
    log_error("%s: field \"%s\" is damaged; start again with --restart", prep->state_path, name);
    return GT_DATA;
}

/* Reads row[index] of a list of numbers; returns false unless 0 <= number <= max. */
static bool row_number(const json_t *row, size_t index, json_int_t max, int64_t *out)
{
    const json_t *value = json_array_get(row, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        return false;
    *out = json_integer_value(value);
    return true;
}

static enum gt_status inputs_restore(const struct prepare *prep, const char *name, struct documents_input *out)
{
    const json_t *list = json_object_get(prep->state, name);
    if (!json_is_array(list) || json_array_size(list) > prep->spec->input_count)
        return list_refuse(prep, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        int64_t size = 0, crc = 0, files = 0, skipped = 0;
        if (!row_number(row, 0, COUNT_MAX, &size) || !row_number(row, 1, UINT32_MAX, &crc) ||
            !row_number(row, 2, COUNT_MAX, &files) || !row_number(row, 3, COUNT_MAX, &skipped))
            return list_refuse(prep, name);
        out[i] = (struct documents_input){.size_bytes = (uint64_t)size,
                                          .crc32c = (uint32_t)crc,
                                          .file_count = (uint64_t)files,
                                          .skipped_count = (uint64_t)skipped};
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
            return list_refuse(prep, "skipped_kinds");
        memcpy(out[used].name, name, strlen(name));
        out[used++].count = (uint64_t)json_integer_value(count);
    }
    return GT_OK;
}

static enum gt_status progress_restore(struct prepare *prep, const json_t *object)
{
    struct prepare_progress *progress = &prep->progress;
    const char *path = prep->state_path;
    int64_t value = 0;
    for (size_t i = 0; i < COUNT_OF(state_counts); i++) {
        TRY(json_get_int(object, path, state_counts[i].name, 0, COUNT_MAX, &value));
        const uint64_t count = (uint64_t)value;
        memcpy(field_at(progress, &state_counts[i]), &count, sizeof count);
    }
    for (size_t i = 0; i < COUNT_OF(state_flags); i++) {
        bool flag = false;
        TRY(json_get_bool(object, path, state_flags[i].name, &flag));
        memcpy(field_at(progress, &state_flags[i]), &flag, sizeof flag);
    }
    TRY(json_get_int(object, path, "crc32c", 0, UINT32_MAX, &value));
    progress->documents.crc32c = (uint32_t)value;
    TRY(json_get_int(object, path, "input_crc32c", 0, UINT32_MAX, &value));
    progress->documents.input.crc32c = (uint32_t)value;
    value = 0;
    progress->dedup.is_summed = json_object_get(object, "dedup_crc32c") != NULL; /* older releases did not save it */
    if (progress->dedup.is_summed)
        TRY(json_get_int(object, path, "dedup_crc32c", 0, UINT32_MAX, &value));
    progress->dedup.crc32c = (uint32_t)value;
    TRY(json_get_int(object, path, "long_split", TOKEN_TRAIN, TOKEN_VAL, &value));
    progress->long_split = (enum token_split)value;
    TRY(kinds_restore(prep, json_object_get(object, "skipped_kinds"), progress->documents.kinds));
    if (progress->documents.file > prep->corpus->file_count ||
        (progress->documents.file == prep->corpus->file_count && progress->documents.text > 0))
        return list_refuse(prep, "progress");
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
    if (prepare_copies_stdin(prep) && (prep->stdin_bytes != (uint64_t)bytes || prep->stdin_crc32c != (uint32_t)crc)) {
        log_error("standard input: %" PRIu64 " bytes, not the same %" PRId64 " that the stopped run read",
                  prep->stdin_bytes, bytes);
        return GT_DATA;
    }
    return GT_OK;
}

enum gt_status prepare_state_check_tokenizer(const struct prepare *prep)
{
    const char *then = NULL;
    TRY(json_get_string(prep->state, prep->state_path, "tokenizer_hash", &then));
    json_t *now = prepare_json_crc(tokenizer_hash(prep->tokenizer));
    enum gt_status status = prepare_json_check(now, 0, "a checksum");
    if (status == GT_OK && strcmp(json_string_value(now), then) != 0) {
        log_error("%s: the tokenizer changed since the run was stopped (hash %s, was %s); start again with "
                  "--restart",
                  prep->spec->out_dir, json_string_value(now), then);
        status = GT_DATA;
    }
    json_decref(now);
    return status;
}

enum gt_status prepare_state_shards(struct prepare *prep, enum token_split split)
{
    const char *name = token_split_name(split);
    const json_t *list = json_object_get(prep->state, name);
    const size_t count = json_array_size(list);
    void *memory = NULL;
    if (!json_is_array(list) || count > TOKEN_WRITER_SHARDS_MAX)
        return list_refuse(prep, name);
    TRY(hostmem_alloc(prep->mem, count, sizeof(struct token_shard_state), "list of shards", &memory));
    struct token_shard_state *shards = memory;
    enum gt_status status = GT_OK;
    for (size_t i = 0; i < count && status == GT_OK; i++) {
        int64_t tokens = 0, crc = 0;
        const json_t *row = json_array_get(list, i);
        if (!row_number(row, 0, COUNT_MAX, &tokens) || !row_number(row, 1, UINT32_MAX, &crc))
            status = list_refuse(prep, name);
        shards[i] = (struct token_shard_state){.tokens = tokens, .crc32c = (uint32_t)crc};
    }
    if (status == GT_OK)
        status = token_writer_resume(prep->writer, split, shards, count);
    hostmem_free(prep->mem, shards);
    return status;
}
