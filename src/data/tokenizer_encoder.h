/* Encodes text in one thread: the per-thread state of a tokenizer (scratch memory, a cache of
 * pieces).
 *
 * The tokenizer is shared and constant; every thread has its own encoder.  The ids depend only on
 * the tokenizer, the text, its place and `special`, not on the cache or on earlier calls.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_ENCODER_H
#define GPT_TRAIN_DATA_TOKENIZER_ENCODER_H

#include "data/tokenizer.h"

/* How to encode the text of special tokens, such as <|endoftext|>.  Literal tokens
 * (bpe_set_literal()) are always found. */
enum tokenizer_special {
    TOKENIZER_SPECIAL_AS_TEXT, /* as ordinary text: for all text from outside */
    TOKENIZER_SPECIAL_ALLOWED, /* as their ids, wherever their text occurs */
};

struct tokenizer_encoder;

/* Borrows the tokenizer, which outlives the encoder.  About 4 MiB for bpe.  Main thread only.
 * Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_encoder_create(const void *owner, const struct tokenizer *tokenizer,
                                        struct tokenizer_encoder **out);

/* The bytes of text that the vocabulary has no token for (bpe only). */
struct tokenizer_unknown {
    uint64_t total, counts[256];
};
/* Returns these bytes for all texts that the encoder has encoded. */
const struct tokenizer_unknown *tokenizer_encoder_unknown(const struct tokenizer_encoder *encoder);
/* Warns that these bytes are left out or became the unknown token, unless there are none.  The line
 * begins with `where`. */
void tokenizer_unknown_warn(const struct tokenizer *tokenizer,
                            const struct tokenizer_unknown *unknown, const char *where);

/* The place where encoding failed. */
struct tokenizer_fault {
    size_t at;           /* byte offset */
    uint32_t code_point; /* the character that is not in the vocabulary; UTF8_CODE_POINTS: the byte
                            is not UTF-8 */
};

/* Sets the place of the next run's text, which is the beginning of a text by default. */
void tokenizer_encoder_place(struct tokenizer_encoder *encoder, enum bpe_place place);
/* Sets out[*out_count] to the ids of one document.  There are at most `count` * the pipeline's
 * `growth`, and `out` must have room for that many.  Logs nothing and writes only to its arguments,
 * so that it may run in any thread.  Errors: GT_DATA, with *fault (chars only); GT_NO_MEMORY when
 * there is no memory for a long piece of text, 40 bytes per byte of the piece (bpe only). */
enum gt_status tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text,
                                     size_t count, enum tokenizer_special special, int32_t *out,
                                     size_t *out_count, struct tokenizer_fault *fault);
/* Logs the GT_DATA or GT_NO_MEMORY that a run returned.  The message starts with `source` (a file,
 * a flag). */
void tokenizer_fault_report(const struct tokenizer *tokenizer, enum gt_status status,
                            const struct tokenizer_fault *fault, const char *source);

/* Sets out[*out_count] to the ids of a text that a user typed, and the pipeline's `bos` before
 * them.  `out` must have room for `count` * the pipeline's `growth` + 1.  `source` (a path or flag)
 * is for the message.  The texts of special tokens become these tokens, as in nanoGPT's sample.py.
 * To encode other text, or many texts, use an encoder. Warns about bytes without a token.  Errors:
 * GT_DATA when a character is not in the vocabulary or the text is not UTF-8 (chars), or when no
 * byte has a token (bpe); GT_NO_MEMORY (bpe). */
enum gt_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                       size_t count, const char *source, int32_t *out,
                                       size_t *out_count);

#endif
