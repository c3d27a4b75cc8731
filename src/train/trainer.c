/* A run of gpt-train, from a configuration to its last line.
 *
 * Everything that can be refused is refused before memory is taken, and everything known by then is printed first:
 * taking the arena may last half a minute.
 */
#include "train/run.h"

#include <unistd.h>

#include "backend/backend_call.h"
#include "base/clock.h"
#include "base/size.h"
#include "data/hf_hub.h"
#include "report/run_record.h"
#include "session/stop.h"

/* Samples printed during training use the defaults of sample.py. */
#define SAMPLE_TEMPERATURE 0.8
#define SAMPLE_TOP_K 200

static enum gt_status weights_load(struct trainer *t)
{
    memset(t->session.scalars, 0, sizeof t->session.scalars);
    loss_scaler_init(&t->state.loss_scaler, t->session.device.dtype);
    if (t->source.resume)
        TRY(loss_scaler_from_json(&t->state.loss_scaler, t->source.checkpoint->record.state.loss_scaler,
                                  t->source.checkpoint->source));
    TRY(restore_weights(&t->session, &t->source, (uint64_t)t->config->seed));
    restore_close(&t->source); /* open files would keep the disk space of the generation that the next save removes */
    t->session.scalars[SCALAR_ADAM_STEP].i = (int32_t)t->state.adam_step;
    return session_scalars_upload(&t->session);
}

static enum gt_status samples_prepare(struct trainer *t)
{
    const struct config *config = t->config;
    struct generate_options options = {
        .seed = (uint64_t)config->seed, .temperature = SAMPLE_TEMPERATURE, .top_k = SAMPLE_TOP_K};
    if (config->sample_tokens == 0)
        return GT_OK;
    if (conversation_is_data(t))
        TRY(conversation_prompt_find(t));
    if (t->prompt_count > 0)
        options.temperature = 0.0; /* an answer changes only with the model */
    if (t->tokenizer)
        return generator_create(t->mem, &t->session, &options, t->prompt_count + config->sample_tokens + 2,
                                &t->generator);
    log_note("sample_tokens has no effect: %s has no %s", t->mixture.parts[0].folder, TOKENIZER_FILE_NAME);
    return GT_OK;
}

/* Returns the largest batch of this plan, or of one that session_start() makes for less memory. */
static int64_t largest_batch(const struct session *session)
{
    const struct model_options *options = &session->search.request.options;
    if (options->choice.micro_batch < session->model->options.choice.micro_batch)
        options = &session->model->options;
    return max_i64(options->choice.micro_batch, options->choice.evaluate_batch);
}

/* If the run does not continue the existing checkpoint, logs that its first save will move it. */
static void earlier_note(const struct trainer *t)
{
    const char *out_dir = t->config->out_dir;
    char folder[FILE_PATH_MAX];
    if (t->source.own || !checkpoint_keep_earlier_next(out_dir, folder))
        return;
    if (t->source.branch)
        log_note("this run goes on from iteration %" PRId64 " of %s; its first save moves what came after that to %s",
                 t->state.iter, out_dir, folder);
    else
        log_note(
            "%s holds an earlier run, which --init_from=resume would continue; this run's first save moves it to %s",
            out_dir, folder);
}

/* Models the run.  The data decide how often a pass over all splits runs the evaluation program. */
static void forecast_make(struct trainer *t)
{
    const struct model *model = t->session.model;
    const int splits = 2 * t->mixture.count;
    int64_t runs = splits * evaluation_runs(t->config, model);
    for (int i = 0; i < splits && t->config->eval_iters == 0 && t->feed.mem; i++)
        runs += size_ceil_div(sampler_window_count(t->feed.parts[i / 2].evaluate_sampler[i % 2], true),
                              model->options.choice.evaluate_batch);
    forecast_model(&t->session, t->state.iter, runs, &t->forecast);
    if (t->state.length == 0)
        forecast_hours_set(&t->forecast, t->config);
}

/* Takes the arena.  That may last half a minute, so everything known by then is logged first. */
static enum gt_status device_start(struct trainer *t)
{
    struct session *session = &t->session;
    const uint64_t planned = plan_asked_bytes(session->plan);
    const bool known = session_rates_guess(session);
    run_log_start(t);
    if (!t->source.resume && !t->config->eval_only && ranks_first(session->dist) && conversation_is_data(t))
        TRY(conversation_log(t));
    forecast_make(t);
    if (known)
        run_log_forecast(t);
    TRY(session_start(session));
    if (plan_asked_bytes(session->plan) != planned)
        run_log_plan(t); /* less memory was free */
    if (!t->config->eval_only && ranks_first(session->dist))
        TRY(session_rates_calibrate(session));
    if (ranks_first(session->dist))
        TRY(session_peak_measure(session));
    const double guessed = t->forecast.uncertainty;
    forecast_make(t);
    if (!known || t->forecast.disturbed || t->forecast.uncertainty < guessed)
        run_log_forecast(t);
    return GT_OK;
}

/* Plans again with the smallest micro-steps that any rank plans, if ranks plan different ones. */
static enum gt_status ranks_agree(struct trainer *t)
{
    struct config *config = &t->settled;
    const struct config own = *config;
    const struct model_config model = t->session.model->options.config;
    struct plan_choice least;
    struct model_options options;
    if (ranks_plans_alike(&t->session, &least))
        return GT_OK;
    config->micro_batch = least.micro_batch;
    config->eval_batch_size = least.evaluate_batch;
    config->loss_chunk = least.loss_chunk_rows;
    session_train_options(&t->session, &t->state.choices, &model, &options);
    enum gt_status status = session_replan(&t->session, &options);
    config->micro_batch = own.micro_batch;
    config->eval_batch_size = own.eval_batch_size;
    config->loss_chunk = own.loss_chunk;
    return status;
}

/* Rank 0 has found nothing to refuse: all ranks begin. */
static enum gt_status ranks_meet(struct trainer *t, const struct run_data *data)
{
    struct session *session = &t->session;
    const char *const digests[] = {data->text[0], data->text[1]};
    const uint32_t weights = t->source.checkpoint != NULL ? t->source.checkpoint->record.files[0].crc32c : 0;
    if (ranks_first(session->dist))
        ranks_budgets_share(session->dist,
                            (uint64_t[]){session->device.budget_bytes, session->device.host_budget_bytes});
    TRY(ranks_handshake(session, digests, t->state.iter, weights));
    const uint64_t context = session->device.info.context_bytes;
    TRY(backend_info(session->device.backend, &session->device.info));
    if (session->device.info.context_bytes != context && !t->config->eval_only)
        TRY(session_replan(session, &session->search.request.options)); /* NCCL has taken memory of the card */
    return t->config->eval_only ? GT_OK : ranks_agree(t);
}

static void diagnosis_prepare(struct trainer *t)
{
    t->diagnosis = (struct diagnosis){.session = &t->session,
                                      .feed = &t->feed,
                                      .ahead = &t->ahead,
                                      .progress = &t->progress,
                                      .tokenizer = t->tokenizer,
                                      .first_iter = t->state.iter};
}

/* Runs the part that needs the data and the arena. */
static enum gt_status run(struct trainer *t)
{
    struct session *session = &t->session;
    const struct config *config = t->config;
    struct run_data data = {0};
    TRY(mixture_tokenizer_open(t->mem, &t->mixture, &t->tokenizer));
    TRY(restore_tokenizer_check(t->mem, config, &t->source, t->tokenizer, t->mixture.parts[0].folder));
    TRY(feed_open(t->mem, config, &t->mixture, session->model->options.config.vocab_size, largest_batch(session),
                  &t->feed));
    TRY(feed_manifest_check(&t->feed, t->tokenizer));
    TRY(restore_template_find(config, &t->source, &t->mixture, t->tokenizer));
    TRY(feed_documents_set(&t->feed, t->tokenizer));
    if (!config->eval_only) {
        for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++)
            TRY(feed_digest(&t->feed, (enum token_split)split, data.text[split]));
        TRY(resume_check_keys(config, &t->source));
        TRY(resume_check_data(config, &t->source, &data));
        TRY(saver_room_check(session, t->source.own));
        earlier_note(t);
    }
    if (session->dist != NULL)
        TRY(ranks_meet(t, &data));
    TRY(watchdog_start(&t->watchdog, t->mem, session->device.backend, config->out_dir, config->watchdog));
    TRY(device_start(t));
    TRY(ranks_plan_check(session));
    TRY(resume_check_bits(session, &t->source));
    /* A checkpoint that an evaluation saved, as all of nanoGPT's are, is the best.  One of ours that a signal saved
     * just after an evaluation also counts, which costs a second stop some work and no bits. */
    if (t->source.own && (t->state.evaluated || t->source.checkpoint->kind == CHECKPOINT_NANOGPT))
        t->best_iter = t->state.iter;
    TRY(weights_load(t));
    if (!config->eval_only && ranks_first(session->dist)) {
        TRY(saver_create(session, t->tokenizer, &data, &t->saver));
        if (t->source.own)
            TRY(saver_tokenizer_write(&t->saver, true));
        const bool own = t->source.own, goes_on = own || t->source.branch;
        TRY(metrics_open(&t->metrics, config->out_dir, goes_on ? t->state.iter : 0, t->state.evaluated, !own));
        t->metrics_opened = true;
        TRY(run_metrics_start(t));
        t->saver.metrics = own ? NULL : t->metrics.kept;
        t->saver.after = t->source.branch ? t->state.iter : -1;
    }
    if (ranks_first(session->dist))
        TRY(samples_prepare(t));
    if (!config->eval_only)
        TRY(steps_ahead_create(t->mem, model_micro_steps(&session->model->options), &t->ahead));
    diagnosis_prepare(t);
    if (session->dist != NULL)
        stop_share(session->dist->stop_word);
    stop_install();
    /* So that the watchdog, or the end of a rank, can name an op. */
    exec_waits_set(session->exec, config->watchdog > 0 || (session->dist != NULL && session->device.info.host_memory));
    exec_timing_set(session->exec, config->profile, config->eval_only ? -1 : session->model->evaluate.program);
    hostmem_phase_set(t->mem, HOSTMEM_RUN);
    enum gt_status status = run_loop(t);
    hostmem_phase_set(t->mem, HOSTMEM_CLOSE);
    run_report_write(t, false);
    if (config->profile)
        run_log_profile(t);
    if (status != GT_OK && status != GT_STOPPED)
        return status;
    if (config->verbose || session->search.result.candidates > 1) /* memory is of interest, or was short */
        run_log_use(t);
    if (t->state.iter > t->first_iter)
        run_log_end(t, status == GT_STOPPED);
    return status;
}

/* Replaces the modelled time of a step by that of the run's last steps, if they had this plan on this device. */
static void forecast_recall(struct trainer *t)
{
    const struct plan_choice *planned = &t->session.model->options.choice;
    const bool same =
        t->source.own && t->config->device_profile[0] == '\0' && plan_choice_equal(planned, &t->state.choices.plan);
    const double rate = same ? metrics_rate_recent(t->config->out_dir) : 0.0;
    if (rate <= 0.0)
        return;
    t->forecast.step_seconds = run_tokens_per_update(t) / rate;
    t->forecast.measured = true;
    t->forecast.uncertainty = FORECAST_STEPS_ERROR;
}

static enum gt_status facts_print(const struct session *session, const struct plan_report_facts *facts, FILE *out)
{
    const int form = session->config->plan;
    if (session->config->compare[0] != '\0')
        plan_print_rows(session->plan, facts, out);
    else if (form == CONFIG_PLAN_JSON || form == CONFIG_PLAN_JSON_PARETO)
        return plan_print_json(session->plan, facts, out);
    else if (form == CONFIG_PLAN_SVG)
        return plan_print_svg(session->mem, session->plan, facts, out);
    else
        plan_print_text(session->plan, facts, out);
    return GT_OK;
}

/* Says how to get the weights of a model whose plan did without; beside the plan, where that is for programs. */
static void download_print(const struct trainer *t, FILE *out)
{
    const char *command = TEXT(256, "hf download %s --exclude 'original/*'", t->source.download);
    if (t->config->plan == CONFIG_PLAN_TEXT)
        fprintf(out, "\nTo download the model: %s\n", command);
    else
        log_note("to download the model: %s", command);
}

static enum gt_status answer(struct trainer *t, FILE *out)
{
    const struct model *model = t->session.model;
    if (t->config->print_program) {
        for (int32_t p = 0; p < model->graph->program_count; p++)
            graph_print(model->graph, p, out);
        return GT_OK;
    }
    TRY(watchdog_start(&t->watchdog, t->mem, t->session.device.backend, t->config->out_dir, t->config->watchdog));
    TRY(session_peak_measure(&t->session));
    forecast_make(t);
    forecast_recall(t);
    t->forecast.now_wall_s = (int64_t)clock_wall_seconds();
    TRY(plan_answer(&t->session, &t->forecast, facts_print, out));
    if (t->source.download != NULL && t->config->compare[0] == '\0')
        download_print(t, out);
    return session_fits(&t->session);
}

/* Creates and locks the folder, and repairs what a killed run left. */
static enum gt_status out_dir_claim(struct trainer *t)
{
    if (strcmp(t->config->init_from, "resume") == 0 && !file_is_folder(t->config->out_dir))
        return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: no such folder, so there is nothing to resume",
                    t->config->out_dir);
    t->made_out_dir = !file_exists(t->config->out_dir);
    TRY(file_make_folders(t->config->out_dir));
    TRY(file_lock(FILE_IN(t->config->out_dir, "lock"), &t->lock_fd));
    return checkpoint_repair(t->config->out_dir);
}

/* Releases the lock.  If the run never began, also removes a folder that it created. */
static void out_dir_release(const struct trainer *t, enum gt_status status)
{
    const bool began = status == GT_OK || status == GT_STOPPED || t->metrics_opened;
    if (t->made_out_dir && !began) {
        if (t->lock_fd >= 0)
            unlink(FILE_IN(t->config->out_dir, "lock")); /* while we own the lock */
        rmdir(t->config->out_dir);                       /* fails, as it should, if the folder is not empty */
    }
    file_unlock(t->lock_fd);
}

/* Opens the session; on rank 0's machine with rank 0's budgets of host memory. */
static enum gt_status device_open(struct trainer *t, struct dist *dist, const uint64_t budgets[static 2])
{
    const struct config *config = t->config;
    TRY(session_open(t->mem, config, &t->session));
    t->session.dist = dist;
    const bool divided = !ranks_first(dist) && strcmp(dist->host[dist->rank], dist->host[0]) == 0;
    if (divided && t->session.device.info.host_memory && !t->session.device.has_budget)
        t->session.device.budget_bytes = budgets[0];
    if (divided)
        t->session.device.host_budget_bytes = budgets[1];
    t->life = (struct ranks_life){.dist = dist, .record = &t->session.device.record};
    return dist != NULL ? ticker_start(t->mem, RANKS_SIGN_SECONDS, ranks_sign, &t->life, &t->life.ticker) : GT_OK;
}

/* Refuses a data set that is not there before anything else is said about the run.  A run that is resumed may read the
 * name of its data in the checkpoint. */
static enum gt_status data_check(struct hostmem *mem, const struct config *config, const struct mixture *mixture)
{
    const bool named = config_key_was_set(config, CONFIG_KEY_dataset) || strcmp(config->init_from, "scratch") == 0;
    struct token_source *source = NULL;
    for (int i = 0; i < mixture->count && named; i++) {
        const struct token_source_spec spec = {.folder = mixture->parts[i].folder, .split = TOKEN_TRAIN};
        const char *name = TEXT(FILE_PATH_MAX, "%.*s", mixture->parts[i].name_length, mixture->parts[i].name);
        bool exists;
        TRY(token_split_exists(spec.folder, spec.split, &exists));
        if (!exists && !file_exists(spec.folder) && hf_hub_is_repository(name))
            return FAIL(GT_DATA,
                        ERROR_NO_DATA
                        "%s: there is no such folder here; a data set of Hugging Face's Hub is prepared "
                        "first: hf download --repo-type=dataset %s, then gpt-prepare --out-dir=data/%s FILE",
                        name, name, strchr(name, '/') + 1);
        if (!exists)
            TRY(token_source_open(mem, &spec, &source));
        hostmem_free(source);
        source = NULL;
    }
    return GT_OK;
}

enum gt_status trainer_run(struct hostmem *mem, const struct config *config, struct dist *dist, FILE *out)
{
    struct trainer t = {.mem = mem,
                        .config = config,
                        .lock_fd = -1,
                        .metrics = {.fd = -1},
                        .evaluated_iter = -1,
                        .saved_iter = -1,
                        .best_iter = -1,
                        .lowest_iter = -1};
    bool answers = config->print_program || config->plan != CONFIG_PLAN_OFF;
    struct model_config model;
    struct model_options options;
    enum gt_status status;
    if (ranks_first(dist))
        progress_init(&t.progress);
    uint64_t budgets[2] = {0};
    if (!ranks_first(dist))
        ranks_budgets_share(dist, budgets);
    if (config->device_profile[0] != '\0' && !answers)
        return FAIL(GT_USAGE, "device_profile='%s' is only for planning; add --plan, or leave it out to train",
                    config->device_profile);
    if (!answers && !config->eval_only && ranks_first(dist))
        TRY_GOTO(status, close, out_dir_claim(&t));
    t.settled = *config;
    TRY_GOTO(status, close, mixture_parse(config->dataset, &t.mixture));
    if (!answers)
        TRY_GOTO(status, close, data_check(mem, config, &t.mixture));
    TRY_GOTO(status, close, restore_open(mem, &t.settled, &t.mixture, &t.source, &t.state, &model));
    TRY_GOTO(status, close, mixture_parse(t.settled.dataset, &t.mixture)); /* the checkpoint may have named another */
    if (t.settled.hours > 0.0 && t.state.length > 0)
        run_length_set(&t.settled, t.state.length);
    else if (t.settled.hours > 0.0)
        t.settled.max_iters = RUN_LENGTH_MAX - 1; /* until ten updates have been timed */
    if ((t.settled.hours == 0.0 || t.state.length > 0) && ranks_first(dist))
        run_schedule_check(&t.settled, t.state.iter);
    if (config->explain_oom[0] != '\0')
        TRY_GOTO(status, close, explain_oom(&t.settled, &model));
    t.config = &t.settled;
    TRY_GOTO(status, close, device_open(&t, dist, budgets));
    if (t.source.resume)
        TRY_GOTO(status, close, resume_algorithms_choose(&t.session, t.source.checkpoint));
    session_train_options(&t.session, &t.state.choices, &model, &options);
    TRY_GOTO(status, close,
             options.train ? session_plan(&t.session, &options) : session_plan_evaluation(&t.session, &options));
    status = answers ? answer(&t, out) : run(&t);
close:
    if (ranks_first(dist))
        report_block_print(t.config, &t.session, status);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    metrics_close(&t.metrics);
    if (t.report)
        run_record_close(t.report);
    saver_destroy(&t.saver);
    session_close(&t.session);
    ticker_stop(t.watchdog.ticker);
    ticker_stop(t.life.ticker);
    out_dir_release(&t, status);
    return status;
}
