/* Writes the report: a page of HTML with charts in SVG. */
#ifndef GPT_TRAIN_REPORT_REPORT_PAGE_H
#define GPT_TRAIN_REPORT_REPORT_PAGE_H

#include "report/run_record.h"

/* Writes one self-contained page about `count` runs to the file `path`, which it replaces
 * atomically.  A browser loads it again after `refresh_s` seconds; 0: never.  Errors: GT_IO,
 * GT_NO_MEMORY. */
enum gt_status report_page_write(const struct run_record *runs, size_t count, int refresh_s,
                                 const char *path);

/* Draws the memory of a run by category as an SVG.  Returns false when its start lines do not have
 * it. */
bool report_memory_draw(const struct run_record *run, FILE *out);

#endif
