/* Tests of forecast.c: the number of evaluations in a run, measurements that replace the model, and
 * the model on a real session. */
#include <math.h>
#include <string.h>

#include "plan/plan_report.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"
#include "train/feed.h"
#include "train/forecast.h"

/* Counts by the loop's own rule: an evaluation where the iteration is a multiple of the interval;
 * when only the best is saved, also one at the end, unless the last iteration began with one. */
static int64_t evaluations_counted(int64_t from, int64_t last, int64_t interval, bool always)
{
    int64_t count = !always && from <= last && last % interval != 0;
    for (int64_t iter = from; iter <= last; iter++)
        count += iter % interval == 0;
    return count;
}

TEST(evaluations_are_counted)
{
    for (int64_t interval = 1; interval < 9; interval++) {
        for (int64_t last = 0; last < 30; last++) {
            for (int64_t from = 0; from <= last + 1; from++) {
                for (int always = 0; always < 2; always++) {
                    struct config config = {.max_iters = last,
                                            .eval_interval = interval,
                                            .always_save_checkpoint = always};
                    ck_assert_int_eq(forecast_evaluations(&config, from),
                                     evaluations_counted(from, last, interval, always));
                }
            }
        }
    }
    struct config only = {.max_iters = 100, .eval_interval = 10, .eval_only = true};
    ck_assert_int_eq(forecast_evaluations(&only, 0), 1);
}

TEST(measurements_replace_the_model)
{
    struct forecast forecast = {
        .step_seconds = 100.0, .evaluation_seconds = 50.0, .steps = 10, .evaluations = 2};
    ck_assert(forecast_seconds_left(&forecast) == 1100.0);
    forecast_step_measured(&forecast, 2.0);
    ck_assert(forecast.measured);
    ck_assert(forecast.step_seconds == 2.0);
    ck_assert_int_eq(forecast.steps, 9);
    for (int i = 0; i < 100; i++)
        forecast_step_measured(&forecast, 4.0);
    ck_assert(fabs(forecast.step_seconds - 4.0) < 1e-3);
    ck_assert_int_eq(forecast.steps, 0);
    forecast_evaluation_measured(&forecast, 3.0);
    ck_assert(forecast_seconds_left(&forecast) == 3.0);
    forecast_evaluation_measured(&forecast, 3.0);
    forecast_evaluation_measured(&forecast, 3.0);
    ck_assert(forecast_seconds_left(&forecast) == 0.0);
}

TEST(the_line_says_what_it_is)
{
    struct log_capture capture;
    struct forecast forecast = {.step_seconds = 0.5,
                                .evaluation_seconds = 10.0,
                                .steps = 100,
                                .evaluations = 5,
                                .uncertainty = 4.0};
    log_capture_begin(&capture);
    forecast_log(&forecast);
    ck_assert_int_eq(capture.lines, 1);
    forecast.disturbed = true;
    forecast_log(&forecast);
    ck_assert_ptr_nonnull(strstr(
        capture.text,
        "estimate: 1 min 40 s within a factor of 4, as other programs use this machine, until "));
    forecast.disturbed = false;
    capture.lines = 0;
    forecast_log(&forecast);
    ck_assert_int_eq(capture.lines, 1);
    ck_assert_ptr_nonnull(
        strstr(capture.text, "estimate: 1 min 40 s within a factor of 4, until "));
    ck_assert_ptr_nonnull(strstr(capture.text, " (100 steps of 500 ms, 5 evaluations of 10.0 s)"));
    struct forecast last = {.measured = true,
                            .uncertainty = 0.1,
                            .step_seconds = 2.0,
                            .evaluation_seconds = 1.0,
                            .steps = 1};
    forecast_log(&last);
    ck_assert_ptr_nonnull(strstr(capture.text, "time left: 2.0 s +-10 %, until "));
    ck_assert_ptr_nonnull(strstr(capture.text, " (1 step of 2.0 s)"));
    last.steps = 0;
    last.evaluations = 1;
    forecast_log(&last);
    ck_assert_ptr_nonnull(strstr(capture.text, " (1 evaluation of 1.0 s)"));
    last.evaluations = 0;
    forecast_log(&last);
    ck_assert_int_eq(capture.lines, 3); /* with nothing left, nothing is logged */
    log_capture_end();
}

/* The model is compared with the mean of steps 2 to 10, once; never without a modelled time. */
TEST(the_model_is_tested_once)
{
    struct log_capture capture;
    struct forecast forecast = {.modelled_seconds = 3.0, .step_seconds = 3.0, .steps = 100},
                    blind = {.steps = 100};
    int tested = 0;
    for (int step = 1; step <= 30; step++) {
        forecast_step_measured(&forecast, step == 1 ? 100.0 : 2.0);
        forecast_step_measured(&blind, 2.0);
        ck_assert(!forecast_is_tested(&blind));
        ck_assert_int_eq(forecast_is_tested(&forecast), step == FORECAST_TEST_STEPS);
        ck_assert(forecast.uncertainty == (step < FORECAST_TEST_STEPS ? 0.2 : 0.1));
        tested += forecast_is_tested(&forecast);
        if (!forecast_is_tested(&forecast))
            continue;
        log_capture_begin(&capture);
        forecast_test_log(&forecast, 0.0);
        ck_assert_int_eq(capture.lines, 1);
        ck_assert_ptr_nonnull(strstr(capture.text, "steps take 2.0 s; 3.0 s was estimated"));
        forecast.modelled_seconds = 2.4; /* near enough */
        forecast_test_log(&forecast, 0.05);
        ck_assert_int_eq(capture.lines, 1);
        forecast_test_log(&forecast, 0.3);
        ck_assert_ptr_nonnull(
            strstr(capture.text,
                   "other programs held this machine's processors for "
                   "30 % of the time: steps take 2.0 s; the estimate without them was 2.4 s"));
        log_capture_end();
    }
    ck_assert_int_eq(tested, 1);
}

/* One step says as much of the next ones as timed ops agree with it, or as other programs leave
 * them. */
TEST(the_first_step_has_its_uncertainty)
{
    static const struct {
        double modelled, uncertainty;
        bool disturbed;
        double expected;
    } cases[] = {
        {2.0, 0.2, false, 0.2},  {1.25, 0.2, false, 0.6}, {0.25, 0.2, false, 8.0},
        {16.0, 0.2, false, 8.0}, {0.25, 4.0, false, 0.2}, {2.0, 12.0, true, 12.0},
        {0.1, 12.0, true, 20.0}, {0.0, 0.2, false, 0.2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct forecast forecast = {.modelled_seconds = cases[i].modelled,
                                    .uncertainty = cases[i].uncertainty,
                                    .model_uncertainty = cases[i].uncertainty,
                                    .disturbed = cases[i].disturbed,
                                    .steps = 100};
        forecast_step_measured(&forecast, 2.0);
        ck_assert_msg(fabs(forecast.uncertainty - cases[i].expected) < 1e-9, "case %zu: %g", i,
                      forecast.uncertainty);
        ck_assert_int_eq(forecast.disturbed, cases[i].disturbed);
        for (int step = 2; step <= FORECAST_TEST_STEPS; step++)
            forecast_step_measured(&forecast, 2.0);
        ck_assert(forecast.uncertainty == FORECAST_STEPS_ERROR && !forecast.disturbed);
    }
}

TEST(runs_of_the_evaluation_program)
{
    struct model model = {.options = {.choice.evaluate_batch = 4}};
    struct config config = {.eval_iters = 5, .batch_size = 3};
    ck_assert_int_eq(evaluation_runs(&config, &model), 4); /* 15 samples */
    config.eval_iters = 0;
    ck_assert_int_eq(evaluation_runs(&config, &model), 0);
}
