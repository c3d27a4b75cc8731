/* Kind "bpe" in gpt_tokenizer.json: the file contains everything that determines ids and refers to no other file.
 *
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "bpe", "vocab_size": 50257,
 *     "split": "gpt2", "rank": "merge", "vocabulary": ["!", "\"", ... "<|endoftext|>"], "special": [50256],
 *     "merges": [220, 83, 220, 64, ...], "hash": "crc32c:89abcdef" }
 *
 * vocabulary[k] is token k, in GPT-2's alphabet (bpe.h), or plain text for special tokens.  "special" lists
 * the ids of these, ascending.  "merges" has the left and right id of each merge, in order; with "rank" "token" there
 * is no such field.  "split" is a name of bpe_split.h.  A tokenizer with another pipeline than GPT-2's has it in
 * "pipeline" (tokenizer_pipeline.h); all its added tokens are in "special".  The hash is the CRC-32C of "bpe", followed
 * by these numbers as 4 little-endian bytes each: the rank's number (0 merge, 1 token); the size of the vocabulary; for
 * each token its length, plus 2^31 if it is special, followed by its bytes; the ids of the merges; and then the text of
 * "pipeline", without blanks and with sorted keys.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_BPE_H
#define GPT_TRAIN_DATA_TOKENIZER_BPE_H

#include "base/hostmem.h"
#include "base/json.h"
#include "data/bpe.h"

/* Reads the fields from "vocab_size" to "pipeline".  Errors: GT_DATA (one line with file and field), GT_UNSUPPORTED
 * (another split or rank), GT_NO_MEMORY. */
enum gt_status tokenizer_bpe_read(const void *owner, const json_t *root, const char *path, struct bpe **out);

/* Adds the fields "split" to "pipeline" to an object.  Returns false when out of memory. */
bool tokenizer_bpe_write(const struct bpe *bpe, json_t *root);

/* Returns a token as JSON: plain text when it is special, else in GPT-2's alphabet.  Returns NULL when out of
 * memory. */
json_t *tokenizer_bpe_token(const struct bpe *bpe, int32_t id);

#endif
