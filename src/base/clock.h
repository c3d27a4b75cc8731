/* Time.  Durations come from the monotonic clock; the wall clock is only ever shown to a person. */
#ifndef GPT_TRAIN_BASE_CLOCK_H
#define GPT_TRAIN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC since an arbitrary start. */
int64_t clock_monotonic_ns(void);
/* Seconds since the epoch, of CLOCK_REALTIME. */
int64_t clock_wall_s(void);
/* "1 h 02 min", "3 min 20 s", "4.2 s", "33 ms" into `text` (at least 32 bytes); returns `text`. */
char *clock_duration(char text[static 32], double seconds);
/* "Sat 14:03" (local time) of a wall time into `text` (at least 32 bytes); with the date when over a day away. */
char *clock_wall_text(char text[static 32], int64_t wall_s);

#endif
