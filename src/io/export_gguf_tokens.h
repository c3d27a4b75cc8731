/* The tokenizer.ggml.* keys of a GGUF file. */
#ifndef GPT_TRAIN_IO_EXPORT_GGUF_TOKENS_H
#define GPT_TRAIN_IO_EXPORT_GGUF_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/tokenizer.h"
#include "io/gguf.h"

/* Returns false without a tokenizer (NULL), and for a vocabulary with ranks but no merges (tiktoken's). */
bool export_gguf_tokens_possible(const struct tokenizer *tokenizer);
/* Writes the keys for a model of `vocab_size` rows, at least the tokenizer's; model "none" if that is not possible. */
void export_gguf_tokens_write(struct gguf *gguf, const struct tokenizer *tokenizer, int32_t vocab_size);
/* Logs a note if the file lacks a tokenizer or an end-of-text token. */
void export_gguf_tokens_log(const struct tokenizer *tokenizer);

#endif
