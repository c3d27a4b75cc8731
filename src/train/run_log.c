/* The lines that a run prints: at its start, for each iteration, at its end.
 *
 * Scripts parse the lines that begin with `iter` and `step`, so their format must not change.
 *
 * The start lines of metrics.jsonl are here too: what runs, where, how it is configured, what its memory holds, how
 * long it should take.  gpt-report reads them, and so does --report.  Values are those of this process.  Keys are
 * written as Python literals, and only those that differ from the defaults and that a checkpoint keeps.
 */
#include "train/run.h"

#include <config.h>
#include <math.h>
#include <sys/utsname.h>

#include "backend/backend_call.h"
#include "backend/backend_holders.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "config/config_key.h"
#include "model/parameters.h"
#include "report/report_page.h"
#include "report/run_record.h"

#define REPORT_NAME "report.html"
#define REPORT_REFRESH_S 30
#define LONG_SECONDS (31.0 * 86400.0) /* a month; longer runs get advice */

double run_tokens_per_update(const struct trainer *t)
{
    const struct config *config = t->config;
    return (double)(config->batch_size * config->gradient_accumulation_steps * config->block_size);
}

char *run_log_kept(char text[static KEPT_TEXT_MAX], const struct trainer *t)
{
    const int64_t kept = t->saved_iter < 0 && t->source.own ? t->first_iter : t->saved_iter;
    if (kept < 0)
        snprintf(text, KEPT_TEXT_MAX, "this run has saved no checkpoint");
    else
        snprintf(text, KEPT_TEXT_MAX, "the checkpoint of iter %" PRId64 " stays in %s", kept, t->config->out_dir);
    return text;
}

void run_log_skipped(const struct trainer *t, int64_t iter)
{
    if (!isfinite(t->loss))
        log_warning("iter %" PRId64 ": the loss is not finite (%g); this update is skipped", iter, t->loss);
    else if (t->state.loss_scaler.dynamic)
        log_note("iter %" PRId64 ": the gradient overflows float16 at loss scale %g (loss %g); this update is skipped, "
                 "and the scale lowered to %g",
                 iter, t->loss_scale, t->loss, t->state.loss_scaler.scale);
    else
        log_warning("iter %" PRId64 ": the gradient is not finite (loss %g); this update is skipped", iter, t->loss);
}

void run_log_targetless(struct trainer *t)
{
    if (t->targetless++ > 0)
        return;
    progress_clear(&t->progress);
    log_warning("iter %" PRId64
                ": no target of its samples counts, because their rows hold no answers; such updates are "
                "left out (gpt-prepare makes data without such rows)",
                t->state.iter);
}

void run_log_iteration(struct trainer *t, const struct step_result *result)
{
    double rate = run_tokens_per_update(t) / t->step_seconds;
    const double achieved = rate * model_flops_per_token(&t->session.model->options.config);
    double *peak = &t->session.timing.peak_flops;
    if (*peak > 0.0 && achieved > *peak)
        *peak = achieved; /* it was timed in a slower moment */
    const double mfu = *peak > 0.0 ? achieved / (*peak * (double)t->config->ranks) : -1.0;
    if (result->iter % t->config->log_interval == 0) {
        struct json_put *line = metrics_line(&t->metrics, result->iter, NULL);
        json_put(line, "loss:f lr:f grad_norm:f time_ms:f tokens_per_s:f mfu:f skipped:i", t->loss,
                 result->learning_rate, (double)t->session.scalars[SCALAR_GRAD_NORM].f, 1e3 * t->step_seconds, rate,
                 mfu, t->state.skipped);
        if (t->state.loss_scaler.dynamic)
            json_put(line, "loss_scale:f", t->loss_scale);
        if (t->feed.parts[0].source[TOKEN_TRAIN]->row > 0)
            json_put(line, "trained_tokens:i", (int64_t)result->targets);
        json_put(line, "planned_bytes:u allocated_bytes:u tokens:i time:f", plan_asked_bytes(t->session.plan),
                 t->session.device.record.arena_bytes, result->tokens, clock_wall_seconds());
        progress_clear(&t->progress);
        log_result("iter %" PRId64 ": loss %.4f, time %.2fms, mfu %.2f%%", result->iter, t->loss, 1e3 * t->step_seconds,
                   100.0 * mfu);
        (void)metrics_line_write(&t->metrics);
    }
    progress_show(&t->progress, "train", result->iter + 1, t->config->max_iters + 1,
                  TEXT(64, "loss %.4f  %.0f tok/s", t->loss, rate), forecast_seconds_left(&t->forecast));
}

void run_log_forecast(struct trainer *t)
{
    forecast_log(&t->forecast);
    if (t->advised || forecast_seconds_left(&t->forecast) < LONG_SECONDS)
        return;
    log_note("this takes more than a month; what takes less: a smaller model (n_layer, n_embd), fewer iterations "
             "(max_iters), fewer tokens per update (batch_size, gradient_accumulation_steps)");
    t->advised = true;
}

void run_log_memory(struct trainer *t)
{
    log_result("memory: %s planned, %s allocated (process %s); nothing more will be allocated",
               LOG_BYTES(plan_asked_bytes(t->session.plan)), LOG_BYTES(t->session.device.record.arena_bytes),
               LOG_BYTES(process_rss_bytes()));
    run_log_forecast(t);
}

void run_log_profile(const struct trainer *t)
{
    struct exec_timing timing;
    double total = 0.0;
    exec_timing_get(t->session.exec, &timing);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        total += timing.seconds[kind];
    log_result("%-20s %10s %10s %7s %10s %8s", "op", "runs", "seconds", "share", "GFLOP/s", "GB/s");
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        double seconds = timing.seconds[kind];
        if (timing.runs[kind] == 0 || seconds <= 0.0)
            continue;
        log_result("%-20s %10" PRIu64 " %10.3f %5.1f %% %10.1f %8.1f", op_declaration((enum op_kind)kind)->name,
                   timing.runs[kind], seconds, 100.0 * seconds / total, timing.flops[kind] / seconds / 1e9,
                   timing.bytes[kind] / seconds / 1e9);
    }
    if (timing.whole_seconds > 0.0)
        log_result("programs as they are replayed: %.3f s, the sum of their ops %.3f s, gaps %.1f %%",
                   timing.whole_seconds, timing.ops_seconds,
                   100.0 * (timing.whole_seconds - timing.ops_seconds) / timing.whole_seconds);
}

void run_log_use(const struct trainer *t)
{
    const struct plan *plan = t->session.plan;
    struct backend *device = t->session.device.backend;
    struct backend_info info;
    char line[512] = "";
    /* The plan determines these figures before the run, and they are also the most that was ever live at once. */
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        const size_t used = strlen(line);
        if (plan->category_bytes[c] > 0)
            snprintf(line + used, sizeof line - used, "%s%s %s", used > 0 ? ", " : "",
                     tensor_category_name((enum tensor_category)c), LOG_BYTES(plan->category_bytes[c]));
    }
    log_result("memory at the peak (%s): %s", device->ops->name, line);
    if (backend_info(device, &info) == GT_OK)
        log_result("memory of the device (%s): %s of %s are free; other processes: %s", device->ops->name,
                   LOG_BYTES(info.free_bytes), LOG_BYTES(info.total_bytes), BACKEND_HOLDERS_KNOWN(device));
}

#define NOT_BETTER \
    "Nothing was saved: always_save_checkpoint=False, and no evaluation found a lower validation loss than "

/* Logs why out_dir has no model.  A run that goes on from another place competes with the best loss there. */
static void nothing_log(const struct trainer *t, bool stopped)
{
    if (stopped)
        log_result("Nothing was saved.");
    else if (isfinite(t->first_best))
        log_result(NOT_BETTER "%.4f, the best of %s.", t->first_best,
                   t->source.branch ? t->config->out_dir : t->config->init_from);
    else
        log_result(NOT_BETTER "the first.");
}

/* Logs which model the folder contains, and the command that continues from it. */
static void folder_log(const struct trainer *t, bool stopped)
{
    char folder[FILE_PATH_MAX];
    const int64_t held = t->saved_iter < 0 && t->source.own ? t->first_iter : t->saved_iter;
    const int64_t since = t->state.iter - held;
    if (held < 0) {
        nothing_log(t, stopped);
        return;
    }
    log_result("%s holds the model of iteration %" PRId64 ".", t->config->out_dir, held);
    if (since > 0)
        log_result("%" PRId64 " later update%s not kept: always_save_checkpoint=False keeps the best model only.",
                   since, since == 1 ? " is" : "s are");
    log_result("%s --out_dir=%s", stopped ? "Continue: gpt-train --init_from=resume" : "Try it: gpt-sample",
               file_shell_quote(folder, sizeof folder, t->config->out_dir));
}

void run_log_end(const struct trainer *t, bool stopped)
{
    const int64_t updates = t->state.iter - t->first_iter - t->targetless;
    const double lowest = t->state.best_val_loss;
    const char *best = isfinite(lowest) ? TEXT(64, "; best validation loss %.4f", lowest) : "";
    const char *at = isfinite(lowest) && t->lowest_iter >= 0 ? TEXT(48, " at iteration %" PRId64, t->lowest_iter) : "";
    log_result("%s", "");
    log_result("%s: %" PRId64 " update%s in %s%s%s.", stopped ? "Stopped" : "Done", updates, updates == 1 ? "" : "s",
               CLOCK_DURATION((double)(clock_monotonic_ns() - t->start_ns) / 1e9), best, at);
    log_result("Memory: %s planned, %s allocated, process at most %s.", LOG_BYTES(plan_asked_bytes(t->session.plan)),
               LOG_BYTES(t->session.device.record.arena_bytes), LOG_BYTES(process_rss_bytes_max()));
    folder_log(t, stopped);
}

/* Logs the changes that made the configuration fit, or faster, and their cost. */
static void change_log(const struct trainer *t)
{
    const struct search_result *search = &t->session.search.result;
    char text[SEARCH_OPTIONS_TEXT_MAX], time[SEARCH_TIME_TEXT_MAX];
    if (search->candidates <= 1)
        return;
    if (search->request_fits) {
        log_result("plan: changed because it is faster: %s; %s, same samples, same mathematics",
                   search_options_text(text, &search->found.options), search_time_text(time, search));
        return;
    }
    log_result("plan: changed to fit a budget of %s (as configured it needs %s%s): %s; %s, same samples, %s",
               LOG_BYTES(t->session.device.budget_bytes), search->bytes_request_least ? "at least " : "",
               LOG_BYTES(search->bytes_request), search_options_text(text, &search->found.options),
               search_time_text(time, search),
               search->found.options.states == t->session.search.request.options.states
                   ? "same mathematics"
                   : "leaner optimizer states with stochastic rounding");
}

void run_log_plan(const struct trainer *t)
{
    const struct model_options *options = &t->session.model->options;
    const int32_t steps = model_micro_steps(options), block = options->config.block_size;
    const char *arena = LOG_BYTES(t->session.plan->arena_bytes);
    const char *parts = model_parts(options) > 1 ? TEXT(32, ", in %" PRId32 " parts", options->parts) : "";
    char offload[PLAN_OFFLOAD_TEXT_MAX];
    if (!options->train)
        log_result("plan: %s; %" PRId32 " sequence%s of %" PRId32 " tokens at once", arena,
                   options->choice.evaluate_batch, options->choice.evaluate_batch == 1 ? "" : "s",
                   t->session.model->evaluate.time);
    else if (steps == 1)
        log_result("plan: %s; all %" PRId32 " sequence%s of %" PRId32 " tokens in one step", arena,
                   options->choice.micro_batch, options->choice.micro_batch == 1 ? "" : "s", block);
    else
        log_result("plan: %s; %" PRId32 " steps of %s%" PRId32 " sequence%s of %" PRId32 " tokens per update%s", arena,
                   steps, options->choice.remainder_batch > 0 ? "up to " : "", options->choice.micro_batch,
                   options->choice.micro_batch == 1 ? "" : "s", block, parts);
    if (t->session.plan->host_bytes > 0)
        log_result("offload: %s in host memory, the same bits", plan_offload_text(offload, t->session.plan));
    if (options->train && state_format_is_lean(options->states))
        log_result("optimizer states: %s, %.2f bytes per parameter with its gradient, rounded stochastically",
                   state_format_name(options->states), model_bytes_per_parameter(t->session.model));
    if (t->config->ranks > 1)
        log_result("ranks: %" PRId64 ", each with this plan; they exchange gradients through %s", t->config->ranks,
                   t->session.dist->carrier);
    change_log(t);
}

void run_log_start(const struct trainer *t)
{
    const struct model_options *options = &t->session.model->options;
    log_result("number of parameters: %.2fM", (double)model_parameter_count_no_positions(&options->config) / 1e6);
    if (options->config.lora.rank > 0)
        log_result("trained are %.2fM of them, in adapters of rank %" PRId32 " of %s",
                   (double)model_adapter_count(&options->config) / 1e6, options->config.lora.rank, t->source.base);
    log_result("tokens per iteration will be: %.0f", run_tokens_per_update(t));
    log_result("device: %s (%s)", t->session.device.info.device, t->session.device.info.detail);
    for (int i = 0; i < t->mixture.count && t->mixture.count > 1; i++)
        log_result("dataset %.*s: %.4g %% of the samples, %" PRId64 " tokens", t->mixture.parts[i].name_length,
                   t->mixture.parts[i].name, 100.0 * t->mixture.parts[i].share,
                   t->feed.parts[i].source[TOKEN_TRAIN]->length);
    run_log_plan(t);
    if (t->session.model->evaluate.time < options->config.block_size)
        log_note("eval_block_size=%" PRId32 ": evaluations give tokens that much context at most, so their losses "
                 "cannot be compared with those at block_size=%" PRId32,
                 t->session.model->evaluate.time, options->config.block_size);
}

/* ---- the start lines of metrics.jsonl, and the report ---- */

static struct json_put *line_begin(struct trainer *t, const char *start)
{
    return metrics_line(&t->metrics, max_i64(t->state.iter - 1, 0), start);
}

static void run_write(struct trainer *t)
{
    const struct session *session = &t->session;
    json_put(line_begin(t, "run"),
             "time:f version:s dtype:s parameters:i tokens:i max_iters:i dataset:s device:s detail:s",
             clock_wall_seconds(), PACKAGE_VERSION, dtype_name(session->device.dtype),
             model_parameter_count_no_positions(&session->model->options.config),
             t->state.samples_seen * t->config->block_size, t->config->max_iters, t->config->dataset,
             session->device.info.device, session->device.info.detail);
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
        const char *value = CONFIG_KEY_TEXT(t->config, (enum config_key)key);
        if ((info->flags & CONFIG_INVOCATION) != 0 || (info->programs & CONFIG_TRAIN) == 0 ||
            strcmp(value, CONFIG_KEY_TEXT(&defaults, (enum config_key)key)) == 0)
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
    const struct plan *plan = t->session.plan;
    struct json_put *line = line_begin(t, "plan");
    char options[SEARCH_OPTIONS_TEXT_MAX];
    json_put(line, "planned_bytes:u categories:{", plan_asked_bytes(plan));
    for (int c = 0; c < CATEGORY_COUNT; c++)
        json_put(line, TEXT(64, "%s:u", tensor_category_name((enum tensor_category)c)), plan->category_bytes[c]);
    json_put(line, "} options:s", search_options_text(options, &t->session.model->options));
    (void)metrics_line_write(&t->metrics);
}

void run_report_write(struct trainer *t, bool goes_on)
{
    if (t->report && run_record_update(t->report) == GT_OK)
        (void)report_page_write(t->report, 1, goes_on ? REPORT_REFRESH_S : 0, FILE_IN(t->config->out_dir, REPORT_NAME));
}

enum gt_status run_metrics_start(struct trainer *t)
{
    const struct forecast *forecast = &t->forecast;
    run_write(t);
    keys_write(t);
    plan_write(t);
    json_put(line_begin(t, "forecast"), "step_s:f steps:i evaluation_s:f evaluations:i tokens_per_s:f uncertainty:f",
             forecast->step_seconds, forecast->steps, forecast->evaluation_seconds, forecast->evaluations,
             forecast->step_seconds > 0.0 ? run_tokens_per_update(t) / forecast->step_seconds : 0.0,
             forecast->uncertainty);
    (void)metrics_line_write(&t->metrics);
    if (!t->config->report)
        return GT_OK;
    TRY(HOSTMEM_NEW(t->mem, 1, "report", &t->report));
    return run_record_open(t->report, t->config->out_dir, t->config->out_dir);
}

/* ---- the report of a failure ----
 *
 * Everything comes from memory: nothing is asked of the device, which may be the cause of the failure, and nothing is
 * allocated.  Only keys that this invocation set are shown.  The error itself is in the lines above the block. */

#define KEYS_BYTES_MAX 4096
#define INDENT 10
#define LINE(name, format, ...) plan_line_print(stderr, INDENT, "%-*s" format, INDENT, name, __VA_ARGS__)

static void device_print(const struct session *session)
{
    const struct backend_info *info = &session->device.info;
    char holders[BACKEND_HOLDERS_TEXT_MAX];
    if (!session->device.backend) {
        LINE("backend", "%s", "none was opened");
        return;
    }
    LINE("backend", "%s: %s", session->device.backend->ops->name, info->device);
    LINE("libraries", "%s", info->detail);
    if (backend_holders_read(holders, session->device.backend)[0] != '\0')
        LINE("others", "%s", holders);
}

static void memory_print(const struct session *session)
{
    uint64_t bytes = session ? session->device.budget_bytes : 0;
    if (session && session->device.backend)
        LINE("memory", "%s in all, %s free at the start, budget %s", LOG_BYTES(session->device.info.total_bytes),
             LOG_BYTES(session->device.info.free_bytes),
             bytes > 0 && bytes < UINT64_MAX ? LOG_BYTES(bytes) : "not known");
    LINE("process", "%s resident, %s at most", LOG_BYTES(process_rss_bytes()), LOG_BYTES(process_rss_bytes_max()));
}

static void plan_print(const struct session *session)
{
    char options[SEARCH_OPTIONS_TEXT_MAX];
    const struct search_result *search = &session->search.result;
    if (search->found.arena_bytes == 0 && !session->plan) {
        LINE("plan", "%s", "none was made");
        return;
    }
    search_options_text(options, &search->found.options);
    if (session->plan)
        LINE("plan", "%s (%" PRIu64 " B), peak in %s; %s", LOG_BYTES(session->plan->arena_bytes),
             session->plan->arena_bytes,
             session->plan->peak_program >= 0
                 ? program_kind_name(session->plan->graph->programs[session->plan->peak_program].kind)
                 : "no program",
             options);
    else
        LINE("plan", "none fits; the smallest needs %s (%" PRIu64 " B): %s", LOG_BYTES(search->found.arena_bytes),
             search->found.arena_bytes, options);
}

/* Prints the keys that were set, as flags. */
static void keys_print(const struct config *config)
{
    char text[KEYS_BYTES_MAX] = "";
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const size_t used = strlen(text);
        if (config_key_was_set(config, (enum config_key)key))
            snprintf(text + used, sizeof text - used, " --%s=%s", config_key_info_get((enum config_key)key)->name,
                     CONFIG_KEY_TEXT(config, (enum config_key)key));
    }
    LINE("keys", "%s", text[0] != '\0' ? text + 1 : "none");
}

void report_block_print(const struct config *config, const struct session *session, enum gt_status status)
{
    struct utsname system;
    if (status != GT_FAILURE && status != GT_NO_MEMORY && status != GT_DEVICE)
        return;
    fputs("---- gpt-train report, to be pasted where you ask for help ----\n", stderr);
    LINE("version", "gpt-train %s", PACKAGE_VERSION);
    LINE("status", "%s, exit status %d", status_name(status), status_exit_code(status));
    if (uname(&system) == 0)
        LINE("system", "%s %s %s", system.sysname, system.release, system.machine);
    if (session)
        device_print(session);
    memory_print(session);
    keys_print(config);
    if (session)
        plan_print(session);
    fputs("---- end of report ----\n", stderr);
    fflush(stderr);
}
