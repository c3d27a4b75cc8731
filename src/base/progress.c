/* A progress line on standard error.
 *
 * It is redrawn in place with a carriage return, at most ten times a second, and erased before log
 * lines.  A line that reaches the last column would wrap, and each redraw would leave one behind,
 * so the terminal's width is queried each time.  Nothing is written if standard error is not a
 * terminal, or if TERM is unset or "dumb".
 */
#include "base/progress.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"

#define BAR_WIDTH 24
#define BAR_WIDTH_LEAST 8
#define COLUMNS_DEFAULT 80
#define REDRAW_NS 100000000
#define LINE_MAX_BYTES 512

void progress_init(struct progress *progress)
{
    const char *term = getenv("TERM");
    const bool escapes = term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
    *progress = (struct progress){.terminal = escapes && isatty(STDERR_FILENO) == 1};
}

/* The maximum length of a line, in columns. */
static size_t line_width(void)
{
    const size_t known = terminal_columns(stderr), columns = known > 0 ? known : COLUMNS_DEFAULT;
    return columns < LINE_MAX_BYTES ? columns - 1 : LINE_MAX_BYTES - 1;
}

static void bar_draw(char bar[static BAR_WIDTH + 4], double fraction, int width)
{
    const int filled = (int)((fraction < 1.0 ? fraction : 1.0) * width);
    memset(bar, ' ', (size_t)width + 2);
    memset(bar + 1, '=', (size_t)filled);
    if (filled < width)
        bar[1 + filled] = '>';
    bar[0] = '[';
    bar[width + 1] = ']';
    memcpy(bar + width + 2, " ", 2);
}

/* Writes everything but the bar.  Returns the full length, which may be more than was written. */
static size_t text_write(char text[static LINE_MAX_BYTES], const struct progress_view *view)
{
    const char *share = view->fraction >= 0 ? TEXT(16, "%5.1f %%  ", 100.0 * view->fraction) : "";
    const char *left = view->seconds_left >= 0 ? CLOCK_DURATION(view->seconds_left) : "";
    const int length = snprintf(text, LINE_MAX_BYTES, "%s%s%s%s%s%s%s", share, view->count,
                                view->count[0] ? "  " : "", view->note, view->note[0] ? "  " : "",
                                left, left[0] ? " left" : "");
    return length > 0 ? (size_t)length : 0;
}

void progress_draw(struct progress *progress, const struct progress_view *view)
{
    const int64_t now = clock_monotonic_ns();
    if (!progress->terminal || (progress->shown && now < progress->next_ns && view->fraction < 1.0))
        return;
    progress->next_ns = now + REDRAW_NS;
    progress->shown = true;
    char text[LINE_MAX_BYTES], bar[BAR_WIDTH + 4] = "";
    struct progress_view shown = *view;
    const size_t width = line_width(), head = strlen(view->what) + 1;
    size_t used = head + text_write(text, &shown);
    if (used > width) {
        shown.note = "";
        used = head + text_write(text, &shown);
    }
    if (used > width) {
        shown.count = "";
        used = head + text_write(text, &shown);
    }
    const size_t room =
        used + 3 < width ? width - used - 3 : 0; /* for the bar between its brackets, and a space */
    if (view->fraction >= 0 && room >= BAR_WIDTH_LEAST)
        bar_draw(bar, view->fraction, room < BAR_WIDTH ? (int)room : BAR_WIDTH);
    fprintf(stderr, "\r\033[K%.*s", (int)width,
            TEXT(2 * LINE_MAX_BYTES, "%s %s%s", view->what, bar, text));
    fflush(stderr);
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total,
                   const char *note, double seconds_left)
{
    if (total <= 0)
        return;
    progress_draw(progress,
                  &(struct progress_view){.what = what,
                                          .fraction = (double)done / (double)total,
                                          .count = TEXT(48, "%" PRId64 "/%" PRId64, done, total),
                                          .note = note,
                                          .seconds_left = seconds_left});
}

void progress_clear(struct progress *progress)
{
    if (!progress->shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = false;
}
