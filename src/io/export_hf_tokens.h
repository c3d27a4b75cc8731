/* A tokenizer as the files of a Hugging Face folder. */
#ifndef GPT_TRAIN_IO_EXPORT_HF_TOKENS_H
#define GPT_TRAIN_IO_EXPORT_HF_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

#define EXPORT_HF_TOKENS_FILES 5

/* The names of all files that export_hf_tokens_save() may write. */
extern const char *const export_hf_tokens_names[EXPORT_HF_TOKENS_FILES];

/* Writes them into `folder`: gpt_tokenizer.json always; tokenizer.json and tokenizer_config.json unless the vocabulary
 * has ranks without merges (a note says so); vocab.json and merges.txt for kinds bpe and bytes.  Kind chars becomes a BPE
 * of characters without merges.  `block_size` is the longest input.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status export_hf_tokens_save(struct hostmem *mem, const struct tokenizer *tokenizer, int32_t block_size,
                                     const char *folder);

#endif
