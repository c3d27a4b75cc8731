/* Encoding text with one thread: what a tokenizer needs besides its vocabulary (scratch memory, a cache of pieces).
 *
 * The tokenizer is shared and constant; every thread has an encoder of its own.  Ids are a function of the tokenizer, of
 * the text and of `special` only: neither the cache nor what was encoded before changes them.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_ENCODER_H
#define GPT_TRAIN_DATA_TOKENIZER_ENCODER_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

/* What becomes of the text of special tokens, such as <|endoftext|>. */
enum tokenizer_special {
    TOKENIZER_SPECIAL_AS_TEXT, /* ordinary text: for everything that others wrote */
    TOKENIZER_SPECIAL_ALLOWED, /* their ids, wherever their text stands */
};

struct tokenizer_encoder;

/* Borrows the tokenizer, which outlives it.  About 4 MiB for bpe.  Main thread only.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_encoder_create(struct hostmem *mem, const struct tokenizer *tokenizer,
                                        struct tokenizer_encoder **out);
/* Accepts NULL. */
void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder);

/* Where encoding ended early. */
struct tokenizer_fault {
    size_t at;           /* the byte */
    uint32_t code_point; /* the character that the vocabulary lacks; UTF8_CODE_POINTS: the byte is not UTF-8 */
};

/* out[*out_count] = ids of one document, at most `count` of them, which is what `out` must have room for.  Says nothing
 * and touches nothing but its arguments, so that threads may run it.  Errors: GT_DATA, with *fault (chars only);
 * GT_NO_MEMORY for a piece of text too long for the memory there is, 40 bytes for each of the piece's (bpe only). */
enum gt_status tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t count,
                                     enum tokenizer_special special, int32_t *out, size_t *out_count,
                                     struct tokenizer_fault *fault);
/* Logs what a run returned as GT_DATA or GT_NO_MEMORY; `source` (a file, a flag) stands in front. */
void tokenizer_fault_report(const struct tokenizer *tokenizer, enum gt_status status,
                            const struct tokenizer_fault *fault, const char *source);

/* Where a long text may be cut without changing its ids, special tokens being text: the largest such place in
 * text[0, count], count itself only when `at_end` says that the text ends there.  0 when there is none: read on.
 * Each part, encoded by itself, gives its part of the ids.  bytes: anywhere; chars: between characters; bpe: before
 * white space that follows something else. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t count, bool at_end);

#endif
