/* metrics.jsonl in out_dir: one JSON object per line, in full precision.  A resume truncates it to the iteration from
 * which it resumes. */
#ifndef GPT_TRAIN_TRAIN_METRICS_H
#define GPT_TRAIN_TRAIN_METRICS_H

#include "data/mixture.h"
#include "report/report.h"

#define METRICS_OLD_NAME "metrics-old.jsonl"
#define METRICS_KEPT_BYTES (sizeof "metrics-01234567.jsonl")
#define METRICS_TEXT_MAX 256   /* a longer text in a start line is cut */
#define METRICS_SAMPLE_MAX 768 /* a longer sample is cut */

struct metrics {
    int fd; /* -1 when closed */
    const char *out_dir;
    /* Set-aside file with the lines of the checkpoint that this run is to replace; "" = none. */
    char kept[METRICS_KEPT_BYTES];
    bool warned;
};

struct metrics_step {
    int64_t iter;
    double loss, lr, grad_norm, time_ms, tokens_per_s, mfu;
    int64_t skipped;   /* updates skipped so far for a non-finite gradient */
    double loss_scale; /* used by this update; 0 = none, and the field is omitted */
    uint64_t planned_bytes, allocated_bytes;
    int64_t tokens; /* seen so far, this update included */
    double time;    /* seconds since the epoch */
};

struct metrics_evaluation {
    int64_t iter, tokens;
    double train_loss, val_loss, time;
    const char *sample; /* NULL: none */
    size_t sample_bytes;
};

/* A line in the making: one JSON object. */
struct metrics_line {
    char text[METRICS_LINE_MAX];
    size_t used;
};

/* Opens the file for appending.  Truncates it at the first line of an iteration that the run will repeat: an iter line
 * at or beyond `resume_iter`, an evaluation beyond it, or at it unless that iteration was `evaluated`.  `anew`: the run
 * does not continue the checkpoint in out_dir.  The lines of that checkpoint are set aside until metrics_saved(), and
 * restored if a run resumes it before then.  Those before resume_iter, 0 for none, are copied into this run's file.
 * `out_dir` must live as long.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA. */
enum gt_status metrics_open(struct metrics *metrics, const char *out_dir, int64_t resume_iter, bool evaluated,
                            bool anew);
/* Returns the median tokens per second of the last steps in the file of `out_dir`; 0 if there are none. */
double metrics_rate_recent(const char *out_dir);
void metrics_close(struct metrics *metrics);
/* Makes the lines written so far survive a power cut.  To be called before a checkpoint is saved.  A failure is a
 * warning. */
void metrics_sync(struct metrics *metrics);
/* Removes the set-aside lines.  To be called once a checkpoint of this run is saved and the previous one has been
 * moved, with its lines, to its own folder. */
void metrics_saved(struct metrics *metrics);
/* Errors: GT_IO; the run continues without this line. */
enum gt_status metrics_step_write(struct metrics *metrics, const struct metrics_step *step);
enum gt_status metrics_evaluation_write(struct metrics *metrics, const struct metrics_evaluation *evaluation);
/* Writes an evaluation's loss of one data set of several. */
enum gt_status metrics_dataset_write(struct metrics *metrics, int64_t iter, const struct mixture_part *part,
                                     double val_loss);

/* Start lines describe the run.  They begin with {"iter":N,"start":"KIND".  A run's file has them before its first
 * line; a resume adds them again, with the iteration before its first, so that 0.2.0 keeps them with what follows. */
void metrics_start_begin(struct metrics_line *line, int64_t first_iter, const char *kind);
/* Appends to a line.  The caller writes the commas and names. */
void metrics_add(struct metrics_line *line, const char *format, ...) LOG_PRINTF(2, 3);
/* Adds a JSON string.  Invalid UTF-8 becomes U+FFFD.  A text that takes more than `limit` bytes is cut and ends in
 * "...". */
void metrics_add_text(struct metrics_line *line, const char *text, size_t count, size_t limit);
/* Ends the object and writes it. */
enum gt_status metrics_line_write(struct metrics *metrics, struct metrics_line *line);

#endif
