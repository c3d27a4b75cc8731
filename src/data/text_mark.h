/* Byte-order marks.  They have their own file because text_kind.c needs all that unpacks inputs.
 */
#ifndef GPT_TRAIN_DATA_TEXT_MARK_H
#define GPT_TRAIN_DATA_TEXT_MARK_H

#include <stddef.h>

/* Returns the encoding of the byte-order mark at the beginning, as a name for iconv, and the mark's
 * length; NULL and 0 when there is none. */
const char *text_mark_of(const unsigned char *bytes, size_t count, size_t *out_length);

#endif
