/* SentencePiece's marks: U+2581 stands for a space, and for the beginning of a text.
 *
 * In tokenizer.json a normalizer or the pre-tokenizer "Metaspace" inserts them.  Such a pipeline
 * has no split: a whole text is one piece, unless the vocabulary shows that no token extends over
 * the beginning of a word.
 */
#ifndef GPT_TRAIN_DATA_BPE_MARKS_H
#define GPT_TRAIN_DATA_BPE_MARKS_H

#include "base/status.h"

#define BPE_MARK "\xE2\x96\x81"
enum { BPE_MARK_BYTES = 3 };

/* When a mark goes before a text, or before the text after an added token. */
enum bpe_mark_when {
    BPE_MARK_NEVER,
    BPE_MARK_FIRST,  /* before the beginning of the whole text, unless a mark is there */
    BPE_MARK_ALWAYS, /* unless a mark is there */
    BPE_MARK_EVEN    /* even if one is there: the normalizer "Prepend" */
};

struct bpe_marks {
    bool spaces; /* every space becomes a mark */
    enum bpe_mark_when before;
};

/* Where a text is. */
enum bpe_place {
    BPE_PLACE_BEGIN, /* at the beginning */
    BPE_PLACE_AFTER, /* after an added token */
    BPE_PLACE_WITHIN /* after another part of the same text */
};

/* Sets *out to text with its marks, which the caller free()s, or to NULL when that is the text
 * itself.  May run in any thread.  Errors: GT_NO_MEMORY, not logged. */
enum gt_status bpe_marks_put(struct bpe_marks marks, enum bpe_place place, const char *text,
                             size_t count, char **out, size_t *out_count);
/* Returns the length of the piece at the beginning of a text, 1 <= count: up to the next mark, or
 * unless `each` up to the next mark that follows another character. */
size_t bpe_marks_piece(const char *text, size_t count, bool each);
/* Returns true if the text has a mark after another character, or a character other than a newline
 * after a newline. */
bool bpe_marks_inside(const char *text, size_t count);
/* Writes text with spaces for marks to out[count].  Returns its length. */
size_t bpe_marks_read(const char *text, size_t count, char *out);

#endif
