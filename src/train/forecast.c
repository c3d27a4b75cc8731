/* The forecast of a run's duration.
 *
 * It is modelled from the ops' declared FLOPs and bytes until the first step is measured, and is a
 * moving average from then on.  A modelled time is called an estimate wherever it is printed.
 */
#include "train/forecast.h"

#include <math.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "config/config_check.h"
#include "model/model_create.h"
#include "plan/plan_report.h"

#define AVERAGE_WEIGHT 0.1
#define NOTED_ERROR 0.2 /* of the model; a larger one is logged */
#define STEP_ERROR 0.2  /* of the first step */
#define SECONDS_SAME_DAY 43200.0

int64_t forecast_evaluations(const struct config *config, int64_t iter)
{
    if (config->eval_only)
        return 1;
    int64_t last = config->max_iters / config->eval_interval;
    int64_t before = iter > 0 ? (iter - 1) / config->eval_interval + 1 : 0;
    int64_t at_end = !config->always_save_checkpoint && iter <= config->max_iters &&
                     config->max_iters % config->eval_interval != 0;
    return at_end + (last + 1 > before ? last + 1 - before : 0);
}

int64_t evaluation_runs(const struct config *config, const struct model *model)
{
    return size_ceil_div(config->eval_iters * config->batch_size,
                         model->options.choice.evaluate_batch);
}

/* Returns the bytes that this rank sends in an update: gradients in each round of parts, then new
 * weights. */
static double exchange_bytes(const struct model *model)
{
    const struct graph *graph = model->graph;
    double bytes = 0.0;
    for (int32_t p = 0; p < graph->program_count; p++) {
        const double runs = model_runs(&model->options, graph->programs[p].kind);
        for (int32_t i = 0; i < graph->programs[p].count; i++) {
            const struct op *op = &graph->programs[p].ops[i];
            if (op->kind == OP_EXCHANGE && op->operand[EXCHANGE_X] != TENSOR_NONE)
                bytes += runs * (double)graph_tensor_bytes(graph, op->operand[EXCHANGE_X]);
        }
    }
    return bytes;
}

void forecast_model(const struct session *session, int64_t iter, int64_t evaluation_runs,
                    struct forecast *out)
{
    const struct config *config = session->config;
    const struct model *model = session->model;
    const struct plan_rates *rates = &session->timing.rates;
    struct plan_rates no_link = *rates;
    plan_rates_link_set(&no_link, INFINITY, rates->copy_engines);
    *out =
        (struct forecast){.step_seconds = measure_update_seconds(model, rates, plan_cost_seconds)};
    out->offload_seconds =
        out->step_seconds - measure_update_seconds(model, &no_link, plan_cost_seconds);
    if (model->decode.program >= 0)
        out->token_seconds = plan_cost_seconds(model->graph, model->decode.program, rates);
    out->alone_seconds = (double)config->ranks * out->step_seconds;
    out->exchange_bytes = exchange_bytes(model);
    const double rate =
        session->timing.ranks_rate > 0.0 ? session->timing.ranks_rate : config_link(config->link);
    out->exchange_seconds = config->ranks > 1 && rate > 0.0 ? out->exchange_bytes / rate : 0.0;
    out->step_seconds += out->exchange_seconds;
    out->modelled_seconds = out->step_seconds;
    out->uncertainty = out->model_uncertainty = rates->uncertainty;
    out->disturbed = rates->disturbed;
    out->evaluation_seconds = (double)size_ceil_div(evaluation_runs, config->ranks) *
                              plan_cost_seconds(model->graph, model->evaluate.program, rates);
    out->steps = config->eval_only ? 0 : max_i64(config->max_iters + 1 - iter, 0);
    out->evaluations = forecast_evaluations(config, iter);
}

void forecast_hours_set(struct forecast *forecast, const struct config *config)
{
    if (!(config->hours > 0.0 && forecast->step_seconds > 0.0))
        return;
    forecast->steps = (int64_t)(config->hours * 3600.0 / forecast->step_seconds);
    forecast->evaluations = forecast->steps / config->eval_interval + 1;
}

/* Returns the error to expect of the first steps' time.  If timed ops predict another time, either
 * may be right.  If other programs disturbed those timings, they disturb steps as much. */
static double first_steps_error(const struct forecast *forecast)
{
    const double ratio = forecast->modelled_seconds > 0.0
                             ? forecast->step_seconds / forecast->modelled_seconds
                             : 1.0;
    const bool timed =
        forecast->model_uncertainty > 0.0 && forecast->model_uncertainty <= PLAN_TIMED_UNCERTAINTY;
    const double error = forecast->disturbed ? forecast->model_uncertainty : STEP_ERROR;
    return timed || forecast->disturbed ? fmax(error, plan_uncertainty_of(fmax(ratio, 1.0 / ratio)))
                                        : error;
}

void forecast_step_measured(struct forecast *forecast, double seconds)
{
    forecast->step_seconds =
        forecast->measured
            ? forecast->step_seconds + AVERAGE_WEIGHT * (seconds - forecast->step_seconds)
            : seconds;
    /* The first step warms up the caches. */
    if (forecast->measured && forecast->tested_steps < FORECAST_TEST_STEPS)
        forecast->tested_seconds += seconds;
    forecast->tested_steps += forecast->tested_steps <= FORECAST_TEST_STEPS;
    forecast->measured = true;
    forecast->uncertainty = forecast->tested_steps < FORECAST_TEST_STEPS
                                ? first_steps_error(forecast)
                                : FORECAST_STEPS_ERROR;
    forecast->disturbed = forecast->disturbed && forecast->tested_steps < FORECAST_TEST_STEPS;
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

double forecast_tested_mean(const struct forecast *forecast)
{
    return forecast->tested_seconds / (FORECAST_TEST_STEPS - 1);
}

void forecast_test_log(const struct forecast *forecast, double disturbed)
{
    const double mean = forecast_tested_mean(forecast);
    if (disturbed >= CONTENTION_DISTURBED)
        log_result(
            "other programs held this machine's processors for %.0f %% of the time: steps take %s; the estimate "
            "without them was %s",
            100.0 * disturbed, CLOCK_DURATION(mean), CLOCK_DURATION(forecast->modelled_seconds));
    else if (fabs(mean / forecast->modelled_seconds - 1.0) > NOTED_ERROR)
        log_result("steps take %s; %s was estimated", CLOCK_DURATION(mean),
                   CLOCK_DURATION(forecast->modelled_seconds));
}

void forecast_log(const struct forecast *forecast)
{
    char bounds[PLAN_UNCERTAINTY_MAX], end[32];
    const double seconds = forecast_seconds_left(forecast);
    if (forecast->steps <= 0 && forecast->evaluations <= 0)
        return;
    const char *step = CLOCK_DURATION(forecast->step_seconds),
               *each = CLOCK_DURATION(forecast->evaluation_seconds);
    const char *steps = TEXT(64, "%" PRId64 " step%s of %s", forecast->steps,
                             forecast->steps == 1 ? "" : "s", step);
    const char *evaluations =
        TEXT(64, "%s%" PRId64 " evaluation%s of %s", forecast->steps > 0 ? ", " : "",
             forecast->evaluations, forecast->evaluations == 1 ? "" : "s", each);
    clock_wall_text(end, forecast_end(forecast, (int64_t)clock_wall_seconds()));
    const char *hour =
        seconds < SECONDS_SAME_DAY ? strrchr(end, ' ') : NULL; /* the date is obvious */
    log_result("%s: %s %s, until %s (%s%s)", forecast->measured ? "time left" : "estimate",
               CLOCK_DURATION(seconds),
               plan_uncertainty_text(bounds, forecast->uncertainty, forecast->disturbed),
               hour != NULL ? hour + 1 : end, forecast->steps > 0 ? steps : "",
               forecast->evaluations > 0 ? evaluations : "");
}
