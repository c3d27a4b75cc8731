/* A progress line on a terminal: what is being done, how far, how fast, how long it will take.  Silent elsewhere. */
#ifndef GPT_TRAIN_TRAIN_PROGRESS_H
#define GPT_TRAIN_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal;   /* standard error is one */
    bool shown;      /* a line is on the screen */
    int64_t next_ns; /* not drawn again before */
};

void progress_init(struct progress *progress);
/* Draws "train  [=====>    ]  45.0 %  225/500  loss 1.93  12.3k tok/s  1 min 10 s left", at most ten times a second.
 * `note` may be empty; seconds_left < 0 = unknown. */
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t total, const char *note,
                   double seconds_left);
/* Takes the line off the screen, before anything else is printed. */
void progress_clear(struct progress *progress);

#endif
