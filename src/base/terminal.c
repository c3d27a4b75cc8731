/* The width of a terminal, and lines that fit it.
 *
 * Without this a terminal breaks long lines inside words.  This file counts a character as one
 * column.  Wide characters, such as Chinese ones, take two, so that the terminal may still break a
 * line of them.
 */
#include "base/terminal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/platform.h"

#define COLUMNS_DEFAULT 80
#define COLUMNS_LEAST 20 /* with fewer, folded lines are no better */

size_t terminal_columns(FILE *stream)
{
    struct winsize size;
    const int fd = fileno(stream);
    if (fd < 0 || !PLATFORM_IS_TERMINAL(fd))
        return 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    const long number = columns != NULL ? strtol(columns, NULL, 10) : 0;
    return number > 0 && number <= UINT16_MAX ? (size_t)number : COLUMNS_DEFAULT;
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* Returns the number of bytes of `text` that come before the break: those up to a blank, or all. */
static size_t line_length(const char *text, size_t columns)
{
    size_t characters = 0, blank = 0;
    for (size_t i = 0;; i++) {
        if (text[i] == '\0' && characters <= columns)
            return i;
        if ((text[i] == ' ' || text[i] == '\0') && characters > 0) {
            if (characters > columns)
                return blank > 0 ? blank : i;
            blank = i;
        }
        characters += begins_character(text[i]);
    }
}

void terminal_fold(FILE *stream, const char *text, size_t columns, int indent)
{
    if (columns < COLUMNS_LEAST) {
        (void)fprintf(stream, "%s\n", text);
        return;
    }
    const int shift = (size_t)indent < columns / 2 ? indent : 2;
    for (size_t room = columns;; room = columns - (size_t)shift) {
        const size_t length = line_length(text, room);
        (void)fprintf(stream, "%.*s\n", (int)length, text);
        text += length;
        text += strspn(text, " ");
        if (*text == '\0')
            return;
        (void)fprintf(stream, "%*s", shift, "");
    }
}
