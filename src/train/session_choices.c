/* Choices for a run that does not fit, and the fitting of evaluations.
 *
 * The choices are those of --plan.  search_choices() finds them at the search's rates.  Their times are then scaled by
 * the ratio of the smallest plan's time at the device's own rates to its time at the search's rates.  An evaluation
 * saves no activations, so only its batch and the rows of a loss chunk can vary; both are tried from large to small.
 */
#include "train/session_choices.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "train/session_budget.h"
#include "train/session_rates.h"

#define PARTS_FINE 8 /* batches: divisors up to this grow by one, then by an eighth */
#define CHUNK_ROWS_LEAST 64

/* Returns the seconds of an update of the smallest plan at the session's rates, divided by those at the rates of the
 * search. */
static double time_scale(const struct session *session)
{
    const struct search_request *request = &session->search.request;
    struct search_choice own = {.options = session->search.result.options}, nominal = own;
    if (session->search.result.arena_least) /* building all of it would take long */
        search_micro_batch_set(&own.options, own.options.choice.micro_batch, own.options.choice.micro_batch);
    nominal.options = own.options;
    if (search_options_plan(session->mem, &request->plan, &session->timing.rates, &own) != GT_OK ||
        search_options_plan(session->mem, &request->plan, &request->rates, &nominal) != GT_OK)
        return 1.0;
    return own.seconds > 0.0 && nominal.seconds > 0.0 ? own.seconds / nominal.seconds : 1.0;
}

static void choice_log(const struct session *session, const struct search_choice *choice, int32_t number, double scale)
{
    char changes[SEARCH_CHANGES_MAX], bytes[24], seconds[32], budget[24];
    log_note("alternative %" PRId32 " that fits: %s; %s of tensors, %s per update (estimated), memory_budget %s%s",
             number, search_choice_text(changes, choice, &session->search.request.options),
             log_bytes(bytes, (double)choice->arena_bytes), clock_duration(seconds, choice->seconds * scale),
             search_budget_text(budget, session_budget_of(session, choice->arena_bytes)),
             search_choice_equivalent(choice->kind) ? "" : "; changes the results");
}

void session_choices_log(struct session *session)
{
    struct search_choice choices[SEARCH_CHOICES_MAX];
    int32_t count = 0;
    if (search_choices(session->mem, &session->search.request, choices, &count) != GT_OK)
        return;
    if (count == 0) {
        log_note("nothing smaller fits this budget either");
        return;
    }
    session->timing.rates = session->search.request.rates;
    bool measured = session_peak_measure(session) == GT_OK;
    double scale = measured ? time_scale(session) : 1.0;
    for (int32_t i = 0; i < count; i++)
        choice_log(session, &choices[i], i + 1, scale);
}

/* Plans the options and sets *out to true when the plan fits. */
static enum gt_status evaluation_fits(const struct session *session, const struct model_options *options, bool *out)
{
    struct plan_options plan;
    const struct plan_rates rates = {.ramp_rows = 0.0};
    struct search_choice choice = {.options = *options};
    session_plan_options(session, &plan);
    TRY(search_options_plan(session->mem, &plan, &rates, &choice));
    *out = choice.arena_bytes <= session_arena_budget(session);
    return GT_OK;
}

/* Finds the largest batch that fits; 1 if none does. */
static enum gt_status batch_fit(const struct session *session, struct model_options *options, bool *fits)
{
    int64_t asked = options->choice.evaluate_batch;
    TRY(evaluation_fits(session, options, fits));
    for (int64_t k = 2; !*fits && options->choice.evaluate_batch > 1; k += 1 + k / PARTS_FINE) {
        options->choice.evaluate_batch = (int32_t)size_ceil_div(asked, k);
        TRY(evaluation_fits(session, options, fits));
    }
    return GT_OK;
}

enum gt_status session_evaluation_fit(const struct session *session, struct model_options *options)
{
    const struct model_options asked = *options;
    bool fits;
    if (session->config->eval_batch_size > 0)
        TRY(evaluation_fits(session, options, &fits));
    else
        TRY(batch_fit(session, options, &fits));
    while (!fits && session->config->loss_chunk == 0 && options->choice.loss_chunk_rows / 4 >= CHUNK_ROWS_LEAST) {
        options->choice.loss_chunk_rows /= 4;
        TRY(evaluation_fits(session, options, &fits));
    }
    if (options->choice.evaluate_batch != asked.choice.evaluate_batch ||
        options->choice.loss_chunk_rows != asked.choice.loss_chunk_rows)
        log_note("evaluating %" PRId32 " sequences at once does not fit; evaluating %" PRId32
                 " at once, with the loss in chunks of %" PRId32 " rows; the samples are the same",
                 asked.choice.evaluate_batch, options->choice.evaluate_batch, options->choice.loss_chunk_rows);
    return GT_OK;
}
