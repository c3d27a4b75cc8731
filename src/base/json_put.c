/* Writes JSON member by member.
 *
 * A number has 17 digits, so that its reader gets the same bits.  In texts, bytes that are not
 * UTF-8 become U+FFFD, and control characters are escaped.
 */
#include "base/json_put.h"

#include <math.h>

#include "base/utf8.h"

/* Writes 17 digits, always with a point or an exponent, and no zeros in front of the exponent. */
static void real_write(FILE *out, double value)
{
    char text[32];
    snprintf(text, sizeof text, isfinite(value) ? "%.17g" : "null", value);
    const int length = (int)strcspn(text, "e");
    fprintf(out, "%.*s%s", length, text,
            isfinite(value) && strpbrk(text, ".e") == NULL ? ".0" : "");
    if (text[length] == 'e')
        fprintf(out, "e%d", atoi(text + length + 1));
}

static void text_write(const struct json_put *put, const char *text)
{
    const char *end = text + strlen(text);
    int used = fprintf(put->out, "\"");
    while (text < end) {
        uint32_t code = UTF8_REPLACEMENT;
        const int length = utf8_decode((const unsigned char *)text, (size_t)(end - text), &code);
        if (put->text_max > 0 && used + (int)sizeof "\\u0000...\"" > put->text_max) {
            fputs("...", put->out);
            break;
        }
        if (length <= 0)
            used += fprintf(put->out, "\xef\xbf\xbd");
        else if (code == '\n' || code == '"' || code == '\\')
            used += fprintf(put->out, "\\%c", code == '\n' ? 'n' : (int)code);
        else if (code < ' ' || (code >= 0x7f && code < 0xa0))
            used += fprintf(put->out, "\\u%04" PRIx32, code);
        else
            used += fprintf(put->out, "%.*s", length, text);
        text += length <= 0 ? 1 : length;
    }
    fputc('"', put->out);
}

static void value_write(const struct json_put *put, char type, va_list *values)
{
    const char *text = type == 's' ? va_arg(*values, const char *) : NULL;
    if (type == 'd')
        fprintf(put->out, "%d", va_arg(*values, int));
    else if (type == 'i')
        fprintf(put->out, "%" PRId64, va_arg(*values, int64_t));
    else if (type == 'u')
        fprintf(put->out, "%" PRIu64, va_arg(*values, uint64_t));
    else if (type == 'f')
        real_write(put->out, va_arg(*values, double));
    else if (type == 'b')
        fputs(va_arg(*values, int) ? "true" : "false", put->out);
    else if (text != NULL)
        text_write(put, text);
    else
        fputs("null", put->out);
}

void json_put(struct json_put *put, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (const char *at = format, *colon; *at != '\0' && put->out != NULL;
         at = colon + strspn(colon, " ")) {
        const bool ends = *at == '}' || *at == ']';
        colon = ends ? at : strchr(at, ':') + 1;
        put->depth -= ends;
        if (!ends || put->begun)
            fprintf(put->out, "%s%s%*s", ends || !put->begun ? "" : ",",
                    !put->one_line && (put->depth > 0 || ends) ? "\n" : "",
                    put->one_line ? 0 : 2 * put->depth, "");
        if (colon - at > 1)
            fprintf(put->out, "\"%.*s\":%s", (int)(colon - at - 1), at, put->one_line ? "" : " ");
        put->begun = *colon != '{' && *colon != '[';
        put->depth += !put->begun;
        if (ends || !put->begun)
            fputc(*colon, put->out);
        else
            value_write(put, *colon, &values);
        colon++;
    }
    va_end(values);
}
