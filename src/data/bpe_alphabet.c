/* GPT-2's alphabet, computed instead of tabulated.
 *
 * The bytes that are not printable form three runs, 0-32, 127-160 and 173, which map to consecutive characters from
 * U+0100.  Characters above U+00FF map back in the same way.
 */
#include "data/bpe_alphabet.h"

#include <assert.h>

#include "base/utf8.h"

#define FIRST_SHIFTED 0x100u

enum { RUN_1_COUNT = 33, RUN_2_BEGIN = 127, RUN_2_COUNT = 34, RUN_3 = 173, SHIFTED_COUNT = 68, DIRECT_COUNT = 188 };

/* Returns the index of the byte among those that are not printable, or -1 when it is printable. */
static int shifted_index(unsigned char byte)
{
    if (byte < RUN_1_COUNT)
        return byte;
    if (byte >= RUN_2_BEGIN && byte < RUN_2_BEGIN + RUN_2_COUNT)
        return byte - RUN_2_BEGIN + RUN_1_COUNT;
    return byte == RUN_3 ? SHIFTED_COUNT - 1 : -1;
}

static unsigned char shifted_byte(int index)
{
    assert(index >= 0 && index < SHIFTED_COUNT);
    if (index < RUN_1_COUNT)
        return (unsigned char)index;
    return (unsigned char)(index == SHIFTED_COUNT - 1 ? RUN_3 : index - RUN_1_COUNT + RUN_2_BEGIN);
}

unsigned char bpe_alphabet_byte(int rank)
{
    assert(rank >= 0 && rank < 256);
    if (rank >= DIRECT_COUNT)
        return shifted_byte(rank - DIRECT_COUNT);
    int byte = rank + RUN_1_COUNT;
    if (byte >= RUN_2_BEGIN)
        byte += RUN_2_COUNT;
    return (unsigned char)(byte >= RUN_3 ? byte + 1 : byte);
}

size_t bpe_alphabet_write(const char *bytes, size_t count, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        const int index = shifted_index(byte);
        char encoded[4];
        const size_t used = utf8_encode(index < 0 ? byte : FIRST_SHIFTED + (uint32_t)index, encoded);
        assert(used <= 2);
        for (size_t k = 0; k < used; k++)
            out[length++] = encoded[k];
    }
    return length;
}

size_t bpe_alphabet_write_pair(const char *left, size_t left_count, const char *right, size_t right_count, char *out)
{
    size_t length = bpe_alphabet_write(left, left_count, out);
    out[length++] = ' ';
    length += bpe_alphabet_write(right, right_count, out + length);
    out[length] = '\0';
    return length;
}

bool bpe_alphabet_read(const char *text, size_t count, char *out, size_t *out_count)
{
    size_t length = 0;
    for (size_t at = 0; at < count;) {
        uint32_t code_point = 0;
        const int used = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        if (used <= 0 || code_point >= FIRST_SHIFTED + SHIFTED_COUNT)
            return false;
        if (code_point < FIRST_SHIFTED && shifted_index((unsigned char)code_point) >= 0)
            return false;
        out[length++] = (char)(code_point < FIRST_SHIFTED ? (unsigned char)code_point
                                                          : shifted_byte((int)(code_point - FIRST_SHIFTED)));
        at += (size_t)used;
    }
    *out_count = length;
    return true;
}
