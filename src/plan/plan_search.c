/* The search, and the front of memory against time.
 *
 * A candidate is a micro-batch, a loss chunk, a number of blocks at each recompute level and a part of the optimizer
 * state in host memory.  Probes (plan_probe.h) give its time and a lower bound of its bytes without planning it.  The
 * search skips a range of candidates when none of them can fit or be among the fastest so far.  It plans the candidates
 * whose bounds fit in the order of their times, so the first plan that fits is the fastest of all (but for
 * bytes_limit()).  It finds the smallest plan in the same way, in the order of bytes.  A memo keeps probes, splits and
 * plans for further searches.
 */
#include "plan/plan_search.h"

#include <math.h>

#include "base/size.h"
#include "plan/plan_probe.h"

#define KEPT_MAX 16     /* candidates in one collection; the search plans them in their order */
#define KEPT_LEAST 8    /* as KEPT_MAX, in a search for the smallest plan */
#define BATCHES_FINE 64 /* micro-batches above this differ by an eighth */
#define PARTS_FINE 8    /* more chunks than this differ by an eighth */
#define CHUNK_ROWS_STEP 64
#define CHUNK_ROWS_FINE 512 /* smaller chunks are multiples of the least one */
#define CHUNK_ROWS_LEAST 16
#define CHUNKS_MANY 4096   /* a program of more loss chunks takes too long to plan */
#define PARTS_SHORT 32     /* a program of at most as many blocks and loss chunks is planned in a millisecond or two */
#define FAILED_BLOCKS 64   /* plans beyond the budget before others must leave a margin: 1 + this / blocks */
#define MARGIN_BITS 10     /* the margin is 1/1024 of the budget at first, and grows fourfold with each further plan, */
#define MARGIN_GROWN_MAX 2 /* this many times */
#define PRICE_ROUNDING 1e-9
#define SECONDS_EQUAL 0x1p-40 /* times whose difference is a smaller part may compare equal */
#define LEAST_GAIN_PART 4096  /* smallest_find() ignores a gain below 1/4096 of the plan */
#define FRONT_RATIO 16.0      /* the front's range if the requested plan cannot be made */

/* A micro-batch with a loss chunk, and what follows from them. */
struct split {
    struct plan_choice choice; /* without recompute */
    uint64_t other_bytes;      /* the arena that everything but training needs; in the memo: only evaluation's own */
    uint64_t below_bytes;      /* what lies below training's own tensors; not in the memo */
    uint64_t input_bytes;      /* of a block */
    int32_t host_blocks;       /* whose inputs the host's budget has room for; not in the memo */
    int32_t away;              /* the first blocks, whose weights are fetched; not in the memo */
    uint64_t low, high, saved[RECOMPUTE_LEVELS]; /* as in struct probe_program */
    uint64_t local[2][RECOMPUTE_LEVELS];         /* also as there; [1]: of blocks whose weights are fetched */
    double block_seconds[2][RECOMPUTE_LEVELS];   /* of an update, likewise */
    double seconds;                              /* of an update, without blocks; the memo has no update */
    double fastest;                              /* of all mixes */
    uint64_t largest;                            /* tensor or workspace */
    double price[RECOMPUTE_LEVELS]; /* the fewest seconds for a byte that levels up to this one save; 0: NONE's */
};

struct candidate {
    struct plan_choice choice;
    double seconds; /* exact */
    uint64_t bytes; /* lower bound */
};

struct search_states_memo {
    struct probe_fixed fixed;
    int32_t fixed_count; /* 1: of no offload; 2: of every part too */
    struct probe *probes;
    struct search_choice *tried; /* planned for real */
    struct split *splits;        /* of all micro-batches, the fastest first */
    int32_t probe_count, tried_count, split_count;
};

struct search {
    struct hostmem *mem;
    const struct search_request *request;
    struct probe_request probe;
    struct search_states_memo *memo; /* for the request's state format */
    int32_t offload_most;            /* largest part of the optimizer state in host memory */
    /* The collection. */
    struct candidate kept[KEPT_MAX], last;
    int32_t kept_count, kept_most, considered;
    bool by_bytes, has_last; /* has_last: collect only what comes after `last` */
    uint64_t bytes_least;    /* no candidate needs less */
    double seconds_most;     /* candidate_add() ignores a slower or larger candidate */
    uint64_t bytes_most;
};

char *search_options_text(char text[static SEARCH_OPTIONS_TEXT_MAX], const struct model_options *options)
{
    char choice[PLAN_CHOICE_TEXT_MAX];
    bool lean = state_format_is_lean(options->states);
    snprintf(text, SEARCH_OPTIONS_TEXT_MAX, "%s%s%s",
             plan_choice_text(choice, &options->choice, options->config.n_layer, options->config.lora.rank > 0),
             lean ? ", states " : "", lean ? state_format_name(options->states) : "");
    return text;
}

void search_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch)
{
    options->choice.micro_batch = (int32_t)micro_batch;
    options->micro_steps = (int32_t)size_ceil_div(samples, micro_batch);
    options->choice.remainder_batch = (int32_t)(samples % micro_batch);
}

/* Returns true when a plan has so many loss chunks that planning it takes too long. */
static bool has_many_chunks(const struct plan_choice *choice, int32_t block_size)
{
    return size_ceil_div((int64_t)choice->micro_batch * block_size, choice->loss_chunk_rows) > CHUNKS_MANY;
}

static int32_t evaluate_batch_of(const struct search_request *request, int32_t micro_batch)
{
    int32_t asked = request->options.choice.evaluate_batch;
    return !request->pin_evaluate_batch && asked > micro_batch ? micro_batch : asked;
}

/* Returns the options of the request with `choice`.  Derives the remainder and the evaluation batch from it. */
static struct model_options options_of(const struct search_request *request, const struct plan_choice *choice)
{
    struct model_options options = request->options;
    int64_t rows = (int64_t)choice->micro_batch * options.config.block_size;
    options.choice = *choice;
    search_micro_batch_set(&options, request->samples, choice->micro_batch);
    options.choice.loss_chunk_rows = (int32_t)(choice->loss_chunk_rows < rows ? choice->loss_chunk_rows : rows);
    options.choice.evaluate_batch = evaluate_batch_of(request, choice->micro_batch);
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

double search_update_seconds(const struct model *model, const struct plan_rates *rates, plan_seconds_fn *seconds)
{
    double sum = 0.0;
    for (int32_t p = 0; p < model->graph->program_count; p++)
        if (model->graph->programs[p].phase == PHASE_TRAIN)
            sum += model_runs(&model->options, model->graph->programs[p].name) * seconds(model->graph, p, rates);
    return sum;
}

enum gt_status search_options_plan(struct hostmem *mem, const struct plan_options *plan, const struct plan_rates *rates,
                                   struct search_choice *choice)
{
    struct plan_options quiet = *plan;
    struct model *model;
    struct plan *made;
    quiet.quiet = true;
    TRY(model_create(mem, &choice->options, &model));
    choice->seconds = search_update_seconds(model, rates, plan_cost_blocks);
    enum gt_status status = plan_create(model, model->graph, &quiet, &made);
    choice->arena_bytes = status == GT_OK ? made->arena_bytes : SEARCH_BYTES_NEVER;
    choice->host_bytes = status == GT_OK ? made->host_bytes : 0;
    hostmem_free(model);
    return status == GT_NO_FIT ? GT_OK : status;
}

/* Plans a choice of the request for real, unless an earlier search did. */
static enum gt_status choice_plan(const struct search *search, struct search_choice *out)
{
    struct search_states_memo *memo = search->memo;
    for (const struct search_choice *tried = memo->tried; tried < memo->tried + memo->tried_count; tried++)
        if (plan_choice_equal(&tried->options.choice, &out->options.choice)) {
            out->arena_bytes = tried->arena_bytes;
            out->host_bytes = tried->host_bytes;
            out->seconds = tried->seconds;
            return GT_OK;
        }
    TRY(HOSTMEM_GROW(memo, &memo->tried, (size_t)memo->tried_count + 1, "plans tried"));
    TRY(search_options_plan(search->mem, &search->request->plan, &search->request->rates, out));
    memo->tried[memo->tried_count++] = *out;
    return GT_OK;
}

/* Gives a probe, which is made unless there is one.  It is valid until the next call. */
static enum gt_status probe_get(struct search *search, int32_t micro_batch, int32_t offload, const struct probe **out)
{
    struct search_states_memo *memo = search->memo;
    const int32_t evaluate_batch = evaluate_batch_of(search->request, micro_batch);
    for (int32_t i = 0; i < memo->probe_count; i++) {
        *out = &memo->probes[i];
        if ((*out)->micro_batch == micro_batch && (*out)->evaluate_batch == evaluate_batch &&
            (*out)->offload == offload)
            return GT_OK;
    }
    TRY(HOSTMEM_GROW(memo, &memo->probes, (size_t)memo->probe_count + 1, "plan probes"));
    TRY(probe_make(&search->probe, micro_batch, evaluate_batch, offload, &memo->probes[memo->probe_count]));
    *out = &memo->probes[memo->probe_count++];
    return GT_OK;
}

/* Adds the seconds of a program that runs `times` times in an update.  Adds its bytes too if `measured`, which is false
 * for the remainder. */
static void program_add(const struct search *search, const struct probe *probe, enum probe_kind kind, int64_t times,
                        bool measured, struct split *split)
{
    const struct probe_program *program = &probe->program[kind];
    struct probe_loss loss = probe_loss_of(&search->probe, &search->memo->fixed, probe, kind,
                                           (int64_t)probe->micro_batch * search->request->options.config.block_size,
                                           split->choice.loss_chunk_rows);
    const bool away = probe->offload > 0;
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        for (int pass = 0; pass < 2; pass++)
            split->block_seconds[away][level] +=
                (double)times * plan_queues_longest(&program->block[level][pass], &search->request->rates);
        split->saved[level] = measured ? program->saved[level] : split->saved[level];
        probe_raise(&split->local[away][level], measured ? program->local[level] : 0);
    }
    split->seconds += away ? 0.0 : (double)times * (program->outside_seconds + loss.seconds);
    if (!measured || away)
        return;
    probe_raise(&split->low, program->low);
    probe_raise(&split->high, program->high > loss.bytes ? program->high : loss.bytes);
    probe_raise(&split->largest, program->largest > loss.largest ? program->largest : loss.largest);
}

static void evaluation_add(const struct search *search, const struct probe *probe, struct split *split)
{
    const struct model_options *options = &search->request->options;
    const struct probe_program *program = &probe->program[PROBE_EVALUATE];
    const int64_t time = options->evaluate_time > 0 && options->evaluate_time < options->config.block_size
                             ? options->evaluate_time
                             : options->config.block_size;
    struct probe_loss loss = probe_loss_of(&search->probe, &search->memo->fixed, probe, PROBE_EVALUATE,
                                           probe->evaluate_batch * time, split->choice.loss_chunk_rows);
    uint64_t bytes = program->low;
    probe_raise(&bytes, program->high);
    probe_raise(&bytes, loss.bytes);
    for (int level = 0; level < RECOMPUTE_LEVELS; level++)
        probe_raise(&bytes, program->local[level]);
    split->other_bytes = bytes;
    probe_raise(&split->largest, program->largest > loss.largest ? program->largest : loss.largest);
}

/* Sets the prices a little too low rather than too high: beside copies, recomputing costs less. */
static void prices_set(struct split *split)
{
    double least = INFINITY;
    const double *of = split->block_seconds[split->away > 0];
    for (int level = RECOMPUTE_NONE + 1; level < RECOMPUTE_LEVELS; level++) {
        const double seconds = of[level] - of[RECOMPUTE_NONE];
        if (split->saved[level] < split->saved[RECOMPUTE_NONE])
            least = fmin(least, seconds / (double)(split->saved[RECOMPUTE_NONE] - split->saved[level]));
        split->price[level] = least < INFINITY ? least * (1.0 - PRICE_ROUNDING) : 0.0;
    }
}

/* Fills `split` for a micro-batch and a chunk. */
static enum gt_status split_make(struct search *search, int32_t micro_batch, int64_t chunk, struct split *split)
{
    const struct search_request *request = search->request;
    const struct probe *probe, *rest;
    const int64_t whole = request->samples / micro_batch;
    const int64_t rounds = model_parts(&request->options) / model_ranks(&request->options);
    const bool in_step = probe_adds_in_step(&search->probe, micro_batch);
    const int32_t remainder = (int32_t)(request->samples % micro_batch);
    *split = (struct split){
        .choice = {.micro_batch = micro_batch,
                   .loss_chunk_rows = (int32_t)chunk,
                   .evaluate_batch = evaluate_batch_of(request, micro_batch)},
    };
    for (int32_t away = request->options.config.lora.rank > 0; away >= 0; away--) {
        if (remainder > 0) {
            TRY(probe_get(search, remainder, away * OFFLOAD_ALL, &rest));
            program_add(search, rest, PROBE_NEXT, rounds, false, split);
        }
        TRY(probe_get(search, micro_batch, away * OFFLOAD_ALL, &probe));
        program_add(search, probe, PROBE_FIRST, in_step ? 1 : rounds, true, split);
        if (in_step ? rounds > 1 : whole > 1)
            program_add(search, probe, PROBE_NEXT, in_step ? rounds - 1 : rounds * (whole - 1), true, split);
    }
    split->input_bytes = probe->input_bytes;
    evaluation_add(search, probe, split);
    split->fastest = split->seconds + request->options.config.n_layer * split->block_seconds[0][RECOMPUTE_NONE];
    return GT_OK;
}

/* Returns how many of the `blocks` blocks after the first `from` have weights that are fetched. */
static int32_t blocks_away(const struct split *split, int32_t from, int32_t blocks)
{
    const int32_t left = split->away > from ? split->away - from : 0;
    return left < blocks ? left : blocks;
}

static double blocks_seconds(const struct split *split, int level, int32_t from, int32_t blocks)
{
    const int32_t away = blocks_away(split, from, blocks);
    return (blocks - away) * split->block_seconds[0][level] + away * split->block_seconds[1][level];
}

/* Returns a split of the memo with a part of the optimizer state in host memory.  How many blocks' inputs have room
 * beside it limits only the search: what the user sets is refused at the end. */
static struct split split_with(const struct search *search, const struct split *split, int32_t offload)
{
    const struct search_request *request = search->request;
    const struct probe_states *states = &search->memo->fixed.states[offload];
    const bool in_step = probe_adds_in_step(&search->probe, split->choice.micro_batch);
    const double update_seconds =
        search->memo->fixed.between_seconds[in_step] + plan_queues_longest(&states->update, &request->rates);
    const uint64_t room = request->host_budget > states->host_bytes ? request->host_budget - states->host_bytes : 0;
    const uint64_t blocks = request->pin_offload ? 0 : room / split->input_bytes;
    const int32_t layers = request->options.config.n_layer;
    struct split out = *split;
    out.choice.offload = offload;
    out.away = request->options.config.lora.rank > 0 ? plan_choice_offload_blocks(offload, layers) : 0;
    out.seconds += update_seconds;
    out.fastest = out.seconds + blocks_seconds(&out, RECOMPUTE_NONE, 0, layers);
    prices_set(&out);
    out.below_bytes = states->run_bytes + search->memo->fixed.gradient_bytes[in_step];
    out.other_bytes += states->run_bytes;
    probe_raise(&out.other_bytes, out.below_bytes + states->update_bytes);
    probe_raise(&out.other_bytes, states->run_bytes + states->generate_bytes);
    out.host_blocks = blocks < (uint64_t)layers ? (int32_t)blocks : layers;
    return out;
}

/* Returns the next smaller chunk of a micro-step, or 0 if there is none.  A large chunk divides the rows into nearly
 * equal parts; a small one is a multiple of CHUNK_ROWS_LEAST. */
static int64_t chunk_next(int64_t rows, int64_t chunk)
{
    int64_t next = chunk;
    if (chunk <= CHUNK_ROWS_LEAST)
        return 0;
    if (chunk <= CHUNK_ROWS_FINE)
        return (chunk - 1) / CHUNK_ROWS_LEAST * CHUNK_ROWS_LEAST;
    for (int64_t parts = size_ceil_div(rows, chunk); next >= chunk;) {
        parts += 1 + parts / PARTS_FINE;
        next = size_ceil_div(size_ceil_div(rows, parts), CHUNK_ROWS_STEP) * CHUNK_ROWS_STEP;
    }
    return next;
}

/* Returns the rows of a micro-batch's largest chunk: the requested ones, if it has as many. */
static int64_t chunk_widest(const struct search_request *request, int32_t micro_batch)
{
    return min_i64(request->options.choice.loss_chunk_rows, (int64_t)micro_batch * request->options.config.block_size);
}

/* The first blocks of a model: those whose levels have been chosen so far. */
struct mixing {
    struct recompute_mix mix;
    double seconds;
    int32_t count;
    uint64_t saved, peak; /* bytes: that these blocks save; most that are live until the last one ends */
};

static void blocks_add(struct mixing *mixing, const struct split *split, int level, int32_t blocks)
{
    const int32_t first = blocks_away(split, mixing->count, blocks);
    mixing->mix.blocks[level] += level == RECOMPUTE_NONE ? 0 : blocks;
    mixing->seconds += blocks_seconds(split, level, mixing->count, blocks);
    mixing->count += blocks;
    for (int away = 1; away >= 0; away--) {
        mixing->saved += (uint64_t)(away ? first : blocks - first) * split->saved[level];
        if ((away ? first : blocks - first) > 0)
            probe_raise(&mixing->peak, mixing->saved - split->saved[level] + split->local[away][level]);
    }
}

/* Returns a candidate whose blocks are those of `mixing`. */
static struct candidate candidate_of(const struct split *split, const struct mixing *mixing)
{
    struct candidate candidate = {.choice = split->choice};
    int exponent;
    const double part = frexp(mixing->seconds, &exponent);
    candidate.choice.recompute = mixing->mix;
    candidate.seconds = ldexp(rint(part / SECONDS_EQUAL), exponent) * SECONDS_EQUAL;
    candidate.bytes = mixing->peak;
    probe_raise(&candidate.bytes, mixing->saved + split->high);
    candidate.bytes += split->below_bytes;
    probe_raise(&candidate.bytes, split->other_bytes);
    return candidate;
}

/* Returns a candidate with a given mix. */
static struct candidate candidate_mixed(const struct split *split, const struct recompute_mix *mix, int32_t layers)
{
    struct mixing mixing = {.seconds = split->seconds, .peak = split->low};
    for (int level = RECOMPUTE_OFFLOAD; level >= RECOMPUTE_NONE; level--)
        blocks_add(&mixing, split, level, recompute_blocks(mix, (enum recompute_level)level, layers));
    return candidate_of(split, &mixing);
}

/* Returns a lower bound of all mixes that are allowed, with the largest part of the optimizer state in host memory. */
static uint64_t split_least(const struct search *search, const struct split *of)
{
    const struct search_request *request = search->request;
    const int32_t layers = request->options.config.n_layer;
    struct split split = split_with(search, of, search->offload_most);
    struct recompute_mix mix =
        request->pin_recompute ? request->options.choice.recompute : recompute_uniform(RECOMPUTE_FULL, layers);
    uint64_t local = UINT64_MAX;
    recompute_swap(&mix, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, split.host_blocks);
    for (int level = 0; level < RECOMPUTE_LEVELS; level++)
        local = split.local[0][level] < local ? split.local[0][level] : local;
    for (int level = 0; level < RECOMPUTE_LEVELS && !request->pin_recompute; level++)
        split.local[0][level] = split.local[1][level] = local;
    return candidate_mixed(&split, &mix, layers).bytes;
}

/* Adds the splits of a micro-batch whose largest tensor the device can hold.  Sets *least to the bytes of the smallest
 * one, even if the device cannot hold it. */
static enum gt_status batch_add(struct search *search, int32_t micro_batch, uint64_t *least)
{
    const struct search_request *request = search->request;
    struct search_states_memo *memo = search->memo;
    const int64_t rows = (int64_t)micro_batch * request->options.config.block_size;
    const int64_t widest = chunk_widest(request, micro_batch);
    const uint64_t segment = request->plan.largest_segment_bytes;
    for (int64_t chunk = widest; chunk > 0 && (chunk == widest || rows <= chunk * CHUNKS_MANY);
         chunk = chunk_next(rows, chunk)) {
        TRY(HOSTMEM_GROW(memo, &memo->splits, (size_t)memo->split_count + 1, "plan splits"));
        struct split *split = &memo->splits[memo->split_count];
        TRY(split_make(search, micro_batch, chunk, split));
        const uint64_t bytes = split_least(search, split);
        *least = bytes < *least ? bytes : *least;
        memo->split_count += segment == 0 || split->largest <= segment;
    }
    return GT_OK;
}

static int split_compare(const void *a, const void *b)
{
    const struct split *x = a, *y = b;
    return (x->fastest > y->fastest) - (x->fastest < y->fastest);
}

/* Makes the splits of a micro-batch, unless an earlier search did.  Sets *least to the bytes of the smallest one. */
static enum gt_status batch_get(struct search *search, int32_t micro_batch, uint64_t *least)
{
    const struct search_states_memo *memo = search->memo;
    const int32_t evaluate_batch = evaluate_batch_of(search->request, micro_batch);
    *least = UINT64_MAX;
    for (int32_t i = 0; i < memo->split_count; i++) {
        const struct split *split = &memo->splits[i];
        if (split->choice.micro_batch != micro_batch || split->choice.evaluate_batch != evaluate_batch)
            continue;
        const uint64_t bytes = split_least(search, split);
        *least = bytes < *least ? bytes : *least;
    }
    return *least != UINT64_MAX ? GT_OK : batch_add(search, micro_batch, least);
}

/* Makes all splits that may fit `budget`; if `smallest`, only those of the smallest micro-batch.  Stops after the first
 * micro-batch that cannot fit, because a larger one needs more; but for one that is a whole part, whose gradients need
 * less. */
static enum gt_status splits_make(struct search *search, bool smallest, uint64_t budget)
{
    struct search_states_memo *memo = search->memo;
    const struct search_request *request = search->request;
    const int32_t asked = request->options.choice.micro_batch;
    uint64_t bytes = 0;
    for (int32_t b = request->pin_micro_batch ? asked : 1; b <= asked && bytes <= budget && !memo->fixed.unplaceable;) {
        TRY(batch_get(search, b, &bytes));
        const int32_t next = b < BATCHES_FINE ? b + 1 : b + b / 8;
        b = next > asked && b < asked ? asked : next;
        if (smallest)
            break;
    }
    if (probe_adds_in_step(&search->probe, asked) && !memo->fixed.unplaceable)
        TRY(batch_get(search, asked, &bytes));
    if (memo->split_count > 0)
        qsort(memo->splits, (size_t)memo->split_count, sizeof memo->splits[0], split_compare);
    return GT_OK;
}

/* Compares by seconds, or by bytes and then by seconds.  Of equal candidates the simpler one comes first: less
 * offload, fewer blocks recomputed, fewer micro-steps, fewer bytes, a larger micro-batch, a larger chunk.  No two
 * candidates have all of these and their mixes in common. */
static int candidate_compare(const struct search *search, const struct candidate *x, const struct candidate *y)
{
    const struct plan_choice *a = &x->choice, *b = &y->choice;
    const int32_t layers = search->request->options.config.n_layer;
    const int64_t samples = search->request->samples;
    const double bytes[] = {(double)x->bytes, (double)y->bytes};
    const double order[][2] = {
        {search->by_bytes ? bytes[0] : x->seconds, search->by_bytes ? bytes[1] : y->seconds},
        {x->seconds, y->seconds},
        {a->offload, b->offload},
        {-recompute_blocks(&a->recompute, RECOMPUTE_NONE, layers),
         -recompute_blocks(&b->recompute, RECOMPUTE_NONE, layers)},
        {(double)size_ceil_div(samples, a->micro_batch), (double)size_ceil_div(samples, b->micro_batch)},
        {bytes[0], bytes[1]},
        {-a->micro_batch, -b->micro_batch},
        {-a->loss_chunk_rows, -b->loss_chunk_rows},
    };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (order[i][0] != order[i][1])
            return order[i][0] < order[i][1] ? -1 : 1;
    return memcmp(&a->recompute, &b->recompute, sizeof a->recompute);
}

/* Inserts a candidate in its place, unless it is there. */
static void candidate_add(struct search *search, const struct candidate candidate)
{
    int32_t at = search->kept_count;
    search->considered++;
    if (candidate.bytes > search->bytes_most || candidate.seconds > search->seconds_most ||
        (search->has_last && candidate_compare(search, &candidate, &search->last) <= 0))
        return;
    while (at > 0 && candidate_compare(search, &candidate, &search->kept[at - 1]) < 0)
        at--;
    if (at == search->kept_most || (at > 0 && candidate_compare(search, &candidate, &search->kept[at - 1]) == 0))
        return;
    search->kept_count += search->kept_count < search->kept_most;
    memmove(&search->kept[at + 1], &search->kept[at], (size_t)(search->kept_count - 1 - at) * sizeof search->kept[0]);
    search->kept[at] = candidate;
    if (search->kept_count < search->kept_most)
        return;
    const struct candidate *most = &search->kept[search->kept_most - 1];
    if (search->by_bytes)
        search->bytes_most = most->bytes;
    if (!search->by_bytes || most->bytes == search->bytes_least)
        search->seconds_most = most->seconds * (1.0 + SECONDS_EQUAL);
}

/* Returns true when every mix that adds `left` blocks at `level` or lower to `mixing` is too slow.  Each level runs the
 * ops of the level below and more, so RECOMPUTE_NONE is the fastest; each byte by which its blocks exceed the limit
 * costs the price at least. */
static bool is_slow(const struct search *search, const struct split *split, int level, int32_t left,
                    const struct mixing *mixing)
{
    const uint64_t needed =
        split->below_bytes + mixing->saved + (uint64_t)left * split->saved[RECOMPUTE_NONE] + split->high;
    const double excess = needed > search->bytes_most ? (double)(needed - search->bytes_most) : 0.0;
    const double fastest = mixing->seconds + blocks_seconds(split, RECOMPUTE_NONE, mixing->count, left);
    return fastest + excess * split->price[level] > search->seconds_most;
}

/* Returns how many of the `left` other blocks must have `level` at least for the saved bytes to fit.  Returns left + 1
 * if they cannot fit even when all have it. */
static int32_t blocks_least(const struct search *search, const struct split *split, int level, int32_t left,
                            const struct mixing *mixing)
{
    const uint64_t other = split->saved[level - 1], own = split->saved[level];
    const uint64_t needed = split->below_bytes + mixing->saved + (uint64_t)left * other + split->high;
    if (needed <= search->bytes_most || other <= own)
        return 0;
    const uint64_t blocks = (needed - search->bytes_most + other - own - 1) / (other - own);
    return blocks > (uint64_t)left ? left + 1 : (int32_t)blocks;
}

/* Adds every candidate that extends `mixing` by `left` blocks at `level` or lower. */
static void mixes_add(struct search *search, const struct split *split, int level, int32_t left, struct mixing mixing)
{
    const uint64_t saved = mixing.saved + (uint64_t)left * split->saved[level];
    probe_raise(&mixing.peak, saved + split->high);
    if (is_slow(search, split, level, left, &mixing) || split->below_bytes + mixing.peak > search->bytes_most)
        return;
    if (level == RECOMPUTE_NONE) {
        blocks_add(&mixing, split, level, left);
        candidate_add(search, candidate_of(split, &mixing));
        return;
    }
    int32_t blocks = blocks_least(search, split, level, left, &mixing);
    const int32_t most = level == RECOMPUTE_OFFLOAD && split->host_blocks < left ? split->host_blocks : left;
    blocks_add(&mixing, split, level, blocks);
    for (; blocks <= most && !is_slow(search, split, RECOMPUTE_NONE, left - blocks, &mixing); blocks++) {
        mixes_add(search, split, level - 1, left - blocks, mixing);
        blocks_add(&mixing, split, level, 1);
    }
}

/* Returns true when the pins allow the split; a search for the smallest plan needs only the smallest micro-batch, and
 * the one that is a whole part. */
static bool is_allowed(const struct search *search, const struct split *split)
{
    const struct search_request *request = search->request;
    const struct plan_choice *choice = &split->choice, *asked = &request->options.choice;
    const bool smallest = choice->micro_batch == 1 || probe_adds_in_step(&search->probe, choice->micro_batch);
    return (request->pin_micro_batch ? choice->micro_batch == asked->micro_batch : smallest || !search->by_bytes) &&
           choice->evaluate_batch == evaluate_batch_of(request, choice->micro_batch) &&
           (!request->pin_loss_chunk || choice->loss_chunk_rows == chunk_widest(request, choice->micro_batch));
}

/* Adds the candidates of a split: if `uniform`, those with all blocks at one level, else all others.  Blocks that the
 * user wants at RECOMPUTE_FULL may be at RECOMPUTE_OFFLOAD. */
static void split_collect(struct search *search, const struct split *split, bool uniform)
{
    const struct search_request *request = search->request;
    const int32_t layers = request->options.config.n_layer;
    const struct mixing none = {.seconds = split->seconds, .peak = split->low};
    struct recompute_mix mix = request->options.choice.recompute;
    if (split->other_bytes > search->bytes_most || split->fastest > search->seconds_most)
        return;
    if (!request->pin_recompute && !uniform)
        mixes_add(search, split, split->host_blocks > 0 ? RECOMPUTE_OFFLOAD : RECOMPUTE_FULL, layers, none);
    for (int level = RECOMPUTE_NONE; uniform && !request->pin_recompute && level < RECOMPUTE_OFFLOAD; level++) {
        const struct recompute_mix same = recompute_uniform((enum recompute_level)level, layers);
        candidate_add(search, candidate_mixed(split, &same, layers));
    }
    for (int32_t away = 0; uniform && request->pin_recompute && away <= split->host_blocks; away++) {
        candidate_add(search, candidate_mixed(split, &mix, layers));
        recompute_swap(&mix, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, 1);
    }
}

/* Collects the next candidates within the limits, in their order.  Those with all blocks at one level come first,
 * because their times rule out most of the others. */
static void candidates_collect(struct search *search, uint64_t budget)
{
    search->kept_count = 0;
    search->kept_most = search->by_bytes ? KEPT_LEAST : KEPT_MAX;
    search->bytes_most = budget;
    search->seconds_most = INFINITY;
    for (int32_t i = 0; i < 2 * search->memo->split_count; i++) {
        const struct split *split = &search->memo->splits[i % search->memo->split_count];
        if (!is_allowed(search, split))
            continue;
        for (int32_t o = search->request->options.choice.offload; o <= search->offload_most; o++) {
            const struct split with = split_with(search, split, o);
            split_collect(search, &with, i < search->memo->split_count);
        }
    }
    search->has_last = search->kept_count > 0;
    if (search->has_last)
        search->last = search->kept[search->kept_count - 1];
}

/* Returns the bytes that a candidate's bound may have after `failed` plans that exceeded the budget.  The times of many
 * mixes of a deep model differ by millionths, and where the planner needs a little more than the bound of one of them,
 * so it does for the others.  After a few failures the bound must therefore leave a part of the budget, and at least
 * what the last plan needed more than its bound, within the largest margin. */
static uint64_t bytes_limit(const struct search *search, uint64_t budget, int32_t failed, uint64_t excess)
{
    const int32_t beyond = failed - 1 - FAILED_BLOCKS / search->request->options.config.n_layer;
    if (beyond < 0)
        return budget;
    const int32_t bits = MARGIN_BITS - 2 * (beyond < MARGIN_GROWN_MAX ? beyond : MARGIN_GROWN_MAX);
    const uint64_t margin = budget >> bits, most = budget >> (MARGIN_BITS - 2 * MARGIN_GROWN_MAX);
    return budget - (excess < margin ? margin : excess < most ? excess : most);
}

/* Finds the fastest choice whose plan fits `budget`, first among those that bytes_limit() allows, then among all.  Sets
 * arena_bytes to SEARCH_BYTES_NEVER if no plan fits. */
static enum gt_status fastest_find(struct search *search, uint64_t budget, struct search_choice *out)
{
    const int32_t block_size = search->request->options.config.block_size;
    uint64_t limit = budget;
    int32_t failed = 0;
    *out = (struct search_choice){.kind = CHOICE_SEARCHED};
    search->by_bytes = search->has_last = false;
    for (bool margins = true;;) {
        candidates_collect(search, limit);
        for (int32_t i = 0; i < search->kept_count; i++) {
            out->options = options_of(search->request, &search->kept[i].choice);
            if (search->kept[i].bytes > limit || has_many_chunks(&out->options.choice, block_size))
                continue;
            TRY(choice_plan(search, out));
            if (out->arena_bytes <= budget)
                return GT_OK;
            limit = margins ? bytes_limit(search, budget, ++failed, out->arena_bytes - search->kept[i].bytes) : budget;
        }
        if (search->kept_count == search->kept_most)
            continue;
        if (limit == budget)
            break;
        margins = false;
        search->has_last = false;
        limit = budget;
    }
    out->arena_bytes = SEARCH_BYTES_NEVER;
    return GT_OK;
}

/* Sets bytes_least and makes the splits of which one has them.  If the pins rule out all, it is SEARCH_BYTES_NEVER. */
static enum gt_status bytes_least_find(struct search *search)
{
    search->by_bytes = true;
    search->has_last = false;
    search->bytes_least = SEARCH_BYTES_NEVER;
    TRY(splits_make(search, true, UINT64_MAX));
    for (int32_t i = 0; i < search->memo->split_count; i++) {
        const uint64_t bytes = split_least(search, &search->memo->splits[i]);
        if (is_allowed(search, &search->memo->splits[i]) && bytes < search->bytes_least)
            search->bytes_least = bytes;
    }
    return GT_OK;
}

/* Finds the choice with the smallest plan.  Sets *bound if out->arena_bytes is only a lower bound, because the plan has
 * too many loss chunks to be made. */
static enum gt_status smallest_find(struct search *search, struct search_choice *out, bool *bound)
{
    const struct search_request *request = search->request;
    struct plan_choice small = request->options.choice; /* which the planner may still be unable to place */
    if (!request->pin_micro_batch)
        small.micro_batch = 1;
    if (!request->pin_recompute)
        small.recompute = recompute_uniform(RECOMPUTE_FULL, request->options.config.n_layer);
    *bound = false;
    *out = (struct search_choice){.options = options_of(request, &small), .arena_bytes = SEARCH_BYTES_NEVER};
    TRY(bytes_least_find(search));
    candidates_collect(search, UINT64_MAX);
    for (int32_t i = 0; i < search->kept_count && !*bound; i++) {
        const struct candidate *candidate = &search->kept[i];
        struct search_choice choice = {.options = options_of(request, &candidate->choice),
                                       .arena_bytes = candidate->bytes,
                                       .seconds = candidate->seconds};
        if (candidate->bytes >= out->arena_bytes - out->arena_bytes / LEAST_GAIN_PART)
            break;
        *bound = has_many_chunks(&choice.options.choice, request->options.config.block_size);
        if (!*bound)
            TRY(choice_plan(search, &choice));
        if (i == 0 || choice.arena_bytes < out->arena_bytes)
            *out = choice;
    }
    return GT_OK;
}

/* Plans the requested options.  If their bound shows that they do not fit, only the bytes in a report need the plan,
 * and the bound serves instead where planning takes long. */
static enum gt_status asked_try(struct search *search, struct search_result *result)
{
    const struct search_request *request = search->request;
    struct search_choice asked = {.options = options_of(request, &request->options.choice)};
    const struct plan_choice *choice = &asked.options.choice;
    struct split split;
    TRY(split_make(search, choice->micro_batch, choice->loss_chunk_rows, &split));
    split = split_with(search, &split, choice->offload);
    const struct candidate bound = candidate_mixed(&split, &choice->recompute, request->options.config.n_layer);
    result->candidates = 1;
    result->found.options = asked.options;
    result->seconds_request = bound.seconds;
    result->bytes_request = bound.bytes;
    result->bytes_request_least = true;
    const int64_t rows = (int64_t)choice->micro_batch * request->options.config.block_size;
    bool is_short = request->options.config.n_layer + size_ceil_div(rows, choice->loss_chunk_rows) <= PARTS_SHORT;
    if (bound.bytes > request->budget_bytes && (request->fit_only || !is_short))
        return GT_OK;
    TRY(choice_plan(search, &asked));
    result->found.seconds = result->seconds_request = asked.seconds;
    if (asked.arena_bytes == SEARCH_BYTES_NEVER)
        return GT_OK;
    result->bytes_request_least = false;
    result->bytes_request = asked.arena_bytes;
    result->found = asked;
    result->fits = asked.arena_bytes <= request->budget_bytes && asked.host_bytes <= request->host_budget;
    return GT_OK;
}

/* Finds the fastest choice that fits the budgets, or the smallest choice if none fits. */
static enum gt_status others_search(struct search *search, struct search_result *result)
{
    const struct search_request *request = search->request;
    struct search_choice found = {.arena_bytes = SEARCH_BYTES_NEVER};
    TRY(splits_make(search, false, request->budget_bytes));
    TRY(fastest_find(search, request->budget_bytes, &found));
    if (found.arena_bytes == SEARCH_BYTES_NEVER && request->fit_only)
        return GT_OK;
    if (found.arena_bytes == SEARCH_BYTES_NEVER)
        TRY(smallest_find(search, &found, &result->arena_least));
    result->candidates += search->considered;
    result->found = found;
    result->unplaceable = found.arena_bytes == SEARCH_BYTES_NEVER;
    result->arena_least = result->arena_least || result->unplaceable;
    result->fits =
        !result->arena_least && found.arena_bytes <= request->budget_bytes && found.host_bytes <= request->host_budget;
    return GT_OK;
}

/* Prepares a search with the state format of the request, and finds the largest part of the state for which the host's
 * budget has room, unless the user set it. */
static enum gt_status search_open(struct hostmem *mem, const struct search_request *request, struct search_memo *memo,
                                  struct search *out)
{
    struct search_states_memo **states = &memo->states[request->options.states];
    const int32_t asked = request->options.choice.offload, count = asked > 0 || request->host_budget > 0 ? 2 : 1;
    *out = (struct search){.mem = mem, .request = request, .offload_most = asked};
    out->probe = (struct probe_request){mem, &request->options, &request->plan, &request->rates, request->samples};
    if (*states == NULL)
        TRY(HOSTMEM_NEW(mem, 1, "plan search", states));
    out->memo = *states;
    if (out->memo->fixed_count < count)
        TRY(probe_fixed_make(&out->probe, count > 1, &out->memo->fixed));
    out->memo->fixed_count = count > out->memo->fixed_count ? count : out->memo->fixed_count;
    const struct probe_states *parts = out->memo->fixed.states;
    for (int32_t o = asked + 1; o <= OFFLOAD_ALL && !request->pin_offload && count > 1; o++)
        out->offload_most = parts[o].host_bytes <= request->host_budget ? o : out->offload_most;
    return GT_OK;
}

void search_memo_close(struct search_memo *memo)
{
    for (int i = 0; i < STATE_FORMATS; i++)
        hostmem_free(memo->states[i]);
    *memo = (struct search_memo){0};
}

enum state_format search_states_next(const struct model_options *options)
{
    const enum state_format next = state_format_next(options->states);
    bool codes = next != STATE_FORMATS && state_format_dtypes(next, options->dtype, false).moment == DTYPE_U8;
    return options->muon && codes ? STATE_FORMATS : next;
}

/* Tries the requested choices, in a resumed run others that change no bit, and then all others. */
static enum gt_status format_search(struct hostmem *mem, const struct search_request *request, struct search_memo *memo,
                                    struct search_result *out)
{
    struct search_request same = *request;
    struct search search;
    TRY(search_open(mem, request, memo, &search));
    TRY(asked_try(&search, out));
    same.pin_micro_batch = same.pin_loss_chunk = same.fit_only = true;
    search.request = &same;
    if (request->resumed && !out->fits)
        TRY(others_search(&search, out));
    search.request = request;
    return out->fits ? GT_OK : others_search(&search, out);
}

/* Tries a leaner format only if no candidate of a wider one fits.  The smallest plan is that of the last format, the
 * figures for the request stay those of the first. */
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
    out->seconds_request = first.seconds_request;
    return out->fits ? GT_OK : GT_NO_FIT;
}

enum gt_status plan_search(struct hostmem *mem, const struct search_request *request, struct search_result *out)
{
    struct search_memo own = {0};
    out->fits = false;
    enum gt_status status = formats_search(mem, request, request->memo ? request->memo : &own, out);
    search_memo_close(&own);
    return status;
}

enum gt_status search_bytes_least(struct hostmem *mem, const struct search_request *request, uint64_t *out)
{
    struct search_memo own = {0};
    struct search search;
    enum gt_status status = search_open(mem, request, &own, &search);
    THEN(status, bytes_least_find(&search));
    *out = status == GT_OK ? search.bytes_least : 0;
    search_memo_close(&own);
    return status;
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
    for (int32_t i = 0; i < count; i++)
        if (kept == 0 || points[i].seconds < points[kept - 1].seconds)
            points[kept++] = points[i];
    return kept;
}

/* Finds the fastest plans for budgets from the smallest plan's bytes to the requested one's, evenly spaced on a
 * logarithmic scale. */
static enum gt_status front_plan(struct search *search, struct search_choice *out, int32_t *count)
{
    const struct search_request *request = search->request;
    struct search_choice asked = {.options = options_of(request, &request->options.choice)}, *next = out;
    bool bound = has_many_chunks(&asked.options.choice, request->options.config.block_size);
    *count = 0;
    if (!bound)
        TRY(choice_plan(search, &asked));
    TRY(smallest_find(search, next, &bound));
    if (bound || next->arena_bytes == SEARCH_BYTES_NEVER)
        return GT_OK;
    const double least = (double)next++->arena_bytes;
    if (asked.arena_bytes != 0 && asked.arena_bytes != SEARCH_BYTES_NEVER)
        *next++ = asked;
    const double ratio = next - out == 2 ? (double)asked.arena_bytes / least : FRONT_RATIO;
    TRY(splits_make(search, false, UINT64_MAX));
    for (int i = 1; next < out + SEARCH_FRONT_MAX; i++) {
        TRY(fastest_find(search, (uint64_t)(least * pow(ratio, (double)i / SEARCH_FRONT_MAX)), next));
        next += next->arena_bytes != SEARCH_BYTES_NEVER;
    }
    *count = front_sort(out, (int32_t)(next - out));
    return GT_OK;
}

enum gt_status search_front(struct hostmem *mem, const struct search_request *request,
                            struct search_choice out[static SEARCH_FRONT_MAX], int32_t *count)
{
    struct search_memo own = {0};
    struct search search;
    enum gt_status status = search_open(mem, request, request->memo ? request->memo : &own, &search);
    THEN(status, front_plan(&search, out, count));
    search_memo_close(&own);
    return status;
}
