/* How long a run will take: before the first step from a model of the ops, then from what was measured. */
#ifndef GPT_TRAIN_TRAIN_FORECAST_H
#define GPT_TRAIN_TRAIN_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "train/session.h"

struct forecast {
    double step_seconds;       /* one update */
    double evaluation_seconds; /* one evaluation of both splits */
    bool measured;             /* false: both are modelled */
    int64_t steps;             /* updates to go */
    int64_t evaluations;       /* evaluations to go */
    double modelled_seconds;   /* one update, as it was modelled; 0 = it was not */
    double tested_seconds;     /* the first measured steps, but for the very first */
    int32_t tested_steps;
};

/* Steps whose mean is compared with the model, once. */
#define FORECAST_TEST_STEPS 10

/* Modelled: each op takes the longer of its FLOPs and its bytes, at the session's rates.  `iter` is where the run begins.
 * Needs session_peak_measure(). */
void forecast_model(const struct session *session, int64_t iter, struct forecast *out);
/* Replaces the number of runs of the evaluation program that an evaluation takes (eval_iters = 0 leaves it to the data). */
void forecast_evaluation_runs(const struct session *session, int64_t runs, struct forecast *forecast);
/* Puts a measured step (or evaluation) in; the first few replace the model, later ones move an average. */
void forecast_step_measured(struct forecast *forecast, double seconds);
void forecast_evaluation_measured(struct forecast *forecast, double seconds);
/* Evaluations that a run from `iter` on will do. */
int64_t forecast_evaluations(const struct config *config, int64_t iter);
/* Seconds until the end. */
double forecast_seconds_left(const struct forecast *forecast);
/* True after the step that completes the comparison of model and measurement, and only then. */
bool forecast_is_tested(const struct forecast *forecast);
/* One line of both where the model was off by more than a quarter. */
void forecast_test_log(const struct forecast *forecast);
/* One line: the time left and its end, and what takes it; nothing where nothing is left. */
void forecast_log(const struct forecast *forecast);

#endif
