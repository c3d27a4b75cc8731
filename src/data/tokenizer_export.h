/* The tokenizer's files of a folder: gpt_tokenizer.json, and Hugging Face's. */
#ifndef GPT_TRAIN_DATA_TOKENIZER_EXPORT_H
#define GPT_TRAIN_DATA_TOKENIZER_EXPORT_H

#include "data/tokenizer.h"

enum tokenizer_file {
    TOKENIZER_FILE_CONFIG, /* tokenizer_config.json; the others are those that gpt-prepare may write
                            */
    TOKENIZER_FILE_OURS,
    TOKENIZER_FILE_JSON, /* tokenizer.json */
    TOKENIZER_FILE_VOCAB,
    TOKENIZER_FILE_MERGES,
    TOKENIZER_FILES
};
#define TOKENIZER_FILES_OF_RUN 3 /* the first ones, which gpt-train writes next to a checkpoint */

extern const char *const tokenizer_file_names[TOKENIZER_FILES];

/* Returns false for a vocabulary with ranks but no merges (tiktoken's), which other programs cannot
 * read. */
bool tokenizer_can_merge(const struct tokenizer *tokenizer);
/* *out = the content of a file, to be released with free(), or NULL if this tokenizer has no such
 * file. gpt_tokenizer.json always exists; tokenizer.json unless the vocabulary has ranks without
 * merges; tokenizer_config.json always, since without tokenizer.json it makes transformers reject
 * the folder; vocab.json and merges.txt for kind bytes, and kind bpe with GPT-2's pipeline, because
 * they cannot express another pipeline.  Only tokenizer_config.json uses `block_size`, the longest
 * input.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_file_text(const struct tokenizer *tokenizer, enum tokenizer_file file,
                                   int32_t block_size, char **out);
/* Writes all files to `folder`.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_files_save(const struct tokenizer *tokenizer, int32_t block_size,
                                    const char *folder);

#endif
