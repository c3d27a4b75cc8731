/* Examines the first bytes of a file: whether it is not text, which encoding its byte-order mark
 * names, and whether bytes that are not UTF-8 look like Latin-1.  Converts texts in other encodings
 * to UTF-8 with iconv(3).
 *
 * The decoder takes over a text after its first block and then reads by itself, so that memory does
 * not grow with the text.  The output depends only on the bytes, not on how they are divided into
 * reads.
 */
#ifndef GPT_TRAIN_DATA_TEXT_KIND_H
#define GPT_TRAIN_DATA_TEXT_KIND_H

#include "base/hostmem.h"
#include "data/input.h"

/* A kind of file that is not text, with advice on how to extract its text.  `advice` (NULL: none)
 * stands alone, or before the file's name when `tail` is not NULL. */
struct text_kind {
    const char *name; /* with its article: "a PNG image" */
    const char *advice, *tail;
};

/* Returns the kind of a file that starts with these bytes, or NULL.  `is_json`: its name ends in
 * .json, in which case a list is not a list of documents. */
const struct text_kind *text_kind_of(const unsigned char *bytes, size_t count, bool is_json);

/* Returns true if the first character that is not white space is `wanted`. */
bool text_begins_with(const unsigned char *bytes, size_t count, char wanted);

/* Returns "latin1" or "windows-1252" when most bytes above 127 stand alone or in pairs, as accented
 * letters do, else NULL. */
const char *text_guess_latin(const char *text, size_t count);

struct text_decoder;

/* Checks that iconv knows an encoding.  *out_is_ascii is true when its bytes below 128 are ASCII,
 * so that a zero byte is a zero character.  Errors: GT_USAGE when this system's iconv does not know
 * it, GT_UNSUPPORTED in a build without iconv. */
enum gt_status text_encoding_check(const char *encoding, bool *out_is_ascii);

/* Creates *decoder if it is NULL, and starts a text of which `count` bytes (at most 1 MiB) were
 * already read from `input`; the first `skip` of them are not text.  `encoding` is borrowed until
 * the next text.  Errors: those of text_encoding_check(), GT_NO_MEMORY. */
enum gt_status text_decoder_begin(const void *owner, struct text_decoder **decoder,
                                  const char *encoding, const struct input *input,
                                  const unsigned char *bytes, size_t count, size_t skip);
/* Reads up to `capacity` (at least 64) bytes of UTF-8; *out_count is 0 at the text's end.  Errors:
 * GT_DATA (bytes that are invalid in the encoding: file and byte are named), those of input_read().
 */
enum gt_status text_decoder_read(struct text_decoder *decoder, struct input *input,
                                 unsigned char *out, size_t capacity, size_t *out_count);

#endif
