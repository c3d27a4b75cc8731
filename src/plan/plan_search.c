/* The search.
 *
 * Its candidates are the points of a grid, and neither the grid nor their bytes and seconds depend
 * on the budget.  This is one micro-batch of a model of 3 blocks; a rung recomputes one block more
 * than the rung before it:
 *
 *     rung        0     1     2     3     4     5     6     7   ..  12    13  ..
 *     block 0    none  gelu  gelu  gelu   ln    ln    ln    mlp    full  offl
 *     block 1    none  none  gelu  gelu  gelu   ln    ln    ln     full  full
 *     block 2    none  none  none  gelu  gelu  gelu   ln    ln     full  full
 *
 *     loss chunk
 *     widest      -     -     -     -     -     -     -     C      #     #      - does not fit
 *     3/4         -     -     -     -     -     -     #     #      #     #      # fits
 *     9/16        -     -     -     -     B     #     #     #      #     #
 *     ..          -     -     -     -     #     #     #     #      #     #      bytes fall and
 *     16 rows     -     -     -     -     A     #     #     #      #     #      seconds grow: > v
 *
 * So the fastest candidate that fits is a corner of the stairs.  Bisection along the rungs finds A,
 * the lowest rung that fits with any chunk (rung_lowest).  Bisection along the chunks finds B, the
 * widest chunk with which that rung fits (chunk_widest).  Bisection along the rungs again finds the
 * corners of wider chunks up to C, as long as the rung after A could still be faster (chunks_try).
 *
 *     for each level of offload, from none up                                (offload_search)
 *         for each micro-batch, from the smallest up                         (line_search)
 *             skip it, and all larger ones, if not even the end of its last row fits
 *             measure the corners
 *     place the best; if its plan is larger than was measured, and too large, search without it
 *
 * A rung that does not fit and is slower than the best so far ends a bisection: the rungs below it
 * do not fit, and those above it are slower still.  What is skipped is thus of no use for any
 * budget, and a larger budget finds the same candidate or a faster one, provided that bytes fall
 * along the rungs.  plan_measure.c measures and caches; it takes nearly all of the time.
 */
#include "plan/plan_search.h"

#include <math.h>

#include "base/size.h"
#include "plan/plan_create.h"

#define CHUNK_ROWS_STEP 64
#define CHUNK_ROWS_LEAST 16
#define CHUNKS_TYPED_MAX 4096 /* a program of more loss chunks takes too long to plan */
/* Of two micro-batches that differ by less than an eighth, only one is in the grid. */
#define BATCHES_NEAR 8
#define BATCHES_MAX 256
/* The share of an update's time that a larger micro-batch must save: one that saves less only fills
 * the card. */
#define BATCH_GAIN_LEAST 0.03
#define CHUNK_WIDTHS_MAX 64
/* After this many plans that were larger than measured, and too large, the search expects every
 * plan to be larger by twice the last difference.  Near the smallest plan hundreds may be too
 * large. */
#define PLANS_TOO_LARGE_MOST 3
/* A program of at most as many blocks and loss chunks is placed in a millisecond or two. */
#define PARTS_SHORT 32

struct candidate {
    struct plan_choice choice;
    struct measurement measured;
};

/* Every candidate is better than this one. */
static const struct candidate nothing = {.choice.micro_batch = 1,
                                         .measured = {MEASURE_NEVER, 0, INFINITY}};

struct search {
    const struct search_request *request;
    struct measure measure;
    int32_t layers, rungs;         /* the last rung of a ladder, if host memory has room */
    int32_t batches[BATCHES_MAX];  /* of the grid, ascending */
    int32_t batch_count, measured; /* `measured`: choices so far */
    int32_t offload_most;          /* the last level of search_offload_mix() */
    struct plan_share share;
    uint64_t expected; /* how much larger than measured a plan may be */
};

/* ---- the grid ---- */

/* Returns true if the grid has a micro-batch: the requested one, a divisor of the samples, or, up
 * to the requested one, a power of two or three times one. */
static bool batch_is_in_grid(const struct search_request *request, int64_t batch)
{
    const int32_t requested = request->options.choice.micro_batch;
    if (request->pin_micro_batch || batch == requested)
        return batch == requested;
    const int64_t third = batch % 3 == 0 ? batch / 3 : batch;
    return request->samples % batch == 0 || (batch < requested && (third & (third - 1)) == 0);
}

static void batches_list(struct search *search)
{
    const struct search_request *request = search->request;
    const int64_t requested = request->options.choice.micro_batch,
                  most = max_i64(request->micro_batch_most, requested);
    int32_t *at = search->batches;
    for (int64_t b = 1, last = 0; b <= min_i64(most, request->samples); b++) {
        if (!batch_is_in_grid(request, b) ||
            (b != requested && last >= BATCHES_NEAR && b < last + last / BATCHES_NEAR))
            continue;
        assert(search->batch_count < BATCHES_MAX);
        at[search->batch_count++] = (int32_t)b;
        last = b;
    }
}

/* Returns true for a micro-batch that is a whole part of an update: its gradients end with it. */
static bool batch_is_part(const struct search *search, int32_t batch)
{
    return batch == search->request->samples && model_parts(&search->request->options) > 1;
}

int64_t search_chunk_even(int64_t rows, int64_t most)
{
    const int64_t chunks = size_ceil_div(rows, min_i64(most, rows)),
                  even = size_ceil_div(rows, chunks);
    return min_i64(min_i64(most, rows), size_ceil_div(even, CHUNK_ROWS_STEP) * CHUNK_ROWS_STEP);
}

/* Returns the rows of a micro-batch's loss chunk after it was narrowed by a quarter `narrowed`
 * times; 0 if it is then too narrow. */
static int32_t chunk_of(const struct search_request *request, int32_t batch, int narrowed)
{
    const int64_t rows = (int64_t)batch * request->options.config.block_size;
    const int64_t requested = request->options.choice.loss_chunk_rows;
    if (request->pin_loss_chunk)
        return (int32_t)(narrowed > 0 || rows > requested * CHUNKS_TYPED_MAX
                             ? 0
                             : min_i64(requested, rows));
    const int64_t most = request->loss_chunk_most > 0 ? request->loss_chunk_most : requested;
    /* Only larger micro-batches have even chunks, so that no smaller one is faster than the
     * requested one. */
    const bool is_larger = batch > request->options.choice.micro_batch;
    int64_t chunk = is_larger ? search_chunk_even(rows, most) : min_i64(requested, rows);
    chunk = max_i64(chunk, size_ceil_div(rows, SEARCH_CHUNKS_MAX));
    for (; narrowed > 0 && chunk > CHUNK_ROWS_LEAST; narrowed--) {
        const int64_t step = chunk > 2 * CHUNK_ROWS_STEP ? CHUNK_ROWS_STEP : CHUNK_ROWS_LEAST;
        const int64_t less = min_i64(size_ceil_div(chunk * 3 / 4, step) * step, chunk - step);
        chunk = max_i64(less, CHUNK_ROWS_LEAST); /* the same at every micro-batch, so that a larger
                                                    one never needs less memory */
    }
    return (int32_t)(narrowed > 0 || rows > chunk * SEARCH_CHUNKS_MAX ? 0 : chunk);
}

static int32_t chunk_least(const struct search_request *request, int32_t batch)
{
    int narrowed = 0;
    while (chunk_of(request, batch, narrowed + 1) > 0)
        narrowed++;
    return chunk_of(request, batch, narrowed);
}

/* ---- the ladder ---- */

static struct recompute_mix rung_mix(const struct search *search, int32_t rung)
{
    struct recompute_mix requested = search->request->options.choice.recompute;
    const int32_t layers = search->layers, level = (rung + layers - 1) / layers;
    if (search->request->pin_recompute) {
        recompute_swap(&requested, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, rung);
        return requested;
    }
    return rung == 0 ? recompute_uniform(RECOMPUTE_NONE, layers)
                     : recompute_two((enum recompute_level)level, rung - (level - 1) * layers,
                                     (enum recompute_level)(level - 1), layers);
}

static int32_t evaluate_batch_of(const struct search_request *request, int32_t micro_batch)
{
    const int32_t requested = request->options.choice.evaluate_batch;
    return !request->pin_evaluate_batch && requested > micro_batch ? micro_batch : requested;
}

/* Lists the classes that may move to host memory, the cheapest first: states move once in an
 * update.  If adapters are trained, only the frozen weights move. */
static int32_t offload_classes(const struct search_request *request,
                               enum offload_class out[static OFFLOAD_CLASSES])
{
    const bool lora = request->options.config.lora.rank > 0;
    int32_t count = 0;
    for (int32_t class = 0; class < OFFLOAD_CLASSES; class ++)
        if (!lora || class == OFFLOAD_WEIGHTS)
            out[count++] = (enum offload_class) class;
    return count;
}

int32_t search_offload_levels(const struct search_request *request)
{
    enum offload_class classes[OFFLOAD_CLASSES];
    const int32_t count = offload_classes(request, classes), most = request->offload_classes_most;
    return OFFLOAD_ALL * (most > 0 && most < count ? most : count);
}

struct offload_mix search_offload_mix(const struct search_request *request, int32_t level)
{
    struct offload_mix mix = request->options.choice.offload;
    enum offload_class classes[OFFLOAD_CLASSES];
    const int32_t count = offload_classes(request, classes);
    for (int32_t i = 0; i < count; i++) {
        const int64_t quarters = min_i64(max_i64(level - i * OFFLOAD_ALL, 0), OFFLOAD_ALL);
        mix.quarters[classes[i]] = (int32_t)max_i64(mix.quarters[classes[i]], quarters);
    }
    return mix;
}

static struct plan_choice choice_of(const struct search *search, int32_t batch, int32_t chunk,
                                    int32_t offload, int32_t rung)
{
    return (struct plan_choice){.micro_batch = batch,
                                .remainder_batch = (int32_t)(search->request->samples % batch),
                                .loss_chunk_rows = chunk,
                                .evaluate_batch = evaluate_batch_of(search->request, batch),
                                .offload = search_offload_mix(search->request, offload),
                                .recompute = rung_mix(search, rung)};
}

/* Returns the requested choice, completed. */
static struct plan_choice choice_requested(const struct search_request *request)
{
    struct plan_choice requested = request->options.choice;
    const int64_t rows = (int64_t)requested.micro_batch * request->options.config.block_size;
    requested.remainder_batch = (int32_t)(request->samples % requested.micro_batch);
    requested.loss_chunk_rows = (int32_t)min_i64(requested.loss_chunk_rows, rows);
    requested.evaluate_batch = evaluate_batch_of(request, requested.micro_batch);
    return requested;
}

/* Returns the last rung of a ladder, at which host memory holds as many blocks' inputs as have room
 * besides what the update keeps there. */
static int32_t rung_last(const struct search *search, int32_t batch,
                         const struct measurement *update)
{
    const struct model_options *options = &search->request->options;
    const uint64_t room = search->share.host_bytes > update->host_bytes
                              ? search->share.host_bytes - update->host_bytes
                              : 0;
    const uint64_t input =
        plan_footprint(&search->request->plan,
                       (uint64_t)batch * (uint64_t)options->config.block_size *
                           (uint64_t)options->config.n_embd * dtype_size_bytes(options->dtype));
    const int32_t full = search->request->pin_recompute ? 0 : RECOMPUTE_FULL * search->layers;
    return room / input < (uint64_t)(search->rungs - full) ? full + (int32_t)(room / input)
                                                           : search->rungs;
}

/* Returns how many rungs count as the end of a ladder.  There, recomputing a block may need a
 * tensor more than it saves, so that a rung below the last one has fewer bytes. */
static int32_t rungs_near_end(const struct search *search)
{
    return 1 + 16 / search->layers;
}

/* ---- candidates ---- */

static enum gt_status candidate_measure(struct search *search, const struct plan_choice *choice,
                                        struct candidate *out)
{
    search->measured++;
    out->choice = *choice;
    return measure_choice(&search->measure, choice, &out->measured);
}

static bool fits(const struct search *search, const struct measurement *measured)
{
    return measured->bytes != MEASURE_NEVER &&
           plan_share_fits(&search->share, measured->bytes, measured->host_bytes);
}

/* Returns true if the candidate may fit: by its plan if there is one, else by its measured bytes.
 */
static bool may_fit(const struct search *search, const struct candidate *candidate)
{
    const struct measurement *placed = measure_placed(&search->measure, &candidate->choice);
    struct measurement likely = candidate->measured;
    if (likely.bytes != MEASURE_NEVER)
        likely.bytes += search->expected;
    return placed != NULL ? fits(search, placed) : fits(search, &likely);
}

/* Returns true if candidate x is better than y: faster or, if both are equally fast, with less
 * offload, fewer blocks recomputed, fewer micro-steps or fewer bytes, in this order. */
static bool is_better(const struct search *search, const struct candidate *x,
                      const struct candidate *y)
{
    const struct plan_choice *a = &x->choice, *b = &y->choice;
    const int64_t samples = search->request->samples;
    const double order[][2] = {
        {x->measured.seconds, y->measured.seconds},
        {offload_quarters(&a->offload), offload_quarters(&b->offload)},
        {-recompute_blocks(&a->recompute, RECOMPUTE_NONE, search->layers),
         -recompute_blocks(&b->recompute, RECOMPUTE_NONE, search->layers)},
        {(double)size_ceil_div(samples, a->micro_batch),
         (double)size_ceil_div(samples, b->micro_batch)},
        {(double)x->measured.bytes, (double)y->measured.bytes},
        {-a->micro_batch, -b->micro_batch},
        {-a->loss_chunk_rows, -b->loss_chunk_rows},
    };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (order[i][0] != order[i][1])
            return order[i][0] < order[i][1];
    return false;
}

/* ---- one micro-batch ---- */

/* One micro-batch at one level of offload. */
struct line {
    struct search *search;
    struct candidate
        *best; /* of all lines; whatever is measured and fits replaces it if it is better */
    int32_t batch, offload;           /* a level */
    int32_t chunks[CHUNK_WIDTHS_MAX]; /* from the widest down */
    int32_t chunk_count;
    int32_t last;  /* rung */
    int32_t below; /* this rung and those below it do not fit, whatever the chunk */
    int32_t *slow; /* this rung and those above it are slower than the best, whatever the chunk and
                      the offload */
};

static void chunks_list(const struct search_request *request, struct line *line)
{
    line->chunk_count = 0;
    for (int32_t chunk; (chunk = chunk_of(request, line->batch, line->chunk_count)) > 0;) {
        assert(line->chunk_count < CHUNK_WIDTHS_MAX);
        line->chunks[line->chunk_count++] = chunk;
    }
}

/* Measures a rung with one of the chunks.  Gives whether it fits, and whether it is slower than the
 * best. */
static enum gt_status rung_try(const struct line *line, int32_t rung, int32_t chunk, bool *fit,
                               bool *slow)
{
    struct search *search = line->search;
    const struct plan_choice choice =
        choice_of(search, line->batch, line->chunks[chunk], line->offload, rung);
    struct candidate at;
    TRY(candidate_measure(search, &choice, &at));
    *fit = may_fit(search, &at);
    *slow = at.measured.seconds > line->best->measured.seconds;
    if (*slow && chunk == 0 && rung < *line->slow)
        *line->slow = rung;
    if (*fit && is_better(search, &at, line->best))
        *line->best = at;
    return GT_OK;
}

/* Returns a rung between two others, if possible one at which not all blocks have the same level.
 * Recomputing the last block saves nothing in its backward pass, which comes first, and may need a
 * tensor more there. */
static int32_t rung_between(const struct line *line, int32_t low, int32_t high)
{
    const int32_t middle = low + (high - low) / 2;
    return middle % line->search->layers == 0 && middle - 1 > low ? middle - 1 : middle;
}

/* Bisects the rungs between those that do not fit and those that are slow for the lowest that fits
 * with any chunk. */
static enum gt_status rung_lowest(struct line *line, int32_t *out)
{
    int32_t high = line->last < *line->slow ? line->last + 1 : *line->slow;
    while (high - line->below > 1) {
        const int32_t middle = rung_between(line, line->below, high);
        bool fit, slow, ignored;
        TRY(rung_try(line, middle, 0, &fit, &slow));
        if (!fit)
            TRY(rung_try(line, middle, line->chunk_count - 1, &fit, &ignored));
        *(fit ? &high : &line->below) = middle;
        if (slow && !fit)
            high = middle;
    }
    *out = high;
    return GT_OK;
}

/* Bisects the chunks for the widest one with which the lowest rung fits.  It fits with the
 * narrowest one. */
static enum gt_status chunk_widest(const struct line *line, int32_t lowest, int32_t *out)
{
    int32_t low = -1, high = line->chunk_count - 1;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        bool fit, ignored;
        TRY(rung_try(line, lowest, middle, &fit, &ignored));
        *(fit ? &high : &low) = middle;
    }
    *out = high;
    return GT_OK;
}

/* Bisects the rungs above `lowest`, with each of the first `count` chunks, for the lowest that
 * fits.  Ends when the rung after `lowest` fits or is slower than the best, because nothing that is
 * left is faster then. */
static enum gt_status chunks_try(const struct line *line, int32_t lowest, int32_t count)
{
    int32_t high = line->last + 1; /* from this rung on the chunk before, which is wider, fits */
    for (int32_t chunk = 0; chunk < count && lowest < line->last; chunk++) {
        int32_t low = lowest + 1, end = high;
        bool fit, slow;
        TRY(rung_try(line, low, chunk, &fit, &slow));
        if (fit || slow)
            return GT_OK;
        while (end - low > 1) {
            const int32_t middle = rung_between(line, low, end);
            TRY(rung_try(line, middle, chunk, &fit, &slow));
            high = fit ? middle : high;
            *(fit || slow ? &end : &low) = middle;
        }
    }
    return GT_OK;
}

/* Finds the smallest plan of a micro-batch at one level of offload, and replaces `out` if it is
 * smaller.  Its chunk is the narrowest one, and its rung is near the end. */
static enum gt_status smallest_at(struct search *search, int32_t batch, int32_t offload,
                                  struct candidate *out)
{
    const int32_t chunk = chunk_least(search->request, batch);
    struct plan_choice choice = choice_of(search, batch, chunk, offload, 0);
    struct measurement update;
    struct candidate at;
    if (chunk == 0)
        return GT_OK;
    TRY(measure_update(&search->measure, &choice, &update));
    if (offload > 0 && update.host_bytes > search->share.host_bytes)
        return GT_OK;
    const int32_t last = rung_last(search, batch, &update), near = rungs_near_end(search);
    for (int32_t rung = last;
         rung >= 0 && rung >= last - near && update.bytes < out->measured.bytes; rung--) {
        choice.recompute = rung_mix(search, rung);
        TRY(candidate_measure(search, &choice, &at));
        const bool same = at.measured.bytes == out->measured.bytes;
        if (at.measured.bytes < out->measured.bytes || (same && is_better(search, &at, out)))
            *out = at;
    }
    return GT_OK;
}

/* Finds the choice with the smallest plan of all.  Its micro-batch is the smallest one, or a whole
 * part, whose gradients end with its micro-step. */
static enum gt_status smallest_find(struct search *search, struct candidate *out)
{
    const int32_t count = search->batch_count;
    *out = (struct candidate){choice_requested(search->request), nothing.measured};
    for (int32_t offload = search->offload_most; offload >= 0; offload--) {
        TRY(smallest_at(search, search->batches[0], offload, out));
        if (count > 1 && search->batches[count - 1] == search->request->samples)
            TRY(smallest_at(search, search->batches[count - 1], offload, out));
    }
    return GT_OK;
}

/* Searches a line.  Sets *fits_none if no larger micro-batch fits either. */
static enum gt_status line_search(struct line *line, bool *fits_none)
{
    struct search *search = line->search;
    struct candidate smallest = {choice_requested(search->request), nothing.measured};
    int32_t lowest, widest;
    bool fit, slow;
    TRY(rung_try(line, line->below + 1, 0, &fit, &slow));
    if (fit || slow)
        return GT_OK;
    if (*line->slow > line->last) {
        TRY(smallest_at(search, line->batch, line->offload, &smallest));
        *fits_none = !fits(search, &smallest.measured);
        if (*fits_none)
            return GT_OK;
        if (may_fit(search, &smallest) && is_better(search, &smallest, line->best))
            *line->best = smallest;
    }
    TRY(rung_lowest(line, &lowest));
    if (lowest > line->last || lowest >= *line->slow)
        return GT_OK;
    TRY(chunk_widest(line, lowest, &widest));
    return chunks_try(line, lowest, widest);
}

/* Returns the most choices that line_search() measures. */
static int32_t line_measured_most(const struct line *line)
{
    const int32_t bisected = (int32_t)ceil(log2(line->search->rungs + 2));
    return 2 + rungs_near_end(line->search) + 2 * bisected + line->chunk_count * (2 + bisected);
}

/* Searches the micro-batches from `least` on, for one level of offload.  The rungs that do not fit
 * at one of them do not fit at the next, except at a whole part, which may need less. */
static enum gt_status offload_search(struct search *search, int32_t least, int32_t offload,
                                     int32_t *slow, struct candidate *best)
{
    struct line line = {.search = search, .best = best, .offload = offload, .below = -1};
    bool fits_none = false;
    for (int32_t i = 0; i < search->batch_count; i++) {
        const int32_t before = search->measured;
        struct measurement update;
        line.batch = search->batches[i];
        line.slow = &slow[i];
        if (batch_is_part(search, line.batch)) {
            fits_none = false;
            line.below = -1;
        }
        chunks_list(search->request, &line);
        if (line.batch < least || line.chunk_count == 0 || fits_none || line.below + 1 >= slow[i])
            continue;
        const struct plan_choice choice = choice_of(search, line.batch, line.chunks[0], offload, 0);
        TRY(measure_update(&search->measure, &choice, &update));
        line.last = rung_last(search, line.batch, &update);
        if (fits(search, &update) && line.below < line.last)
            TRY(line_search(&line, &fits_none));
        assert(search->measured - before <= line_measured_most(&line));
    }
    return GT_OK;
}

/* Gives the times of a micro-batch with nothing recomputed, without offload and with the most
 * offload. */
static enum gt_status batch_seconds(struct search *search, int32_t batch, double out[static 2])
{
    const int32_t offloads[2] = {0, search->offload_most};
    const int32_t chunk = chunk_of(search->request, batch, 0);
    out[0] = out[1] = INFINITY;
    for (int i = 0; i < 2 && chunk > 0; i++) {
        const struct plan_choice choice = choice_of(search, batch, chunk, offloads[i], 0);
        struct candidate at;
        TRY(candidate_measure(search, &choice, &at));
        out[i] = at.measured.seconds;
    }
    return GT_OK;
}

/* Drops each micro-batch above the requested one that saves less than BATCH_GAIN_LEAST compared
 * with the last one kept.  Keeps a whole part of an update, since it may be the smallest plan. */
static enum gt_status batches_thin(struct search *search)
{
    const int32_t requested = search->request->options.choice.micro_batch,
                  count = search->batch_count;
    double kept[2], seconds[2];
    if (search->batches[count - 1] <= requested)
        return GT_OK;
    TRY(batch_seconds(search, requested, kept));
    search->batch_count = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t batch = search->batches[i];
        if (batch > requested && !batch_is_part(search, batch)) {
            TRY(batch_seconds(search, batch, seconds));
            if (seconds[0] > (1.0 - BATCH_GAIN_LEAST) * kept[0] &&
                seconds[1] > (1.0 - BATCH_GAIN_LEAST) * kept[1])
                continue;
            memcpy(kept, seconds, sizeof kept);
        }
        search->batches[search->batch_count++] = batch;
    }
    return GT_OK;
}

/* Searches the grid for the best candidate, and replaces `best` if it is better. */
static enum gt_status grid_search(struct search *search, int32_t least, struct candidate *best)
{
    int32_t slow[BATCHES_MAX];
    for (int32_t i = 0; i < search->batch_count; i++)
        slow[i] = search->rungs + 1;
    for (int32_t offload = 0; offload <= search->offload_most; offload++)
        TRY(offload_search(search, least, offload, slow, best));
    return GT_OK;
}

/* Finds the fastest choice whose plan fits, if it is better than `best`, which may be `nothing`.
 * Sets its bytes to those of its plan. */
static enum gt_status fastest_find(struct search *search, int32_t least, struct candidate *best)
{
    for (int32_t too_large = 1;; too_large++) {
        struct candidate found = *best;
        TRY(grid_search(search, least, &found));
        if (plan_choice_equal(&found.choice, &best->choice))
            return GT_OK;
        const uint64_t measured = found.measured.bytes;
        TRY(measure_place(&search->measure, &found.choice, &found.measured));
        if (fits(search, &found.measured)) {
            *best = found;
            return GT_OK;
        }
        /* The next search finds another candidate, since this plan is known not to fit. */
        if (found.measured.bytes == MEASURE_NEVER && too_large >= PLANS_TOO_LARGE_MOST)
            return GT_OK;
        if (too_large >= PLANS_TOO_LARGE_MOST && found.measured.bytes > measured)
            search->expected = 2 * (found.measured.bytes - measured);
    }
}

/* ---- searches ---- */

static struct model_options options_of(const struct search *search,
                                       const struct plan_choice *choice)
{
    struct model_options options = search->request->options;
    options.choice = *choice;
    measure_micro_batch_set(&options, search->request->samples, choice->micro_batch);
    return options;
}

static struct search_alternative found_of(const struct search *search,
                                          const struct candidate *candidate)
{
    return (struct search_alternative){.kind = ALTERNATIVE_SEARCHED,
                                       .options = options_of(search, &candidate->choice),
                                       .arena_bytes = candidate->measured.bytes,
                                       .host_bytes = candidate->measured.host_bytes,
                                       .seconds = candidate->measured.seconds};
}

/* Returns a search with the state format of the request. */
static struct search search_make(struct hostmem *mem, const struct search_request *request,
                                 struct search_memo *memo)
{
    const struct plan_choice *requested = &request->options.choice;
    const int32_t layers = request->options.config.n_layer;
    const bool may_move = !request->pin_offload && request->share.host_bytes > 0;
    struct search search = {.request = request,
                            .measure = {.mem = mem,
                                        .options = &request->options,
                                        .plan = &request->plan,
                                        .rates = &request->rates,
                                        .samples = request->samples,
                                        .memo = &memo->states[request->options.states]},
                            .layers = layers,
                            .rungs = (may_move ? RECOMPUTE_OFFLOAD : RECOMPUTE_FULL) * layers,
                            .offload_most = may_move ? search_offload_levels(request) : 0,
                            .share = request->share};
    if (request->pin_recompute)
        search.rungs = may_move ? requested->recompute.blocks[RECOMPUTE_FULL] : 0;
    batches_list(&search);
    return search;
}

/* Measures the requested options.  Also plans them, for the bytes in a report, if they may fit or
 * planning takes no time. */
static enum gt_status requested_try(struct search *search, struct search_result *result,
                                    struct candidate *out)
{
    const struct search_request *request = search->request;
    const struct plan_choice requested = choice_requested(request);
    const int64_t rows = (int64_t)requested.micro_batch * request->options.config.block_size;
    const int64_t chunks = size_ceil_div(rows, requested.loss_chunk_rows);
    *out = (struct candidate){requested, nothing.measured};
    result->found = found_of(search, out);
    if (chunks > CHUNKS_TYPED_MAX)
        return GT_OK;
    TRY(candidate_measure(search, &requested, out));
    result->bytes_request_least =
        !fits(search, &out->measured) && search->layers + chunks > PARTS_SHORT;
    if (!result->bytes_request_least)
        TRY(measure_place(&search->measure, &requested, &out->measured));
    result->seconds_request = out->measured.bytes == MEASURE_NEVER ? 0.0 : out->measured.seconds;
    result->bytes_request = out->measured.bytes;
    result->found = found_of(search, out);
    result->fits = result->request_fits = fits(search, &out->measured);
    return GT_OK;
}

/* Finds the fastest choice that fits the budgets. */
static enum gt_status candidates_search(struct search *search, struct search_result *result)
{
    struct candidate found = nothing;
    TRY(fastest_find(search, 1, &found));
    result->fits = found.measured.seconds < INFINITY;
    if (result->fits)
        result->found = found_of(search, &found);
    return GT_OK;
}

static enum gt_status smallest_search(struct search *search, struct search_result *result)
{
    struct candidate found;
    TRY(smallest_find(search, &found));
    if (found.measured.bytes != MEASURE_NEVER)
        TRY(measure_place(&search->measure, &found.choice, &found.measured));
    result->found = found_of(search, &found);
    result->unplaceable = found.measured.bytes == MEASURE_NEVER;
    result->fits = fits(search, &found.measured);
    return GT_OK;
}

/* Tries the requested options.  If they fit, a resumed run keeps them, and any other tries larger
 * micro-batches.  If they do not fit, a resumed run first tries options that change no bit; then
 * all options are tried. */
static enum gt_status format_search(struct hostmem *mem, const struct search_request *request,
                                    struct search_memo *memo, struct search_result *out)
{
    struct search_request same = *request;
    struct search search = search_make(mem, request, memo);
    struct candidate requested;
    TRY(requested_try(&search, out, &requested));
    if (out->fits && request->resumed) {
        out->candidates = 1;
        return GT_OK;
    }
    TRY(batches_thin(&search));
    if (out->fits) {
        TRY(fastest_find(&search, requested.choice.micro_batch + 1, &requested));
        out->found = found_of(&search, &requested);
    }
    same.pin_micro_batch = same.pin_loss_chunk = true;
    if (request->resumed && !out->fits) {
        struct search of_same = search_make(mem, &same, memo);
        TRY(candidates_search(&of_same, out));
    }
    if (!out->fits)
        TRY(candidates_search(&search, out));
    if (!out->fits && !request->fit_only)
        TRY(smallest_search(&search, out));
    const struct plan_choice first = choice_requested(request);
    out->candidates = plan_choice_equal(&out->found.options.choice, &first) && out->fits
                          ? 1
                          : search.measured + 1;
    return GT_OK;
}

void search_memo_close(struct search_memo *memo)
{
    for (int i = 0; i < STATE_FORMATS; i++)
        measure_memo_close(&memo->states[i]);
}

enum state_format search_states_next(const struct model_options *options)
{
    const enum state_format next = state_format_next(options->states);
    bool codes = next != STATE_FORMATS &&
                 state_format_dtypes(next, options->dtype, false).moment == DTYPE_U8;
    return options->muon && codes ? STATE_FORMATS : next;
}

/* Tries a leaner format only if no candidate of a wider one fits.  The smallest plan is that of the
 * last format; the figures for the request are those of the first. */
static enum gt_status formats_search(struct hostmem *mem, const struct search_request *request,
                                     struct search_memo *memo, struct search_result *out)
{
    struct search_request tried = *request;
    struct search_result first = {.candidates = 0};
    enum state_format next = tried.options.states;
    for (int32_t candidates = 0; next != STATE_FORMATS && !out->fits;) {
        tried.options.states = next;
        next = request->lean_states ? search_states_next(&tried.options) : STATE_FORMATS;
        tried.fit_only = request->fit_only || next != STATE_FORMATS;
        *out = (struct search_result){0};
        TRY(format_search(mem, &tried, memo, out));
        first = candidates == 0 ? *out : first;
        candidates += out->candidates;
        out->candidates = candidates;
    }
    out->bytes_request = first.bytes_request;
    out->bytes_request_least = first.bytes_request_least;
    out->request_fits = first.request_fits;
    out->seconds_request = first.seconds_request;
    return out->fits ? GT_OK : GT_NO_FIT;
}

enum gt_status plan_search(struct hostmem *mem, const struct search_request *request,
                           struct search_result *out)
{
    struct search_memo fresh = {0};
    out->fits = false;
    enum gt_status status =
        formats_search(mem, request, request->memo ? request->memo : &fresh, out);
    search_memo_close(&fresh);
    return status;
}

enum gt_status search_bytes_least(struct hostmem *mem, const struct search_request *request,
                                  uint64_t *out)
{
    struct search_memo fresh = {0};
    struct search search = search_make(mem, request, request->memo ? request->memo : &fresh);
    struct candidate smallest;
    enum gt_status status = smallest_find(&search, &smallest);
    *out = smallest.measured.bytes;
    search_memo_close(&fresh);
    return status;
}

/* ---- the front of memory against time ---- */

static int choice_compare(const void *a, const void *b)
{
    const struct search_alternative *x = a, *y = b;
    if (x->arena_bytes != y->arena_bytes)
        return x->arena_bytes < y->arena_bytes ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Sorts by bytes and drops every point that is not faster than all smaller ones. */
static int32_t front_sort(struct search_alternative *points, int32_t count)
{
    int32_t kept = 0;
    qsort(points, (size_t)count, sizeof points[0], choice_compare);
    for (int32_t i = 0; i < count; i++)
        if (kept == 0 || points[i].seconds < points[kept - 1].seconds)
            points[kept++] = points[i];
    return kept;
}

/* Finds the fastest plans for budgets from the smallest plan's bytes to those of the fastest of
 * all, evenly spaced on a logarithmic scale. */
static enum gt_status front_plan(struct search *search,
                                 struct search_alternative out[static SEARCH_FRONT_MAX],
                                 int32_t *count)
{
    struct search_result request = {.candidates = 0};
    struct candidate requested, least, at = nothing;
    int32_t made = 0;
    *count = 0;
    TRY(requested_try(search, &request, &requested));
    TRY(batches_thin(search));
    TRY(smallest_find(search, &least));
    if (least.measured.bytes == MEASURE_NEVER)
        return GT_OK;
    TRY(measure_place(&search->measure, &least.choice, &least.measured));
    out[made++] = found_of(search, &least);
    if (requested.measured.bytes != MEASURE_NEVER) {
        TRY(measure_place(&search->measure, &requested.choice, &requested.measured));
        out[made++] = found_of(search, &requested);
    }
    search->share.device_bytes = MEASURE_NEVER;
    TRY(fastest_find(search, 1, &at));
    const double ratio = (double)at.measured.bytes / (double)least.measured.bytes;
    const bool any = at.measured.bytes != MEASURE_NEVER;
    at = nothing;
    for (int i = 1; any && made < SEARCH_FRONT_MAX; i++) {
        search->share.device_bytes =
            (uint64_t)((double)least.measured.bytes * pow(ratio, (double)i / SEARCH_FRONT_MAX));
        TRY(fastest_find(search, 1, &at)); /* faster than what a smaller budget had room for */
        out[made] = found_of(search, &at);
        made += at.measured.bytes != MEASURE_NEVER;
    }
    *count = front_sort(out, made);
    return GT_OK;
}

enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_alternative out[static SEARCH_FRONT_MAX], int32_t *count)
{
    struct search_memo fresh = {0};
    struct search search = search_make(mem, request, request->memo ? request->memo : &fresh);
    enum gt_status status = front_plan(&search, out, count);
    search_memo_close(&fresh);
    return status;
}
