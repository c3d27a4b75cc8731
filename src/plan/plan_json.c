/* Prints the plan as JSON, for programs; the schema is in doc/plan.md.
 *
 * Contains every number of the text report, unrounded.  The value is built completely and written at once, so that a
 * failure leaves no partial output.  Unknown values are null.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "plan/plan_internal.h"
#include "plan/plan_search.h"

#define PLAN_JSON_SCHEMA 1

static json_t *bytes_value(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *text_value(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* Sets a member and takes over `value`.  Returns false when there was no memory for either: jansson treats a NULL value
 * as a failure. */
static bool set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

/* Returns a value that was completed; else releases it and returns NULL. */
static json_t *whole(json_t *value, bool good)
{
    if (good)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *categories_value(const uint64_t bytes[static CATEGORY_COUNT])
{
    json_t *object = json_object();
    bool good = true;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        good = good && set(object, tensor_category_name((enum tensor_category)c), bytes_value(bytes[c]));
    return whole(object, good);
}

static json_t *memory_value(const struct plan *plan, const struct plan_report_facts *facts)
{
    json_t *object = json_object();
    uint64_t total = plan_total_bytes(plan, facts);
    bool good =
        set(object, "arena", bytes_value(plan->arena_bytes)) &&
        set(object, "arena_bound", bytes_value(plan->arena_bytes_bound)) &&
        set(object, "run", bytes_value(plan->run_bytes)) && set(object, "host", bytes_value(facts->host_bytes)) &&
        set(object, "context", bytes_value(facts->context_bytes)) &&
        set(object, "headroom", bytes_value(facts->headroom_bytes)) && set(object, "total", bytes_value(total)) &&
        set(object, "free", facts->free_bytes ? bytes_value(facts->free_bytes) : json_null()) &&
        set(object, "fits", facts->free_bytes ? json_boolean(total <= facts->free_bytes) : json_null());
    return whole(object, good);
}

static json_t *segments_value(const struct plan *plan)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t k = 0; k < plan->segment_count; k++)
        good = good && json_array_append_new(array, bytes_value(plan->segment[k].size_bytes)) == 0;
    return whole(array, good);
}

/* Returns the op with most live bytes of a program; null for a program without ops. */
static json_t *peak_value(const struct plan *plan, int32_t program)
{
    const struct program *of = program >= 0 ? &plan->graph->programs[program] : NULL;
    if (!of || of->count == 0)
        return json_null();
    const struct op *op = &of->ops[plan->program[program].peak_op];
    return json_pack("{s:i, s:s, s:s}", "op_index", plan->program[program].peak_op, "op",
                     op_declaration(op->kind)->name, "writes", plan_op_target(plan->graph, op));
}

static json_t *program_value(const struct plan *plan, int32_t program)
{
    const struct plan_program *own = &plan->program[program];
    const struct program *of = &plan->graph->programs[program];
    json_t *object = json_object();
    bool good = set(object, "name", json_string(of->name)) &&
                set(object, "phase", json_string(program_phase_name(of->phase))) &&
                set(object, "ops", json_integer(of->count)) && set(object, "bytes", bytes_value(own->bytes)) &&
                set(object, "bytes_bound", bytes_value(own->bytes_bound)) &&
                set(object, "peak", peak_value(plan, program)) &&
                set(object, "live_at_peak", categories_value(own->live_bytes));
    return whole(object, good);
}

static json_t *programs_value(const struct plan *plan)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t p = 0; p < plan->program_count; p++)
        good = good && json_array_append_new(array, program_value(plan, p)) == 0;
    return whole(array, good);
}

static json_t *phases_value(const struct plan *plan)
{
    json_t *object = json_object();
    bool good = true;
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++)
        good =
            good && set(object, program_phase_name((enum program_phase)phase), bytes_value(plan->phase_bytes[phase]));
    return whole(object, good);
}

static json_t *forecast_value(const struct plan_report_facts *facts)
{
    if (!(facts->seconds_per_step > 0.0))
        return json_null();
    struct plan_forecast forecast;
    plan_forecast_make(facts, &forecast);
    json_t *object = json_object();
    bool good = set(object, "seconds_per_step", json_real(facts->seconds_per_step)) &&
                set(object, "measured", json_boolean(facts->measured)) &&
                set(object, "uncertainty", json_real(facts->uncertainty)) &&
                set(object, "steps", json_integer(facts->steps)) &&
                set(object, "seconds_per_evaluation", json_real(facts->evaluation_seconds)) &&
                set(object, "evaluations", json_integer(facts->evaluations)) &&
                set(object, "evaluation_share", json_real(forecast.evaluation_share)) &&
                set(object, "total_seconds", json_real(forecast.total_seconds)) &&
                set(object, "end_time", json_integer(forecast.end_wall_s));
    return whole(object, good);
}

/* Returns [{"level": ..., "blocks": ...}], in the order of the blocks. */
static json_t *recompute_value(const struct model_options *options)
{
    json_t *array = json_array();
    bool good = true;
    for (int l = RECOMPUTE_FULL; l >= RECOMPUTE_NONE; l--) {
        const enum recompute_level level = (enum recompute_level)l;
        int32_t blocks = recompute_blocks(&options->choice.recompute, level, options->config.n_layer);
        if (blocks > 0)
            good = good && json_array_append_new(array, json_pack("{s:s, s:i}", "level", recompute_level_name(level),
                                                                  "blocks", blocks)) == 0;
    }
    return whole(array, good);
}

/* Sets the keys that a search may change, and the shape. */
static bool options_set(json_t *object, const struct model_options *options)
{
    return set(object, "micro_batch", json_integer(options->choice.micro_batch)) &&
           set(object, "micro_steps", json_integer(options->micro_steps)) &&
           set(object, "remainder_batch", json_integer(options->choice.remainder_batch)) &&
           set(object, "evaluate_batch", json_integer(options->choice.evaluate_batch)) &&
           set(object, "loss_chunk", json_integer(options->choice.loss_chunk_rows)) &&
           set(object, "recompute", recompute_value(options)) &&
           set(object, "block_size", json_integer(options->config.block_size)) &&
           set(object, "n_layer", json_integer(options->config.n_layer)) &&
           set(object, "n_head", json_integer(options->config.n_head)) &&
           set(object, "n_embd", json_integer(options->config.n_embd)) &&
           set(object, "state_format", json_string(state_format_name(options->states)));
}

static json_t *choice_value(const struct plan_report_facts *facts, const struct search_choice *choice, bool named)
{
    char text[SEARCH_CHANGES_MAX];
    json_t *object = json_object();
    bool good = !named || (set(object, "kind", json_string(search_choice_name(choice->kind))) &&
                           set(object, "equivalent", json_boolean(search_choice_equivalent(choice->kind))));
    good = good && set(object, "changes", json_string(search_choice_text(text, choice, &facts->request->options))) &&
           set(object, "arena", bytes_value(choice->arena_bytes)) &&
           set(object, "seconds_modelled", json_real(choice->seconds)) && options_set(object, &choice->options);
    return whole(object, good);
}

static json_t *choices_value(const struct plan_report_facts *facts, const struct search_choice *choices, int32_t count,
                             bool named)
{
    json_t *array = json_array();
    bool good = true;
    for (int32_t i = 0; i < count; i++)
        good = good && json_array_append_new(array, choice_value(facts, &choices[i], named)) == 0;
    return whole(array, good);
}

/* Returns the requested configuration and the search's result; null if there was no search. */
static json_t *search_value(const struct plan_report_facts *facts)
{
    const struct search_result *search = facts->search;
    char text[SEARCH_CHANGES_MAX];
    if (!search)
        return json_null();
    uint64_t budget = facts->request->budget_bytes;
    bool timed = search->seconds_request > 0.0;
    json_t *object = json_object(), *chosen = json_object();
    bool good =
        set(object, "arena_budget", budget <= INT64_MAX ? bytes_value(budget) : json_null()) &&
        set(object, "arena_asked", bytes_value(search->bytes_request)) &&
        set(object, "arena_asked_at_least", json_boolean(search->bytes_request_least)) &&
        set(object, "fits", json_boolean(search->fits)) &&
        set(object, "candidates", json_integer(search->candidates)) &&
        set(object, "changes", json_string(search_changes_text(text, &search->options, &facts->request->options))) &&
        set(object, "time_ratio_modelled",
            timed && search->seconds > 0.0 ? json_real(search->seconds / search->seconds_request) : json_null()) &&
        options_set(chosen, &search->options) && json_object_set(object, "chosen", chosen) == 0;
    json_decref(chosen);
    return whole(object, good);
}

static json_t *states_value(const struct plan_report_facts *facts)
{
    if (!facts->state_format)
        return json_null();
    return json_pack("{s:s, s:f}", "format", facts->state_format, "bytes_per_parameter", facts->state_bytes);
}

static json_t *report_value(const struct plan *plan, const struct plan_report_facts *facts)
{
    json_t *object = json_object();
    const char *peak = plan->peak_program >= 0 ? plan->graph->programs[plan->peak_program].name : NULL;
    bool good = set(object, "schema", json_integer(PLAN_JSON_SCHEMA)) &&
                set(object, "configuration", text_value(facts->configuration)) &&
                set(object, "states", states_value(facts)) && set(object, "device", text_value(facts->device)) &&
                set(object, "bytes", memory_value(plan, facts)) && set(object, "segments", segments_value(plan)) &&
                set(object, "peak_program", text_value(peak)) &&
                set(object, "categories", categories_value(plan->category_bytes)) &&
                set(object, "unused", bytes_value(plan_unused_bytes(plan))) &&
                set(object, "phases", phases_value(plan)) && set(object, "programs", programs_value(plan)) &&
                set(object, "forecast", forecast_value(facts)) && set(object, "search", search_value(facts)) &&
                set(object, "choices", choices_value(facts, facts->choices, facts->choice_count, true)) &&
                (!facts->front || set(object, "pareto", choices_value(facts, facts->front, facts->front_count, false)));
    return whole(object, good);
}

enum gt_status plan_print_json(const struct plan *plan, const struct plan_report_facts *facts, FILE *out)
{
    json_t *report = report_value(plan, facts);
    if (!report) {
        log_error("out of memory: the plan's JSON could not be made, or a text in it is not UTF-8");
        return GT_NO_MEMORY;
    }
    char *text;
    enum gt_status status = json_text(report, 2, &text);
    json_decref(report);
    TRY(status);
    bool written = fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    free(text);
    return written ? GT_OK : GT_IO;
}
