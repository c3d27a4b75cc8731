/* Byte-level byte-pair encoding: vocabulary, merges, and the encoding of one piece of text.
 *
 * A token is a string of bytes, and most single bytes are tokens.  A piece (bpe_split.h) starts as
 * its bytes.  A byte without a token is left out, or becomes the unknown token if the vocabulary
 * has one, as in Hugging Face's tokenizers.  Of all adjacent pairs that have a merge, the one with
 * the lowest rank becomes one token (the leftmost among equals), until no pair has a merge
 * (Sennrich et al. 2016, arXiv:1508.07909; GPT-2's encoder.py).  There are two conventions for
 * ranks:
 *
 *   BPE_RANK_MERGE   the index of the pair in a list of merges (vocab.bpe, merges.txt,
 *                    tokenizer.json)
 *   BPE_RANK_TOKEN   the id of the result; any two tokens that concatenate to a third are a pair
 *                    (tiktoken's files)
 *
 * A vocabulary of characters (SentencePiece's, as tokenizer.json writes it) differs: tokens are
 * text, with marks for spaces (bpe_marks.h), and a piece starts as its characters.  A character
 * without a token becomes the tokens of its bytes, whose texts are <0x00> to <0xFF>. Merges may
 * produce added tokens.
 *
 * For GPT-2's own vocabulary both conventions give the same ids.  Plain text never encodes to
 * special tokens: see tokenizer.h.  The pipeline (tokenizer_bpe.h) turns a text into pieces.
 */
#ifndef GPT_TRAIN_DATA_BPE_H
#define GPT_TRAIN_DATA_BPE_H

#include "base/hostmem.h"
#include "data/bpe_marks.h"
#include "data/bpe_split.h"

#define BPE_TOKEN_BYTES_MAX 1024
#define BPE_VOCAB_MAX (1 << 20)
#define BPE_MERGES_MAX (1 << 22)
#define BPE_TEXT_BYTES_MAX ((size_t)64 << 20) /* sum over all tokens */
#define BPE_EOT_TEXT "<|endoftext|>"
#define BPE_EOT_TEXT_OF_LLAMA "<|end_of_text|>"

enum bpe_rank { BPE_RANK_MERGE, BPE_RANK_TOKEN };

struct bpe_merge {
    int32_t left, right, result;
};

struct bpe_pipeline {
    enum bpe_split split;
    size_t growth;      /* the most that normalization may lengthen text by: 1 without it,
                           BPE_NFC_GROWTH_MAX with NFC */
    bool ignore_merges; /* a piece that is a token needs no merges */
    int32_t bos;        /* the token before each text, or -1 */
    int32_t unknown;    /* the token of a byte that has none, or -1: it is left out */
    bool fuse_unknown;  /* a run of such bytes becomes one token */
    bool characters;    /* a vocabulary of characters, not of bytes */
    struct bpe_marks normalizer, pretokenizer; /* for normalized added tokens and the texts between
                                                  them; for these texts only */
    bool each;                                 /* a piece ends before every mark */
    bool strips;      /* decoding leaves out the space that a text begins with */
    const char *json; /* tokenizer.json without the vocabulary, which export writes; NULL: GPT-2's
                         pipeline */
};
extern const struct bpe_pipeline bpe_pipeline_of_gpt2;

/* A vocabulary.  The fields are read-only for callers, and valid once it is finished. */
struct bpe {
    size_t vocab_size;
    enum bpe_rank rank;
    struct bpe_merge *merges; /* in the order they were added; none with BPE_RANK_TOKEN */
    size_t merge_count;
    int32_t *specials; /* the ids of the special tokens in ascending order */
    size_t special_count;
    /* The id of the special token BPE_EOT_TEXT, else of BPE_EOT_TEXT_OF_LLAMA, or -1. */
    int32_t eot;
    uint32_t hash; /* the CRC-32C of everything that determines ids: see tokenizer_bpe.h */
    struct bpe_pipeline pipeline; /* owns `json` */
    /* The rest is for bpe.c. */
    struct bpe_token *tokens;
    char *text;
    char *shown; /* of characters: the texts that tokens decode to, at the offsets of their own
                    texts */
    size_t text_count, text_capacity;
    bool whole; /* of characters: tokens extend over the beginnings of words, so that a text is one
                   piece */
    size_t merge_capacity;
    int32_t byte_ids[256];
    struct bpe_index
        *index; /* from texts to ids; after bpe_finish() only with ignore_merges, else NULL */
    size_t index_mask;
    struct bpe_pair *pairs; /* NULL before bpe_finish() */
    size_t pair_mask;
};

/* ---- construction: create, add every token, add the merges, finish ---- */

struct bpe_spec {
    size_t vocab_size;  /* ids are 0 to vocab_size - 1; at most BPE_VOCAB_MAX */
    size_t text_bytes;  /* at least the sum over all tokens, at most BPE_TEXT_BYTES_MAX */
    size_t merge_count; /* at most BPE_MERGES_MAX; BPE_RANK_TOKEN: 0 */
    enum bpe_rank rank;
    bool characters;
};

/* Errors: GT_NO_MEMORY. */
enum gt_status bpe_create(const void *owner, const struct bpe_spec *spec, struct bpe **out);

enum bpe_add { BPE_ADDED, BPE_ID_TAKEN, BPE_TEXT_TAKEN, BPE_TEXT_BAD, BPE_TEXT_FOREIGN };

/* Sets token `id` (in range).  bpe_find() does not find `special` tokens.  Returns BPE_TEXT_BAD
 * when the text is empty, or longer than BPE_TOKEN_BYTES_MAX or than the remaining room. */
enum bpe_add bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t count,
                           bool special);
/* The same for a token as vocab.json writes it: in GPT-2's alphabet of printable characters, unless
 * it is special or the vocabulary is one of characters. Returns BPE_TEXT_FOREIGN when the text has
 * another character. */
enum bpe_add bpe_add_written(struct bpe *bpe, int32_t id, const char *text, size_t count,
                             bool special);
/* Returns the id of a token that is not special, or -1.  After bpe_finish() only with
 * ignore_merges. */
int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t count);
/* Appends a merge of two tokens that bpe_find() returned.  Returns false when their concatenation
 * is not a token. */
bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right);
/* The same for two tokens that are written in GPT-2's alphabet.  Returns false also when one is not
 * in the vocabulary. */
bool bpe_add_written_merge(struct bpe *bpe, const char *left, size_t left_count, const char *right,
                           size_t right_count);
/* Adds a special token, for which it makes room.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_add_special(struct bpe *bpe, size_t id, const char *text);
/* Adds BPE_EOT_TEXT as the last token, `id`; the vocabulary ends there.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_add_eot(struct bpe *bpe, size_t id);
/* Marks a special token as one that its text always becomes, like tokenizer.json's added tokens
 * that are not "special". */
void bpe_set_literal(struct bpe *bpe, int32_t id);
/* Replaces the pipeline of GPT-2; copies `json`.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_set_pipeline(struct bpe *bpe, const struct bpe_pipeline *pipeline);
/* `left`: an added token removes the white space before it; `right`: the white space after it. */
struct bpe_strip {
    bool left, right;
};
void bpe_set_strip(struct bpe *bpe, int32_t id, struct bpe_strip strip);
/* Marks a literal token as one that is found in normalized text, after the other tokens are found
 * in the original text. */
void bpe_set_normalized(struct bpe *bpe, int32_t id);
/* Checks and indexes the vocabulary, which is constant from then on.  `source` is for the message.
 * Errors: GT_DATA when an id is missing, or the token of every byte, with BPE_RANK_TOKEN of one
 * byte; GT_NO_MEMORY. */
enum gt_status bpe_finish(struct bpe *bpe, const char *source);

/* ---- queries on a finished vocabulary ---- */

/* Returns the length of a token in bytes, or 0 when the id is out of range.  *out points into the
 * vocabulary. */
size_t bpe_token(const struct bpe *bpe, int32_t id, const char **out);
/* The same for the text that it decodes to: a mark becomes a space, and the token of a byte the
 * byte. */
size_t bpe_token_shown(const struct bpe *bpe, int32_t id, const char **out);
struct bpe_strip bpe_strip_of(const struct bpe *bpe, int32_t id);
/* Returns true for the token of a byte in a vocabulary of characters. */
bool bpe_is_byte(const struct bpe *bpe, int32_t id);
bool bpe_is_special(const struct bpe *bpe, int32_t id);
/* Returns the id of the special token with this text, or -1. */
int32_t bpe_special_find(const struct bpe *bpe, const char *text);
bool bpe_is_literal(const struct bpe *bpe, int32_t id);
bool bpe_is_normalized(const struct bpe *bpe, int32_t id);
/* Return true when a byte, or any byte, has no token; also on an unfinished vocabulary. */
bool bpe_is_unknown(const struct bpe *bpe, char byte);
bool bpe_lacks_bytes(const struct bpe *bpe);

/* ---- encoding ---- */

/* Memory for a piece, which grows as needed.  The caller owns the struct and sets it to zero.  The
 * memory comes from malloc, because encoders run on their own threads and only the main thread may
 * use hostmem. */
struct bpe_scratch {
    void *memory;
    size_t piece_max; /* the longest piece in bytes that fits */
};
void bpe_scratch_release(struct bpe_scratch *scratch);

/* Sets out[*out_count] to the ids of one piece, at most `count`.  O(count log count).  Errors:
 * GT_NO_MEMORY, not logged. */
enum gt_status bpe_encode_piece(const struct bpe *bpe, struct bpe_scratch *scratch,
                                const char *bytes, size_t count, int32_t *out, size_t *out_count);
/* Adds the bytes of a piece that have no token to counts[byte].  Returns their number. */
size_t bpe_count_unknown(const struct bpe *bpe, const char *bytes, size_t count,
                         uint64_t counts[static 256]);

/* ---- GPT-2's alphabet: vocabulary files write the 256 bytes as 256 printable characters ---- */

/* Printable bytes of Latin-1 represent themselves; the 68 others map in order to U+0100 and up
 * ("Ġ", U+0120, is the space).  Source: bytes_to_unicode() in GPT-2's encoder.py.
 *
 * Returns the byte whose character is at index `rank` (0 to 255) when the characters are sorted,
 * which is GPT-2's id order. */
unsigned char bpe_alphabet_byte(int rank);

/* Writes bytes as UTF-8 in this alphabet, 1 or 2 bytes each, without a terminator, to out[2 *
 * count].  Returns the length. */
size_t bpe_alphabet_write(const char *bytes, size_t count, char *out);
/* Writes "LEFT RIGHT", a merge, and a terminator.  Returns the length. */
size_t bpe_alphabet_write_pair(const char *left, size_t left_count, const char *right,
                               size_t right_count, char *out);
/* The same for merge number `index`. */
#define BPE_MERGE_BYTES (4 * BPE_TOKEN_BYTES_MAX + 2)
size_t bpe_merge_write(const struct bpe *bpe, size_t index, char out[static BPE_MERGE_BYTES]);
/* The inverse of bpe_alphabet_write(), with out[count].  Returns false when the text has a
 * character outside the alphabet or is not UTF-8. */
bool bpe_alphabet_read(const char *text, size_t count, char *out, size_t *out_count);

#endif
