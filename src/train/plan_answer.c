/* The answer to --plan.
 *
 * Collects the facts that accompany a plan and passes them to one of the printers of src/plan.  Choices are searched
 * only if the requested configuration does not fit, and the front only if it is shown: each of them makes some dozen
 * more plans.
 */
#include "train/run.h"

#include <inttypes.h>
#include <stdio.h>

#include "plan/plan_search.h"

#define CONFIGURATION_MAX 256

static void configuration_text(const struct session *session, char text[static CONFIGURATION_MAX])
{
    const struct model_config *model = &session->model->options.config;
    snprintf(text, CONFIGURATION_MAX,
             "%.2fM parameters, %" PRId32 " layers, %" PRId32 " heads, %" PRId32 " channels, block %" PRId32
             ", batch %" PRId64 " x %" PRId64 ", %s",
             (double)model_parameter_count_no_positions(model) / 1e6, model->n_layer, model->n_head, model->n_embd,
             model->block_size, session->config->batch_size, session->config->gradient_accumulation_steps,
             dtype_name(session->device.dtype));
}

static enum gt_status facts_print(const struct session *session, const struct plan_report_facts *facts)
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

/* Converts times to the forecast's scale.  Plans are compared at the rates of the search, so that their order is the
 * one that the search used. */
static void seconds_scale(struct search_choice *choices, int32_t count, double scale)
{
    for (int32_t i = 0; i < count; i++)
        choices[i].seconds *= scale;
}

/* Adds the search's request and result, the choices and the front. */
static enum gt_status searched(const struct session *session, struct plan_report_facts *facts,
                               struct search_choice choices[static SEARCH_CHOICES_MAX],
                               struct search_choice front[static SEARCH_FRONT_MAX])
{
    const struct search_request *request = &session->search.request;
    double seconds = search_update_seconds(session->model, &request->rates);
    double scale = seconds > 0.0 && facts->seconds_per_step > 0.0 ? facts->seconds_per_step / seconds : 1.0;
    bool front_asked = session->config->plan == CONFIG_PLAN_SVG || session->config->plan == CONFIG_PLAN_JSON_PARETO;
    facts->request = request;
    facts->search = &session->search.result;
    facts->choices = choices;
    if (session->search.result.candidates != 1)
        TRY(search_choices(session->mem, request, choices, &facts->choice_count));
    seconds_scale(choices, facts->choice_count, scale);
    if (!front_asked)
        return GT_OK;
    TRY(search_front(session->mem, request, front, &facts->front_count));
    seconds_scale(front, facts->front_count, scale);
    facts->front = front;
    return GT_OK;
}

enum gt_status plan_answer(struct session *session, const struct forecast *forecast)
{
    char configuration[CONFIGURATION_MAX];
    struct search_choice choices[SEARCH_CHOICES_MAX], front[SEARCH_FRONT_MAX];
    struct hostmem_counters host;
    configuration_text(session, configuration);
    struct plan_report_facts facts = {
        .configuration = configuration,
        .state_format = session->model->options.train ? state_format_name(session->model->options.states) : NULL,
        .state_bytes = session->model->options.train ? model_bytes_per_parameter(session->model) : 0.0,
        .device = session->device.info.device,
        .free_bytes = session->device.budget_bytes,
        .host_apart = !session->device.info.host_memory,
        .context_bytes = session->device.info.context_bytes,
        .budget_least = session_budget_of(session, session->plan->arena_bytes),
        .seconds_per_step = forecast->step_seconds,
        .steps = forecast->steps,
        .evaluation_seconds = forecast->evaluation_seconds,
        .evaluations = forecast->evaluations,
    };
    if (session->model->options.train)
        TRY(searched(session, &facts, choices, front));
    search_memo_close(&session->search.memo);
    hostmem_counters_get(session->mem, &host);
    uint64_t headroom = session_headroom_bytes(session);
    facts.host_bytes = host.live_bytes;
    facts.headroom_bytes = headroom > host.live_bytes ? headroom - host.live_bytes : 0;
    TRY(facts_print(session, &facts));
    return session_fits(session);
}
