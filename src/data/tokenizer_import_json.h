/* The JSON half of tokenizer_import.h. */
#ifndef GPT_TRAIN_DATA_TOKENIZER_IMPORT_JSON_H
#define GPT_TRAIN_DATA_TOKENIZER_IMPORT_JSON_H

#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/bpe.h"

/* Creates an unfinished vocabulary, with room for `merge_count` merges, from a map of texts to ids (encoder.json,
 * vocab.json); BPE_EOT_TEXT is special.  Errors: GT_DATA, GT_NO_MEMORY. */
enum gt_status tokenizer_import_vocab(struct hostmem *mem, const char *text, size_t count, const char *path,
                                      size_t merge_count, struct bpe **out);

#endif
