/* Prints the plan as JSON, for programs; the schema is in doc/plan.md.
 *
 * Contains every number of the text report, unrounded.  Members are written one after the other, as
 * jansson would write them with an indentation of two blanks, so that the planner needs no library.
 * Unknown values are null.
 */
#include "plan/plan_json.h"

#include "base/json_put.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_create.h"
#include "plan/plan_report.h"
#include "plan/plan_search.h"

#define PLAN_JSON_SCHEMA 1

static void categories_put(struct json_put *w, const uint64_t bytes[static CATEGORY_COUNT])
{
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        char format[64];
        snprintf(format, sizeof format, "%s:u", tensor_category_name((enum tensor_category)c));
        json_put(w, format, bytes[c]);
    }
    json_put(w, "}");
}

static void memory_put(struct json_put *w, const struct plan *plan,
                       const struct plan_report_facts *facts)
{
    const uint64_t total = plan_total_bytes(plan, facts), free_bytes = facts->free_bytes;
    json_put(w,
             "bytes:{ arena:u arena_bound:u host_arena:u run:u host:u context:u headroom:u total:u",
             plan->arena_bytes, plan->arena_bytes_bound, plan->host_bytes, plan->run_bytes,
             facts->host_bytes, facts->context_bytes, facts->headroom_bytes, total);
    if (free_bytes > 0)
        json_put(w, "free:u fits:b }", free_bytes, total <= free_bytes);
    else
        json_put(w, "free:s fits:s }", NULL, NULL);
    json_put(w, "segments:[");
    for (int32_t k = 0; k < plan->device_segments; k++)
        json_put(w, ":u", plan->segment[k].size_bytes);
    json_put(w, "] peak_program:s categories:{",
             plan->peak_program >= 0
                 ? program_kind_name(plan->graph->programs[plan->peak_program].kind)
                 : NULL);
    categories_put(w, plan->category_bytes);
    json_put(w, "host_categories:{");
    categories_put(w, plan->host_category_bytes);
    json_put(w, "unused:u phases:{", plan_unused_bytes(plan));
    json_put(w, "train:u evaluate:u generate:u }", plan->phase_bytes[0], plan->phase_bytes[1],
             plan->phase_bytes[2]);
}

/* Writes a program with its peak: the op with most live bytes, or null for a program without ops.
 */
static void program_put(struct json_put *w, const struct plan *plan, int32_t program)
{
    const struct plan_program *planned = &plan->program[program];
    const struct program *of = &plan->graph->programs[program];
    json_put(w, ":{ name:s phase:s ops:d bytes:u bytes_bound:u", program_kind_name(of->kind),
             program_phase_name(of->phase), of->count, planned->bytes, planned->bytes_bound);
    if (of->count == 0)
        json_put(w, "peak:s", NULL);
    else
        json_put(w, "peak:{ op_index:d op:s writes:s }", planned->peak_op,
                 op_declaration(of->ops[planned->peak_op].kind)->name,
                 plan_op_target(plan->graph, &of->ops[planned->peak_op]));
    json_put(w, "live_at_peak:{");
    categories_put(w, planned->live_bytes);
    json_put(w, "}");
}

static void forecast_put(struct json_put *w, const struct plan_report_facts *facts)
{
    const struct forecast *forecast = &facts->forecast;
    if (forecast->step_seconds > 0.0)
        json_put(
            w,
            "forecast:{ seconds_per_step:f offload_seconds:f seconds_per_token:f measured:b uncertainty:f "
            "steps:i seconds_per_evaluation:f evaluations:i evaluation_share:f total_seconds:f "
            "end_time:i }",
            forecast->step_seconds, forecast->offload_seconds, forecast->token_seconds,
            forecast->measured, forecast->uncertainty, forecast->steps,
            forecast->evaluation_seconds, forecast->evaluations,
            forecast_evaluation_share(forecast), forecast_seconds_left(forecast),
            forecast_end(forecast, forecast->now_wall_s));
    else
        json_put(w, "forecast:s", NULL);
    if (facts->ranks > 1)
        json_put(
            w,
            "ranks:{ ranks:u smallest_bytes:u largest_bytes:u exchange_bytes:f exchange_seconds:f "
            "alone_seconds_per_step:f }",
            facts->ranks, facts->rank_bytes[0], facts->rank_bytes[1], forecast->exchange_bytes,
            forecast->exchange_seconds, forecast->alone_seconds);
}

/* Writes the keys that a search may change, and the shape.  The levels of recompute are in the
 * order of the blocks. */
static void options_put(struct json_put *w, const struct model_options *options)
{
    const struct plan_choice *choice = &options->choice;
    const struct model_config *config = &options->config;
    json_put(
        w,
        "micro_batch:d micro_steps:d parts:d remainder_batch:d evaluate_batch:d loss_chunk:d offload_states:d offload_gradients:d offload_weights:d recompute:[",
        choice->micro_batch, options->micro_steps, model_parts(options), choice->remainder_batch,
        choice->evaluate_batch, choice->loss_chunk_rows, choice->offload.quarters[OFFLOAD_STATES],
        choice->offload.quarters[OFFLOAD_GRADIENTS], choice->offload.quarters[OFFLOAD_WEIGHTS]);
    for (int l = RECOMPUTE_OFFLOAD; l >= RECOMPUTE_NONE; l--) {
        const enum recompute_level level = (enum recompute_level)l;
        const int32_t blocks = recompute_blocks(&choice->recompute, level, config->n_layer);
        if (blocks > 0)
            json_put(w, ":{ level:s blocks:d }", recompute_level_name(level), blocks);
    }
    json_put(w, "] block_size:d n_layer:d n_head:d n_embd:d state_format:s }", config->block_size,
             config->n_layer, config->n_head, config->n_embd, state_format_name(options->states));
}

/* Writes alternatives, or points of the front, which have no kind. */
static void alternatives_put(struct json_put *w, const struct plan_report_facts *facts,
                             const struct search_alternative *alternatives, int32_t count)
{
    char changes[SEARCH_CHANGES_MAX];
    for (int32_t i = 0; i < count; i++) {
        json_put(w, ":{");
        if (alternatives == facts->alternatives)
            json_put(w, "kind:s equivalent:b", search_alternative_name(alternatives[i].kind),
                     search_alternative_equivalent(alternatives[i].kind));
        json_put(w, "changes:s arena:u seconds_modelled:f",
                 search_alternative_text(changes, &alternatives[i], &facts->request->options),
                 alternatives[i].arena_bytes, alternatives[i].seconds);
        options_put(w, &alternatives[i].options);
    }
    json_put(w, "]");
}

/* Writes the requested configuration and the search's result; null if there was no search. */
static void search_put(struct json_put *w, const struct plan_report_facts *facts)
{
    const struct search_result *search = facts->search;
    char changes[SEARCH_CHANGES_MAX];
    if (!search) {
        json_put(w, "search:s", NULL);
        return;
    }
    if (facts->request->share.device_bytes <= INT64_MAX)
        json_put(w, "search:{ arena_budget:u", facts->request->share.device_bytes);
    else
        json_put(w, "search:{ arena_budget:s", NULL);
    if (search->bytes_request != MEASURE_NEVER)
        json_put(w, "arena_asked:u", search->bytes_request);
    else
        json_put(w, "arena_asked:s", NULL);
    json_put(w, "arena_asked_at_least:b fits:b candidates:d changes:s", search->bytes_request_least,
             search->fits, search->candidates,
             search_changes_text(changes, &search->found.options, &facts->request->options));
    if (search->seconds_request > 0.0 && search->found.seconds > 0.0)
        json_put(w, "time_ratio_modelled:f chosen:{",
                 search->found.seconds / search->seconds_request);
    else
        json_put(w, "time_ratio_modelled:s chosen:{", NULL);
    options_put(w, &search->found.options);
    json_put(w, "}");
}

enum gt_status plan_print_json(const struct plan *plan, const struct plan_report_facts *facts,
                               FILE *out)
{
    struct json_put w = {.out = out};
    json_put(&w, ":{ schema:d configuration:s", PLAN_JSON_SCHEMA, facts->configuration);
    if (facts->state_format != NULL)
        json_put(&w, "states:{ format:s bytes_per_parameter:f }", facts->state_format,
                 facts->state_bytes);
    else
        json_put(&w, "states:s", NULL);
    json_put(&w, "device:s", facts->device);
    memory_put(&w, plan, facts);
    json_put(&w, "programs:[");
    for (int32_t p = 0; p < plan->program_count; p++)
        program_put(&w, plan, p);
    json_put(&w, "]");
    forecast_put(&w, facts);
    search_put(&w, facts);
    json_put(&w, "choices:[");
    alternatives_put(&w, facts, facts->alternatives, facts->alternative_count);
    if (facts->front != NULL) {
        json_put(&w, "pareto:[");
        alternatives_put(&w, facts, facts->front, facts->front_count);
    }
    json_put(&w, "}");
    return fprintf(out, "\n") > 0 && fflush(out) == 0 ? GT_OK : GT_IO;
}
