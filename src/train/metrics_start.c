/* The start lines of metrics.jsonl: what runs, where, how it is configured, what its memory holds, how long it should
 * take.
 *
 * Values are those of this process.  Keys are written as Python literals, and only those that differ from the defaults
 * and that a checkpoint keeps.  gpt-report reads these lines, and so does --report, whose page is written here too.
 */
#include "train/run.h"

#include <config.h>

#include "base/clock.h"
#include "config/config_key.h"

#define REPORT_NAME "report.html"
#define REPORT_REFRESH_S 30

static void text_add(struct metrics_line *line, const char *name, const char *text)
{
    metrics_add(line, ",\"%s\":", name);
    metrics_add_text(line, text, strlen(text), METRICS_TEXT_MAX);
}

static void run_write(struct trainer *t)
{
    const struct session *session = &t->session;
    struct metrics_line line;
    metrics_start_begin(&line, t->state.iter, "run");
    metrics_add(&line, ",\"time\":%.3f,\"version\":\"%s\",\"dtype\":\"%s\",\"parameters\":%" PRId64,
                clock_wall_seconds(), PACKAGE_VERSION, dtype_name(session->device.dtype),
                model_parameter_count_no_positions(&session->model->options.config));
    metrics_add(&line, ",\"tokens\":%" PRId64 ",\"max_iters\":%" PRId64, t->state.samples_seen * t->config->block_size,
                t->config->max_iters);
    text_add(&line, "dataset", t->config->dataset);
    text_add(&line, "device", session->device.info.device);
    text_add(&line, "detail", session->device.info.detail);
    (void)metrics_line_write(&t->metrics, &line);
}

static void keys_end(struct trainer *t, struct metrics_line *line)
{
    metrics_add(line, "}");
    (void)metrics_line_write(&t->metrics, line);
    line->used = 0;
}

/* Writes as many lines as the keys need. */
static void keys_write(struct trainer *t)
{
    struct config defaults;
    struct metrics_line line = {.used = 0};
    config_defaults(&defaults, CONFIG_TRAIN);
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const struct config_key_info *info = config_key_info_get((enum config_key)key);
        const char *value = CONFIG_KEY_TEXT(t->config, (enum config_key)key);
        if ((info->flags & CONFIG_INVOCATION) != 0 || (info->programs & CONFIG_TRAIN) == 0 ||
            strcmp(value, CONFIG_KEY_TEXT(&defaults, (enum config_key)key)) == 0)
            continue;
        if (line.used == 0) {
            metrics_start_begin(&line, t->state.iter, "keys");
            metrics_add(&line, ",\"keys\":{");
        } else {
            metrics_add(&line, ",");
        }
        metrics_add(&line, "\"%s\":", info->name);
        metrics_add_text(&line, value, strlen(value), METRICS_TEXT_MAX);
        if (line.used > METRICS_LINE_MAX - METRICS_TEXT_MAX - 64)
            keys_end(t, &line);
    }
    if (line.used > 0)
        keys_end(t, &line);
}

static void plan_write(struct trainer *t)
{
    const struct plan *plan = t->session.plan;
    struct metrics_line line;
    char options[SEARCH_OPTIONS_TEXT_MAX];
    metrics_start_begin(&line, t->state.iter, "plan");
    metrics_add(&line, ",\"planned_bytes\":%" PRIu64 ",\"categories\":{", plan_asked_bytes(plan));
    for (int c = 0; c < CATEGORY_COUNT; c++)
        metrics_add(&line, "%s\"%s\":%" PRIu64, c > 0 ? "," : "", tensor_category_name((enum tensor_category)c),
                    plan->category_bytes[c]);
    metrics_add(&line, "}");
    text_add(&line, "options", search_options_text(options, &t->session.model->options));
    (void)metrics_line_write(&t->metrics, &line);
}

void run_report_write(struct trainer *t, bool goes_on)
{
    if (t->report && run_record_update(t->report) == GT_OK)
        (void)report_page_write(t->report, 1, goes_on ? REPORT_REFRESH_S : 0, FILE_IN(t->config->out_dir, REPORT_NAME));
}

void run_metrics_start(struct trainer *t)
{
    const struct forecast *forecast = &t->forecast;
    struct metrics_line line;
    run_write(t);
    keys_write(t);
    plan_write(t);
    metrics_start_begin(&line, t->state.iter, "forecast");
    metrics_add(&line, ",\"step_s\":%.6g,\"steps\":%" PRId64 ",\"evaluation_s\":%.6g,\"evaluations\":%" PRId64,
                forecast->step_seconds, forecast->steps, forecast->evaluation_seconds, forecast->evaluations);
    metrics_add(&line, ",\"tokens_per_s\":%.6g,\"uncertainty\":%.3g",
                forecast->step_seconds > 0.0 ? run_tokens_per_update(t) / forecast->step_seconds : 0.0,
                forecast->uncertainty);
    (void)metrics_line_write(&t->metrics, &line);
}
