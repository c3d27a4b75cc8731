/* Imports vocabularies of other projects: BPE, and nothing else.
 *
 *   tokenizer.json                Hugging Face tokenizers
 *   vocab.bpe + encoder.json      OpenAI's GPT-2
 *   merges.txt + vocab.json       the same, under Hugging Face's names
 *   NAME.tiktoken                 lines "BASE64 RANK"; <|endoftext|> gets the id after the last
 *
 * Every file is untrusted: sizes are limited, every entry is checked, and the error names the file
 * and the field or line.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_IMPORT_H
#define GPT_TRAIN_DATA_TOKENIZER_IMPORT_H

#include "data/tokenizer.h"

#define TOKENIZER_IMPORT_BYTES_MAX ((size_t)64 << 20)

/* `path` is one of these files (either half of a pair finds the other), a gpt_tokenizer.json, or a
 * folder that contains one of them; in a folder gpt_tokenizer.json comes first, then the order
 * above.  Errors: GT_USAGE (no such file, or a folder without any), GT_DATA, GT_UNSUPPORTED
 * (another kind of tokenizer: the field is named), GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_import(const void *owner, const char *path, struct tokenizer **out);
/* Sets *out to true when the folder contains a file for tokenizer_import(), and to false when it
 * does not exist. Errors: GT_IO. */
enum gt_status tokenizer_import_folder(const char *folder, bool *out);
/* Gives the tokenizer the chat template of a folder, if there is one: that of tokenizer_config.json
 * (of several the one named "default"), or a file of its own; and what tokenizer_generation_read()
 * reads.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_template_read(const char *folder, struct tokenizer *tokenizer);
/* Sets *out to true if the folder has a template.  Errors: as above. */
enum gt_status tokenizer_folder_has_template(const char *folder, bool *out);

/* The content of a file; `path` is for messages. */
struct tokenizer_source {
    const char *path, *text;
    size_t count;
};

/* The steps of tokenizer_import() after it has read the files. */
enum gt_status tokenizer_import_json(const void *owner, const struct tokenizer_source *json,
                                     struct tokenizer **out);
enum gt_status tokenizer_import_pair(const void *owner, const struct tokenizer_source *vocab,
                                     const struct tokenizer_source *merges, struct tokenizer **out);
/* Adds the merges of vocab.bpe or merges.txt to an unfinished vocabulary with room for all of them.
 * Errors: GT_DATA. */
enum gt_status tokenizer_import_merges(struct bpe *bpe, const struct tokenizer_source *merges);
enum gt_status tokenizer_import_tiktoken(const void *owner, const struct tokenizer_source *ranks,
                                         struct tokenizer **out);

#endif
