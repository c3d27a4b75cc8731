/* A progress line on standard error.
 *
 * It is redrawn in place with a carriage return, at most ten times a second, and erased before log lines.  Where standard
 * error is no terminal nothing is written.
 */
#include "train/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_WIDTH 24
#define REDRAW_NS 100000000

void progress_init(struct progress *progress)
{
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO) == 1};
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total, const char *note,
                   double seconds_left)
{
    if (!progress->terminal || total <= 0)
        return;
    int64_t now = clock_monotonic_ns();
    if (progress->shown && now < progress->next_ns && done < total)
        return;
    progress->next_ns = now + REDRAW_NS;
    progress->shown = true;
    char bar[BAR_WIDTH + 1], left[32] = "";
    int filled = (int)(done * BAR_WIDTH / total);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', (size_t)filled);
    if (filled < BAR_WIDTH)
        bar[filled] = '>';
    bar[BAR_WIDTH] = '\0';
    if (seconds_left >= 0)
        clock_duration(left, seconds_left);
    fprintf(stderr, "\r\033[K%s [%s] %5.1f %%  %" PRId64 "/%" PRId64 "  %s%s%s%s", what, bar,
            100.0 * (double)done / (double)total, done, total, note, *note ? "  " : "", left, *left ? " left" : "");
    fflush(stderr);
}

void progress_clear(struct progress *progress)
{
    if (!progress->shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = false;
}
