/* A pass over the inputs.  Learning a vocabulary is one pass, encoding another.
 *
 * Both open the documents in the same way, and report how far they have read.
 */
#include "data/prepare_pass.h"

#include "data/chat_kind.h"

#define REPORT_EVERY_BYTES ((uint64_t)1 << 20)

/* Returns the flags that conversations would need; see struct documents_spec. */
static const char *chat_flags(const struct prepare_spec *spec)
{
    const bool trains = spec->tokenizer == TOKENIZER_BPE && spec->given == NULL;
    const bool has_one = trains || (spec->given != NULL && chat_kind_of(spec->given) != CHAT_NONE);
    return has_one ? "--chat" : "--chat --tokenizer=train";
}

enum gt_status prepare_open_documents(struct prepare *prep, bool second)
{
    const struct documents_spec spec = {
        .corpus = prep->corpus,
        .inputs = prep->inputs,
        .format = prep->spec->format,
        .field = prep->spec->field != NULL ? prep->spec->field : "text",
        .has_field = prep->spec->field != NULL,
        .chat = {.kind = prep->spec->chat,
                 .field = prep->spec->field,
                 .system = prep->spec->system,
                 .train_on = prep->spec->train_on},
        .chat_flags = chat_flags(prep->spec),
        .encoding = prep->spec->encoding,
        .stdin_path = prep->stdin_copied ? prep->stdin_path : NULL,
        .end = prep->spec->end,
        .joins_newlines = bpe_splits[tokenizer_pipeline(prep->spec->given)->split].joins_newlines,
        .skip_bad_lines = prep->spec->skip_bad_lines,
        .quiet = second && prep->learns};
    return documents_create(prep, &spec, &prep->documents);
}

void prepare_report(struct prepare *prep, bool force)
{
    if (prep->spec->progress == NULL)
        return;
    const uint64_t read = prep->documents != NULL ? documents_file_bytes(prep->documents) : 0;
    const uint64_t done = prep->done_before_bytes + read;
    if (!force && done - prep->reported_bytes < REPORT_EVERY_BYTES)
        return;
    prep->reported_bytes = done;
    uint64_t total = prep->corpus->size_bytes;
    if (prep->corpus->has_stdin)
        total = prep->stdin_copied ? total + prep->stdin_bytes : 0;
    prep->spec->progress(prep->spec->progress_context, done, prep->learns ? 2 * total : total);
}
