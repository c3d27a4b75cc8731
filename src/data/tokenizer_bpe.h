/* Kind "bpe" in gpt_tokenizer.json: the file contains everything that determines ids and refers to
 * no other file.
 *
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "bpe", "vocab_size": 50257,
 *     "split": "gpt2", "rank": "merge", "vocabulary": ["!", "\"", ... "<|endoftext|>"],
 *     "special": [50256], "merges": [220, 83, 220, 64, ...], "hash": "crc32c:89abcdef" }
 *
 * vocabulary[k] is token k, in GPT-2's alphabet (bpe.h), or plain text for special tokens, and for
 * all with the split "marks".  "special" lists the ids of the special ones, ascending.  "merges"
 * has the left and right id of each merge, in order; with "rank" "token" there is no such field.
 * "split" is a name of bpe_split.h.  A tokenizer with another pipeline than GPT-2's has it in
 * "pipeline"; all its added tokens are in "special".  The hash is the CRC-32C of "bpe", followed by
 * these numbers as 4 little-endian bytes each: the rank's number (0 merge, 1 token); the size of
 * the vocabulary; for each token its length, plus 2^31 if it is special, followed by its bytes; the
 * ids of the merges; and then the text of "pipeline", without blanks and with sorted keys.
 *
 * The pipeline is everything in Hugging Face's tokenizer.json except the vocabulary and the merges.
 * A text passes through these steps.  Other values of these fields, which would change ids, are
 * refused by name:
 *
 *   added_tokens    found before all other steps, or after normalizing if "normalized"; one that
 *                   is not special is found in a corpus too
 *   normalizer      none or NFC; Prepend and Replace, which put SentencePiece's marks (bpe_marks.h)
 *   pre_tokenizer   the splits of bpe_split.h; "Split" is recognised by its expression, byte for
 *                   byte; Metaspace
 *   model           byte-level BPE, or with byte_fallback one of characters; with or without
 *                   ignore_merges; unk_token and fuse_unk for bytes without a token
 *   decoder         may strip the space before a text
 *   post_processor  none, or one token (BOS) before the text
 *
 * "pipeline" is that file without model.merges and with only the added tokens and unk_token in
 * model.vocab.
 * Source: https://huggingface.co/docs/tokenizers, "The tokenization pipeline".
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_BPE_H
#define GPT_TRAIN_DATA_TOKENIZER_BPE_H

#include "base/json.h"
#include "data/bpe.h"

/* Reads the fields from "vocab_size" to "pipeline".  Errors: GT_DATA (one line with file and
 * field), GT_UNSUPPORTED (another split or rank), GT_NO_MEMORY. */
enum gt_status tokenizer_bpe_read(const void *owner, const json_t *root, const char *path,
                                  struct bpe **out);

/* Adds the fields "split" to "pipeline" to an object.  Returns false when out of memory. */
bool tokenizer_bpe_write(const struct bpe *bpe, json_t *root);

/* Returns a token as JSON: plain text when it is special, else in GPT-2's alphabet.  Returns NULL
 * when out of memory. */
json_t *tokenizer_bpe_token(const struct bpe *bpe, int32_t id);

/* Reads the pipeline from tokenizer.json or "pipeline".  Errors: GT_UNSUPPORTED, with the field and
 * its value. */
enum gt_status tokenizer_pipeline_read(const json_t *root, const char *path,
                                       struct bpe_pipeline *out);
/* Gives the pipeline to an unfinished vocabulary that has all its tokens.  Errors: GT_DATA when an
 * added token is not one of them; GT_NO_MEMORY. */
enum gt_status tokenizer_pipeline_set(struct bpe *bpe, const json_t *root, const char *path,
                                      const struct bpe_pipeline *pipeline);
/* Logs that a tokenizer of this kind ("SentencePiece") cannot be read, and what to do.  Returns
 * GT_UNSUPPORTED. */
enum gt_status tokenizer_pipeline_refuse_kind(const char *path, const char *kind);

#endif
