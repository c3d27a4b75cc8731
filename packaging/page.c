/* The planner for a page: doc/fit.html calls these functions in WebAssembly (packaging/page).
 *
 * Answers as gpt-train --plan would for a card, without data, devices, files and clock: what a
 * person pastes comes in as text, the answer goes to standard output and each log line to standard
 * error.  The page makes a new instance for each question.
 */
#include "answer/explain_oom_text.h"
#include "answer/plan_answer.h"
#include "base/size.h"
#include "config/config_check.h"
#include "config/config_file.h"
#include "config/config_key.h"
#include "io/known_models.h"
#include "model/parameters.h"
#include "plan/plan_json.h"
#include "plan/plan_svg.h"
#include "session/session_device.h"
#include "session/session_plan.h"
#include "train/forecast.h"

#define GPT2_VOCAB_SIZE 50304 /* what gpt-train assumes without data */

/* Prints a line for each card: its id, its name, its backend. */
void fit_cards(void);
/* Answers a question in parts, each of which ends in a form feed: what the message means, the
 * shape, the plan as JSON and as a picture.  Lines of the configuration are logged as
 * "config.py:LINE:COLUMN: ...".  `message` may be empty. `card` is the id of a card; empty: that of
 * the message.  Returns 0, or an exit status after a log line. */
int fit_answer(const char *configuration, const char *message, const char *card, int64_t now_s);

/* A page has no home folder, and the planner no file.c. */
const char *file_expand_home(char out[static FILE_PATH_MAX], const char *path)
{
    (void)out;
    return path;
}

void fit_cards(void)
{
    struct device_profile card;
    for (int32_t i = 0; i < device_profile_count(); i++) {
        device_profile_get(i, &card);
        printf("%s\t%s\t%s\n", card.id, card.name, card.backend);
    }
    fflush(stdout);
}

static enum gt_status configuration_read(const char *text, struct config *out)
{
    TRY(config_parse_text(out, "config.py", text, strlen(text)));
    return config_check(out);
}

/* Sets the model's shape: the configuration's, or that of the known model that init_from names. */
static enum gt_status model_set(struct config *config, struct model_config *out)
{
    const bool crop = config_key_was_set(config, CONFIG_KEY_block_size);
    struct known_model known;
    char near[KNOWN_MODELS_TEXT_MAX];
    (void)known_models_near(near, config->init_from);
    if (strcmp(config->init_from, "scratch") == 0) {
        session_model_resolve(config, GPT2_VOCAB_SIZE, out);
        return GT_OK;
    }
    if (!known_model_find(config->init_from, &known))
        return FAIL(GT_USAGE,
                    "init_from='%s': this page cannot read checkpoints; gpt-train --plan does%s%s",
                    config->init_from, near[0] != '\0' ? "; it knows " : "", near);
    *out = known.config;
    if (out->position == POSITION_ROPE) {
        config->n_layer = out->n_layer;
        config->block_size = min_i64(config->block_size, out->max_positions);
        out->block_size = (int32_t)config->block_size;
        out->dropout = (float)config->dropout;
        return GT_OK;
    }
    if (crop && config->block_size > out->block_size)
        return FAIL(GT_USAGE, "block_size=%" PRId64 " is more than the %" PRId32 " positions of %s",
                    config->block_size, out->block_size, config->init_from);
    config->n_layer = out->n_layer;
    if (crop && config->block_size < out->block_size)
        out->block_size = (int32_t)config->block_size;
    config->block_size = out->block_size;
    out->dropout = (float)config->dropout;
    return GT_OK;
}

/* Adds the adapters that the configuration asks for. */
static enum gt_status lora_set(const struct config *config, struct model_config *model)
{
    if (config->lora_rank == 0)
        return GT_OK;
    if (strcmp(config->lora_targets, "all-linear") != 0)
        return FAIL(
            GT_USAGE,
            "lora_targets='%s': this page plans adapters of all-linear; gpt-train --plan of others",
            config->lora_targets);
    model->lora = (struct lora_config){.rank = (int32_t)config->lora_rank,
                                       .alpha = 2.0 * (double)config->lora_rank,
                                       .targets = parameters_lora_targets(model)};
    return GT_OK;
}

static enum gt_status parts_print(const struct session *session,
                                  const struct plan_report_facts *facts)
{
    const struct config *config = session->config;
    const struct model_config *model = &session->model->options.config;
    struct plan_report_facts plain = *facts;
    plain.front = NULL;
    printf("\f%s\t%" PRId64 "\t%" PRId64 "\t%" PRIu64 "\t%d\t%d\t%" PRIu64 "\f",
           config->device_profile, config->batch_size, config->gradient_accumulation_steps,
           (uint64_t)model_parameter_count(model), model->vocab_size,
           model->norm == NORM_LAYERNORM && model->position == POSITION_LEARNED,
           session->device.machine_budget_bytes);
    TRY(plan_print_json(session->plan, &plain, stdout));
    fputc('\f', stdout);
    return plan_print_svg(session->mem, session->plan, facts, stdout);
}

static enum gt_status plan_make(struct hostmem *mem, const struct config *config,
                                const struct device_profile *card, const struct model_config *model,
                                int64_t now_s)
{
    struct session session;
    struct model_options options;
    struct forecast forecast;
    struct plan_answer answer;
    const struct session_saved choices = {.states_chosen = false};
    TRY(session_open_profile(mem, config, card, &session));
    session_train_options(&session, &choices, model, &options);
    TRY(options.train ? session_plan_make(&session, &options)
                      : session_plan_evaluation(&session, &options));
    session_rates_profile(&session);
    forecast_model(&session, 0, 2 * evaluation_runs(config, session.model), &forecast);
    forecast_hours_set(&forecast, config);
    forecast.now_wall_s = now_s;
    TRY(plan_answer_make(&session, &forecast, &answer));
    return parts_print(&session, &answer.facts);
}

int fit_answer(const char *configuration, const char *message, const char *card, int64_t now_s)
{
    static struct config config; /* 30 KiB of paths */
    struct device_profile profile = {.memory_bytes = 0};
    struct model_config model;
    struct hostmem *mem;
    config_defaults(&config, CONFIG_TRAIN);
    config.wall_s = now_s;
    config.plan = CONFIG_PLAN_SVG;
    snprintf(config.device_profile, sizeof config.device_profile, "%s", card);
    enum gt_status status = configuration_read(configuration, &config);
    if (status == GT_OK && card[0] != '\0')
        status = device_profile_named(card, &profile);
    THEN(status, model_set(&config, &model));
    THEN(status, lora_set(&config, &model));
    if (config.hours > 0.0)
        config.max_iters = RUN_LENGTH_MAX - 1; /* as run_resolve() */
    if (status == GT_OK && message[0] != '\0')
        status = explain_oom_text("message", message, strlen(message), &config, &model, &profile);
    if (status == GT_OK && config.device_profile[0] == '\0')
        status = FAIL(GT_USAGE,
                      "the message names no memory of a card that is known here; choose the card");
    THEN(status, hostmem_create(&mem));
    THEN(status, plan_make(mem, &config, &profile, &model, now_s));
    fflush(stdout);
    return status_exit_code(status);
}
