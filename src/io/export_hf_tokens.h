/* A tokenizer as the files of a Hugging Face folder. */
#ifndef GPT_TRAIN_IO_EXPORT_HF_TOKENS_H
#define GPT_TRAIN_IO_EXPORT_HF_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

#define EXPORT_HF_TOKENS_FILES 5
#define EXPORT_HF_TOKENS_OF_RUN 3 /* the first ones, which gpt-train writes next to a checkpoint */

/* The names of all files that a tokenizer may have in a model's folder, ours first. */
extern const char *const export_hf_tokens_names[EXPORT_HF_TOKENS_FILES];

/* out[i] = the content of the i-th of the first `count` files, to be released with free(), or NULL if this tokenizer
 * has no such file.  gpt_tokenizer.json always exists; tokenizer.json unless the vocabulary has ranks without merges;
 * tokenizer_config.json always, since without tokenizer.json it makes transformers reject the folder; vocab.json and
 * merges.txt for kinds bpe (with GPT-2's pipeline) and bytes.  Kind chars becomes a BPE of characters without merges.
 * `block_size` is the longest input.  Errors: GT_NO_MEMORY. */
enum gt_status export_hf_tokens_texts(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                      int count, char *out[]);
void export_hf_tokens_free(char *texts[], int count);

/* Writes all files to `folder`.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status export_hf_tokens_save(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                     const char *folder);

#endif
