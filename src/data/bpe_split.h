/* Divides text into pieces that are encoded independently, by the split of one of these models:
 *
 *   gpt2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *            (its encoder.py)
 *   smollm   each digit alone, and the text between digits as GPT-2
 *            (tokenizer.json of SmolLM and SmolLM2)
 *   llama3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *            ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+     (its tokenizer.json)
 *   qwen2    the same with \p{N} for \p{N}{1,3} (tokenizer.json of Qwen2, 2.5 and 3)
 *   o200k    words end where lower case becomes upper case, with 's and the like at their end
 *            (tokenizer.json of Phi-4-mini)
 *   tekken   the same without such endings, and each digit alone (tokenizer.json of Mistral Nemo)
 *   qwen3.5  Qwen2's, with marks as letters (tokenization_qwen3_5.py of transformers)
 *   marks    not here: bpe_marks.h divides text at SentencePiece's marks (Llama 2, Gemma)
 *
 * Letters, numbers and white space follow Unicode 16, or PCRE2's version where that is newer. Bytes
 * that are not UTF-8 are kept: the valid text before them is split as if it ended there; the bytes
 * up to the next valid character are appended to its last piece (or form a piece when no text
 * precedes them); and splitting restarts after them.  The pieces therefore always concatenate to
 * the text, and valid text is split exactly as tiktoken or Hugging Face's tokenizers split it.
 */
#ifndef GPT_TRAIN_DATA_BPE_SPLIT_H
#define GPT_TRAIN_DATA_BPE_SPLIT_H

#include "base/hostmem.h"

enum bpe_split {
    BPE_SPLIT_GPT2,
    BPE_SPLIT_SMOLLM,
    BPE_SPLIT_LLAMA3,
    BPE_SPLIT_QWEN2,
    BPE_SPLIT_O200K,
    BPE_SPLIT_TEKKEN,
    BPE_SPLIT_QWEN35,
    BPE_SPLIT_MARKS,
    BPE_SPLIT_COUNT
};

struct bpe_splitter;

struct bpe_split_form {
    const char *name;    /* in gpt_tokenizer.json */
    const char *ggml;    /* "tokenizer.ggml.pre" in GGUF */
    const char *regex;   /* of "Split" in tokenizer.json, or NULL */
    const char *pattern; /* for PCRE2 */
    bool joins_newlines; /* newlines after a sign belong to its piece */
};
extern const struct bpe_split_form bpe_splits[BPE_SPLIT_COUNT];

/* Creates a splitter; every thread needs its own.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_splitter_create(const void *owner, enum bpe_split split,
                                   struct bpe_splitter **out);

/* Starts a text, which is borrowed until its last piece. */
void bpe_splitter_begin(struct bpe_splitter *splitter, const char *text, size_t count);
/* Sets *out to the next piece, inside the text, and returns its length; 0 at the end. */
size_t bpe_splitter_next(struct bpe_splitter *splitter, const char **out);

/* Returns the best place to cut text[count] when more text follows: before the last space or
 * newline that follows a visible character.  GPT-2's split never has a piece across such a place
 * and never looks back over one, so both sides, encoded separately, give the ids of the whole. With
 * the split's `joins_newlines`, the function cuts after the last newline before a visible
 * character other than a slash, or before such a space.  If the text has no such place, it sets
 * *out_forced and cuts between characters if the text is UTF-8, else at `count`.  1 <= count; the
 * result is at least 1.
 */
size_t bpe_split_cut(const char *text, size_t count, bool joins_newlines, bool *out_forced);

/* ---- normalization form C (UAX #15): a letter and its accent become one character where there is
 * one ---- */

/* The factor by which UTF-8 may grow (UAX #15, Maximum Expansion Factors). */
#define BPE_NFC_GROWTH_MAX 3

extern const bool bpe_nfc_possible; /* in this build */
/* Sets *out to NULL when the text is normalized already, else to text that the caller free()s.
 * Bytes that are not UTF-8 stay.  May run in any thread.  Errors: GT_NO_MEMORY, not logged. */
enum gt_status bpe_nfc(const char *text, size_t count, char **out, size_t *out_count);

#endif
