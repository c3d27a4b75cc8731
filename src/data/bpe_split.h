/* GPT-2's split: text into the pieces that are encoded each by itself.
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (encoder.py of GPT-2.)  Letters, numbers and white space are those of Unicode 16, or of PCRE2 where that is newer.
 * Bytes that are no UTF-8 are kept: valid text up to the next such byte is split as if it ended there, the bytes up to
 * the next valid character are added to its last piece (or are one, where no text stands before), and what follows is
 * split afresh.  So pieces always add up to the text, and valid text is split as tiktoken splits it.
 */
#ifndef GPT_TRAIN_DATA_BPE_SPLIT_H
#define GPT_TRAIN_DATA_BPE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"

struct bpe_splitter;

/* One for each thread.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_splitter_create(struct hostmem *mem, struct bpe_splitter **out);
/* Accepts NULL. */
void bpe_splitter_destroy(struct bpe_splitter *splitter);

/* Takes up a text, borrowed until its last piece. */
void bpe_splitter_begin(struct bpe_splitter *splitter, const char *text, size_t count);
/* The next piece: its length, and *out in the text.  0 at the end. */
size_t bpe_splitter_next(struct bpe_splitter *splitter, const char **out);

/* Where a text may be cut so that its parts have the pieces of the whole: the largest such place in text[0, count], which
 * is before white space behind something else; 0 when there is none. */
size_t bpe_cut(const char *text, size_t count);

#endif
