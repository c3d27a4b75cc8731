/* Time.  Durations use the monotonic clock.  The wall clock is only used for display. */
#ifndef GPT_TRAIN_BASE_CLOCK_H
#define GPT_TRAIN_BASE_CLOCK_H

#include "base/status.h"

/* Nanoseconds of CLOCK_MONOTONIC since an arbitrary start. */
int64_t clock_monotonic_ns(void);
/* Seconds of CLOCK_REALTIME since the epoch. */
double clock_wall_seconds(void);
/* Writes a duration like "1 h 02 min", "3 min 20 s", "4.2 s", "33 ms" to `text` (at least 32
 * bytes); returns `text`. */
char *clock_duration(char text[static 32], double seconds);
/* The same in text that lives as long as the enclosing block. */
#define CLOCK_DURATION(seconds) clock_duration((char[32]){0}, seconds)
/* Writes a wall time like "Sat 14:03" (local time) to `text` (at least 32 bytes); returns `text`.
 * The date is included when it is more than a day away. */
char *clock_wall_text(char text[static 32], int64_t wall_s);

#endif
