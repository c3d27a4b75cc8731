/* Examines the first bytes of a file: whether it is not text, which encoding its byte-order mark names, and whether
 * bytes that are not UTF-8 look like Latin-1.
 */
#ifndef GPT_TRAIN_DATA_TEXT_KIND_H
#define GPT_TRAIN_DATA_TEXT_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* A kind of file that is not text, with advice on how to extract its text.  `advice` (NULL: none) stands alone, or
 * before the file's name when `tail` is not NULL; `before` is a command that comes first, or NULL. */
struct text_kind {
    const char *name; /* with its article: "a PNG image" */
    const char *before, *advice, *tail;
};

/* Returns the kind of a file that starts with these bytes, or NULL.  `is_json`: its name ends in .json, in which case a
 * list is not a list of documents. */
const struct text_kind *text_kind_of(const unsigned char *bytes, size_t count, bool is_json);

/* Returns the encoding of the byte-order mark at the beginning, as a name for iconv, and the mark's length; NULL and 0
 * when there is none. */
const char *text_mark_of(const unsigned char *bytes, size_t count, size_t *out_length);

/* Returns "latin1" or "windows-1252" when most bytes above 127 stand alone or in pairs, as accented letters do, else
 * NULL. */
const char *text_guess_latin(const char *text, size_t count);

#endif
