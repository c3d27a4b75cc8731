/* GPT-2's alphabet: vocabulary files write the 256 bytes as 256 printable characters.
 *
 * Printable bytes of Latin-1 represent themselves; the 68 others map in order to U+0100 and up ("Ġ", U+0120, is the
 * space).  Source: bytes_to_unicode() in GPT-2's encoder.py.
 */
#ifndef GPT_TRAIN_DATA_BPE_ALPHABET_H
#define GPT_TRAIN_DATA_BPE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the byte whose character is at index `rank` (0 to 255) when the characters are sorted, which is GPT-2's id
 * order. */
unsigned char bpe_alphabet_byte(int rank);

/* Writes bytes as UTF-8 in this alphabet, 1 or 2 bytes each, without a terminator, to out[2 * count].  Returns the
 * length. */
size_t bpe_alphabet_write(const char *bytes, size_t count, char *out);
/* Writes "LEFT RIGHT", a merge, and a terminator.  Returns the length. */
size_t bpe_alphabet_write_pair(const char *left, size_t left_count, const char *right, size_t right_count, char *out);
/* The inverse of bpe_alphabet_write(), with out[count].  Returns false when the text has a character outside the
 * alphabet or is not UTF-8. */
bool bpe_alphabet_read(const char *text, size_t count, char *out, size_t *out_count);

#endif
