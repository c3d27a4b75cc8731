/* UTF-8 decoding and encoding, one character at a time.
 *
 * The first byte gives the length and the range that the second byte must be in; that range alone
 * excludes overlong forms, surrogates and everything above U+10FFFF (table 3-7 of the Unicode
 * standard), so nothing is checked twice. There is no state: callers that read in chunks keep the
 * bytes of an incomplete character.
 */
#include "base/utf8.h"

#include <assert.h>
#include <string.h>

struct utf8_lead {
    int length; /* 0 when the byte cannot begin a character */
    unsigned char second_min, second_max;
    unsigned char payload;
};

static struct utf8_lead utf8_lead_of(unsigned char byte)
{
    if (byte < 0x80)
        return (struct utf8_lead){1, 0, 0, byte};
    if (byte >= 0xC2 && byte <= 0xDF)
        return (struct utf8_lead){2, 0x80, 0xBF, byte & 0x1F};
    if (byte >= 0xE0 && byte <= 0xEF)
        return (struct utf8_lead){3, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF,
                                  byte & 0x0F};
    if (byte >= 0xF0 && byte <= 0xF4)
        return (struct utf8_lead){4, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF,
                                  byte & 0x07};
    return (struct utf8_lead){0, 0, 0, 0};
}

int utf8_decode(const unsigned char *bytes, size_t count, uint32_t *out)
{
    if (count == 0)
        return UTF8_INCOMPLETE;
    const struct utf8_lead lead = utf8_lead_of(bytes[0]);
    if (lead.length == 0)
        return UTF8_INVALID;
    uint32_t value = lead.payload;
    for (int i = 1; i < lead.length; i++) {
        if ((size_t)i >= count)
            return UTF8_INCOMPLETE;
        const unsigned char min = i == 1 ? lead.second_min : 0x80;
        const unsigned char max = i == 1 ? lead.second_max : 0xBF;
        if (bytes[i] < min || bytes[i] > max)
            return UTF8_INVALID;
        value = value << 6 | (bytes[i] & 0x3Fu);
    }
    assert(utf8_is_scalar(value));
    *out = value;
    return lead.length;
}

bool utf8_is_scalar(uint32_t code_point)
{
    return code_point < UTF8_CODE_POINTS && (code_point < 0xD800 || code_point > 0xDFFF);
}

size_t utf8_encode(uint32_t code_point, char out[static 4])
{
    assert(utf8_is_scalar(code_point));
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    const size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    const unsigned lead = length == 2 ? 0xC0u : length == 3 ? 0xE0u : 0xF0u;
    uint32_t rest = code_point;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (rest & 0x3Fu));
        rest >>= 6;
    }
    out[0] = (char)(lead | rest);
    return length;
}

size_t utf8_valid_end(const unsigned char *bytes, size_t at, size_t count)
{
    while (at < count) {
        uint64_t eight;
        if (count - at >= sizeof eight) {
            memcpy(&eight, bytes + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        uint32_t code_point;
        const int length = utf8_decode(bytes + at, count - at, &code_point);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    return at;
}

size_t utf8_count_invalid(const unsigned char *bytes, size_t count)
{
    size_t invalid = 0;
    for (size_t at = utf8_valid_end(bytes, 0, count); at < count;
         at = utf8_valid_end(bytes, at + 1, count))
        invalid++;
    return invalid;
}

size_t utf8_count_leads(const unsigned char *bytes, size_t count)
{
    size_t leads = 0;
    for (size_t i = 0; i < count; i++)
        leads += (bytes[i] & 0xC0) != 0x80;
    return leads;
}
