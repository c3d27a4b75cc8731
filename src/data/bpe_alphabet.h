/* GPT-2's alphabet: the 256 bytes as 256 printable characters, in which vocabulary files write tokens.
 *
 * Printable bytes of Latin-1 stand for themselves; the 68 others, in order, for U+0100 and up ("Ġ", U+0120, is the
 * space).  Source: bytes_to_unicode() in GPT-2's encoder.py.
 */
#ifndef GPT_TRAIN_DATA_BPE_ALPHABET_H
#define GPT_TRAIN_DATA_BPE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The byte whose character comes at `rank` (0 to 255) when the characters are sorted: the order of GPT-2's ids. */
unsigned char bpe_alphabet_byte(int rank);

/* Bytes as UTF-8 in this alphabet, 1 or 2 bytes each, without a terminator.  out[2 * count]; returns the length. */
size_t bpe_alphabet_write(const char *bytes, size_t count, char *out);
/* The way back: out[count].  False when the text has a character that the alphabet lacks, or is not UTF-8. */
bool bpe_alphabet_read(const char *text, size_t count, char *out, size_t *out_count);

#endif
