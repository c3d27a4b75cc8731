/* The forecast of a run's duration.
 *
 * Modelled from the ops' declared FLOPs and bytes until the first step was measured; then a moving average.  What is
 * modelled is called so wherever it is printed.
 */
#include "train/forecast.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "plan/plan_cost.h"
#include "train/evaluate.h"

#define AVERAGE_WEIGHT 0.1
#define SECONDS_MAX 1e15 /* beyond, the end is not a date */

static double program_seconds(const struct session *session, int32_t program)
{
    return plan_cost_seconds(session->model->graph, program, &session->rates);
}

void forecast_evaluation_runs(const struct session *session, int64_t runs, struct forecast *forecast)
{
    forecast->evaluation_seconds = (double)runs * program_seconds(session, session->model->evaluate.program);
}

int64_t forecast_evaluations(const struct config *config, int64_t iter)
{
    if (config->eval_only)
        return 1;
    int64_t last = config->max_iters / config->eval_interval;
    int64_t before = iter > 0 ? (iter - 1) / config->eval_interval + 1 : 0;
    return last + 1 > before ? last + 1 - before : 0;
}

void forecast_model(const struct session *session, int64_t iter, struct forecast *out)
{
    const struct config *config = session->config;
    const struct model *model = session->model;
    int32_t remainder = model->options.remainder_batch > 0;
    *out = (struct forecast){0};
    out->step_seconds =
        program_seconds(session, model->train_first.program) +
        (model->options.micro_steps - 1 - remainder) * program_seconds(session, model->train_next.program) +
        program_seconds(session, model->train_remainder.program) + program_seconds(session, model->update.program);
    out->modelled_seconds = out->step_seconds;
    forecast_evaluation_runs(session, 2 * evaluation_runs(config, model), out);
    out->steps = config->eval_only ? 0 : config->max_iters + 1 - iter;
    out->steps = out->steps > 0 ? out->steps : 0;
    out->evaluations = forecast_evaluations(config, iter);
}

void forecast_step_measured(struct forecast *forecast, double seconds)
{
    forecast->step_seconds =
        forecast->measured ? forecast->step_seconds + AVERAGE_WEIGHT * (seconds - forecast->step_seconds) : seconds;
    /* The very first step warms caches up. */
    if (forecast->measured && forecast->tested_steps < FORECAST_TEST_STEPS)
        forecast->tested_seconds += seconds;
    forecast->tested_steps += forecast->tested_steps <= FORECAST_TEST_STEPS;
    forecast->measured = true;
    forecast->steps -= forecast->steps > 0;
}

void forecast_evaluation_measured(struct forecast *forecast, double seconds)
{
    forecast->evaluation_seconds = seconds;
    forecast->evaluations -= forecast->evaluations > 0;
}

bool forecast_is_tested(const struct forecast *forecast)
{
    return forecast->tested_steps == FORECAST_TEST_STEPS && forecast->modelled_seconds > 0.0;
}

void forecast_test_log(const struct forecast *forecast)
{
    char modelled[32], measured[32];
    double mean = forecast->tested_seconds / (FORECAST_TEST_STEPS - 1);
    log_result("forecast: modelled %s per step, measured %s (mean of steps 2 to %d): the model was %+.0f %% off",
               clock_duration(modelled, forecast->modelled_seconds), clock_duration(measured, mean),
               FORECAST_TEST_STEPS, 100.0 * (forecast->modelled_seconds / mean - 1.0));
}

double forecast_seconds_left(const struct forecast *forecast)
{
    return forecast->step_seconds * (double)forecast->steps +
           forecast->evaluation_seconds * (double)forecast->evaluations;
}

void forecast_log(const struct forecast *forecast)
{
    char step[32], evaluation[32], total[32], end[32];
    double seconds = forecast_seconds_left(forecast);
    double evaluations = forecast->evaluation_seconds * (double)forecast->evaluations;
    log_result("forecast (%s): %s per step x %" PRId64 ", %s per evaluation x %" PRId64 " (%.0f %% of the time), %s in "
               "all, ends %s",
               forecast->measured ? "measured" : "modelled", clock_duration(step, forecast->step_seconds),
               forecast->steps, clock_duration(evaluation, forecast->evaluation_seconds), forecast->evaluations,
               seconds > 0 ? 100.0 * evaluations / seconds : 0.0, clock_duration(total, seconds),
               clock_wall_text(end, clock_wall_s() + (int64_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX)));
}
