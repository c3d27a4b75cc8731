/* The facts that accompany the answer to --plan.
 *
 * Alternatives are searched only if the requested configuration does not fit, and the front only if
 * it is shown: each of these searches makes some dozen more plans.  Prints, reads and times
 * nothing.
 */
#include "answer/plan_answer.h"

#include "config/config_key.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_search.h"
#include "session/session_budget.h"
#include "session/session_plan.h"

#define NEEDLESS_SHARE_MIN 0.01 /* of the time of an update */

/* Searches without the settings that save memory.  If that is faster by NEEDLESS_SHARE_MIN or more,
 * names them. */
static enum gt_status needless_find(const struct session *session, struct plan_report_facts *facts,
                                    char text[static PLAN_NEEDLESS_MAX])
{
    static const enum config_key keys[] = {CONFIG_KEY_micro_batch, CONFIG_KEY_recompute,
                                           CONFIG_KEY_loss_chunk};
    const struct search_request *request = &session->search.request;
    const struct session_saved none = {.states_chosen = true, .states = request->options.states};
    struct config config = *session->config;
    struct session open = *session;
    struct search_request free = *request;
    struct search_result result;
    size_t used = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (config_key_was_set(&config, keys[i]))
            used += (size_t)snprintf(text + used, PLAN_NEEDLESS_MAX - used, "%s%s=%s",
                                     used > 0 ? ", " : "", config_key_info_get(keys[i])->name,
                                     CONFIG_KEY_TEXT(&config, keys[i]));
        config.origin[keys[i]].source = NULL;
    }
    config.micro_batch = config.loss_chunk = 0;
    open.config = &config;
    session_train_options(&open, &none, &request->options.config, &free.options);
    free.pin_micro_batch = free.pin_recompute = free.pin_loss_chunk = false;
    free.memo = NULL;
    if (used == 0 || !session->search.result.fits)
        return GT_OK;
    enum gt_status status = plan_search(session->mem, &free, &result);
    facts->needless_share = 1.0 - result.found.seconds / session->search.result.found.seconds;
    facts->needless = status == GT_OK && facts->needless_share >= NEEDLESS_SHARE_MIN ? text : NULL;
    return status == GT_NO_FIT ? GT_OK : status;
}

/* Adds the search's request and result, the alternatives and the front. */
static enum gt_status searched(
    const struct session *session, struct plan_report_facts *facts,
    struct search_alternative alternatives[static SEARCH_ALTERNATIVES_MAX],
    struct search_alternative front[static SEARCH_FRONT_MAX])
{
    const struct search_request *request = &session->search.request;
    double seconds = measure_update_seconds(session->model, &request->rates, plan_cost_blocks);
    /* Plans are compared at the rates of the search, so that their order is the one that the search
     * used. */
    double scale = seconds > 0.0 && facts->forecast.step_seconds > 0.0
                       ? facts->forecast.step_seconds / seconds
                       : 1.0;
    bool shows_front = session->config->plan == CONFIG_PLAN_SVG ||
                       session->config->plan == CONFIG_PLAN_JSON_PARETO;
    facts->request = request;
    facts->search = &session->search.result;
    facts->alternatives = alternatives;
    if (!session->search.result.request_fits)
        TRY(search_alternatives(session->mem, request, alternatives, &facts->alternative_count));
    for (int32_t i = 0; i < facts->alternative_count; i++)
        alternatives[i].seconds *= scale;
    if (!shows_front)
        return GT_OK;
    TRY(search_front(session->mem, request, front, &facts->front_count));
    for (int32_t i = 0; i < facts->front_count; i++)
        front[i].seconds *= scale;
    facts->front = front;
    return GT_OK;
}

/* Plans the ranks with the fewest and the most elements, and sets the bytes of the smallest and the
 * largest. */
static enum gt_status ranks_plan(const struct session *session, uint64_t bytes[static 2])
{
    const struct search_request *request = &session->search.request;
    struct model_options options = session->model->options;
    struct measurement rank;
    int32_t ends[2] = {0};
    for (int32_t r = 1; r < options.ranks; r++) {
        const int64_t elements = measure_rank_elements(session->model, r);
        ends[0] = elements < measure_rank_elements(session->model, ends[0]) ? r : ends[0];
        ends[1] = elements > measure_rank_elements(session->model, ends[1]) ? r : ends[1];
    }
    for (int i = 0; i < 2; i++) {
        options.rank = ends[i];
        if (ends[i] == session->model->options.rank)
            continue;
        TRY(measure_options(session->mem, &request->plan, &options, &rank));
        bytes[0] = rank.bytes < bytes[0] ? rank.bytes : bytes[0];
        bytes[1] = rank.bytes > bytes[1] ? rank.bytes : bytes[1];
    }
    return GT_OK;
}

/* Describes the model and its batches in a line. */
static void configuration_describe(const struct session *session,
                                   char text[static PLAN_CONFIGURATION_MAX])
{
    const struct config *config = session->config;
    const struct model_config *model = &session->model->options.config;
    char ranks[40] = "";
    if (config->ranks > 1)
        snprintf(ranks, sizeof ranks, ", each of %" PRId64 " ranks", config->ranks);
    snprintf(text, PLAN_CONFIGURATION_MAX,
             "%.2fM parameters, %" PRId32 " layers, %" PRId32 " heads, %" PRId32
             " channels, block %" PRId32 ", batch %" PRId64 " x %" PRId64 ", %s%s",
             (double)model_parameter_count_no_positions(model) / 1e6, model->n_layer, model->n_head,
             model->n_embd, model->block_size, config->batch_size,
             config->gradient_accumulation_steps, dtype_name(session->device.dtype), ranks);
}

/* Adds what only the plan of a training run has. */
static enum gt_status training_add(const struct session *session, struct plan_answer *out)
{
    struct plan_report_facts *facts = &out->facts;
    facts->state_format = state_format_name(session->model->options.states);
    facts->state_bytes = model_bytes_per_parameter(session->model);
    TRY(searched(session, facts, out->alternatives, out->front));
    TRY(needless_find(session, facts, out->needless));
    if (!session->search.result.fits)
        TRY(session_pins_text(session, out->pins));
    facts->pins = session->search.result.fits ? NULL : out->pins;
    return facts->ranks > 1 ? ranks_plan(session, facts->rank_bytes) : GT_OK;
}

enum gt_status plan_answer_make(struct session *session, const struct forecast *forecast,
                                struct plan_answer *out)
{
    struct hostmem_counters host;
    configuration_describe(session, out->configuration);
    out->facts = (struct plan_report_facts){
        .configuration = out->configuration,
        .device = session->device.info.device,
        .free_bytes = session->device.machine_budget_bytes / session_sharers(session),
        .host_apart = !session->device.info.host_memory,
        .context_bytes = session->device.info.context_bytes,
        .frozen = session->model->options.config.lora.rank > 0,
        .budget_least = session_budget_of(session, session->plan->arena_bytes),
        .forecast = *forecast,
        .ranks = session->config->ranks,
        .rank_bytes = {session->plan->arena_bytes, session->plan->arena_bytes},
    };
    if (session->model->options.train)
        TRY(training_add(session, out));
    search_memo_close(&session->search.memo);
    hostmem_counters_get(session->mem, &host);
    const uint64_t headroom = session_headroom_bytes(session);
    out->facts.host_bytes = host.live_bytes;
    out->facts.headroom_bytes = headroom > host.live_bytes ? headroom - host.live_bytes : 0;
    return GT_OK;
}
