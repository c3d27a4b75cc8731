/* Reads metrics.jsonl, line by line. */
#ifndef GPT_TRAIN_REPORT_METRICS_READ_H
#define GPT_TRAIN_REPORT_METRICS_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define METRICS_NAME "metrics.jsonl"
#define METRICS_LINE_MAX 1024 /* with newline and terminating zero: what release 0.2.0 reads */

/* A file and how far it has been read. */
struct metrics_file {
    char path[FILE_PATH_MAX];
    long offset;
    int64_t unreadable; /* lines that are no record */
    bool torn;          /* the file ends in half a line */
};

/* Receives an object with an integer "iter". */
typedef enum gt_status metrics_line_fn(void *context, const json_t *line);

/* Sets the file of a run: metrics.jsonl in the folder `run`, or the file `run` itself.  Errors: GT_USAGE. */
enum gt_status metrics_file_find(const char *run, struct metrics_file *out);
/* Calls `take` for each line after those that were read before.  Errors: GT_DATA when there is no such file, GT_IO,
 * GT_NO_MEMORY, those of `take`. */
enum gt_status metrics_read(struct metrics_file *file, metrics_line_fn *take, void *context);

#endif
