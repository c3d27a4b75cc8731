/* Trains a byte-pair encoding on text.
 *
 * The trainer first counts the pieces of GPT-2's split, then repeatedly turns the most frequent
 * adjacent pair into a token.  Among equally frequent pairs the one with the smaller ids wins, left
 * id first, as in BpeTrainer of Hugging Face's tokenizers with a ByteLevel pre-tokenizer.  Ids: the
 * 256 bytes in GPT-2's order, the merges in order, further special tokens, <|endoftext|> last.
 */
#ifndef GPT_TRAIN_DATA_BPE_TRAIN_H
#define GPT_TRAIN_DATA_BPE_TRAIN_H

#include "data/tokenizer.h"

#define BPE_TRAIN_VOCAB_MIN 257 /* the bytes and <|endoftext|> */
#define BPE_TRAIN_VOCAB_MAX 1000000

struct bpe_trainer;

/* `specials` are the special tokens besides <|endoftext|>, a constant list that ends with NULL;
 * NULL: none.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_trainer_create(const void *owner, const char *const *specials,
                                  struct bpe_trainer **out);

/* Counts the pieces of a document, or of a part that was cut by bpe_split_cut().  Memory: about 40
 * bytes plus the text for each distinct piece.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_trainer_add(struct bpe_trainer *trainer, const char *text, size_t count);

/* Creates the tokenizer, with at most `vocab_size` tokens (BPE_TRAIN_VOCAB_MIN to _MAX); fewer when
 * the text has no more pairs.  Consumes the counts, so it must be called only once.  Errors:
 * GT_NO_MEMORY. */
enum gt_status bpe_trainer_finish(struct bpe_trainer *trainer, const void *owner,
                                  int64_t vocab_size, struct tokenizer **out);

#endif
