/* Shared by the two halves of training: the counted pieces. */
#ifndef GPT_TRAIN_DATA_BPE_TRAIN_INTERNAL_H
#define GPT_TRAIN_DATA_BPE_TRAIN_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/bpe.h"

/* Initial capacities, which grow.  Fuzzing starts with less. */
#ifndef BPE_PIECES_MIN
#define BPE_PIECES_MIN 4096
#endif
#define BPE_PAIRS_MIN ((size_t)4 * BPE_PIECES_MIN) /* a power of two */
#define BPE_TEXT_MIN ((size_t)16 * BPE_PIECES_MIN)

struct bpe_piece {
    size_t offset; /* into the text */
    uint32_t length;
    uint64_t count;
};

struct bpe_counts {
    struct bpe_piece *pieces;
    size_t piece_count;
    char *text;
    size_t text_count;
};

/* Merges until there are `vocab_size` tokens, including <|endoftext|>, or no pairs left.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_train_merge(struct hostmem *mem, const struct bpe_counts *counts, size_t vocab_size,
                               struct bpe **out);

/* Grows *array by doubling to at least `needed` elements of `size` bytes.  *capacity is its current capacity; `count`
 * elements are in use.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_grow(struct hostmem *mem, void **array, size_t count, size_t *capacity, size_t needed, size_t size,
                        const char *what);

#endif
