/* Prints the plan as JSON, for programs; the schema is in doc/plan.md.
 *
 * Contains every number of the text report, unrounded.  The value is built completely and written at once, so that a
 * failure leaves no partial output.  Unknown values are null.
 */
#include "base/json.h"
#include "plan/plan_internal.h"
#include "plan/plan_search.h"

#define PLAN_JSON_SCHEMA 1

static json_t *text_value(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *categories_value(const uint64_t bytes[static CATEGORY_COUNT])
{
    json_t *object = json_object();
    bool good = true;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        good = good && json_object_set_new(object, tensor_category_name((enum tensor_category)c),
                                           json_integer((json_int_t)bytes[c])) == 0;
    return json_whole(object, !good);
}

static json_t *memory_value(const struct plan *plan, const struct plan_report_facts *facts)
{
    const uint64_t total = plan_total_bytes(plan, facts), free_bytes = facts->free_bytes;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "arena", (json_int_t)plan->arena_bytes,
                     "arena_bound", (json_int_t)plan->arena_bytes_bound, "host_arena", (json_int_t)plan->host_bytes,
                     "run", (json_int_t)plan->run_bytes, "host", (json_int_t)facts->host_bytes, "context",
                     (json_int_t)facts->context_bytes, "headroom", (json_int_t)facts->headroom_bytes, "total",
                     (json_int_t)total, "free", free_bytes ? json_integer((json_int_t)free_bytes) : json_null(), "fits",
                     free_bytes ? json_boolean(total <= free_bytes) : json_null());
}

static json_t *segments_value(const struct plan *plan)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t k = 0; k < plan->device_segments; k++)
        good = good && json_array_append_new(array, json_integer((json_int_t)plan->segment[k].size_bytes)) == 0;
    return json_whole(array, !good);
}

/* Returns the op with most live bytes of a program; null for a program without ops. */
static json_t *peak_value(const struct plan *plan, int32_t program)
{
    const struct program *of = &plan->graph->programs[program];
    if (of->count == 0)
        return json_null();
    const struct op *op = &of->ops[plan->program[program].peak_op];
    return json_pack("{s:i, s:s, s:s}", "op_index", plan->program[program].peak_op, "op",
                     op_declaration(op->kind)->name, "writes", plan_op_target(plan->graph, op));
}

static json_t *programs_value(const struct plan *plan)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t p = 0; p < plan->program_count; p++) {
        const struct plan_program *own = &plan->program[p];
        const struct program *of = &plan->graph->programs[p];
        json_t *value =
            json_pack("{s:s, s:s, s:i, s:I, s:I, s:o, s:o}", "name", of->name, "phase", program_phase_name(of->phase),
                      "ops", of->count, "bytes", (json_int_t)own->bytes, "bytes_bound", (json_int_t)own->bytes_bound,
                      "peak", peak_value(plan, p), "live_at_peak", categories_value(own->live_bytes));
        good = good && json_array_append_new(array, value) == 0;
    }
    return json_whole(array, !good);
}

static json_t *phases_value(const struct plan *plan)
{
    json_t *object = json_object();
    bool good = true;
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++)
        good = good && json_object_set_new(object, program_phase_name((enum program_phase)phase),
                                           json_integer((json_int_t)plan->phase_bytes[phase])) == 0;
    return json_whole(object, !good);
}

static json_t *forecast_value(const struct plan_report_facts *facts)
{
    struct plan_forecast forecast;
    if (!(facts->seconds_per_step > 0.0))
        return json_null();
    plan_forecast_make(facts, &forecast);
    return json_pack("{s:f, s:b, s:f, s:I, s:f, s:I, s:f, s:f, s:I}", "seconds_per_step", facts->seconds_per_step,
                     "measured", (int)facts->measured, "uncertainty", facts->uncertainty, "steps",
                     (json_int_t)facts->steps, "seconds_per_evaluation", facts->evaluation_seconds, "evaluations",
                     (json_int_t)facts->evaluations, "evaluation_share", forecast.evaluation_share, "total_seconds",
                     forecast.total_seconds, "end_time", (json_int_t)forecast.end_wall_s);
}

/* Returns [{"level": ..., "blocks": ...}], in the order of the blocks. */
static json_t *recompute_value(const struct model_options *options)
{
    json_t *array = json_array();
    bool good = true;
    for (int l = RECOMPUTE_OFFLOAD; l >= RECOMPUTE_NONE; l--) {
        const enum recompute_level level = (enum recompute_level)l;
        int32_t blocks = recompute_blocks(&options->choice.recompute, level, options->config.n_layer);
        if (blocks > 0)
            good = good && json_array_append_new(array, json_pack("{s:s, s:i}", "level", recompute_level_name(level),
                                                                  "blocks", blocks)) == 0;
    }
    return json_whole(array, !good);
}

/* Returns the keys that a search may change, and the shape. */
static json_t *options_value(const struct model_options *options)
{
    const struct plan_choice *choice = &options->choice;
    const struct model_config *config = &options->config;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:s}", "micro_batch", choice->micro_batch,
                     "micro_steps", options->micro_steps, "remainder_batch", choice->remainder_batch, "evaluate_batch",
                     choice->evaluate_batch, "loss_chunk", choice->loss_chunk_rows, "offload_quarters", choice->offload,
                     "recompute", recompute_value(options), "block_size", config->block_size, "n_layer",
                     config->n_layer, "n_head", config->n_head, "n_embd", config->n_embd, "state_format",
                     state_format_name(options->states));
}

/* Returns a choice, or a point of the front, which has no kind. */
static json_t *choice_value(const struct plan_report_facts *facts, const struct search_choice *choice, bool named)
{
    char text[SEARCH_CHANGES_MAX];
    json_t *options = options_value(&choice->options);
    json_t *object = json_pack("{s:s*, s:o*, s:s, s:I, s:f}", "kind", named ? search_choice_name(choice->kind) : NULL,
                               "equivalent", named ? json_boolean(search_choice_equivalent(choice->kind)) : NULL,
                               "changes", search_choice_text(text, choice, &facts->request->options), "arena",
                               (json_int_t)choice->arena_bytes, "seconds_modelled", choice->seconds);
    const bool good = options != NULL && json_object_update(object, options) == 0;
    json_decref(options);
    return json_whole(object, !good);
}

static json_t *choices_value(const struct plan_report_facts *facts, const struct search_choice *choices, int32_t count,
                             bool named)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t i = 0; i < count; i++)
        good = good && json_array_append_new(array, choice_value(facts, &choices[i], named)) == 0;
    return json_whole(array, !good);
}

/* Returns the requested configuration and the search's result; null if there was no search. */
static json_t *search_value(const struct plan_report_facts *facts)
{
    const struct search_result *search = facts->search;
    char text[SEARCH_CHANGES_MAX];
    if (!search)
        return json_null();
    const uint64_t budget = facts->request->budget_bytes;
    const bool timed = search->seconds_request > 0.0 && search->seconds > 0.0;
    return json_pack("{s:o, s:I, s:b, s:b, s:i, s:s, s:o, s:o}", "arena_budget",
                     budget <= INT64_MAX ? json_integer((json_int_t)budget) : json_null(), "arena_asked",
                     (json_int_t)search->bytes_request, "arena_asked_at_least", (int)search->bytes_request_least,
                     "fits", (int)search->fits, "candidates", search->candidates, "changes",
                     search_changes_text(text, &search->options, &facts->request->options), "time_ratio_modelled",
                     timed ? json_real(search->seconds / search->seconds_request) : json_null(), "chosen",
                     options_value(&search->options));
}

static json_t *report_value(const struct plan *plan, const struct plan_report_facts *facts)
{
    json_t *states = facts->state_format ? json_pack("{s:s, s:f}", "format", facts->state_format, "bytes_per_parameter",
                                                     facts->state_bytes)
                                         : json_null();
    const char *peak = plan->peak_program >= 0 ? plan->graph->programs[plan->peak_program].name : NULL;
    json_t *report = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", PLAN_JSON_SCHEMA,
        "configuration", text_value(facts->configuration), "states", states, "device", text_value(facts->device),
        "bytes", memory_value(plan, facts), "segments", segments_value(plan), "peak_program", text_value(peak),
        "categories", categories_value(plan->category_bytes), "host_categories",
        categories_value(plan->host_category_bytes), "unused", (json_int_t)plan_unused_bytes(plan), "phases",
        phases_value(plan), "programs", programs_value(plan), "forecast", forecast_value(facts), "search",
        search_value(facts), "choices", choices_value(facts, facts->choices, facts->choice_count, true));
    const bool front = facts->front != NULL;
    return json_whole(report,
                      front && json_object_set_new(report, "pareto",
                                                   choices_value(facts, facts->front, facts->front_count, false)) != 0);
}

enum gt_status plan_print_json(const struct plan *plan, const struct plan_report_facts *facts, FILE *out)
{
    json_t *report = report_value(plan, facts);
    if (!report)
        return FAIL(GT_NO_MEMORY, "out of memory: the plan's JSON could not be made, or a text in it is not UTF-8");
    char *text;
    enum gt_status status = json_text(report, 2, &text);
    json_decref(report);
    TRY(status);
    bool written = fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    free(text);
    return written ? GT_OK : GT_IO;
}
