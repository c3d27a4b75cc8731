/* Prints the plan as one screen of text, and computes the sums that the reports share.
 *
 * Some 24 lines, folded at blanks to 80 columns or the terminal's width, never truncated: the model
 * and the device, the memory that it needs, the table of categories at the peak, the place of the
 * peak, the needs of the other phases, and the forecast.  If the requested configuration does not
 * fit, some more lines: the bytes that are missing, the changes, and the alternatives that fit.
 * Everything comes from the plan and the facts; nothing is computed about the model here.
 */
#include "plan/plan_report.h"

#include <stdarg.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_create.h"
#include "plan/plan_search.h"

#define BAR_WIDTH 40
#define LINE_WIDTH 80
#define LINE_BYTES_MAX 4096
#define HEAD_INDENT 10
#define ALTERNATIVE_INDENT 35
#define LINE(out, ...) plan_line_print(out, HEAD_INDENT, __VA_ARGS__)
#define SECONDS_MAX 1e15 /* the end of a longer run is not a date */

uint64_t plan_unused_bytes(const struct plan *plan)
{
    uint64_t used = 0;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        used += plan->category_bytes[c];
    return plan->arena_bytes - used;
}

uint64_t plan_total_bytes(const struct plan *plan, const struct plan_report_facts *facts)
{
    uint64_t host = facts->host_apart ? 0 : facts->host_bytes;
    return plan->arena_bytes + host + facts->context_bytes + facts->headroom_bytes;
}

double forecast_seconds_left(const struct forecast *forecast)
{
    return forecast->step_seconds * (double)forecast->steps +
           forecast->evaluation_seconds * (double)forecast->evaluations;
}

double forecast_evaluation_share(const struct forecast *forecast)
{
    const double total = forecast_seconds_left(forecast);
    return total > 0.0 ? forecast->evaluation_seconds * (double)forecast->evaluations / total : 0.0;
}

int64_t forecast_end(const struct forecast *forecast, int64_t now_wall_s)
{
    const double seconds = forecast_seconds_left(forecast);
    return now_wall_s + (int64_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX);
}

void plan_line_print(FILE *out, int indent, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t length = strlen(line);
    while (length > 0 && line[length - 1] == ' ')
        line[--length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    const size_t columns = terminal_columns(out);
    terminal_fold(out, line, columns > 0 ? columns : LINE_WIDTH, indent);
}

static void head_print(const struct plan *plan, const struct plan_report_facts *facts, FILE *out)
{
    uint64_t needed = plan_total_bytes(plan, facts);
    LINE(out, "Plan      %s", facts->configuration ? facts->configuration : "-");
    if (facts->state_format)
        LINE(out, "Weights   %.2f bytes per parameter, gradients and optimizer included (%s)",
             facts->state_bytes, facts->state_format);
    LINE(out, "Device    %s", facts->device ? facts->device : "-");
    if (facts->free_bytes == 0) {
        LINE(out, "Memory    %s needed", LOG_BYTES(needed));
        return;
    }
    bool fits = needed <= facts->free_bytes;
    LINE(out, "Memory    %s needed, %s available: %s%s%s", LOG_BYTES(needed),
         LOG_BYTES(facts->free_bytes), fits ? "fits, " : "DOES NOT FIT, ",
         LOG_BYTES(fits ? facts->free_bytes - needed : needed - facts->free_bytes),
         fits ? " to spare" : " short");
}

char *plan_offload_text(char text[static PLAN_OFFLOAD_TEXT_MAX], const struct plan *plan,
                        bool frozen)
{
    const uint64_t inputs = plan->host_category_bytes[CATEGORY_ACTIVATION],
                   gradients = plan->host_category_bytes[CATEGORY_GRADIENT],
                   weights = plan->host_category_bytes[CATEGORY_PARAMETER];
    const struct {
        const char *name;
        uint64_t bytes;
    } moved[] = {{"optimizer state", plan->host_bytes - inputs - gradients - weights},
                 {"gradients", gradients},
                 {frozen ? "frozen weights" : "weights", weights},
                 {"blocks' inputs", inputs}};
    int used = 0, left = 0;
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        left += moved[i].bytes > 0;
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        if (moved[i].bytes > 0)
            used += snprintf(text + used, PLAN_OFFLOAD_TEXT_MAX - (size_t)used, "%s of %s%s",
                             LOG_BYTES(moved[i].bytes), moved[i].name,
                             --left == 0 ? ""
                             : left == 1 ? " and "
                                         : ", ");
    return text;
}

static void share_print(const struct plan *plan, const char *name, uint64_t bytes, FILE *out)
{
    char bar[BAR_WIDTH + 1];
    double share = plan->arena_bytes > 0 ? (double)bytes / (double)plan->arena_bytes : 0.0;
    int length = (int)(share * BAR_WIDTH + 0.5);
    memset(bar, '#', sizeof bar);
    bar[length < 0 ? 0 : length > BAR_WIDTH ? BAR_WIDTH : length] = '\0';
    LINE(out, "  %-12s %12s %6.2f %%  %s", name, LOG_BYTES(bytes), 100.0 * share, bar);
}

static void categories_print(const struct plan *plan, FILE *out)
{
    fprintf(out, "\n");
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        if (plan->category_bytes[c] > 0)
            share_print(plan, tensor_category_name((enum tensor_category)c),
                        plan->category_bytes[c], out);
    share_print(plan, "unused", plan_unused_bytes(plan), out);
    LINE(out, "  %-12s %12s           %" PRIu64 " bytes in %" PRId32 " piece%s", "total",
         LOG_BYTES(plan->arena_bytes), plan->arena_bytes, plan->device_segments,
         plan->device_segments == 1 ? "" : "s");
    fprintf(out, "\n");
}

static void peak_print(const struct plan *plan, FILE *out)
{
    const struct program *program =
        plan->peak_program >= 0 ? &plan->graph->programs[plan->peak_program] : NULL;
    if (program != NULL && program->count > 0) {
        const int32_t peak = plan->program[plan->peak_program].peak_op;
        LINE(out, "Peak      %s, op %" PRId32 " of %" PRId32 " (%s, writing %s)",
             program_kind_name(program->kind), peak, program->count,
             op_declaration(program->ops[peak].kind)->name,
             plan_op_target(plan->graph, &program->ops[peak]));
    }
    uint64_t above = plan->arena_bytes - plan->arena_bytes_bound;
    double percent =
        plan->arena_bytes_bound > 0 ? 100.0 * (double)above / (double)plan->arena_bytes_bound : 0.0;
    LINE(out, "Minimum   %s must be in memory at once; this plan is %.2f %% above it",
         LOG_BYTES(plan->arena_bytes_bound), percent);
}

/* Prints the arena bytes that each phase needs, the run's tensors included. */
static void phases_print(const struct plan *plan, FILE *out)
{
    char line[256] = "none";
    size_t used = 0;
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++)
        if (plan->phase_bytes[phase] > 0)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s %s", used ? ", " : "",
                                     program_phase_name((enum program_phase)phase),
                                     LOG_BYTES(plan->run_bytes + plan->phase_bytes[phase]));
    LINE(out, "Phases    %s; %s of it stays throughout", line, LOG_BYTES(plan->run_bytes));
}

/* Prints the sizes of ranks, what they exchange, and how much faster they are than one. */
static void ranks_print(const struct plan_report_facts *facts, FILE *out)
{
    const bool alike = facts->rank_bytes[0] == facts->rank_bytes[1];
    LINE(out, "Ranks     %" PRId64 ", of %s%s%s", facts->ranks, LOG_BYTES(facts->rank_bytes[0]),
         alike ? "" : " to ", alike ? "" : LOG_BYTES(facts->rank_bytes[1]));
    if (facts->forecast.exchange_seconds > 0.0)
        LINE(
            out,
            "          each sends and receives %s per update, %s exposed; %.2f times as fast as one rank",
            LOG_BYTES(facts->forecast.exchange_bytes),
            CLOCK_DURATION(facts->forecast.exchange_seconds),
            facts->forecast.alone_seconds / facts->forecast.step_seconds);
    else
        LINE(out,
             "          each sends and receives %s per update (--link=10GbE forecasts the time)",
             LOG_BYTES(facts->forecast.exchange_bytes));
}

static void forecast_print(const struct plan_report_facts *facts, FILE *out)
{
    const struct forecast *forecast = &facts->forecast;
    if (!(forecast->step_seconds > 0.0)) {
        LINE(out, "Forecast  unknown before the first timings");
        return;
    }
    char end[32], bounds[PLAN_UNCERTAINTY_MAX];
    LINE(out, "Forecast  %s in all, until %s (%s, %s)",
         CLOCK_DURATION(forecast_seconds_left(forecast)),
         clock_wall_text(end, forecast_end(forecast, forecast->now_wall_s)),
         forecast->measured ? "measured" : "estimated",
         plan_uncertainty_text(bounds, forecast->uncertainty, forecast->disturbed));
    LINE(out, "          %" PRId64 " step%s of %s, %" PRId64 " evaluation%s of %s (%.1f %%)",
         forecast->steps, forecast->steps == 1 ? "" : "s", CLOCK_DURATION(forecast->step_seconds),
         forecast->evaluations, forecast->evaluations == 1 ? "" : "s",
         CLOCK_DURATION(forecast->evaluation_seconds), 100.0 * forecast_evaluation_share(forecast));
    if (facts->ranks > 1)
        ranks_print(facts, out);
}

/* Prints the bytes of the requested plan, by how much they exceed the budget, if they do, and the
 * changes. */
static void change_print(const struct plan_report_facts *facts, FILE *out)
{
    const struct search_result *search = facts->search;
    char requested[24], request[SEARCH_REQUEST_TEXT_MAX], text[SEARCH_CHANGES_MAX],
        time[SEARCH_TIME_TEXT_MAX];
    const uint64_t needed = search->bytes_request, have = facts->request->share.device_bytes;
    search_request_text(request, search);
    if (needed == MEASURE_NEVER)
        LINE(out, "Requested %s", request);
    else if (needed > have)
        LINE(out, "Requested %s; %s is available: %s%s short", request, LOG_BYTES(have),
             search->bytes_request_least ? "at least " : "", LOG_BYTES(needed - have));
    search_changes_text(text, &search->found.options, &facts->request->options);
    if (search->fits)
        LINE(out, "Changed   %s: %s, same samples%s", text, search_time_text(time, search),
             search->found.options.states == facts->request->options.states
                 ? " and mathematics"
                 : ", states rounded stochastically");
    else
        LINE(out, "Smallest  the plan above, still too large: %s", text);
    if (!search->fits && facts->budget_least > 0)
        LINE(out, "Needed    a memory_budget of at least %s",
             search_budget_text(requested, facts->budget_least));
    if (!search->fits && facts->pins != NULL && facts->pins[0] != '\0')
        LINE(out, "          or %s", facts->pins);
}

static void alternative_print(const struct plan_report_facts *facts,
                              const struct search_alternative *choice, FILE *out)
{
    char slower[16] = "", text[SEARCH_CHANGES_MAX];
    double fastest = facts->alternatives[0].seconds;
    if (search_alternative_equivalent(choice->kind) && choice->seconds > fastest)
        snprintf(slower, sizeof slower, "%+.1f %%", 100.0 * (choice->seconds / fastest - 1.0));
    else if (search_alternative_equivalent(choice->kind))
        snprintf(slower, sizeof slower, "fastest");
    plan_line_print(out, ALTERNATIVE_INDENT, "  %10s %11s %8s  %s", LOG_BYTES(choice->arena_bytes),
                    CLOCK_DURATION(choice->seconds), slower,
                    search_alternative_text(text, choice, &facts->request->options));
}

static void alternatives_print(const struct plan_report_facts *facts, FILE *out)
{
    bool other = false;
    fprintf(out, "\n");
    if (facts->alternative_count == 0)
        LINE(out, "Alternatives: nothing smaller fits either");
    else if (search_alternative_equivalent(facts->alternatives[0].kind))
        LINE(out, "Alternatives that fit (memory, time per update, settings)");
    for (int32_t i = 0; i < facts->alternative_count; i++) {
        if (!other && !search_alternative_equivalent(facts->alternatives[i].kind)) {
            LINE(out,
                 "Alternatives that fit but change results (memory, time per update, settings)");
            other = true;
        }
        alternative_print(facts, &facts->alternatives[i], out);
    }
}

/* Prints what is in host memory, and what it costs. */
static void offload_print(const struct plan *plan, const struct plan_report_facts *facts, FILE *out)
{
    const struct forecast *forecast = &facts->forecast;
    const struct search_result *search = facts->search;
    char text[PLAN_OFFLOAD_TEXT_MAX];
    const bool may_move = facts->request && (!facts->request->pin_offload || plan->host_bytes > 0);
    if (plan->host_bytes > 0)
        LINE(out, "Offload   %s in host memory, which adds %s to each update",
             plan_offload_text(text, plan, facts->frozen),
             forecast->offload_seconds > 0.0 ? CLOCK_DURATION(forecast->offload_seconds)
                                             : "an unknown time");
    if (plan->host_category_bytes[CATEGORY_PARAMETER] > 0 && forecast->token_seconds > 0.0)
        LINE(out, "          a sampled token reads those weights too: %s",
             CLOCK_DURATION(forecast->token_seconds));
    if (search && !search->fits && may_move && facts->request->share.host_bytes > 0)
        LINE(out, "Host      %s may be used, by default half of what is free (host_budget)",
             LOG_BYTES(facts->request->share.host_bytes));
}

void plan_print_text(const struct plan *plan, const struct plan_report_facts *facts, FILE *out)
{
    char budget[24];
    head_print(plan, facts, out);
    offload_print(plan, facts, out);
    categories_print(plan, out);
    peak_print(plan, out);
    phases_print(plan, out);
    LINE(out, "Outside   host memory %s, driver and libraries %s, headroom %s",
         LOG_BYTES(facts->host_bytes), LOG_BYTES(facts->context_bytes),
         LOG_BYTES(facts->headroom_bytes));
    forecast_print(facts, out);
    if (facts->needless)
        LINE(out, "Unneeded  %s: the run fits without, and takes %.1f %% less time (estimated)",
             facts->needless, 100.0 * facts->needless_share);
    if (facts->search && !facts->search->fits &&
        plan->host_bytes > facts->request->share.host_bytes)
        LINE(out, "Needed    a host_budget of at least %s",
             search_budget_text(budget, plan->host_bytes));
    if (facts->search && (facts->search->candidates > 1 || !facts->search->fits)) {
        if (facts->search->bytes_request > facts->request->share.device_bytes ||
            facts->search->request_fits)
            change_print(facts, out);
        if (!facts->search->request_fits)
            alternatives_print(facts, out);
    }
}

/* Adds a row; a text that is longer than its room is cut. */
static void row_add(struct plan_row rows[static PLAN_ROWS_MAX], int32_t *count, const char *label,
                    const char *text, double number)
{
    assert(*count < PLAN_ROWS_MAX);
    struct plan_row *row = &rows[(*count)++];
    *row = (struct plan_row){.label = label, .number = number};
    snprintf(row->text, sizeof row->text, "%s", text);
}

int32_t plan_rows_make(const struct plan *plan, const struct plan_report_facts *facts,
                       struct plan_row rows[static PLAN_ROWS_MAX])
{
    int32_t count = 0;
    const double needed = (double)plan_total_bytes(plan, facts),
                 total = forecast_seconds_left(&facts->forecast);
    const bool fits = facts->free_bytes == 0 || needed <= (double)facts->free_bytes;
    row_add(rows, &count, "memory", LOG_BYTES(needed), needed);
    row_add(rows, &count, "offloaded", LOG_BYTES(plan->host_bytes), (double)plan->host_bytes);
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        const double bytes = (double)plan->category_bytes[c];
        row_add(rows, &count, tensor_category_name((enum tensor_category)c), LOG_BYTES(bytes),
                bytes);
    }
    row_add(rows, &count, "fits", fits ? "yes" : "NO", 0.0);
    row_add(rows, &count, "update", CLOCK_DURATION(facts->forecast.step_seconds),
            facts->forecast.step_seconds);
    row_add(rows, &count, "in all", CLOCK_DURATION(total), total);
    if (facts->search == NULL)
        return count;
    const struct model_options *options = &facts->search->found.options;
    char recompute[RECOMPUTE_TEXT_MAX];
    row_add(
        rows, &count, "micro_batch",
        TEXT(64, "%" PRId32 " of %" PRId64, options->choice.micro_batch, facts->request->samples),
        0.0);
    row_add(
        rows, &count, "recompute",
        recompute_text(recompute, &options->choice.recompute, options->config.n_layer, " x", " + "),
        0.0);
    row_add(rows, &count, "loss_chunk", TEXT(16, "%" PRId32, options->choice.loss_chunk_rows), 0.0);
    row_add(rows, &count, "state_format", facts->state_format, 0.0);
    return count;
}
