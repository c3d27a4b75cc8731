/* Predicts how long a run takes: before the first step from a model of the ops, then from
 * measurements. */
#ifndef GPT_TRAIN_TRAIN_FORECAST_H
#define GPT_TRAIN_TRAIN_FORECAST_H

#include "config/config.h"
#include "session/session.h"

/* Number of steps whose mean is compared with the model, once. */
#define FORECAST_TEST_STEPS 10
/* The relative error to expect after so many steps. */
#define FORECAST_STEPS_ERROR 0.1

/* Returns how often the evaluation program runs per split: eval_iters * batch_size samples in
 * batches of eval_batch_size.  Returns 0 with eval_iters = 0, when the size of the split decides.
 */
int64_t evaluation_runs(const struct config *config, const struct model *model);

/* Models the run: each op takes the longer of its FLOPs and its bytes, at the session's rates.
 * `iter` is the first iteration; an evaluation runs the evaluation program `evaluation_runs` times.
 * Needs session_peak_measure(). */
void forecast_model(const struct session *session, int64_t iter, int64_t evaluation_runs,
                    struct forecast *out);
/* If config->hours is set, sets the numbers of updates and evaluations to what the run can do in
 * that time. */
void forecast_hours_set(struct forecast *forecast, const struct config *config);
/* Adds a measured step (or evaluation).  The first step replaces the model, later ones update a
 * moving average. */
void forecast_step_measured(struct forecast *forecast, double seconds);
void forecast_evaluation_measured(struct forecast *forecast, double seconds);
/* Returns how many evaluations a run from `iter` on does. */
int64_t forecast_evaluations(const struct config *config, int64_t iter);
/* Returns true only after the step that completes the comparison of model and measurement. */
bool forecast_is_tested(const struct forecast *forecast);
/* Returns the seconds of a measured step in that comparison. */
double forecast_tested_mean(const struct forecast *forecast);
/* Logs one line with both times if the model was off by more than its uncertainty, or if other
 * programs used the processors for that share of the time. */
void forecast_test_log(const struct forecast *forecast, double disturbed);
/* Logs one line: the time left, the end of the run, and the steps and evaluations.  Logs nothing if
 * none are left. */
void forecast_log(const struct forecast *forecast);

#endif
