/* Reads metrics.jsonl of a run, of any length, into bounded memory: series of at most
 * RUN_POINTS_MAX points. */
#ifndef GPT_TRAIN_REPORT_RUN_RECORD_H
#define GPT_TRAIN_REPORT_RUN_RECORD_H

#include "base/json.h"

#define METRICS_NAME "metrics.jsonl"
#define METRICS_LINE_MAX 1024 /* with newline and terminating zero: what release 0.2.0 reads */

/* A file and how far it has been read. */
struct metrics_file {
    char path[FILE_PATH_MAX];
    long offset;
    int64_t unreadable; /* lines that are no record */
    bool torn;          /* the file ends in half a line */
};

#define RUN_POINTS_MAX 512
#define RUN_SAMPLES_MAX 6

/* The fields of a record that the report shows. */
enum run_field {
    RUN_LOSS,
    RUN_LR,
    RUN_GRAD_NORM,
    RUN_TOKENS_PER_S,
    RUN_TRAIN_LOSS,
    RUN_VAL_LOSS,
    RUN_FIELDS
};
/* What they can be drawn against.  Seconds count the time that the run was running, over all its
 * starts. */
enum run_axis { RUN_ITERATIONS, RUN_TOKENS, RUN_SECONDS, RUN_AXES };

/* Successive records in one point. */
struct run_point {
    int64_t records;
    double x[RUN_AXES]; /* mean; NaN where a record lacks it */
    struct {
        int64_t finite, not_finite; /* records with such a value */
        double sum, low, high;      /* of the finite ones */
    } y[RUN_FIELDS];
};

struct run_series {
    struct run_point at[RUN_POINTS_MAX];
    int32_t count;
    int64_t stride; /* records per point; doubles when the array is full */
};

struct run_record {
    struct metrics_file file;
    const char *name;            /* for people: the folder, borrowed */
    struct run_series series[2]; /* of the steps and of the evaluations: see run_series_of() */
    json_t *facts;               /* the fields of the last start lines, and the keys in them */
    json_t *samples;             /* evaluations that have one: the first and the last */
    int64_t until;     /* later iterations are left out; INT64_MAX unless the caller sets it */
    int64_t last_iter; /* -1: none */
    int64_t starts;
    double last[RUN_FIELDS];               /* here and below, NaN: none */
    double best;                           /* the lowest of RUN_VAL_LOSS */
    double seconds, tokens;                /* so far */
    double start_time, start_seconds;      /* at the last start */
    double planned_bytes, allocated_bytes; /* of the last step */
    double step_ms; /* sum over the steps since the last start, without the first */
    int64_t steps;  /* since the last start */
    int64_t best_iter, evaluated_iter;
};

/* Receives an object with an integer "iter". */
typedef enum gt_status metrics_line_fn(void *context, const json_t *line);

/* Sets the file of a run: metrics.jsonl in the folder `run`, or the file `run` itself.  Errors:
 * GT_USAGE. */
void metrics_file_find(const char *run, struct metrics_file *out);
/* Calls `each` for each line after those that were read before.  Errors: GT_DATA when there is no
 * such file, GT_IO, GT_NO_MEMORY, those of `each`. */
enum gt_status metrics_read(struct metrics_file *file, metrics_line_fn *each, void *context);

/* Makes an empty record of the run in `path` (metrics_file_find()).  `name` must outlive it.
 * Errors: GT_USAGE, GT_NO_MEMORY. */
enum gt_status run_record_open(struct run_record *record, const char *path, const char *name);
/* Releases what a record holds, also one that is all zeros. */
void run_record_close(struct run_record *record);
/* Adds the lines that the file has gained.  Errors: those of metrics_read(). */
enum gt_status run_record_update(struct run_record *record);
/* Returns a member of an object, or NaN. */
double run_number(const json_t *object, const char *name);

#endif
