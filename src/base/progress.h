/* A progress line on a terminal: what is being done, how far, how fast, how long it will take.  Silent elsewhere. */
#ifndef GPT_TRAIN_BASE_PROGRESS_H
#define GPT_TRAIN_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal;   /* standard error is one that understands escapes */
    bool shown;      /* a line is on the screen */
    int64_t next_ns; /* not drawn again before */
};

/* What a line shows; texts may be empty, but for `what`. */
struct progress_view {
    const char *what;
    double fraction; /* done, 0 to 1; below 0: unknown */
    const char *count, *note;
    double seconds_left; /* below 0: unknown */
};

void progress_init(struct progress *progress);
/* Draws "train [=====>    ]  45.0 %  225/500  loss 1.93  12.3k tok/s  1 min 10 s left", at most ten times a second and
 * never wider than the terminal: the bar, the note and the count give way, in this order. */
void progress_draw(struct progress *progress, const struct progress_view *view);
/* The same of a count, "225/500"; nothing where there is nothing to do. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total, const char *note,
                   double seconds_left);
/* Takes the line off the screen, before anything else is printed. */
void progress_clear(struct progress *progress);

#endif
