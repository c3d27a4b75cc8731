/* Preparing a data set: the sequence of steps.
 *
 * A run lists the inputs, locks the folder, looks for an unfinished run, possibly copies standard
 * input and learns a vocabulary, encodes (prepare_encode.c), and publishes (prepare_commit.c). This
 * file opens and closes the run, resolves the options left open, learns the vocabulary, and decides
 * what a failed run leaves behind.
 */
#include "data/prepare.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "base/size.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "data/bpe_train.h"
#include "data/chat_kind.h"
#include "data/input.h"
#include "data/prepare_commit.h"
#include "data/prepare_encode.h"
#include "data/prepare_manifest.h"
#include "data/prepare_pass.h"
#include "data/prepare_spec.h"
#include "data/prepare_state.h"
#include "data/text_kind.h"
#include "data/tokenizer.h"

#define COPY_BYTES ((size_t)1 << 20)

const char *const prepare_separator_words[] = {"auto",    "none",  "newline", "before",
                                               "between", "after", NULL};
_Static_assert(sizeof prepare_separator_words / sizeof prepare_separator_words[0] ==
                   PREPARE_SEPARATOR_COUNT + 1,
               "a word for every separator");
const char *const prepare_split_words[] = {"auto", "position", "document", NULL};
_Static_assert(sizeof prepare_split_words / sizeof prepare_split_words[0] ==
                   PREPARE_SPLIT_COUNT + 1,
               "a word for every split");

/* ---- helpers ---- */

char *prepare_kinds_text(char text[static PREPARE_KINDS_TEXT_BYTES],
                         const struct documents_kind *kinds)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < DOCUMENTS_KINDS_MAX && kinds[i].count > 0; i++)
        used += (size_t)snprintf(text + used, PREPARE_KINDS_TEXT_BYTES - used, "%s%" PRIu64 " %s",
                                 i > 0 ? ", " : "", kinds[i].count, kinds[i].name);
    return text;
}

/* Logs that the inputs contain no text and returns GT_DATA. */
static enum gt_status refuse_empty(const struct prepare *prep, const struct documents_state *state)
{
    char kinds[PREPARE_KINDS_TEXT_BYTES];
    return FAIL(GT_DATA, "INPUT %s%s: no text in %" PRIu64 " file%s%s%s", prep->spec->inputs[0],
                prep->spec->input_count > 1 ? " ..." : "", state->file_count + state->skipped_count,
                state->file_count + state->skipped_count == 1 ? "" : "s",
                state->skipped_count > 0 ? "; not text: " : "",
                prepare_kinds_text(kinds, state->kinds));
}

/* ---- resolving options ---- */

static void choose_split(struct prepare *prep)
{
    const struct corpus *corpus = prep->corpus;
    prep->many = prep->spec->end != DOCUMENTS_END_OF_FILE || prep->spec->format == DOCUMENTS_JSONL;
    for (size_t i = 0; i < corpus->file_count && !prep->many; i++)
        prep->many =
            input_name_is_archive(corpus->files[i].path) ||
            input_name_is_parquet(corpus->files[i].path) ||
            (prep->spec->format == DOCUMENTS_BY_NAME && input_name_is_jsonl(corpus->files[i].path));
    prep->split = prep->spec->split;
    if (prep->split == PREPARE_SPLIT_AUTO)
        prep->split = prep->many ? PREPARE_SPLIT_DOCUMENT : PREPARE_SPLIT_POSITION;
}

static enum gt_status choose_separator(struct prepare *prep)
{
    const bool is_bpe = prep->spec->tokenizer == TOKENIZER_BPE;
    const bool has_eot =
        is_bpe && (prep->spec->given == NULL || tokenizer_eot(prep->spec->given) >= 0);
    prep->separator = prep->spec->separator;
    if (prep->separator == PREPARE_SEPARATOR_AUTO && !has_eot)
        prep->separator = is_bpe ? PREPARE_SEPARATOR_NONE : PREPARE_SEPARATOR_NEWLINE;
    if (prep->separator == PREPARE_SEPARATOR_AUTO)
        prep->separator = prep->many || prep->corpus->file_count > 1 ? PREPARE_SEPARATOR_AFTER
                                                                     : PREPARE_SEPARATOR_NONE;
    if (prep->separator >= PREPARE_SEPARATOR_BEFORE && !has_eot)
        return FAIL(
            GT_USAGE,
            "--document-separator=%s: the tokenizer %s has no end-of-text token; choose none or newline",
            prepare_separator_words[prep->separator], tokenizer_kind_names[prep->spec->tokenizer]);
    if (prep->separator == PREPARE_SEPARATOR_NEWLINE && is_bpe && prep->spec->given != NULL &&
        tokenizer_id_of(prep->spec->given, '\n') < 0)
        return FAIL(GT_USAGE, "--document-separator=newline: the tokenizer has no newline token");
    return GT_OK;
}

/* ---- opening ---- */

static enum gt_status prepare_lock(struct prepare *prep)
{
    prep->folder_made = !file_exists(prep->spec->out_dir);
    TRY(file_make_folders(prep->spec->out_dir));
    TRY(file_lock(FILE_IN(prep->spec->out_dir, PREPARE_LOCK_NAME), &prep->lock_fd));
    file_join(prep->state_path, prep->spec->out_dir, PREPARE_STATE_NAME);
    file_join(prep->stdin_path, prep->spec->out_dir, PREPARE_STDIN_NAME);
    return GT_OK;
}

/* Returns true if the name of a file with records begins with one of the words. */
static bool is_split(const struct corpus_file *file, const char *const *words)
{
    const char *name = file_name_of(file->path);
    if (!file->from_folder || !(input_name_has_records(name) || input_name_is_parquet(name)))
        return false;
    for (; *words != NULL; words++)
        if (strncmp(name, *words, strlen(*words)) == 0 &&
            !isalpha((unsigned char)name[strlen(*words)]))
            return true;
    return false;
}

/* Warns of a folder that has a split for tests beside the one to train on: all of it is read. */
static void splits_warn(const struct corpus *corpus)
{
    static const char *const trained[] = {"train", "training", NULL};
    static const char *const held[] = {"test", "validation", "valid", "val", "dev", "eval", NULL};
    const char *first = NULL;
    bool trains = false;
    for (size_t i = 0; i < corpus->file_count; i++) {
        trains = trains || is_split(&corpus->files[i], trained);
        if (first == NULL && is_split(&corpus->files[i], held))
            first = corpus->files[i].path;
    }
    if (trains && first != NULL)
        log_warning("%s: by its name this is held out of training, but all files of a folder are "
                    "read; name those to train on",
                    first);
}

static enum gt_status prepare_open(struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    const struct corpus_spec corpus_spec = {.inputs = spec->inputs,
                                            .input_count = spec->input_count,
                                            .out_dir = spec->out_dir,
                                            .is_output = prepare_is_output};
    TRY(corpus_create(prep, &corpus_spec, &prep->corpus));
    if (prep->corpus->size_bytes == 0 && !prep->corpus->has_stdin)
        return refuse_empty(prep,
                            &(struct documents_state){.file_count = prep->corpus->file_count});
    splits_warn(prep->corpus);
    prep->learns = spec->tokenizer == TOKENIZER_CHARS ||
                   (spec->tokenizer == TOKENIZER_BPE && spec->given == NULL);
    choose_split(prep);
    TRY(choose_separator(prep));
    TRY(HOSTMEM_NEW(prep, spec->input_count, "input records", &prep->inputs));
    return prepare_lock(prep);
}

/* Copies standard input to a file, because it is read twice. */
static enum gt_status stdin_copy(struct prepare *prep)
{
    struct file_replacement file;
    char *buffer;
    TRY(HOSTMEM_NEW(prep, COPY_BYTES, "copying standard input", &buffer));
    TRY(file_replacement_begin(&file, prep->stdin_path, NULL));
    enum gt_status status = GT_OK;
    for (ssize_t got = 1; got != 0 && status == GT_OK;) {
        got = read(STDIN_FILENO, buffer, COPY_BYTES);
        if (got < 0 && errno != EINTR)
            status = file_error("standard input", "read");
        if (got > 0)
            status = file_replacement_write(&file, buffer, (size_t)got);
    }
    hostmem_free(buffer);
    TRY(file_replacement_end(&file, status));
    prep->stdin_copied = true;
    prep->stdin_bytes = file.size_bytes;
    return GT_OK;
}

/* Continues from the state of a stopped run, or removes it. */
static enum gt_status prepare_resume(struct prepare *prep)
{
    TRY(prepare_check_old(prep));
    TRY(prepare_state_load(prep));
    if (prep->phase == PREPARE_PHASE_NEW) {
        TRY(prepare_discard(prep));
        prep->owns_files = true;
        return prep->learns && prep->corpus->has_stdin ? stdin_copy(prep) : GT_OK;
    }
    prep->replays = true;
    log_note("%s: continuing the run that was stopped after %s of text", prep->spec->out_dir,
             LOG_BYTES((uint64_t)prep->stopped.bytes));
    if (prep->phase == PREPARE_PHASE_COMMIT)
        prep->commit = json_incref(json_object_get(prep->state, "commit"));
    return GT_OK;
}

/* ---- a vocabulary from the inputs ----
 *
 * Characters are marked in a list of all code points; bpe_train.c counts pieces of text. */

/* The first of two passes. */
struct learner {
    struct prepare *prep;
    bool *seen; /* by code point; chars only */
    struct bpe_trainer *trainer;
    bool open_line;
};

static enum gt_status text_refuse(const struct document *document, size_t offset, const char *what)
{
    if (document->is_line)
        return FAIL(GT_DATA, "%s: line %" PRIu64 ": byte %zu of the text %s", document->label,
                    document->place, offset, what);
    return FAIL(GT_DATA, "%s: byte %" PRIu64 " %s", document->label, document->place + offset,
                what);
}

static enum gt_status refuse_not_utf8(const struct document *document, size_t at)
{
    const char *latin = text_guess_latin(document->text, document->count);
    return text_refuse(
        document, at,
        TEXT(128, "is not UTF-8%s; give --encoding=%s, or --tokenizer=bytes, which takes any bytes",
             latin != NULL ? " but looks like Latin-1" : "", latin != NULL ? latin : "NAME"));
}

static enum gt_status learn_chars(struct learner *learner, const struct document *document)
{
    for (size_t at = 0; at < document->count;) {
        uint32_t code_point = 0;
        const int length = utf8_decode((const unsigned char *)document->text + at,
                                       document->count - at, &code_point);
        if (length <= 0)
            return refuse_not_utf8(document, at);
        if (code_point == 0)
            return text_refuse(document, at,
                               "is zero, so this is not text; UTF-16 needs --encoding=UTF-16LE or "
                               "UTF-16BE, and --tokenizer=bytes takes any bytes");
        learner->seen[code_point] = true;
        at += (size_t)length;
    }
    /* A newline may be inserted between two documents. */
    if (learner->prep->separator == PREPARE_SEPARATOR_NEWLINE && learner->open_line &&
        !document->continues)
        learner->seen['\n'] = true;
    if (document->count > 0)
        learner->open_line = document->text[document->count - 1] != '\n';
    return GT_OK;
}

/* The marks in a conversation are not text. */
static enum gt_status learn_pieces(struct learner *learner, const struct document *document)
{
    struct chat_piece part;
    size_t at = 0;
    if (learner->prep->spec->chat == CHAT_NONE)
        return bpe_trainer_add(learner->trainer, document->text, document->count);
    while (chat_next(document->text, document->count, &at, &part))
        TRY(bpe_trainer_add(learner->trainer, part.text, part.count));
    return GT_OK;
}

static enum gt_status learn_all(struct learner *learner)
{
    struct prepare *prep = learner->prep;
    struct document document;
    bool found = false;
    TRY(documents_next(prep->documents, &document, &found));
    while (found) {
        if (learner->trainer != NULL)
            TRY(learn_pieces(learner, &document));
        else
            TRY(learn_chars(learner, &document));
        prepare_report(prep, false);
        TRY(documents_next(prep->documents, &document, &found));
    }
    return GT_OK;
}

static enum gt_status learn_finish_chars(const struct learner *learner)
{
    struct prepare *prep = learner->prep;
    size_t count = 0;
    uint32_t *code_points;
    TRY(HOSTMEM_NEW(prep, UTF8_CODE_POINTS, "characters", &code_points));
    for (uint32_t i = 0; i < UTF8_CODE_POINTS; i++)
        if (learner->seen[i])
            code_points[count++] = i;
    assert(count >= 1);
    const enum gt_status status = tokenizer_create_chars(prep, code_points, count, &prep->learned);
    hostmem_free(code_points);
    return status;
}

static enum gt_status learn_finish(const struct learner *learner)
{
    struct prepare *prep = learner->prep;
    if (documents_state_get(prep->documents)->text_bytes == 0)
        return refuse_empty(prep, documents_state_get(prep->documents));
    if (learner->trainer == NULL)
        return learn_finish_chars(learner);
    TRY(bpe_trainer_finish(learner->trainer, prep, prep->spec->vocab_size, &prep->learned));
    prep->learned->chat = prep->spec->chat;
    if (prep->learned->vocab_size < prep->spec->vocab_size)
        log_note("the text is too short for --vocab-size=%" PRId64 "; the vocabulary has %" PRId64
                 " tokens",
                 prep->spec->vocab_size, prep->learned->vocab_size);
    return GT_OK;
}

static enum gt_status prepare_learn(struct prepare *prep)
{
    struct learner learner = {.prep = prep};
    assert(prep->learns && prep->learned == NULL);
    TRY(prepare_open_documents(prep, false));
    enum gt_status status =
        prep->spec->tokenizer == TOKENIZER_BPE
            ? bpe_trainer_create(prep, chat_specials(prep->spec->chat), &learner.trainer)
            : HOSTMEM_NEW(prep, UTF8_CODE_POINTS, "characters seen", &learner.seen);
    THEN(status, learn_all(&learner));
    THEN(status, learn_finish(&learner));
    if (status == GT_OK)
        prep->done_before_bytes = documents_file_bytes(prep->documents);
    hostmem_free(learner.trainer);
    hostmem_free(learner.seen);
    hostmem_free(prep->documents);
    prep->documents = NULL;
    if (status == GT_OK)
        prepare_report(prep, true);
    return status;
}

/* ---- the tokenizer ---- */

/* Learns a vocabulary, or opens the one that the stopped run had learned. */
static enum gt_status tokenizer_learn(struct prepare *prep)
{
    bool exists;
    const char *path = FILE_IN(prep->spec->out_dir, TOKENIZER_FILE_NAME TOKEN_WRITER_PARTIAL);
    if (prep->phase == PREPARE_PHASE_NEW) {
        TRY(prepare_learn(prep));
        return tokenizer_save(prep->learned, path);
    }
    TRY(file_stat_exists(path, &exists));
    return tokenizer_open_file(
        prep, exists ? path : FILE_IN(prep->spec->out_dir, TOKENIZER_FILE_NAME), &prep->learned);
}

static enum gt_status prepare_tokenizer(struct prepare *prep)
{
    if (prep->spec->tokenizer == TOKENIZER_BYTES)
        TRY(tokenizer_create_bytes(prep, &prep->learned));
    else if (prep->learns)
        TRY(tokenizer_learn(prep));
    prep->tokenizer = prep->learned != NULL ? prep->learned : prep->spec->given;
    assert(prep->tokenizer != NULL);
    return prep->phase == PREPARE_PHASE_NEW ? GT_OK : prepare_state_check_tokenizer(prep);
}

/* ---- finishing ---- */

/* Logs that no conversation has a target and returns GT_DATA. */
static enum gt_status refuse_targetless(const struct prepare *prep)
{
    const struct prepare_counts *counts = &prep->progress.counts;
    const int64_t row = prep->spec->block_size, needs = (counts->targetless_needs + 7) / 8 * 8;
    const char *inputs = prep->spec->inputs[0], *more = prep->spec->input_count > 1 ? " ..." : "";
    if (needs == 0)
        return FAIL(
            GT_DATA,
            "INPUT %s%s: no conversation has an answer that counts, so nothing can be learned; each has the "
            "weight 0 or comes after 256 KiB of prompt",
            inputs, more);
    return FAIL(
        GT_DATA,
        "INPUT %s%s: --block-size=%" PRId64 " is too small: the prompts of all %" PRIu64
        " conversations fill it, and nothing can be learned; the first answer begins within --block-size=%" PRId64
        ", and larger ones keep more",
        inputs, more, row, counts->targetless, needs);
}

static enum gt_status split_refuse(const struct prepare *prep, int64_t train, int64_t val)
{
    const struct prepare_spec *spec = prep->spec;
    const uint64_t documents = prep->progress.documents.document_count;
    if (train + val == 0 && prep->progress.counts.unknown_bytes > 0)
        return FAIL(GT_DATA, "INPUT %s%s: no byte of the text has a token in the vocabulary",
                    spec->inputs[0], spec->input_count > 1 ? " ..." : "");
    if (train + val == 0 && prep->progress.counts.targetless > 0)
        return refuse_targetless(prep);
    if (train + val == 0)
        return refuse_empty(prep, &prep->progress.documents);
    return FAIL(GT_DATA,
                "INPUT %s%s: %" PRId64 " token%s in %" PRIu64
                " document%s: --val-fraction=%g and --val-split=%s leave "
                "%" PRId64 " for training and %" PRId64
                " for validation; each needs at least 1; %s--val-fraction=0 trains on all of it%s",
                spec->inputs[0], spec->input_count > 1 ? " ..." : "", train + val,
                train + val == 1 ? "" : "s", documents, documents == 1 ? "" : "s",
                spec->val_fraction, prepare_split_words[prep->split], train, val,
                prep->split == PREPARE_SPLIT_DOCUMENT && spec->chat == CHAT_NONE
                    ? "--val-split=position cuts within a document, "
                    : "",
                prep->progress.counts.targetless > 0
                    ? TEXT(96, "; %" PRIu64 " without a target within --block-size left out",
                           prep->progress.counts.targetless)
                    : "");
}

/* Splits all tokens by position.  The unit is a character of the tokens' text, which for bytes and
 * chars is a token. */
static enum gt_status split_by_position(struct prepare *prep, int64_t tokens, int64_t *out_train)
{
    const int64_t units = prep->weights != NULL ? prep->progress.weight : tokens;
    const int64_t train = (int64_t)floor((double)units * (1.0 - prep->spec->val_fraction));
    *out_train = train;
    if (prep->weights == NULL)
        return GT_OK;
    return token_writer_border(prep->writer, prep->weights, prep->tokenizer->vocab_size,
                               units - train, out_train);
}

static enum gt_status prepare_finish(struct prepare *prep)
{
    int64_t train = token_writer_tokens(prep->writer, TOKEN_TRAIN);
    int64_t val = token_writer_tokens(prep->writer, TOKEN_VAL);
    const int64_t tokens = train;
    const bool by_position = prep->split == PREPARE_SPLIT_POSITION && prep->spec->val_fraction > 0;
    if (by_position) {
        TRY(split_by_position(prep, tokens, &train));
        val = tokens - train;
    }
    if (train < 1 || (val < 1 && prep->spec->val_fraction > 0))
        return split_refuse(prep, train, val);
    if (prep->masks != NULL)
        TRY(token_writer_finish(prep->masks, -1, &prep->mask_files, &prep->mask_count));
    return token_writer_finish(prep->writer, by_position ? train : -1, &prep->files,
                               &prep->file_count);
}

/* Token counts come from the commit list, because a run that only commits has no other counts. */
static void prepare_result_fill(const struct prepare *prep, struct prepare_result *out)
{
    *out = (struct prepare_result){.vocab_size = prep->tokenizer->vocab_size,
                                   .row_tokens = prep->mask_spec.mask_row,
                                   .documents = prep->progress.documents,
                                   .counts = prep->progress.counts,
                                   .many_documents = prep->many,
                                   .by_position = prep->split == PREPARE_SPLIT_POSITION,
                                   .resumed = prep->phase != PREPARE_PHASE_NEW};
    for (size_t i = 0; i < json_array_size(prep->commit); i++) {
        const json_t *entry = json_array_get(prep->commit, i);
        const char *name = json_string_value(json_array_get(entry, 1));
        if (json_array_size(entry) == 4 && strstr(name, ".mask") == NULL)
            *(name[0] == 't' ? &out->train_tokens : &out->val_tokens) +=
                json_integer_value(json_array_get(entry, 2));
    }
}

static void prepare_clear(struct prepare *prep, enum gt_status status)
{
    if (prep->stdin_copied)
        unlink(prep->stdin_path);
    /* Other inputs or options cannot cure these failures, and a saved state exists to retry from.
     */
    const bool is_kept = prep->saved != PREPARE_PHASE_NEW &&
                         (status == GT_IO || status == GT_NO_MEMORY || status == GT_FAILURE);
    if (status == GT_OK || (prep->owns_files && !is_kept && prep->saved != PREPARE_PHASE_COMMIT))
        (void)prepare_clean(prep);
    else if (prep->owns_files && is_kept)
        log_note("%s: the work so far is kept; give the same command again to continue",
                 prep->spec->out_dir);
    unlink(FILE_IN(prep->spec->out_dir, PREPARE_LOCK_NAME)); /* while this run still has the lock */
    file_unlock(prep->lock_fd);
}

static void prepare_close(struct prepare *prep, enum gt_status status)
{
    if (prep->lock_fd >= 0)
        prepare_clear(prep, status);
    if (status != GT_OK && prep->folder_made)
        rmdir(prep->spec->out_dir); /* fails, as intended, when the folder is not empty */
    json_decref(prep->commit);
    json_decref(prep->state);
}

/* ---- the run ---- */

static enum gt_status prepare_steps(struct prepare *prep)
{
    TRY(prepare_open(prep));
    TRY(prepare_resume(prep));
    TRY(prepare_tokenizer(prep));
    TRY(prepare_encode_open(prep));
    TRY(prepare_encode(prep));
    if (prep->phase != PREPARE_PHASE_COMMIT) {
        TRY(prepare_finish(prep));
        TRY(prepare_publish(prep));
    }
    return prepare_commit(prep);
}

enum gt_status prepare_run(const void *owner, const struct prepare_spec *spec,
                           struct prepare_result *out)
{
    assert(spec->input_count > 0 && spec->out_dir != NULL);
    assert(spec->val_fraction >= 0 && spec->val_fraction < 1);
    assert(spec->chat < CHAT_KIND_COUNT);
    struct prepare_spec whole = *spec;
    struct prepare *prep;
    TRY(HOSTMEM_NEW(owner, 1, "gpt-prepare", &prep));
    if (spec->save_every_bytes == 0)
        whole.save_every_bytes = PREPARE_SAVE_EVERY_BYTES;
    if (spec->chat != CHAT_NONE)
        whole.format = DOCUMENTS_JSONL;
    if (spec->threads == 0)
        whole.threads = (int)min_i64(thread_count_available(), PREPARE_THREADS_MAX);
    prep->spec = &whole;
    prep->lock_fd = -1;
    const enum gt_status status = prepare_steps(prep);
    if (status == GT_OK)
        prepare_result_fill(prep, out);
    prepare_close(prep, status);
    hostmem_free(prep);
    return status;
}
