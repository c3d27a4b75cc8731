/* Normalization form C, with ICU.
 *
 * Text without a byte above 0xCB is normalized already: below U+0300 no character combines.  Other text goes through
 * UTF-16, which ICU works in.  It is normalized in stretches of valid UTF-8, with the bytes between them copied.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/text_nfc.h"

#include "base/utf8.h"

#ifdef HAVE_ICU
#include <unicode/unorm2.h>
#include <unicode/ustring.h>

#define FIRST_LEAD 0xCC /* of U+0300 */

const bool text_nfc_possible = true;

static bool is_plain(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)text[i] >= FIRST_LEAD)
            return false;
    return true;
}

/* Normalizes valid UTF-8 to `out`, which has room; `wide` is for 4 * count units.  Returns the length. */
static size_t stretch_normalize(const char *text, size_t count, UChar *wide, char *out)
{
    UErrorCode error = U_ZERO_ERROR;
    int32_t units = 0, length = 0;
    UChar *normal = wide + count;
    const int32_t most = (int32_t)(TEXT_NFC_GROWTH_MAX * count);
    u_strFromUTF8(wide, (int32_t)count, &units, text, (int32_t)count, &error);
    units = unorm2_normalize(unorm2_getNFCInstance(&error), wide, units, normal, most, &error);
    u_strToUTF8(out, most, &length, normal, units, &error);
    if (U_SUCCESS(error))
        return (size_t)length;
    memcpy(out, text, count); /* only when ICU has no memory */
    return count;
}

enum gt_status text_nfc(const char *text, size_t count, char **out, size_t *out_count)
{
    *out = NULL;
    if (is_plain(text, count))
        return GT_OK;
    if (count > INT32_MAX / TEXT_NFC_GROWTH_MAX)
        return GT_NO_MEMORY;
    char *normal = malloc(TEXT_NFC_GROWTH_MAX * count);
    UChar *wide = malloc((1 + TEXT_NFC_GROWTH_MAX) * count * sizeof *wide);
    size_t length = 0;
    for (size_t at = 0; at < count && normal != NULL && wide != NULL;) {
        const size_t end = utf8_valid_end((const unsigned char *)text, at, count);
        length += stretch_normalize(text + at, end - at, wide, normal + length);
        if (end < count)
            normal[length++] = text[end];
        at = end + 1;
    }
    free(wide);
    if (wide == NULL || normal == NULL) {
        free(normal);
        return GT_NO_MEMORY;
    }
    *out = normal;
    *out_count = length;
    return GT_OK;
}
#else
const bool text_nfc_possible = false;

enum gt_status text_nfc(const char *text, size_t count, char **out, size_t *out_count)
{
    (void)text, (void)count, (void)out, (void)out_count;
    return GT_UNSUPPORTED;
}
#endif
