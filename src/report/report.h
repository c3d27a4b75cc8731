/* What gpt-report makes of runs. */
#ifndef GPT_TRAIN_REPORT_REPORT_H
#define GPT_TRAIN_REPORT_REPORT_H

#include <stdio.h>

#include "report/run_record.h"

/* Writes one self-contained page about `count` runs to the file `path`, which it replaces atomically.  A browser loads
 * it again after `refresh_s` seconds; 0: never.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status report_page_write(const struct run_record *runs, size_t count, int refresh_s, const char *path);

/* Draws the memory of a run by category as an SVG.  Returns false when its start lines do not say. */
bool report_memory_draw(const struct run_record *run, FILE *out);

/* Writes the run in `run` as a file of TensorBoard's events in the folder `path`, which it makes.  Every number of
 * every record becomes a scalar under its name in metrics.jsonl; a null becomes NaN.  Errors: GT_DATA, GT_IO,
 * GT_NO_MEMORY. */
enum gt_status report_events_write(const char *run, const char *path);

#endif
