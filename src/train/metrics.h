/* metrics.jsonl in out_dir: one JSON object per line, in full precision.  A resume truncates it to
 * the iteration from which it resumes. */
#ifndef GPT_TRAIN_TRAIN_METRICS_H
#define GPT_TRAIN_TRAIN_METRICS_H

#include "base/json_put.h"
#include "report/run_record.h"

#define METRICS_OLD_NAME "metrics-old.jsonl"
#define METRICS_KEPT_BYTES (sizeof "metrics-01234567.jsonl")
#define METRICS_TEXT_MAX 256 /* a longer text is cut */

struct metrics {
    int fd; /* -1 when closed */
    const char *out_dir;
    /* Set-aside file with the lines of the checkpoint that this run is to replace; "" = none. */
    char kept[METRICS_KEPT_BYTES];
    bool warned;
    char text[METRICS_LINE_MAX];
    struct json_put line; /* writes to `text` */
};

/* Opens the file for appending.  Truncates it at the first line of an iteration that the run will
 * repeat: an iter line at or beyond `resume_iter`, an evaluation beyond it, or at it unless that
 * iteration was `evaluated`.  `anew`: the run does not continue the checkpoint in out_dir.  The
 * lines of that checkpoint are set aside until metrics_saved(), and restored if a run resumes it
 * before then.  Those before resume_iter, 0 for none, are copied into this run's file. `out_dir`
 * must live as long.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA. */
enum gt_status metrics_open(struct metrics *metrics, const char *out_dir, int64_t resume_iter,
                            bool evaluated, bool anew);
/* Returns the median tokens per second of the last steps in the file of `out_dir`; 0 if there are
 * none. */
double metrics_rate_recent(const char *out_dir);
void metrics_close(struct metrics *metrics);
/* Makes the lines written so far survive a power cut.  To be called before a checkpoint is saved.
 * A failure is a warning. */
void metrics_sync(struct metrics *metrics);
/* Removes the set-aside lines.  To be called once a checkpoint of this run is saved and the
 * previous one has been moved, with its lines, to its own folder. */
void metrics_saved(struct metrics *metrics);

/* Begins a line of the iteration and returns the writer for its other members.  `start` is NULL, or
 * the kind of a start line, which describes the run.  A run's file has start lines before its first
 * line; a resume adds them again, with the iteration before its first, so that 0.2.0 keeps them
 * with what follows. */
struct json_put *metrics_line(struct metrics *metrics, int64_t iter, const char *start);
/* Ends the line, and writes it.  Errors: GT_IO; the run continues without this line. */
enum gt_status metrics_line_write(struct metrics *metrics);

#endif
