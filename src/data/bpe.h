/* Byte-level byte-pair encoding: vocabulary, merges, and the encoding of one piece of text.
 *
 * A token is a string of bytes; each single byte is one.  A piece (bpe_split.h) begins as its bytes; of all neighbours
 * that a merge names, the one with the lowest rank becomes one token, the leftmost first among equals, until there is
 * none (Sennrich et al. 2016, arXiv:1508.07909; GPT-2's encoder.py).  Two conventions say what a rank is:
 *
 *   BPE_RANK_MERGE   the place of the pair in a list of merges (vocab.bpe, merges.txt, tokenizer.json)
 *   BPE_RANK_TOKEN   the id of the result, any two tokens that make up a third being a pair (tiktoken's files)
 *
 * For GPT-2's own vocabulary both give the same ids.  Special tokens stand for no text by themselves: see
 * tokenizer_encoder.h.
 */
#ifndef GPT_TRAIN_DATA_BPE_H
#define GPT_TRAIN_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"

#define BPE_TOKEN_BYTES_MAX 1024
#define BPE_VOCAB_MAX (1 << 20)
#define BPE_MERGES_MAX (1 << 22)
#define BPE_TEXT_BYTES_MAX ((size_t)64 << 20) /* of all tokens */
#define BPE_EOT_TEXT "<|endoftext|>"

enum bpe_rank { BPE_RANK_MERGE, BPE_RANK_TOKEN };

struct bpe_merge {
    int32_t left, right, result;
};

struct bpe;

/* ---- making one: room first, then every token, then the merges, then the end ---- */

struct bpe_spec {
    size_t vocab_size;  /* ids are 0 to vocab_size - 1; 257 to BPE_VOCAB_MAX, or 256 without special tokens */
    size_t text_bytes;  /* at least those of all tokens, at most BPE_TEXT_BYTES_MAX */
    size_t merge_count; /* at most BPE_MERGES_MAX; BPE_RANK_TOKEN: 0 */
    enum bpe_rank rank;
};

/* Errors: GT_NO_MEMORY. */
enum gt_status bpe_create(struct hostmem *mem, const struct bpe_spec *spec, struct bpe **out);
/* Accepts NULL, and what is not finished. */
void bpe_destroy(struct bpe *bpe);

enum bpe_add { BPE_ADDED, BPE_ID_TAKEN, BPE_TEXT_TAKEN, BPE_TEXT_BAD };

/* Sets token `id` (in range); `special` ones are not found by bpe_find().  BPE_TEXT_BAD: empty, longer than
 * BPE_TOKEN_BYTES_MAX or than the room that is left. */
enum bpe_add bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t count, bool special);
/* The id of a token that is not special, or -1.  Only until bpe_finish(). */
int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t count);
/* Appends a merge of two tokens that bpe_find() gave; false when their concatenation is no token. */
bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right);
/* Checks and indexes; afterwards the vocabulary is constant.  `source` is for the message.  Errors: GT_DATA when an id
 * or the token of a byte is missing, GT_NO_MEMORY. */
enum gt_status bpe_finish(struct bpe *bpe, const char *source);

/* ---- asking a finished one ---- */

size_t bpe_vocab_size(const struct bpe *bpe);
enum bpe_rank bpe_rank_of(const struct bpe *bpe);
/* Bytes of a token, *out the vocabulary's; 0 outside it. */
size_t bpe_token(const struct bpe *bpe, int32_t id, const char **out);
bool bpe_is_special(const struct bpe *bpe, int32_t id);
/* The ids of the special tokens, ascending. */
const int32_t *bpe_specials(const struct bpe *bpe, size_t *out_count);
/* The special token BPE_EOT_TEXT, or -1. */
int32_t bpe_eot(const struct bpe *bpe);
/* The list of merges as it was added; none with BPE_RANK_TOKEN. */
const struct bpe_merge *bpe_merges(const struct bpe *bpe, size_t *out_count);
/* CRC-32C over everything that decides ids: see tokenizer_bpe.h. */
uint32_t bpe_hash(const struct bpe *bpe);

/* ---- encoding ---- */

/* Memory for long pieces, which grows as needed; the struct is the caller's and begins as zero.  It is malloc'ed,
 * because encoders run on threads of their own and hostmem is the main thread's. */
struct bpe_scratch {
    void *memory;
    size_t piece_max; /* bytes of a piece that there is room for */
};
void bpe_scratch_release(struct bpe_scratch *scratch);

/* out[*out_count] = the ids of one piece, at most `count`.  O(count log count).  Errors: GT_NO_MEMORY, in silence. */
enum gt_status bpe_encode_piece(const struct bpe *bpe, struct bpe_scratch *scratch, const char *bytes, size_t count,
                                int32_t *out, size_t *out_count);

#endif
