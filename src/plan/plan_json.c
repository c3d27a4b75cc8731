/* The plan as JSON, for programs; the schema is in doc/plan.md.
 *
 * Every number of the text report is here, unrounded.  The value is built whole and written at once, so a failure
 * leaves no half of it.  What is unknown is null.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "plan/plan_internal.h"

#define PLAN_JSON_SCHEMA 1

static json_t *bytes_value(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *text_value(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* Steals `value`; false when either could not be had.  jansson lets a NULL value through as a failure. */
static bool set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

static json_t *categories_value(const uint64_t bytes[static CATEGORY_COUNT])
{
    json_t *object = json_object();
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        if (!set(object, tensor_category_name((enum tensor_category)c), bytes_value(bytes[c]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
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
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *segments_value(const struct plan *plan)
{
    json_t *array = json_array();
    for (int32_t k = 0; k < plan->segment_count; k++) {
        if (json_array_append_new(array, bytes_value(plan->segment[k].size_bytes)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* The op with most live bytes of a program; null for a program without ops. */
static json_t *peak_value(const struct plan *plan, int32_t program)
{
    const struct program *of = program >= 0 ? &plan->graph->programs[program] : NULL;
    if (!of || of->count == 0)
        return json_null();
    const struct op *op = &of->ops[plan->program[program].peak_op];
    json_t *object = json_object();
    bool good = set(object, "op_index", json_integer(plan->program[program].peak_op)) &&
                set(object, "op", json_string(op_declaration(op->kind)->name)) &&
                set(object, "writes", json_string(plan_op_target(plan->graph, op)));
    if (good)
        return object;
    json_decref(object);
    return NULL;
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
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *programs_value(const struct plan *plan)
{
    json_t *array = json_array();
    for (int32_t p = 0; p < plan->program_count; p++) {
        if (json_array_append_new(array, program_value(plan, p)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *phases_value(const struct plan *plan)
{
    json_t *object = json_object();
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++) {
        if (!set(object, program_phase_name((enum program_phase)phase), bytes_value(plan->phase_bytes[phase]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
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
                set(object, "steps", json_integer(facts->steps)) &&
                set(object, "seconds_per_evaluation", json_real(facts->evaluation_seconds)) &&
                set(object, "evaluations", json_integer(facts->evaluations)) &&
                set(object, "evaluation_share", json_real(forecast.evaluation_share)) &&
                set(object, "total_seconds", json_real(forecast.total_seconds)) &&
                set(object, "end_time", json_integer(forecast.end_wall_s));
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *report_value(const struct plan *plan, const struct plan_report_facts *facts)
{
    json_t *object = json_object();
    const char *peak = plan->peak_program >= 0 ? plan->graph->programs[plan->peak_program].name : NULL;
    bool good = set(object, "schema", json_integer(PLAN_JSON_SCHEMA)) &&
                set(object, "configuration", text_value(facts->configuration)) &&
                set(object, "device", text_value(facts->device)) && set(object, "bytes", memory_value(plan, facts)) &&
                set(object, "segments", segments_value(plan)) && set(object, "peak_program", text_value(peak)) &&
                set(object, "categories", categories_value(plan->category_bytes)) &&
                set(object, "unused", bytes_value(plan_unused_bytes(plan))) &&
                set(object, "phases", phases_value(plan)) && set(object, "programs", programs_value(plan)) &&
                set(object, "forecast", forecast_value(facts));
    if (good)
        return object;
    json_decref(object);
    return NULL;
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
    if (!written) {
        log_error("the plan could not be written");
        return GT_IO;
    }
    return GT_OK;
}
