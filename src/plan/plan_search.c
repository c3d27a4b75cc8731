/* The search.
 *
 * For every uniform recompute level two small plans (micro-batches of 4 and 8, say) give bytes and seconds as straight lines in
 * the micro-batch; a mix of two levels lies between them.  All candidates are sorted by modelled seconds, and walked until
 * one that the lines do not rule out has a real plan that fits.
 */
#include "plan/plan_search.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"

#define CANDIDATES_MAX 8192
#define PARTS_FINE 8 /* up to so many parts in steps of one, then by an eighth */
#define CHUNKS_MAX 3
#define MIX_PARTS 4        /* mixes in quarters of the blocks */
#define ESTIMATE_SLACK 0.9 /* a candidate whose estimate is above budget / this is skipped */
#define CHUNK_ROWS_LEAST 64
#define LINE_BATCH 8
#define LINE_ROWS_MAX 65536

struct line {
    double at_zero, slope;
};

struct candidate {
    int64_t micro_batch, chunk_rows;
    struct recompute_mix mix;
    double bytes, seconds; /* estimates */
};

struct search {
    struct hostmem *mem;
    const struct search_request *request;
    struct line bytes[CHUNKS_MAX][RECOMPUTE_LEVELS], seconds[CHUNKS_MAX][RECOMPUTE_LEVELS]; /* of a micro-step */
    double update_seconds;
    int64_t chunk_rows[CHUNKS_MAX];
    int32_t chunks;
    struct candidate *candidates; /* [CANDIDATES_MAX] */
    int32_t count;
};

const char *recompute_level_name(enum recompute_level level)
{
    static const char *const names[RECOMPUTE_LEVELS] = {"none", "gelu", "layernorm", "mlp", "full"};
    assert(level >= 0 && level < RECOMPUTE_LEVELS);
    return names[level];
}

char *search_options_text(char text[static 192], const struct model_options *options)
{
    const struct recompute_mix *mix = &options->recompute;
    char recompute[96];
    if (mix->first_layers > 0 && mix->first != mix->rest)
        snprintf(recompute, sizeof recompute, "recompute %s in %" PRId32 " of %" PRId32 " blocks, %s in the others",
                 recompute_level_name(mix->first), mix->first_layers, options->config.n_layer,
                 recompute_level_name(mix->rest));
    else
        snprintf(recompute, sizeof recompute, "recompute %s", recompute_level_name(mix->rest));
    snprintf(text, 192, "micro-batch %" PRId32 ", %s, loss in chunks of %" PRId32 " rows", options->micro_batch,
             recompute, options->loss_chunk_rows);
    return text;
}

void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch)
{
    options->micro_batch = (int32_t)micro_batch;
    options->micro_steps = (int32_t)size_ceil_div(samples, micro_batch);
    options->remainder_batch = (int32_t)(samples % micro_batch);
}

/* The options of a candidate. */
static struct model_options options_of(const struct search *search, const struct candidate *candidate)
{
    const struct search_request *request = search->request;
    struct model_options options = request->options;
    int64_t rows = candidate->micro_batch * options.config.block_size;
    search_micro_batch_set(&options, request->samples, candidate->micro_batch);
    options.recompute = candidate->mix;
    options.loss_chunk_rows = (int32_t)(candidate->chunk_rows < rows ? candidate->chunk_rows : rows);
    if (!request->pin_evaluate_batch && options.evaluate_batch > options.micro_batch)
        options.evaluate_batch = options.micro_batch;
    return options;
}

/* Plans a candidate for real. */
static enum gt_status candidate_plan(const struct search *search, const struct candidate *candidate, bool train_only,
                                     uint64_t *bytes, double *step_seconds, double *update_seconds)
{
    struct model_options options = options_of(search, candidate);
    struct model *model;
    struct plan *plan;
    if (train_only) {
        options.evaluate = options.generate = false;
        search_micro_batch_set(&options, candidate->micro_batch, candidate->micro_batch);
    }
    TRY(model_create(search->mem, &options, &model));
    enum gt_status status = plan_create(search->mem, model->graph, &search->request->plan, &plan);
    if (status == GT_OK) {
        *bytes = plan->arena_bytes;
        *step_seconds = plan_cost_seconds(model->graph, model->train_first.program, &search->request->rates);
        *update_seconds = plan_cost_seconds(model->graph, model->update.program, &search->request->rates);
        plan_destroy(plan);
    }
    model_destroy(model);
    return status;
}

static struct line line_through(const int64_t x[2], double y0, double y1)
{
    double slope = (y1 - y0) / (double)(x[1] - x[0]);
    return (struct line){y0 - slope * (double)x[0], slope};
}

/* The two micro-batches that lines are drawn through: large enough for a loss chunk to be full, small enough to plan. */
static void line_batches(const struct search_request *request, int64_t out[2])
{
    int64_t most = request->options.micro_batch < LINE_BATCH ? request->options.micro_batch : LINE_BATCH;
    while (most > 1 && most * request->options.config.block_size > LINE_ROWS_MAX)
        most /= 2;
    out[0] = most > 1 ? most / 2 : 1;
    out[1] = most > 1 ? most : 2;
}

/* Bytes and seconds of a level and chunk as lines in the micro-batch, from two plans. */
static enum gt_status lines_measure(struct search *search, int32_t chunk, enum recompute_level level)
{
    uint64_t bytes[2];
    double seconds[2];
    int64_t batches[2];
    line_batches(search->request, batches);
    for (int i = 0; i < 2; i++) {
        struct candidate small = {
            .micro_batch = batches[i], .chunk_rows = search->chunk_rows[chunk], .mix = {0, RECOMPUTE_NONE, level}};
        TRY(candidate_plan(search, &small, true, &bytes[i], &seconds[i], &search->update_seconds));
    }
    search->bytes[chunk][level] = line_through(batches, (double)bytes[0], (double)bytes[1]);
    search->seconds[chunk][level] = line_through(batches, seconds[0], seconds[1]);
    return GT_OK;
}

static double line_at(const struct line *line, double x)
{
    return line->at_zero + line->slope * x;
}

static void candidate_add(struct search *search, int64_t micro_batch, int32_t chunk, struct recompute_mix mix)
{
    if (search->count == CANDIDATES_MAX)
        return;
    double x = (double)micro_batch, share = (double)mix.first_layers / search->request->options.config.n_layer;
    double steps = (double)size_ceil_div(search->request->samples, micro_batch);
    const struct line *bytes = search->bytes[chunk], *seconds = search->seconds[chunk];
    double fixed = share * seconds[mix.first].at_zero + (1.0 - share) * seconds[mix.rest].at_zero;
    double slope = share * seconds[mix.first].slope + (1.0 - share) * seconds[mix.rest].slope;
    search->candidates[search->count++] = (struct candidate){
        .micro_batch = micro_batch,
        .chunk_rows = search->chunk_rows[chunk],
        .mix = mix,
        .bytes = share * line_at(&bytes[mix.first], x) + (1.0 - share) * line_at(&bytes[mix.rest], x),
        .seconds = search->update_seconds + steps * fixed + (double)search->request->samples * slope,
    };
}

/* All mixes for a micro-batch and chunk: the uniform levels, and neighbouring levels in quarters of the blocks. */
static void mixes_add(struct search *search, int64_t micro_batch, int32_t chunk)
{
    int32_t layers = search->request->options.config.n_layer;
    if (search->request->pin_recompute) {
        candidate_add(search, micro_batch, chunk, search->request->options.recompute);
        return;
    }
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        candidate_add(search, micro_batch, chunk,
                      (struct recompute_mix){0, RECOMPUTE_NONE, (enum recompute_level)level});
        for (int32_t part = 1; level > 0 && part < MIX_PARTS && layers >= MIX_PARTS; part++)
            candidate_add(search, micro_batch, chunk,
                          (struct recompute_mix){layers * part / MIX_PARTS, (enum recompute_level)level,
                                                 (enum recompute_level)(level - 1)});
    }
}

/* The micro-batches that are tried: what was asked for, then its halves, thirds and so on, rounded up, in growing steps. */
static void candidates_add(struct search *search)
{
    int64_t asked = search->request->options.micro_batch, last = 0;
    for (int64_t k = 1; last != 1; k += 1 + k / PARTS_FINE) {
        int64_t micro_batch = size_ceil_div(asked, k);
        for (int32_t chunk = 0; micro_batch != last && chunk < search->chunks; chunk++)
            mixes_add(search, micro_batch, chunk);
        last = micro_batch;
        if (search->request->pin_micro_batch)
            break;
    }
}

/* The chunk that was asked for and, unless it is pinned, smaller ones. */
static void chunks_choose(struct search *search)
{
    int64_t rows = search->request->options.loss_chunk_rows;
    search->chunk_rows[search->chunks++] = rows;
    while (!search->request->pin_loss_chunk && search->chunks < CHUNKS_MAX && rows / 4 >= CHUNK_ROWS_LEAST) {
        rows /= 4;
        search->chunk_rows[search->chunks++] = rows;
    }
}

/* By seconds; ties by fewer bytes, then by the order of making (larger micro-batch first). */
static int candidate_compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->micro_batch < y->micro_batch) - (x->micro_batch > y->micro_batch);
}

static enum gt_status candidates_make(struct search *search)
{
    void *array;
    chunks_choose(search);
    for (int32_t chunk = 0; chunk < search->chunks; chunk++) {
        for (int level = 0; level < RECOMPUTE_LEVELS; level++)
            TRY(lines_measure(search, chunk, (enum recompute_level)level));
    }
    TRY(hostmem_alloc(search->mem, CANDIDATES_MAX, sizeof(struct candidate), "plan candidates", &array));
    search->candidates = array;
    candidates_add(search);
    assert(search->count > 0 && search->request->samples > 0);
    qsort(search->candidates, (size_t)search->count, sizeof(struct candidate), candidate_compare);
    return GT_OK;
}

/* Takes a candidate as the result when its real plan fits. */
static enum gt_status candidate_try(const struct search *search, const struct candidate *candidate,
                                    struct search_result *out, bool *fits)
{
    double step, update;
    uint64_t bytes;
    TRY(candidate_plan(search, candidate, false, &bytes, &step, &update));
    out->options = options_of(search, candidate);
    out->arena_bytes = bytes;
    out->seconds = candidate->seconds;
    *fits = bytes <= search->request->budget_bytes;
    return GT_OK;
}

static enum gt_status candidates_walk(const struct search *search, struct search_result *out)
{
    const struct candidate *least = &search->candidates[0];
    double limit = (double)search->request->budget_bytes / ESTIMATE_SLACK;
    bool fits = false;
    if (out->seconds_request <= 0.0)
        out->seconds_request = search->candidates[0].seconds;
    for (int32_t i = 0; i < search->count && !fits; i++) {
        const struct candidate *candidate = &search->candidates[i];
        least = candidate->bytes < least->bytes ? candidate : least;
        if (candidate->bytes <= limit)
            TRY(candidate_try(search, candidate, out, &fits));
    }
    if (!fits)
        TRY(candidate_try(search, least, out, &fits));
    return fits ? GT_OK : GT_NO_FIT;
}

/* No plan of a training program can do with less: weights, gradients, moments, and the input of every block.  It saves
 * building programs of millions of ops only to see that they do not fit. */
static double bytes_bound(const struct model_options *options)
{
    const struct model_config *config = &options->config;
    double rows = (double)options->micro_batch * (double)config->block_size;
    double states = 4.0 * (double)model_parameter_count(config);
    return (double)sizeof(float) * (states + rows * (double)config->n_embd * (double)config->n_layer);
}

/* What was asked for, when it is not hopeless. */
static enum gt_status asked_try(struct search *search, struct search_result *result, bool *fits)
{
    const struct search_request *request = search->request;
    struct candidate asked = {.micro_batch = request->options.micro_batch,
                              .chunk_rows = request->options.loss_chunk_rows,
                              .mix = request->options.recompute};
    double step, update;
    result->candidates = 1;
    result->bytes_request = (uint64_t)bytes_bound(&request->options);
    result->bytes_request_least = true;
    *fits = false;
    if (result->bytes_request > request->budget_bytes)
        return GT_OK;
    TRY(candidate_plan(search, &asked, false, &result->bytes_request, &step, &update));
    result->bytes_request_least = false;
    asked.seconds = update + step * (double)request->samples / (double)asked.micro_batch;
    result->options = options_of(search, &asked);
    result->arena_bytes = result->bytes_request;
    result->seconds = result->seconds_request = asked.seconds;
    *fits = result->arena_bytes <= request->budget_bytes;
    return GT_OK;
}

/* The candidate with the fewest bytes that the pinned choices allow. */
static struct candidate least_candidate(const struct search_request *request)
{
    struct candidate least = {.micro_batch = request->pin_micro_batch ? request->options.micro_batch : 1,
                              .chunk_rows = request->options.loss_chunk_rows,
                              .mix = request->options.recompute};
    if (!request->pin_recompute)
        least.mix = (struct recompute_mix){.rest = RECOMPUTE_FULL};
    return least;
}

enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out)
{
    struct search search = {.mem = mem, .request = request};
    struct search_result result = {0};
    bool fits;
    struct candidate least = least_candidate(request);
    result.options = options_of(&search, &least);
    result.arena_bytes = result.bytes_request = (uint64_t)bytes_bound(&result.options);
    result.bytes_request_least = true;
    if (result.arena_bytes > request->budget_bytes) {
        *out = result;
        return GT_NO_FIT;
    }
    TRY(asked_try(&search, &result, &fits));
    enum gt_status status = GT_OK;
    if (!fits) {
        status = candidates_make(&search);
        if (status == GT_OK)
            status = candidates_walk(&search, &result);
        result.candidates += search.count;
        hostmem_free(mem, search.candidates);
    }
    result.fits = status == GT_OK;
    if (status == GT_OK || status == GT_NO_FIT)
        *out = result;
    return status;
}
