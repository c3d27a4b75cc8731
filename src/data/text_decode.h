/* Texts in other encodings, read as UTF-8 through iconv(3).
 *
 * A decoder takes a text over at its first bytes, and reads on by itself, so that memory does not grow with the text.  What
 * comes out depends on the bytes alone, not on how they came.
 */
#ifndef GPT_TRAIN_DATA_TEXT_DECODE_H
#define GPT_TRAIN_DATA_TEXT_DECODE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/input.h"

struct text_decoder;

/* GT_USAGE and one line for an encoding that this system's iconv does not know; GT_UNSUPPORTED in a build without iconv.
 * *out_is_ascii: its bytes below 128 are ASCII, so that a zero byte is a zero character. */
enum gt_status text_encoding_check(const char *encoding, bool *out_is_ascii);

/* Errors: GT_NO_MEMORY. */
enum gt_status text_decoder_create(struct hostmem *mem, struct text_decoder **out);
/* Accepts NULL. */
void text_decoder_destroy(struct text_decoder *decoder);

/* Begins with a text of which `count` bytes (at most 1 MiB), the first `skip` of them no text, were read from `input`.
 * `encoding` is borrowed until the next text.  Errors: those of text_encoding_check(). */
enum gt_status text_decoder_begin(struct text_decoder *decoder, const char *encoding, const struct input *input,
                                  const unsigned char *bytes, size_t count, size_t skip);
/* Up to `capacity` (at least 64) bytes of UTF-8; 0 at the text's end.  Errors: GT_DATA (bytes that the encoding has not: file
 * and byte are named), those of input_read(). */
enum gt_status text_decoder_read(struct text_decoder *decoder, struct input *input, unsigned char *out, size_t capacity,
                                 size_t *out_count);

#endif
