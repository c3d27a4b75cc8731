/* The answers to --plan, --print_program and --explain_oom.
 *
 * An answer needs no data, writes no file and allocates no arena; only the rate of products is
 * timed, unless a profile stands for the device.
 */
#include "answer/answer.h"

#include "answer/explain_oom.h"
#include "base/clock.h"
#include "plan/plan_json.h"
#include "plan/plan_report.h"
#include "plan/plan_svg.h"
#include "session/report_block.h"
#include "session/session_rates.h"
#include "session/session_start.h"
#include "train/forecast.h"
#include "train/metrics.h"
#include "train/schedule.h"

enum gt_status answer_open(struct run *run, struct hostmem *mem, struct config *config)
{
    TRY(run_resolve(run, mem, config, false));
    if (run_length_is_known(run))
        schedule_check(config, run->state.iter);
    if (config->explain_oom[0] != '\0')
        TRY(explain_oom(config, &run->model));
    TRY(run_open(run));
    return run_plan(run);
}

/* Replaces the modelled time of a step by that of the run's last steps, if they had this plan on
 * this device. */
static void forecast_recall(const struct run *run, struct forecast *forecast)
{
    const struct config *config = run->config;
    const struct plan_choice *planned = &run->session.model->options.choice;
    const bool same = run->source.in_place && config->device_profile[0] == '\0' &&
                      plan_choice_equal(planned, &run->state.saved.plan);
    const double rate = same ? metrics_rate_recent(config->out_dir) : 0.0;
    if (rate <= 0.0)
        return;
    forecast->step_seconds = run_tokens_per_update(config) / rate;
    forecast->measured = true;
    forecast->uncertainty = FORECAST_STEPS_ERROR;
}

enum gt_status answer_make(struct run *run, struct plan_answer *out)
{
    struct session *session = &run->session;
    struct forecast forecast;
    TRY(run_watch(run));
    TRY(session_peak_measure(session));
    const int64_t evaluations =
        2 * run->mixture.count * evaluation_runs(run->config, session->model);
    forecast_model(session, run->state.iter, evaluations, &forecast);
    if (!run_length_is_known(run))
        forecast_hours_set(&forecast, run->config);
    forecast_recall(run, &forecast);
    forecast.now_wall_s = (int64_t)clock_wall_seconds();
    return plan_answer_make(session, &forecast, out);
}

void answer_close(struct run *run, enum gt_status status)
{
    report_block_print(run->config, &run->session, status);
    hostmem_phase_set(run->mem, HOSTMEM_CLOSE);
    run_close(run);
}

static enum gt_status plan_print(const struct session *session,
                                 const struct plan_report_facts *facts)
{
    switch (session->config->plan) {
    case CONFIG_PLAN_JSON:
    case CONFIG_PLAN_JSON_PARETO:
        return plan_print_json(session->plan, facts, stdout);
    case CONFIG_PLAN_SVG:
        return plan_print_svg(session->mem, session->plan, facts, stdout);
    default:
        plan_print_text(session->plan, facts, stdout);
        return GT_OK;
    }
}

/* Prints how to get the weights of a model that was planned without them: below the plan, or in the
 * log if a program reads the plan. */
static void download_print(const struct run *run)
{
    const char *command = TEXT(256, "hf download %s --exclude 'original/*'", run->source.download);
    if (run->config->plan == CONFIG_PLAN_TEXT)
        printf("\nTo download the model: %s\n", command);
    else
        log_note("to download the model: %s", command);
}

static void program_print(const struct graph *graph)
{
    for (int32_t p = 0; p < graph->program_count; p++)
        graph_print(graph, p, stdout);
}

static enum gt_status answer_print(struct run *run)
{
    struct plan_answer answer;
    if (run->config->print_program) {
        program_print(run->session.model->graph);
        return GT_OK;
    }
    TRY(answer_make(run, &answer));
    TRY(plan_print(&run->session, &answer.facts));
    if (run->source.download != NULL)
        download_print(run);
    return session_fit_check(&run->session);
}

enum gt_status answer_run(struct hostmem *mem, struct config *config)
{
    struct run run = {.mem = mem, .config = config};
    enum gt_status status = answer_open(&run, mem, config);
    THEN(status, answer_print(&run));
    answer_close(&run, status);
    return status;
}
