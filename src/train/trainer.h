/* A run that trains: what works (runner.h), what the loop counts, and what is saved. */
#ifndef GPT_TRAIN_TRAIN_TRAINER_H
#define GPT_TRAIN_TRAIN_TRAINER_H

#include "base/thread.h"
#include "report/run_record.h"
#include "train/diagnose.h"
#include "train/metrics.h"
#include "train/runner.h"
#include "train/saver.h"
#include "train/steps_ahead.h"

#define ITER_NONE INT64_C(-1) /* no iteration */

/* Where the loop is, besides the counters that checkpoints store (struct run_state). */
struct course {
    int64_t first_iter;     /* of this process */
    int64_t start_ns;       /* of the loop */
    double first_best_loss; /* best_val_loss where the run began; infinite: there was none */
    int64_t evaluated_iter; /* the last iteration that was evaluated, or ITER_NONE */
    /* The iteration whose evaluation found best_val_loss; ITER_NONE: an earlier process found it.
     */
    int64_t lowest_iter;
    bool evaluated_badly; /* the last evaluation's losses were not finite */
    bool left_band;       /* a loss was outside expected_losses, and a warning was logged */
    int64_t skipped_in_a_row;
    int64_t skipped_in_vain; /* those of them for which no smaller loss scale can help */
    int64_t targetless;      /* updates left out, because no target counted */
    /* Of the last update whose results were read; `has_results`: there is one. */
    bool has_results;
    double loss, loss_scale, step_seconds;
    struct contention before_test; /* of the forecast's model: at the end of the first update */
};

/* What out_dir holds of this run. */
struct saved {
    int64_t iter;      /* the last iteration that this process saved, or ITER_NONE */
    int64_t best_iter; /* of the checkpoint in out_dir, if an evaluation saved it, else ITER_NONE */
    bool failed;       /* the last attempt to save failed */
};

struct trainer {
    struct runner runner;
    struct metrics metrics;
    struct run_record *report; /* what report.html shows; NULL: none is written */
    struct steps_ahead ahead;  /* updates whose results the host has not read yet */
    struct diagnosis diagnosis;
    struct saver saver;
    struct course course;
    struct saved saved;
    bool began; /* metrics.jsonl was opened, so out_dir is not empty */
};

#endif
