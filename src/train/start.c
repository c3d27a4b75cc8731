/* The start of a run that computes.
 *
 * Everything that can be refused is refused before memory is taken, and everything known by then is
 * printed first: allocating the arena may take half a minute.
 */
#include "train/start.h"

#include "backend/backend_call.h"
#include "base/size.h"
#include "session/report_block.h"
#include "session/restore_weights.h"
#include "session/session_plan.h"
#include "session/session_rates.h"
#include "session/session_start.h"
#include "session/stop.h"
#include "train/schedule.h"
#include "train/start_log.h"
#include "train/use_log.h"

/* ---- the plan ---- */

enum gt_status start_plan(struct runner *runner, struct hostmem *mem, struct config *config,
                          struct dist *dist)
{
    struct run *run = &runner->run;
    struct ranks_budgets budgets = {.machine = 0};
    runner->dist = dist;
    if (ranks_first(dist))
        progress_init(&runner->progress);
    else
        ranks_budgets_share(dist, &budgets);
    TRY(run_resolve(run, mem, config, true));
    if (run_length_is_known(run) && ranks_first(dist))
        schedule_check(config, run->state.iter);
    TRY(run_open(run));
    TRY(ranks_join(&runner->life, &run->session, dist, &budgets));
    return run_plan(run);
}

/* ---- the data ---- */

/* Returns the largest batch of this plan, or of one that session_start() makes for less memory. */
static int64_t largest_batch(const struct session *session)
{
    const struct model_options *options = &session->search.request.options;
    if (options->choice.micro_batch < session->model->options.choice.micro_batch)
        options = &session->model->options;
    return max_i64(options->choice.micro_batch, options->choice.evaluate_batch);
}

enum gt_status start_data(struct runner *runner)
{
    struct run *run = &runner->run;
    const struct config *config = run->config;
    struct session *session = &run->session;
    TRY(mixture_tokenizer_open(run->mem, &run->mixture, &runner->tokenizer));
    TRY(restore_tokenizer_check(run->mem, config, &run->source, runner->tokenizer,
                                run->mixture.parts[0].folder));
    TRY(feed_open(run->mem, config, &run->mixture, session->model->options.config.vocab_size,
                  largest_batch(session), &runner->feed));
    TRY(feed_manifest_check(&runner->feed, runner->tokenizer));
    TRY(restore_template_find(config, &run->source, &run->mixture, runner->tokenizer));
    return feed_documents_set(&runner->feed, runner->tokenizer);
}

/* ---- the device ---- */

/* Models the run.  The data decide how often a pass over all splits runs the evaluation program. */
static void forecast_make(struct runner *runner)
{
    const struct run *run = &runner->run;
    const struct model *model = run->session.model;
    const int splits = 2 * run->mixture.count;
    int64_t runs = splits * evaluation_runs(run->config, model);
    for (int i = 0; i < splits && run->config->eval_iters == 0; i++)
        runs += size_ceil_div(
            sampler_window_count(runner->feed.parts[i / 2].evaluate_sampler[i % 2], true),
            model->options.choice.evaluate_batch);
    forecast_model(&run->session, run->state.iter, runs, &runner->forecast);
    if (!run_length_is_known(run))
        forecast_hours_set(&runner->forecast, run->config);
}

/* Plans again with the smallest micro-steps that any rank plans, if ranks plan different ones. */
static enum gt_status ranks_agree(struct run *run)
{
    struct session *session = &run->session;
    const struct model_config model = session->model->options.config;
    struct plan_choice least;
    struct model_options options;
    if (ranks_plans_alike(session, &least))
        return GT_OK;
    session->agreed = least;
    session_train_options(session, &run->state.saved, &model, &options);
    return session_replan(session, &options);
}

/* Rank 0 has found nothing to refuse: all ranks begin. */
static enum gt_status ranks_meet(struct run *run, const struct data_digests *digests)
{
    struct session *session = &run->session;
    const bool trains = !run->config->eval_only;
    const char *const texts[] = {digests->text[0], digests->text[1]};
    const uint32_t weights =
        run->source.checkpoint != NULL ? run->source.checkpoint->record.files[0].crc32c : 0;
    struct ranks_budgets budgets = {session->device.machine_budget_bytes,
                                    session->device.host_share_bytes};
    if (ranks_first(session->dist))
        ranks_budgets_share(session->dist, &budgets);
    TRY(ranks_handshake(session, texts, run->state.iter, weights));
    const uint64_t context = session->device.info.context_bytes;
    TRY(backend_info(session->device.backend, &session->device.info));
    if (session->device.info.context_bytes != context && trains)
        TRY(session_replan(
            session, &session->search.request.options)); /* NCCL has taken memory of the card */
    return trains ? ranks_agree(run) : GT_OK;
}

/* Allocates the arena, and times the device if its rates are not known yet. */
static enum gt_status arena_start(struct runner *runner)
{
    struct session *session = &runner->run.session;
    const uint64_t planned = plan_requested_bytes(session->plan);
    const bool is_first = ranks_first(session->dist);
    TRY(session_start(session));
    if (plan_requested_bytes(session->plan) != planned)
        start_log_plan(runner); /* less memory was free */
    if (!runner->run.config->eval_only && is_first)
        TRY(session_rates_calibrate(session));
    return is_first ? session_peak_measure(session) : GT_OK;
}

enum gt_status start_device(struct runner *runner, const struct data_digests *digests)
{
    struct run *run = &runner->run;
    struct session *session = &run->session;
    if (session->dist != NULL)
        TRY(ranks_meet(run, digests));
    TRY(run_watch(run));
    const bool known = session_rates_guess(session);
    start_log(runner);
    if (!run->source.resume && !run->config->eval_only && ranks_first(session->dist) &&
        conversation_is_data(&runner->feed, runner->tokenizer))
        TRY(conversation_log(&runner->feed, runner->tokenizer, run->state.iter));
    forecast_make(runner);
    if (known)
        start_log_forecast(runner);
    TRY(arena_start(runner));
    const double guessed = runner->forecast.uncertainty;
    forecast_make(runner);
    if (!known || runner->forecast.disturbed || runner->forecast.uncertainty < guessed)
        start_log_forecast(runner);
    if (ranks_first(session->dist))
        start_log_tune(runner);
    TRY(ranks_plan_check(session));
    return resume_check_bits(session, &run->source);
}

/* ---- the weights ---- */

enum gt_status start_weights(struct runner *runner)
{
    struct run *run = &runner->run;
    struct session *session = &run->session;
    memset(session->scalars, 0, sizeof session->scalars);
    loss_scaler_init(&run->state.loss_scaler, session->device.dtype);
    if (run->source.resume)
        TRY(loss_scaler_from_json(&run->state.loss_scaler,
                                  run->source.checkpoint->record.state.loss_scaler,
                                  run->source.checkpoint->source));
    TRY(restore_weights(session, &run->source, (uint64_t)run->config->seed));
    /* Open files would keep the disk space of the generation that the next save removes. */
    restore_close(&run->source);
    session->scalars[SCALAR_ADAM_STEP].i = (int32_t)run->state.adam_step;
    return session_scalars_upload(session);
}

/* ---- the work ---- */

void start_work(struct runner *runner)
{
    const struct run *run = &runner->run;
    const struct session *session = &run->session;
    const struct config *config = run->config;
    if (session->dist != NULL)
        stop_share(session->dist->stop_word);
    stop_install();
    /* So that the watchdog, or the end of a rank, can name an op. */
    exec_waits_set(session->exec, config->watchdog > 0 ||
                                      (session->dist != NULL && session->device.info.host_memory));
    exec_timing_set(session->exec, config->profile,
                    config->eval_only ? -1 : session->model->evaluate.program);
    hostmem_phase_set(run->mem, HOSTMEM_RUN);
}

void start_end(struct runner *runner, enum gt_status status)
{
    const struct session *session = &runner->run.session;
    hostmem_phase_set(runner->run.mem, HOSTMEM_CLOSE);
    if (session->config->profile)
        use_log_ops(session);
    if (status != GT_OK && status != GT_STOPPED)
        return;
    if (session->config->verbose ||
        session->search.result.candidates > 1) /* memory is of interest, or was short */
        use_log_memory(session);
}

void start_close(struct runner *runner, enum gt_status status)
{
    struct run *run = &runner->run;
    if (ranks_first(runner->dist))
        report_block_print(run->config, &run->session, status);
    hostmem_phase_set(run->mem, HOSTMEM_CLOSE);
    run_close(run);
    ticker_stop(runner->life.ticker);
}
