/* The tokenizer.ggml.* keys of a GGUF file. */
#ifndef GPT_TRAIN_IO_EXPORT_GGUF_TOKENS_H
#define GPT_TRAIN_IO_EXPORT_GGUF_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/tokenizer.h"
#include "io/gguf.h"

/* False for no tokenizer (NULL), and for ranks without merges (tiktoken's). */
bool export_gguf_tokens_possible(const struct tokenizer *tokenizer);
/* Writes the keys for a model of `vocab_size` rows, at least the tokenizer's; model "none" where it is not possible. */
void export_gguf_tokens_write(struct gguf *gguf, const struct tokenizer *tokenizer, int32_t vocab_size);
/* One note about what the file does not carry, if anything. */
void export_gguf_tokens_log(const struct tokenizer *tokenizer);

#endif
