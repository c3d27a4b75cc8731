/* GPT-2's split: divides text into pieces that are encoded independently.
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (encoder.py of GPT-2.)  Letters, numbers and white space follow Unicode 16, or PCRE2's version where that is newer.
 * Bytes that are not UTF-8 are kept: the valid text before them is split as if it ended there; the bytes up to the next
 * valid character are appended to its last piece (or form a piece when no text precedes them); and splitting restarts
 * after them.  The pieces therefore always concatenate to the text, and valid text is split exactly as tiktoken splits
 * it.
 */
#ifndef GPT_TRAIN_DATA_BPE_SPLIT_H
#define GPT_TRAIN_DATA_BPE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"

struct bpe_splitter;

/* Creates a splitter; every thread needs its own.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_splitter_create(struct hostmem *mem, struct bpe_splitter **out);
/* Accepts NULL. */
void bpe_splitter_destroy(struct bpe_splitter *splitter);

/* Starts a text, which is borrowed until its last piece. */
void bpe_splitter_begin(struct bpe_splitter *splitter, const char *text, size_t count);
/* Sets *out to the next piece, inside the text, and returns its length; 0 at the end. */
size_t bpe_splitter_next(struct bpe_splitter *splitter, const char **out);

#endif
