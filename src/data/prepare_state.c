/* The state of an unfinished run: a small JSON file that is replaced whenever the token files have been synced.
 *
 * It records how much of the text has been written, with a checksum, the numbers of tokens, and, in the last phase, the
 * files to rename.  It also contains the options and a checksum of the list of inputs; a run with different ones is
 * refused, because its output would be a mix of two data sets.  All counts are made again from the text, which a
 * continued run reads from its beginning.  The file is in the user's folder, so what is used as a length or a name is
 * checked like any other input's.
 */
#include "data/prepare_internal.h"

#define STATE_FORMAT "gpt-prepare-state"
#define STATE_VERSION 3
#define COUNT_MAX (INT64_MAX / 4)

/* ---- saving ---- */

static json_t *state_make(const struct prepare *prep, enum prepare_phase phase)
{
    const struct prepare_text *text = &prep->progress.text;
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "format", STATE_FORMAT, "version",
        STATE_VERSION, "phase", (int)phase, "options", prepare_options_json(prep), "tokenizer_hash",
        prepare_json_crc(prep->tokenizer->hash), "input_files", (json_int_t)prep->corpus->file_count, "input_bytes",
        (json_int_t)prep->corpus->size_bytes, "input_crc32c", (json_int_t)corpus_crc32c(prep->corpus), "text_parts",
        (json_int_t)text->parts, "text_bytes", (json_int_t)text->bytes, "text_crc32c", (json_int_t)text->crc32c,
        "train", (json_int_t)token_writer_tokens(prep->writer, TOKEN_TRAIN), "val",
        (json_int_t)token_writer_tokens(prep->writer, TOKEN_VAL));
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
        prep->saved = phase;
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
    TRY(json_get_int(prep->state, prep->state_path, "text_parts", 1, COUNT_MAX, &prep->stopped.parts));
    TRY(json_get_int(prep->state, prep->state_path, "text_bytes", 0, COUNT_MAX, &prep->stopped.bytes));
    TRY(json_get_int(prep->state, prep->state_path, "text_crc32c", 0, UINT32_MAX, &prep->stopped.crc32c));
    prep->phase = prep->saved = (enum prepare_phase)phase;
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

enum gt_status prepare_state_check_tokenizer(const struct prepare *prep)
{
    const char *then = NULL;
    const char *now = TOKENIZER_HASH_TEXT(prep->tokenizer);
    TRY(json_get_string(prep->state, prep->state_path, "tokenizer_hash", &then));
    if (strcmp(now, then) == 0)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the tokenizer changed since the run was stopped (hash %s, was %s); start again with --restart",
                prep->spec->out_dir, now, then);
}

/* The mask of a row has a bit per token. */
enum gt_status prepare_state_shards(const struct prepare *prep)
{
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        int64_t tokens;
        const enum token_split which = (enum token_split)split;
        TRY(json_get_int(prep->state, prep->state_path, token_split_name(which), 0, COUNT_MAX, &tokens));
        TRY(token_writer_resume(prep->writer, which, tokens));
        if (prep->masks != NULL)
            TRY(token_writer_resume(prep->masks, which, tokens / 8));
    }
    return GT_OK;
}
