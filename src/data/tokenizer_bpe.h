/* Kind "bpe" in gpt_tokenizer.json: the file holds all that decides ids, and points to nothing.
 *
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "bpe", "vocab_size": 50257,
 *     "split": "gpt2", "rank": "merge", "vocabulary": ["!", "\"", ... "<|endoftext|>"], "special": [50256],
 *     "merges": [220, 83, 220, 64, ...], "hash": "crc32c:89abcdef" }
 *
 * vocabulary[k] is token k, in GPT-2's alphabet (bpe_alphabet.h), special tokens as plain text; "special" lists their
 * ids, ascending; "merges" are the left and right id of each, in order; none, and no such field, with "rank" "token".
 * The hash is the CRC-32C of "bpe", then as 4 little-endian bytes each: the rank's number (0 merge, 1 token), the size of
 * the vocabulary; for each token its length, plus 2^31 where it is special, and its bytes; the ids of the merges.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_BPE_H
#define GPT_TRAIN_DATA_TOKENIZER_BPE_H

#include "base/hostmem.h"
#include "base/json.h"
#include "base/status.h"
#include "data/bpe.h"

/* Reads the fields from "vocab_size" to "merges".  Errors: GT_DATA (one line with file and field), GT_UNSUPPORTED
 * (another split or rank), GT_NO_MEMORY. */
enum gt_status tokenizer_bpe_read(struct hostmem *mem, const json_t *root, const char *path, struct bpe **out);

/* Adds "split" to "merges" to an object.  False when memory ran out. */
bool tokenizer_bpe_write(const struct bpe *bpe, json_t *root);

/* A token as JSON: plain text when it is special, else in GPT-2's alphabet.  NULL when memory ran out. */
json_t *tokenizer_bpe_token(const struct bpe *bpe, int32_t id);

#endif
