/* What a run writes besides its log: the start lines of metrics.jsonl, and report.html.
 *
 * The start lines say what runs, where, how it is configured, what its memory holds, and how long
 * it should take. gpt-report reads them, and so does --report.  Values are those of this process.
 * Keys are written as Python literals, and only those that differ from the defaults and that a
 * checkpoint keeps.
 */
#include "train/run_metrics.h"

#include <config.h>

#include "base/clock.h"
#include "base/size.h"
#include "config/config_key.h"
#include "model/parameters.h"
#include "plan/plan_alternatives.h"
#include "report/report_page.h"
#include "report/run_record.h"

#define REPORT_NAME "report.html"
#define REPORT_REFRESH_S 30

static struct json_put *line_begin(struct trainer *t, const char *start)
{
    return metrics_line(&t->metrics, max_i64(t->runner.run.state.iter - 1, 0), start);
}

static void run_write(struct trainer *t)
{
    const struct session *session = &t->runner.run.session;
    json_put(
        line_begin(t, "run"),
        "time:f version:s dtype:s parameters:i tokens:i max_iters:i dataset:s device:s detail:s",
        clock_wall_seconds(), PACKAGE_VERSION, dtype_name(session->device.dtype),
        model_parameter_count_no_positions(&session->model->options.config),
        t->runner.run.state.samples_seen * t->runner.run.config->block_size,
        run_length_is_known(&t->runner.run) ? t->runner.run.config->max_iters : -1,
        t->runner.run.config->dataset, session->device.info.device, session->device.info.detail);
    (void)metrics_line_write(&t->metrics);
}

/* Writes as many lines as the keys need. */
static void keys_write(struct trainer *t)
{
    struct config defaults;
    struct json_put *line = NULL; /* that has begun */
    config_defaults(&defaults, CONFIG_TRAIN);
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const struct config_key_info *info = config_key_info_get((enum config_key)key);
        const char *value = CONFIG_KEY_TEXT(t->runner.run.config, (enum config_key)key);
        if ((info->flags & CONFIG_INVOCATION) != 0 || (info->programs & CONFIG_TRAIN) == 0 ||
            strcmp(value, CONFIG_KEY_TEXT(&defaults, (enum config_key)key)) == 0 ||
            (key == CONFIG_KEY_max_iters && !run_length_is_known(&t->runner.run)))
            continue;
        if (line == NULL)
            json_put(line = line_begin(t, "keys"), "keys:{");
        json_put(line, TEXT(64, "%s:s", info->name), value);
        if (line->out != NULL && ftell(line->out) > METRICS_LINE_MAX - METRICS_TEXT_MAX - 64) {
            (void)metrics_line_write(&t->metrics);
            line = NULL;
        }
    }
    if (line != NULL)
        (void)metrics_line_write(&t->metrics);
}

static void plan_write(struct trainer *t)
{
    const struct plan *plan = t->runner.run.session.plan;
    struct json_put *line = line_begin(t, "plan");
    char options[SEARCH_OPTIONS_TEXT_MAX];
    json_put(line, "planned_bytes:u categories:{", plan_requested_bytes(plan));
    for (int c = 0; c < CATEGORY_COUNT; c++)
        json_put(line, TEXT(64, "%s:u", tensor_category_name((enum tensor_category)c)),
                 plan->category_bytes[c]);
    json_put(line, "} options:s",
             search_options_text(options, &t->runner.run.session.model->options));
    (void)metrics_line_write(&t->metrics);
}

void run_metrics_report(struct trainer *t, bool goes_on)
{
    if (t->report && run_record_update(t->report) == GT_OK)
        (void)report_page_write(t->report, 1, goes_on ? REPORT_REFRESH_S : 0,
                                FILE_IN(t->runner.run.config->out_dir, REPORT_NAME));
}

enum gt_status run_metrics_start(struct trainer *t)
{
    const struct forecast *forecast = &t->runner.forecast;
    run_write(t);
    keys_write(t);
    plan_write(t);
    json_put(line_begin(t, "forecast"),
             "step_s:f steps:i evaluation_s:f evaluations:i tokens_per_s:f uncertainty:f",
             forecast->step_seconds, forecast->steps, forecast->evaluation_seconds,
             forecast->evaluations,
             forecast->step_seconds > 0.0
                 ? run_tokens_per_update(t->runner.run.config) / forecast->step_seconds
                 : 0.0,
             forecast->uncertainty);
    (void)metrics_line_write(&t->metrics);
    if (!t->runner.run.config->report)
        return GT_OK;
    TRY(HOSTMEM_NEW(t->runner.run.mem, 1, "report", &t->report));
    return run_record_open(t->report, t->runner.run.config->out_dir, t->runner.run.config->out_dir);
}
