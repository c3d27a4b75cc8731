/* Strict UTF-8: overlong forms, surrogates and values above U+10FFFF are invalid (RFC 3629). */
#ifndef GPT_TRAIN_BASE_UTF8_H
#define GPT_TRAIN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_CODE_POINTS 0x110000u
#define UTF8_REPLACEMENT 0xFFFDu

#define UTF8_INVALID (-1)
#define UTF8_INCOMPLETE 0

/* Reads the character at `bytes`.  Returns its length in bytes (1 to 4) and stores it in `out`;
 * UTF8_INCOMPLETE when the `count` bytes are the valid beginning of a longer character (also for
 * count 0); UTF8_INVALID otherwise.  `out` is written only in the first case. */
int utf8_decode(const unsigned char *bytes, size_t count, uint32_t *out);

/* Returns true for the values that utf8_decode() can produce: not a surrogate and at most U+10FFFF.
 */
bool utf8_is_scalar(uint32_t code_point);

/* Writes a valid character as 1 to 4 bytes, without a terminator, and returns their number. */
size_t utf8_encode(uint32_t code_point, char out[static 4]);

/* Returns the end of the valid characters that begin at `at`: `at` itself, or up to `count`. */
size_t utf8_valid_end(const unsigned char *bytes, size_t at, size_t count);
/* Counts the bytes that are not continuation bytes, which is the number of characters in valid
 * UTF-8. */
size_t utf8_count_leads(const unsigned char *bytes, size_t count);
/* Counts the bytes that belong to no character, including a character that the end cuts off. */
size_t utf8_count_invalid(const unsigned char *bytes, size_t count);

#endif
