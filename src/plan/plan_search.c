/* The search, and the front of memory against time.
 *
 * For every uniform recompute level two small plans (micro-batches of 4 and 8, say) give bytes and seconds as straight
 * lines in the micro-batch; a mix of two levels is interpolated between them.  All candidates are sorted by modelled
 * seconds and tried in order until one that the lines do not rule out has a real plan that fits.  The front consists of
 * the candidates that no other dominates according to the same lines, thinned out and then planned for real.
 */
#include "plan/plan_search.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"

#define CANDIDATES_MAX 8192
#define PARTS_FINE 8        /* divisors up to this grow by one, then by an eighth */
#define MIX_PARTS 4         /* mixes in quarters of the blocks */
#define ESTIMATE_SLACK 0.9  /* a candidate whose estimate is above budget / this is skipped */
#define SECONDS_SLACK 0.002 /* estimates of seconds may be too large by this much; most are too small */
#define CHUNK_ROWS_LEAST 64
#define LAYERNORM_STATE_BYTES 16.0
#define LINE_BATCH 8
#define LINE_ROWS_MAX 65536
#define CHUNKS_MANY 1024

struct candidate {
    struct plan_choice choice; /* options_of() derives remainder and evaluation batch from the rest */
    double bytes, seconds;     /* estimates */
};
_Static_assert(SEARCH_FRONT_MAX >= 4, "the front has two ends, the request and something between");

struct search {
    struct hostmem *mem;
    const struct search_request *request;
    struct search_states_memo *memo;
    int64_t chunk_rows[SEARCH_CHUNKS_MAX];
    int32_t chunks;
    struct candidate *candidates; /* [CANDIDATES_MAX] */
    int32_t count;
};

char *search_options_text(char text[static 192], const struct model_options *options)
{
    char choice[PLAN_CHOICE_TEXT_MAX];
    bool lean = state_format_is_lean(options->states);
    snprintf(text, 192, "%s%s%s", plan_choice_text(choice, &options->choice, options->config.n_layer),
             lean ? ", states " : "", lean ? state_format_name(options->states) : "");
    return text;
}

void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch)
{
    options->choice.micro_batch = (int32_t)micro_batch;
    options->micro_steps = (int32_t)size_ceil_div(samples, micro_batch);
    options->choice.remainder_batch = (int32_t)(samples % micro_batch);
}

/* Returns true when a plan has so many loss chunks that planning it for real takes too long. */
static bool has_many_chunks(const struct plan_choice *choice, int32_t block_size)
{
    return (int64_t)choice->micro_batch * block_size > (int64_t)choice->loss_chunk_rows * CHUNKS_MANY;
}

/* Returns the options of a candidate. */
static struct model_options options_of(const struct search *search, const struct candidate *candidate)
{
    const struct search_request *request = search->request;
    struct model_options options = request->options;
    int64_t rows = (int64_t)candidate->choice.micro_batch * options.config.block_size;
    search_micro_batch_set(&options, request->samples, candidate->choice.micro_batch);
    options.choice.recompute = candidate->choice.recompute;
    options.choice.loss_chunk_rows =
        (int32_t)(candidate->choice.loss_chunk_rows < rows ? candidate->choice.loss_chunk_rows : rows);
    if (!request->pin_evaluate_batch && options.choice.evaluate_batch > options.choice.micro_batch)
        options.choice.evaluate_batch = options.choice.micro_batch;
    return options;
}

char *search_budget_text(char text[static 24], uint64_t bytes)
{
    const uint64_t mib = (uint64_t)1 << 20;
    uint64_t whole = bytes / mib + 1; /* at least a byte more than needed, for a reader that rounds down */
    uint64_t hundredths = whole / 1024 * 100 + whole % 1024 * 100 / 1024 + 1;
    if (whole < 1024)
        snprintf(text, 24, "%" PRIu64 "MiB", whole);
    else
        snprintf(text, 24, "%" PRIu64 ".%02" PRIu64 "GiB", hundredths / 100, hundredths % 100);
    return text;
}

static bool bytes_fit(const struct search_request *request, uint64_t bytes)
{
    return bytes != SEARCH_BYTES_NEVER && bytes <= request->budget_bytes;
}

double search_update_seconds(const struct model *model, const struct plan_rates *rates)
{
    const struct model_options *options = &model->options;
    int32_t next = options->micro_steps - 1 - (options->choice.remainder_batch > 0);
    return plan_cost_seconds(model->graph, model->train_first.program, rates) +
           (double)next * plan_cost_seconds(model->graph, model->train_next.program, rates) +
           plan_cost_seconds(model->graph, model->train_remainder.program, rates) +
           plan_cost_seconds(model->graph, model->update.program, rates);
}

/* Computes the bytes of a graph's plan if its bound is within `limit`, and else the bound. */
static enum gt_status graph_plan(struct hostmem *mem, const struct graph *graph, const struct plan_options *options,
                                 uint64_t limit, uint64_t *bytes)
{
    struct plan *plan;
    if (limit < UINT64_MAX) {
        TRY(plan_bound(mem, graph, options, bytes));
        if (*bytes > limit)
            return GT_OK;
    }
    TRY(plan_create(mem, graph, options, &plan));
    *bytes = plan->arena_bytes;
    plan_destroy(plan);
    return GT_OK;
}

/* Computes bytes and seconds of the options.  Options slower than `seconds_most` are not planned, and their
 * `arena_bytes` is also SEARCH_BYTES_NEVER. */
static enum gt_status options_plan(struct hostmem *mem, const struct plan_options *plan_options,
                                   const struct plan_rates *rates, uint64_t limit, double seconds_most,
                                   struct search_choice *choice)
{
    struct plan_options quiet = *plan_options;
    struct model *model;
    quiet.quiet = true;
    TRY(model_create(mem, &choice->options, &model));
    choice->seconds = search_update_seconds(model, rates);
    enum gt_status status = GT_NO_FIT;
    if (choice->seconds < seconds_most)
        status = graph_plan(mem, model->graph, &quiet, limit, &choice->arena_bytes);
    model_destroy(model);
    if (status != GT_NO_FIT)
        return status;
    choice->arena_bytes = SEARCH_BYTES_NEVER;
    return GT_OK;
}

enum gt_status search_options_plan(struct hostmem *mem, const struct plan_options *plan, const struct plan_rates *rates,
                                   struct search_choice *choice)
{
    return options_plan(mem, plan, rates, UINT64_MAX, INFINITY, choice);
}

/* Computes the least bytes of a candidate's training program, without remainder, evaluation and sampling. */
static enum gt_status candidate_bound(const struct search *search, const struct candidate *candidate, uint64_t *bytes,
                                      double *step_seconds, double *update_seconds)
{
    struct model_options options = options_of(search, candidate);
    const struct plan_rates *rates = &search->request->rates;
    struct plan_options quiet = search->request->plan;
    struct model *model;
    quiet.quiet = true;
    options.evaluate = options.generate = false;
    search_micro_batch_set(&options, candidate->choice.micro_batch, candidate->choice.micro_batch);
    TRY(model_create(search->mem, &options, &model));
    enum gt_status status = plan_bound(search->mem, model->graph, &quiet, bytes);
    *step_seconds = plan_cost_seconds(model->graph, model->train_first.program, rates);
    *update_seconds = plan_cost_seconds(model->graph, model->update.program, rates);
    model_destroy(model);
    return status;
}

static struct search_line line_through(const int64_t x[2], double y0, double y1)
{
    double slope = (y1 - y0) / (double)(x[1] - x[0]);
    return (struct search_line){y0 - slope * (double)x[0], slope};
}

/* Chooses the two micro-batches through which lines are drawn: large enough to fill a loss chunk, small enough to
 * plan. */
static void line_batches(const struct search_request *request, int64_t out[2])
{
    int64_t most = request->options.choice.micro_batch < LINE_BATCH ? request->options.choice.micro_batch : LINE_BATCH;
    while (most > 1 && most * request->options.config.block_size > LINE_ROWS_MAX)
        most /= 2;
    out[0] = most > 1 ? most / 2 : 1;
    out[1] = most > 1 ? most : 2;
}

/* Measures bytes and seconds of a level and chunk as lines in the micro-batch, from two plans. */
static enum gt_status lines_measure(struct search *search, int32_t chunk, enum recompute_level level)
{
    struct search_states_memo *memo = search->memo;
    uint64_t bytes[2];
    double seconds[2];
    int64_t batches[2];
    bool placeable = true;
    if (memo->known[chunk][level])
        return GT_OK;
    line_batches(search->request, batches);
    for (int i = 0; i < 2; i++) {
        struct candidate small = {
            .choice = {.micro_batch = (int32_t)batches[i],
                       .loss_chunk_rows = (int32_t)search->chunk_rows[chunk],
                       .recompute = recompute_uniform(level, search->request->options.config.n_layer)}};
        enum gt_status status = candidate_bound(search, &small, &bytes[i], &seconds[i], &memo->update_seconds);
        if (status != GT_OK && status != GT_NO_FIT)
            return status;
        placeable = placeable && status == GT_OK;
    }
    /* If not, they are unknown, and no candidate is skipped because of them. */
    memo->bytes[chunk][level] =
        placeable ? line_through(batches, (double)bytes[0], (double)bytes[1]) : (struct search_line){0.0, 0.0};
    memo->seconds[chunk][level] = line_through(batches, seconds[0], seconds[1]);
    memo->known[chunk][level] = true;
    return GT_OK;
}

static double line_at(const struct search_line *line, double x)
{
    return line->at_zero + line->slope * x;
}

static void candidate_add(struct search *search, int64_t micro_batch, int32_t chunk, struct recompute_mix mix)
{
    if (search->count == CANDIDATES_MAX)
        return;
    const int32_t layers = search->request->options.config.n_layer;
    const struct search_line *bytes = search->memo->bytes[chunk], *seconds = search->memo->seconds[chunk];
    double steps = (double)size_ceil_div(search->request->samples, micro_batch),
           samples = (double)search->request->samples;
    struct candidate candidate = {.choice = {.micro_batch = (int32_t)micro_batch,
                                             .loss_chunk_rows = (int32_t)search->chunk_rows[chunk],
                                             .recompute = mix},
                                  .seconds = search->memo->update_seconds};
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        double share = (double)recompute_blocks(&mix, (enum recompute_level)level, layers) / layers;
        candidate.bytes += share * line_at(&bytes[level], (double)micro_batch);
        candidate.seconds += share * (steps * seconds[level].at_zero + samples * seconds[level].slope);
    }
    search->candidates[search->count++] = candidate;
}

/* Adds all mixes for a micro-batch and chunk: the uniform levels, and neighbouring levels in quarters of the blocks. */
static void mixes_add(struct search *search, int64_t micro_batch, int32_t chunk)
{
    int32_t layers = search->request->options.config.n_layer;
    if (search->request->pin_recompute) {
        candidate_add(search, micro_batch, chunk, search->request->options.choice.recompute);
        return;
    }
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        candidate_add(search, micro_batch, chunk, recompute_uniform((enum recompute_level)level, layers));
        for (int32_t part = 1; level > 0 && part < MIX_PARTS && layers >= MIX_PARTS; part++)
            candidate_add(search, micro_batch, chunk,
                          recompute_two((enum recompute_level)level, layers * part / MIX_PARTS,
                                        (enum recompute_level)(level - 1), layers));
    }
}

/* Adds candidates for the requested micro-batch, then for its halves, thirds and so on, rounded up, in growing
 * steps. */
static void candidates_add(struct search *search)
{
    int64_t asked = search->request->options.choice.micro_batch, last = 0;
    for (int64_t k = 1; last != 1; k += 1 + k / PARTS_FINE) {
        int64_t micro_batch = size_ceil_div(asked, k);
        for (int32_t chunk = 0; micro_batch != last && chunk < search->chunks; chunk++)
            mixes_add(search, micro_batch, chunk);
        last = micro_batch;
        if (search->request->pin_micro_batch)
            break;
    }
}

/* Chooses the requested chunk and, unless it is pinned, smaller ones.  Returns their number. */
static int32_t chunks_choose(const struct search_request *request, int64_t rows[static SEARCH_CHUNKS_MAX])
{
    int32_t count = 1;
    rows[0] = request->options.choice.loss_chunk_rows;
    for (; !request->pin_loss_chunk && count < SEARCH_CHUNKS_MAX && rows[count - 1] / 4 >= CHUNK_ROWS_LEAST; count++)
        rows[count] = rows[count - 1] / 4;
    return count;
}

/* By seconds; ties by fewer bytes, then by larger micro-batch. */
static int candidate_compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->choice.micro_batch < y->choice.micro_batch) - (x->choice.micro_batch > y->choice.micro_batch);
}

static bool level_needed(const struct search_request *request, enum recompute_level level)
{
    const struct model_options *options = &request->options;
    return !request->pin_recompute || recompute_blocks(&options->choice.recompute, level, options->config.n_layer) > 0;
}

static enum gt_status candidates_make(struct search *search)
{
    search->chunks = chunks_choose(search->request, search->chunk_rows);
    for (int32_t chunk = 0; chunk < search->chunks; chunk++) {
        for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
            if (level_needed(search->request, (enum recompute_level)level))
                TRY(lines_measure(search, chunk, (enum recompute_level)level));
        }
    }
    TRY(HOSTMEM_NEW(search->mem, CANDIDATES_MAX, "plan candidates", &search->candidates));
    candidates_add(search);
    assert(search->count > 0 && search->request->samples > 0);
    qsort(search->candidates, (size_t)search->count, sizeof(struct candidate), candidate_compare);
    return GT_OK;
}

/* Returns an earlier search's result for a choice; NULL when there is none. */
static struct search_tried *tried_find(const struct search *search, const struct plan_choice *choice)
{
    struct search_states_memo *memo = search->memo;
    for (int32_t i = 0; i < memo->tried_count; i++) {
        if (plan_choice_equal(&memo->tried[i].choice, choice))
            return &memo->tried[i];
    }
    return NULL;
}

/* Plans a candidate.  Tries its training program alone first, which rules out most candidates that do not fit for a
 * third of the work. */
static enum gt_status candidate_measure(const struct search *search, const struct candidate *candidate,
                                        double seconds_most, struct search_choice *choice, struct search_tried *tried)
{
    const struct search_request *request = search->request;
    double step_seconds, update_seconds;
    uint64_t bound;
    enum gt_status status = candidate_bound(search, candidate, &bound, &step_seconds, &update_seconds);
    if (status != GT_OK && status != GT_NO_FIT)
        return status;
    if (status == GT_OK && bound > request->budget_bytes) {
        choice->arena_bytes = SEARCH_BYTES_NEVER;
        choice->seconds = seconds_most;
        tried->bytes = bound;
        return GT_OK;
    }
    TRY(options_plan(search->mem, &request->plan, &request->rates, request->budget_bytes, seconds_most, choice));
    bool planned = choice->seconds < seconds_most;
    tried->bytes = planned ? choice->arena_bytes : 0;
    tried->seconds = choice->seconds;
    tried->exact = planned && choice->arena_bytes <= request->budget_bytes;
    return GT_OK;
}

/* Plans a candidate, unless earlier results show that it is too large or no faster than `seconds_most`. */
static enum gt_status candidate_plan(const struct search *search, const struct candidate *candidate,
                                     double seconds_most, struct search_choice *choice)
{
    const struct search_request *request = search->request;
    struct search_states_memo *memo = search->memo;
    struct search_tried *known = tried_find(search, &choice->options.choice);
    if (known && (known->seconds >= seconds_most || known->bytes > request->budget_bytes)) {
        choice->arena_bytes = SEARCH_BYTES_NEVER;
        choice->seconds = seconds_most;
        return GT_OK;
    }
    if (known && known->exact) {
        choice->arena_bytes = known->bytes;
        choice->seconds = known->seconds;
        return GT_OK;
    }
    struct search_tried tried = {.choice = choice->options.choice};
    TRY(candidate_measure(search, candidate, seconds_most, choice, &tried));
    if (!known && memo->tried_count < SEARCH_TRIED_MAX)
        known = &memo->tried[memo->tried_count++];
    if (known)
        *known = tried;
    return GT_OK;
}

/* Takes a candidate as the result if its real plan fits and is faster than the current result. */
static enum gt_status candidate_try(const struct search *search, const struct candidate *candidate,
                                    struct search_result *out, bool *fits, struct candidate *unplaceable)
{
    const struct search_request *request = search->request;
    struct search_choice choice = {.options = options_of(search, candidate)};
    double seconds_most = *fits ? out->seconds : INFINITY;
    TRY(candidate_plan(search, candidate, seconds_most, &choice));
    if (choice.arena_bytes == SEARCH_BYTES_NEVER && choice.seconds < seconds_most)
        *unplaceable = *candidate;
    if (!bytes_fit(request, choice.arena_bytes))
        return GT_OK;
    out->options = choice.options;
    out->arena_bytes = choice.arena_bytes;
    out->seconds = choice.seconds;
    *fits = true;
    return GT_OK;
}

/* Returns the least bytes of states per parameter of any kind; layernorms have 16. */
static double state_bytes_least(const struct model_options *options)
{
    double bytes = state_format_bytes(options->states, options->dtype, options->muon);
    return bytes < LAYERNORM_STATE_BYTES ? bytes : LAYERNORM_STATE_BYTES;
}

/* Returns a lower bound for every plan of a training program: weights, gradients, moments, and the input of every
 * block.  It saves building programs of millions of ops only to see that they do not fit. */
static double bytes_bound(const struct model_options *options)
{
    const struct model_config *config = &options->config;
    double rows = (double)options->choice.micro_batch * (double)config->block_size;
    double states = state_bytes_least(options) * (double)model_parameter_count(config);
    double inputs = rows * (double)config->n_embd * (double)config->n_layer;
    return states + (double)dtype_size_bytes(options->dtype) * inputs;
}

bool search_least(const struct search_request *request, struct model_options *out)
{
    struct search search = {.request = request};
    struct candidate least = {.choice = request->options.choice};
    least.choice.loss_chunk_rows = (int32_t)search.chunk_rows[chunks_choose(request, search.chunk_rows) - 1];
    if (!request->pin_micro_batch)
        least.choice.micro_batch = 1;
    if (!request->pin_recompute)
        least.choice.recompute = recompute_uniform(RECOMPUTE_FULL, request->options.config.n_layer);
    *out = options_of(&search, &least);
    return bytes_bound(out) <= (double)request->budget_bytes;
}

/* Tries the options with the fewest bytes, if every estimate was too large or wrong.  Plans them for real, or uses
 * their bound if planning would take long. */
static enum gt_status least_try(const struct search *search, struct search_result *out, bool *fits)
{
    const struct search_request *request = search->request;
    struct search_choice least = {0};
    bool hopeless = !search_least(request, &least.options);
    out->options = least.options;
    out->arena_bytes = (uint64_t)bytes_bound(&least.options);
    out->arena_least = hopeless && has_many_chunks(&least.options.choice, least.options.config.block_size);
    *fits = false;
    if (out->arena_least)
        return GT_OK;
    TRY(search_options_plan(search->mem, &request->plan, &request->rates, &least));
    out->unplaceable = out->arena_least = least.arena_bytes == SEARCH_BYTES_NEVER;
    if (!out->unplaceable)
        out->arena_bytes = least.arena_bytes;
    out->seconds = least.seconds;
    *fits = bytes_fit(request, least.arena_bytes);
    return GT_OK;
}

/* Returns true when a candidate has at least as many rows, in a step and in a chunk, as one that the device's
 * allocations cannot hold, and keeps at least as much. */
static bool placing_hopeless(const struct candidate *candidate, const struct candidate *unplaceable)
{
    int32_t more = 0; /* blocks that the candidate recomputes at this level or above, less those of the other */
    for (int level = RECOMPUTE_FULL; level > RECOMPUTE_NONE && more <= 0; level--)
        more += candidate->choice.recompute.blocks[level] - unplaceable->choice.recompute.blocks[level];
    return unplaceable->choice.micro_batch > 0 && candidate->choice.micro_batch >= unplaceable->choice.micro_batch &&
           candidate->choice.loss_chunk_rows >= unplaceable->choice.loss_chunk_rows && more <= 0;
}

/* Finds the first candidate that fits, then the fastest among it and the following ones within the error of the
 * estimates. */
static enum gt_status candidates_walk(const struct search *search, struct search_result *out)
{
    double limit = (double)search->request->budget_bytes / ESTIMATE_SLACK;
    struct candidate unplaceable = {0};
    bool fits = false;
    if (out->seconds_request <= 0.0)
        out->seconds_request = search->candidates[0].seconds;
    for (int32_t i = 0; i < search->count; i++) {
        const struct candidate *candidate = &search->candidates[i];
        if (fits && candidate->seconds > out->seconds * (1.0 + SECONDS_SLACK))
            break;
        if (candidate->bytes <= limit && !placing_hopeless(candidate, &unplaceable))
            TRY(candidate_try(search, candidate, out, &fits, &unplaceable));
    }
    if (!fits)
        TRY(least_try(search, out, &fits));
    return fits ? GT_OK : GT_NO_FIT;
}

/* Plans the requested options unless they are hopeless. */
static enum gt_status asked_try(struct search *search, struct search_result *result, bool *fits)
{
    const struct search_request *request = search->request;
    struct candidate asked = {.choice = request->options.choice};
    struct search_choice choice = {.options = options_of(search, &asked)};
    struct search_states_memo *memo = search->memo;
    result->candidates = 1;
    result->bytes_request = (uint64_t)bytes_bound(&request->options);
    result->bytes_request_least = true;
    *fits = false;
    if (result->bytes_request > request->budget_bytes)
        return GT_OK;
    if (memo->asked_evaluate_batch != choice.options.choice.evaluate_batch) {
        TRY(search_options_plan(search->mem, &request->plan, &request->rates, &choice));
        memo->asked_evaluate_batch = choice.options.choice.evaluate_batch;
        memo->asked_bytes = choice.arena_bytes;
        memo->asked_seconds = choice.seconds;
    }
    result->seconds = result->seconds_request = memo->asked_seconds;
    result->unplaceable = memo->asked_bytes == SEARCH_BYTES_NEVER;
    if (result->unplaceable)
        return GT_OK;
    result->bytes_request_least = false;
    result->options = choice.options;
    result->arena_bytes = result->bytes_request = memo->asked_bytes;
    *fits = bytes_fit(request, result->arena_bytes);
    return GT_OK;
}

/* Tries all candidates if the requested options do not fit.  If these have a tensor that is too large for the device,
 * tries the smallest options first: if they cannot be placed, nothing can. */
static enum gt_status others_search(struct search *search, struct search_result *result)
{
    bool fits;
    if (result->unplaceable)
        TRY(least_try(search, result, &fits));
    if (result->unplaceable)
        return GT_NO_FIT;
    enum gt_status status = candidates_make(search);
    if (status == GT_OK)
        status = candidates_walk(search, result);
    result->candidates += search->count;
    hostmem_free(search->mem, search->candidates);
    return status;
}

/* Searches with the state format of the request. */
static enum gt_status states_search(struct hostmem *mem, const struct search_request *request,
                                    struct search_states_memo *memo, struct search_result *out)
{
    struct search search = {.mem = mem, .request = request, .memo = memo};
    struct search_result result = {0};
    enum gt_status status;
    bool fits;
    *out = result;
    if (!search_least(request, &result.options)) {
        TRY(least_try(&search, &result, &fits));
        result.bytes_request = (uint64_t)bytes_bound(&request->options);
        result.bytes_request_least = true;
        *out = result;
        return GT_NO_FIT;
    }
    TRY(asked_try(&search, &result, &fits));
    status = fits ? GT_OK : others_search(&search, &result);
    result.fits = status == GT_OK;
    if (status == GT_OK || status == GT_NO_FIT)
        *out = result;
    return status;
}

enum state_format search_states_next(const struct model_options *options)
{
    const enum state_format next = state_format_next(options->states);
    bool codes = next != STATE_FORMATS && state_format_dtypes(next, options->dtype, false).moment == DTYPE_U8;
    return options->muon && codes ? STATE_FORMATS : next;
}

/* Tries a leaner format only if no candidate of a wider one fits.  The figures for the request stay those of the first
 * format. */
enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out)
{
    struct search_memo own = {0};
    struct search_memo *memo = request->memo ? request->memo : &own;
    struct search_request tried = *request;
    struct search_result result = {0}, first = {0};
    enum gt_status status = GT_NO_FIT;
    int32_t candidates = 0;
    while (status == GT_NO_FIT) {
        const enum state_format states = tried.options.states, next = search_states_next(&tried.options);
        status = states_search(mem, &tried, &memo->states[states], &result);
        if (status != GT_OK && status != GT_NO_FIT)
            return status;
        candidates += result.candidates;
        if (states == request->options.states)
            first = result;
        if (!request->lean_states || next == STATE_FORMATS)
            break;
        tried.options.states = next;
    }
    result.candidates = candidates;
    result.bytes_request = first.bytes_request;
    result.bytes_request_least = first.bytes_request_least;
    result.seconds_request = first.seconds_request > 0.0 ? first.seconds_request : result.seconds_request;
    *out = result;
    return status;
}

/* Thins the candidates, which are sorted by seconds, to those that need less memory than every faster one, and then to
 * at most `most`, evenly spaced in bytes on a logarithmic scale.  The fastest and the smallest stay. */
static void front_thin(struct search *search, int32_t most)
{
    struct candidate *at = search->candidates;
    int32_t count = 0, kept = 1;
    for (int32_t i = 0; i < search->count; i++) {
        bool many = has_many_chunks(&at[i].choice, search->request->options.config.block_size);
        if (!many && at[i].bytes > 0.0 && (count == 0 || at[i].bytes < at[count - 1].bytes))
            at[count++] = at[i];
    }
    search->count = count;
    if (count <= most)
        return;
    double step = pow(at[count - 1].bytes / at[0].bytes, 1.0 / (most - 1));
    for (int32_t i = 1; i < count; i++) {
        if (i == count - 1 || (at[i].bytes <= at[kept - 1].bytes * step && kept < most - 1))
            at[kept++] = at[i];
    }
    search->count = kept;
}

static int choice_compare(const void *a, const void *b)
{
    const struct search_choice *x = a, *y = b;
    if (x->arena_bytes != y->arena_bytes)
        return x->arena_bytes < y->arena_bytes ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Sorts by bytes and drops every point that is not faster than all smaller ones. */
static int32_t front_sort(struct search_choice *points, int32_t count)
{
    int32_t kept = 0;
    qsort(points, (size_t)count, sizeof points[0], choice_compare);
    for (int32_t i = 0; i < count; i++) {
        if (kept == 0 || points[i].seconds < points[kept - 1].seconds)
            points[kept++] = points[i];
    }
    return kept;
}

/* Plans one more point, unless that would take long. */
static enum gt_status point_add(const struct search *search, const struct model_options *options,
                                struct search_choice *out, int32_t *count)
{
    if (has_many_chunks(&options->choice, options->config.block_size))
        return GT_OK;
    out[*count] = (struct search_choice){.options = *options};
    TRY(search_options_plan(search->mem, &search->request->plan, &search->request->rates, &out[*count]));
    *count += out[*count].arena_bytes != SEARCH_BYTES_NEVER;
    return GT_OK;
}

static enum gt_status front_plan(struct search *search, struct search_choice *out, int32_t *count)
{
    int32_t points = 0;
    TRY(candidates_make(search));
    front_thin(search, SEARCH_FRONT_MAX - 1);
    for (int32_t i = 0; i < search->count; i++) {
        struct model_options options = options_of(search, &search->candidates[i]);
        TRY(point_add(search, &options, out, &points));
    }
    TRY(point_add(search, &search->request->options, out, &points));
    *count = front_sort(out, points);
    return GT_OK;
}

enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_choice out[static SEARCH_FRONT_MAX], int32_t *count)
{
    struct search_memo own = {0};
    struct search_memo *memo = request->memo ? request->memo : &own;
    struct search search = {.mem = mem, .request = request, .memo = &memo->states[request->options.states]};
    enum gt_status status = front_plan(&search, out, count);
    hostmem_free(mem, search.candidates);
    return status;
}
