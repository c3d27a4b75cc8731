/* metrics.jsonl in out_dir: one JSON object a line, full precision, cut back at a resume to the step resumed from. */
#ifndef GPT_TRAIN_TRAIN_METRICS_H
#define GPT_TRAIN_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define METRICS_NAME "metrics.jsonl"
#define METRICS_OLD_NAME "metrics-old.jsonl"
#define METRICS_KEPT_BYTES (sizeof "metrics-01234567.jsonl")

struct metrics {
    int fd; /* -1 when closed */
    const char *out_dir;
    /* The name under which the lines of the checkpoint wait that this run is to replace; "" = none. */
    char kept[METRICS_KEPT_BYTES];
    bool warned;
};

struct metrics_step {
    int64_t iter;
    double loss, lr, grad_norm, time_ms, tokens_per_s, mfu;
    int64_t skipped;   /* updates skipped so far for a non-finite gradient */
    double loss_scale; /* that this update was computed with; 0 = none, and no such field */
    uint64_t planned_bytes, allocated_bytes;
};

/* Opens the file for appending.  From the first line of an iteration that the run will do again (an iter line at or
 * beyond `resume_iter`, an evaluation beyond it, or at it unless it was `evaluated`) the file is cut.  `anew`: the run does not
 * go on from the checkpoint that is there, whose lines wait aside until metrics_saved(), and are put back where a run resumes
 * that checkpoint before; those before resume_iter, 0 for none, are this run's too.  `out_dir` must live as long.  Errors:
 * GT_IO, GT_NO_MEMORY, GT_DATA. */
enum gt_status metrics_open(struct metrics *metrics, const char *out_dir, int64_t resume_iter, bool evaluated,
                            bool anew);
void metrics_close(struct metrics *metrics);
/* What was written survives a power cut.  To be called before a checkpoint is saved; a failure is a warning. */
void metrics_sync(struct metrics *metrics);
/* A checkpoint of this run is in place, and the one before in a folder of its own, with its lines: they wait no longer. */
void metrics_saved(struct metrics *metrics);
/* Errors: GT_IO; the run goes on, without this line. */
enum gt_status metrics_step_write(struct metrics *metrics, const struct metrics_step *step);
enum gt_status metrics_evaluation_write(struct metrics *metrics, int64_t iter, double train_loss, double val_loss);

#endif
