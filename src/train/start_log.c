/* The lines that a run prints at its start: the model, the device, the plan and its time.
 *
 * Allocating the arena may take half a minute, so all that is known by then is printed before.
 */
#include "train/start_log.h"

#include "backend/backend_call.h"
#include "base/clock.h"
#include "base/size.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_report.h"

#define LONG_SECONDS (31.0 * 86400.0) /* a month; longer runs get advice */

/* What --tune costs for each kernel: up to eight candidates of about 20 ms, and loading them.  What
 * it saves on GeForce cards is computed, not measured (doc/cuda.md). */
#define TUNE_SECONDS 0.2
#define TUNE_GAIN_LEAST 0.02

/* Logs the changes that made the configuration fit, or faster, and their cost. */
static void change_log(const struct session *session)
{
    const struct search_result *search = &session->search.result;
    char text[SEARCH_OPTIONS_TEXT_MAX], time[SEARCH_TIME_TEXT_MAX],
        request[SEARCH_REQUEST_TEXT_MAX];
    if (search->candidates <= 1)
        return;
    if (search->request_fits) {
        log_result("plan: changed because it is faster: %s; %s, same samples, same mathematics",
                   search_options_text(text, &search->found.options),
                   search_time_text(time, search));
        return;
    }
    log_result(
        "plan: changed to fit a budget of %s (as configured it needs %s): %s; %s, same samples, %s",
        LOG_BYTES(session->device.machine_budget_bytes), search_request_text(request, search),
        search_options_text(text, &search->found.options), search_time_text(time, search),
        search->found.options.states == session->search.request.options.states
            ? "same mathematics"
            : "leaner optimizer states with stochastic rounding");
}

void start_log_plan(const struct runner *runner)
{
    const struct run *run = &runner->run;
    const struct model_options *options = &run->session.model->options;
    const int32_t steps = model_micro_steps(options), block = options->config.block_size;
    const char *arena = LOG_BYTES(run->session.plan->arena_bytes);
    const char *parts =
        model_parts(options) > 1 ? TEXT(32, ", in %" PRId32 " parts", options->parts) : "";
    char offload[PLAN_OFFLOAD_TEXT_MAX];
    if (!options->train)
        log_result("plan: %s; %" PRId32 " sequence%s of %" PRId32 " tokens at once", arena,
                   options->choice.evaluate_batch, options->choice.evaluate_batch == 1 ? "" : "s",
                   run->session.model->evaluate.time);
    else if (steps == 1)
        log_result("plan: %s; all %" PRId32 " sequence%s of %" PRId32 " tokens in one step", arena,
                   options->choice.micro_batch, options->choice.micro_batch == 1 ? "" : "s", block);
    else
        log_result("plan: %s; %" PRId32 " steps of %s%" PRId32 " sequence%s of %" PRId32
                   " tokens per update%s",
                   arena, steps, options->choice.remainder_batch > 0 ? "up to " : "",
                   options->choice.micro_batch, options->choice.micro_batch == 1 ? "" : "s", block,
                   parts);
    if (run->session.plan->host_bytes > 0)
        log_result("offload: %s in host memory, the same bits",
                   plan_offload_text(offload, run->session.plan, options->config.lora.rank > 0));
    if (options->train && state_format_is_lean(options->states))
        log_result(
            "optimizer states: %s, %.2f bytes per parameter with its gradient, rounded stochastically",
            state_format_name(options->states), model_bytes_per_parameter(run->session.model));
    if (run->config->ranks > 1)
        log_result("ranks: %" PRId64 ", each with this plan; they exchange gradients through %s",
                   run->config->ranks, run->session.dist->carrier);
    change_log(&run->session);
}

/* Logs for which contexts the angles are, if they depend on the context. */
static void rope_log(const struct model_config *config)
{
    const bool longer = config->block_size > config->rope.original_context;
    if (config->position == POSITION_ROPE && rope_depends_on_block(&config->rope))
        log_result("rope_scaling: for contexts %s %" PRId32 " tokens, since block_size=%" PRId32,
                   longer ? "beyond" : "up to", config->rope.original_context, config->block_size);
}

void start_log(const struct runner *runner)
{
    const struct run *run = &runner->run;
    const struct model_options *options = &run->session.model->options;
    log_result("number of parameters: %.2fM",
               (double)model_parameter_count_no_positions(&options->config) / 1e6);
    if (options->config.lora.rank > 0)
        log_result("%.2fM of them are trained, in adapters of rank %" PRId32 " of %s",
                   (double)model_adapter_count(&options->config) / 1e6, options->config.lora.rank,
                   run->source.base);
    log_result("tokens per iteration will be: %.0f", run_tokens_per_update(run->config));
    log_result("device: %s (%s)", run->session.device.info.device, run->session.device.info.detail);
    rope_log(&options->config);
    for (int i = 0; i < run->mixture.count && run->mixture.count > 1; i++)
        log_result("dataset %.*s: %.4g %% of the samples, %" PRId64 " tokens",
                   run->mixture.parts[i].name_length, run->mixture.parts[i].name,
                   100.0 * run->mixture.parts[i].share,
                   runner->feed.parts[i].source[TOKEN_TRAIN]->length);
    start_log_plan(runner);
    if (run->session.model->evaluate.time < options->config.block_size)
        log_note("eval_block_size=%" PRId32
                 ": evaluations give tokens that much context at most, so their losses "
                 "cannot be compared with those at block_size=%" PRId32,
                 run->session.model->evaluate.time, options->config.block_size);
}

void start_log_forecast(struct runner *runner)
{
    forecast_log(&runner->forecast);
    if (runner->advised || forecast_seconds_left(&runner->forecast) < LONG_SECONDS)
        return;
    log_note(
        "this takes more than a month; what takes less: a smaller model (n_layer, n_embd), fewer iterations "
        "(max_iters), fewer tokens per update (batch_size, gradient_accumulation_steps)");
    runner->advised = true;
}

void start_log_tune(const struct runner *runner)
{
    const struct session *session = &runner->run.session;
    struct backend *device = session->device.backend;
    const double left = forecast_seconds_left(&runner->forecast);
    size_t kernels = 0, timed = 0;
    if (device->ops->timings == NULL || session->device.dtype == DTYPE_F32 ||
        runner->run.config->tune || runner->run.source.resume)
        return;
    (void)backend_algorithms(device, &kernels);
    (void)backend_timings(device, &timed);
    const double seconds = TUNE_SECONDS * (double)kernels;
    if (timed == 0 && kernels > 0 && TUNE_GAIN_LEAST * left > seconds)
        log_note("--tune=True would time the %zu kernels of this run once, in about %s; on GeForce "
                 "cards it should save 2 to 5 %% of the time (computed, not measured)",
                 kernels, CLOCK_DURATION(seconds));
}
