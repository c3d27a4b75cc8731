/* The first of two passes, for a vocabulary that is made from the inputs: characters, or a byte-pair encoding.
 *
 * Characters are marked in a list of all code points; bpe_train.c counts pieces of text.
 */
#include "base/utf8.h"
#include "data/bpe_train.h"
#include "data/prepare_internal.h"
#include "data/text_kind.h"

struct learner {
    struct prepare *prep;
    bool *seen; /* by code point; chars only */
    struct bpe_trainer *trainer;
    bool open_line;
};

static enum gt_status text_refuse(const struct document *document, size_t offset, const char *what)
{
    if (document->is_line)
        return FAIL(GT_DATA, "%s: line %" PRIu64 ": byte %zu of the text %s", document->label, document->place, offset,
                    what);
    return FAIL(GT_DATA, "%s: byte %" PRIu64 " %s", document->label, document->place + offset, what);
}

static enum gt_status refuse_not_utf8(const struct document *document, size_t at)
{
    const char *latin = text_guess_latin(document->text, document->count);
    return text_refuse(document, at,
                       TEXT(128, "is not UTF-8%s; give --encoding=%s, or --tokenizer=bytes, which takes any bytes",
                            latin != NULL ? " but looks like Latin-1" : "", latin != NULL ? latin : "NAME"));
}

static enum gt_status learn_chars(struct learner *learner, const struct document *document)
{
    for (size_t at = 0; at < document->count;) {
        uint32_t code_point = 0;
        const int length = utf8_decode((const unsigned char *)document->text + at, document->count - at, &code_point);
        if (length <= 0)
            return refuse_not_utf8(document, at);
        if (code_point == 0)
            return text_refuse(document, at, "is zero, so this is no text; --tokenizer=bytes takes any bytes");
        learner->seen[code_point] = true;
        at += (size_t)length;
    }
    /* A newline may be inserted between two documents. */
    if (learner->prep->separator == PREPARE_SEPARATOR_NEWLINE && learner->open_line && !document->continues)
        learner->seen['\n'] = true;
    if (document->count > 0)
        learner->open_line = document->text[document->count - 1] != '\n';
    return GT_OK;
}

/* The marks in a conversation are not text. */
static enum gt_status learn_pieces(struct learner *learner, const struct document *document)
{
    struct chat_part part;
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
        prepare_told(prep, false);
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
        return prepare_refuse_empty(prep, documents_state_get(prep->documents));
    if (learner->trainer == NULL)
        return learn_finish_chars(learner);
    TRY(bpe_trainer_finish(learner->trainer, prep, prep->spec->vocab_size, &prep->learned));
    if (prep->learned->vocab_size < prep->spec->vocab_size)
        log_note("the text is too short for --vocab-size=%" PRId64 "; the vocabulary has %" PRId64 " tokens",
                 prep->spec->vocab_size, prep->learned->vocab_size);
    return GT_OK;
}

enum gt_status prepare_learn(struct prepare *prep)
{
    struct learner learner = {.prep = prep};
    assert(prep->learns && prep->learned == NULL);
    TRY(prepare_open_documents(prep, false));
    enum gt_status status = prep->spec->tokenizer == TOKENIZER_BPE
                                ? bpe_trainer_create(prep, &learner.trainer)
                                : HOSTMEM_NEW(prep, UTF8_CODE_POINTS, "characters seen", &learner.seen);
    if (status == GT_OK && prep->spec->chat != CHAT_NONE && learner.trainer != NULL)
        bpe_trainer_specials(learner.trainer, chat_specials(prep->spec->chat));
    THEN(status, learn_all(&learner));
    THEN(status, learn_finish(&learner));
    if (status == GT_OK)
        prep->done_before_bytes = documents_file_bytes(prep->documents);
    hostmem_free(learner.trainer);
    hostmem_free(learner.seen);
    hostmem_free(prep->documents);
    prep->documents = NULL;
    if (status == GT_OK)
        prepare_told(prep, true);
    return status;
}
