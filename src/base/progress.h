/* A progress line: the task, how far it is, how fast, and the time left.  Shown only on a terminal.
 */
#ifndef GPT_TRAIN_BASE_PROGRESS_H
#define GPT_TRAIN_BASE_PROGRESS_H

#include "base/status.h"

struct progress {
    bool terminal;   /* standard error is a terminal that understands escape sequences */
    bool shown;      /* a line is on the screen */
    int64_t next_ns; /* do not redraw before this time */
};

/* The parts of a line.  All texts except `what` may be empty. */
struct progress_view {
    const char *what;
    double fraction; /* completed, 0 to 1; below 0: unknown */
    const char *count, *note;
    double seconds_left; /* below 0: unknown */
};

void progress_init(struct progress *progress);
/* Draws "train [=====>    ]  45.0 %  225/500  loss 1.93  12.3k tok/s  1 min 10 s left", at most ten
 * times a second and never wider than the terminal: the bar, the note and the count are dropped, in
 * this order, if there is no room. */
void progress_draw(struct progress *progress, const struct progress_view *view);
/* As progress_draw(), for a count such as "225/500".  Draws nothing when `total` is 0. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total,
                   const char *note, double seconds_left);
/* Erases the line, before anything else is printed. */
void progress_clear(struct progress *progress);

#endif
