/* A bpe tokenizer as Hugging Face's files: tokenizer.json, vocab.json, merges.txt. */
#ifndef GPT_TRAIN_DATA_TOKENIZER_EXPORT_H
#define GPT_TRAIN_DATA_TOKENIZER_EXPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/tokenizer.h"

enum tokenizer_export {
    TOKENIZER_EXPORT_JSON,
    TOKENIZER_EXPORT_VOCAB,
    TOKENIZER_EXPORT_MERGES,
    TOKENIZER_EXPORT_COUNT
};

/* Returns "tokenizer.json", "vocab.json" or "merges.txt". */
const char *tokenizer_export_name(enum tokenizer_export file);
/* Returns true for kind bpe with a list of merges, which vocabularies from tiktoken's files lack.  vocab.json and
 * merges.txt also need GPT-2's pipeline, because they cannot say another. */
bool tokenizer_export_possible(const struct tokenizer *tokenizer, enum tokenizer_export file);
/* Returns the content of one file in *out, which the caller free()s.  Requires tokenizer_export_possible().  Errors:
 * GT_NO_MEMORY. */
enum gt_status tokenizer_export_text(const struct tokenizer *tokenizer, enum tokenizer_export file, char **out,
                                     size_t *out_count);

#endif
