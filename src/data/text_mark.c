/* Byte-order marks.
 *
 * The longer marks come first, because UTF-32LE's begins with UTF-16LE's.
 */
#include "data/text_mark.h"

#include <string.h>

const char *text_mark_of(const unsigned char *bytes, size_t count, size_t *out_length)
{
    static const struct {
        size_t length;
        const char *bytes, *encoding;
    } marks[] = {{4, "\xff\xfe\0\0", "UTF-32LE"},
                 {4, "\0\0\xfe\xff", "UTF-32BE"},
                 {3, "\xef\xbb\xbf", "UTF-8"},
                 {2, "\xff\xfe", "UTF-16LE"},
                 {2, "\xfe\xff", "UTF-16BE"}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (count >= marks[i].length && memcmp(bytes, marks[i].bytes, marks[i].length) == 0) {
            *out_length = marks[i].length;
            return marks[i].encoding;
        }
    *out_length = 0;
    return NULL;
}
