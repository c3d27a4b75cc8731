/* Compares the search with brute force: 12 random small cases, 200 with CHECK_LONG=1.  Every tenth has many blocks.
 *
 * The judge builds every candidate of a wider space: every micro-batch, every multiple of 16 rows as loss chunk and the
 * requested one, every number of blocks at each recompute level.  In every third case, it also puts every part of the
 * optimizer state, and the inputs of any number of blocks, into host memory, as far as host_budget allows.  It takes a
 * candidate's time from its ops.  It plans the candidates that are more than 1 % faster than the choice, or all if the
 * search refused; none may fit.  Likewise it compares the smallest plan of a refusal with all bounds.  No alternative may be faster than the choice.  The bound that refuses the request
 * is that of its plan; that of adapters may differ by a 50th.  The judge shares nothing with the search but the models, the planner and the cost of an op.
 */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "model/parameters.h"
#include "plan/device_profile.h"
#include "plan/plan_search.h"
#include "tests/unit/unit_main.h"

#define CASES 12
#define CASES_LONG 200
#define CANDIDATES_MAX 65536
#define SLOWER_MAX 0.01   /* than the fastest */
#define LARGER_MAX 0.0005 /* than the smallest */
#define CHUNK_STEP 16
#define PARTIALS_BYTES 512

static struct hostmem *mem;
static struct backend *card;
static struct device_profile profile;

static void setup(void)
{
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(device_profile_find("rtx3060-12g", &profile), GT_OK);
    ck_assert_int_eq(profile_device_open(&profile, &card), GT_OK);
}

static void teardown(void)
{
    card->ops->close(card);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

/* The random numbers of a case. */
struct draws {
    uint32_t number, next;
};

static int32_t draw(struct draws *draws, int32_t low, int32_t high)
{
    const struct philox_key key = {{(uint32_t)unit_seed(), 0x7e577e57u}};
    const struct philox_block counter = {{draws->next++, draws->number, 0, 0}};
    return low + (int32_t)(philox4x32_10(key, counter).word[0] % (uint32_t)(high - low + 1));
}

static void model_draw(struct draws *draws, struct model_options *options)
{
    static const int32_t vocabularies[] = {65, 1000, 4096, 16384};
    struct model_config *config = &options->config;
    *options = (struct model_options){.train = true, .evaluate = true, .generate_batch = 1, .correction_rows = 1};
    config->n_layer = draw(draws, 1, 5);
    config->n_head = config->n_kv_head = draw(draws, 1, 3);
    config->n_embd = config->n_head * 16 * draw(draws, 1, 3);
    config->block_size = 16 * draw(draws, 1, 4);
    config->vocab_size = config->padded_vocab_size = vocabularies[draw(draws, 0, 3)];
    config->bias = draw(draws, 0, 1) == 1;
    config->dropout = draw(draws, 0, 1) == 1 ? 0.1f : 0.0f;
    config->norm_epsilon = 1e-5;
    options->dtype = draw(draws, 0, 1) == 1 ? DTYPE_BF16 : DTYPE_F32;
    options->states =
        options->dtype == DTYPE_BF16 ? (enum state_format)draw(draws, 0, STATE_FORMATS - 1) : STATE_MASTER;
    options->generate = draw(draws, 0, 2) == 0;
    options->prefill_time = config->block_size / 2;
}

static struct search_request request_draw(struct draws *draws)
{
    struct search_request request = {.plan = {.alignment_bytes = 256}, .rates = plan_rates_of_profile(&profile, false)};
    struct model_options *options = &request.options;
    model_draw(draws, options);
    options->parts = 1 + draws->number % 3;
    options->ranks = draws->number % 2 == 0 ? options->parts : 1;
    const bool deep = draws->number % 10 == 9; /* 1,820 mixes, and nothing else to choose */
    if (deep) {
        options->config.n_layer = 12;
        options->config.block_size = CHUNK_STEP;
        options->prefill_time = 1;
        if (draws->number % 4 == 1)
            options->config.lora =
                (struct lora_config){.rank = 2, .targets = parameters_lora_targets(&options->config), .alpha = 2.0};
    }
    const int32_t batch = deep ? 1 : draw(draws, 1, 7), rows = batch * options->config.block_size;
    request.samples = (int64_t)batch * draw(draws, 1, 3);
    search_micro_batch_set(options, request.samples, batch);
    options->choice.loss_chunk_rows = draw(draws, 0, 1) == 1 ? rows : (rows + 1) / 2;
    options->choice.evaluate_batch = draw(draws, 1, batch);
    options->choice.recompute = recompute_uniform(RECOMPUTE_NONE, options->config.n_layer);
    request.pin_micro_batch = draw(draws, 0, 7) == 0;
    request.pin_recompute = draw(draws, 0, 7) == 0;
    request.pin_loss_chunk = draw(draws, 0, 7) == 0;
    request.pin_evaluate_batch = draw(draws, 0, 3) == 0;
    if (request.pin_recompute)
        options->choice.recompute = recompute_two(RECOMPUTE_MLP, 1, RECOMPUTE_GELU, options->config.n_layer);
    request.plan.device = draw(draws, 0, 1) == 1 ? card : NULL; /* workspaces of 32 MiB outweigh small models */
    options->choice.offload = draw(draws, 0, OFFLOAD_ALL);
    request.pin_offload = draws->number % 3 != 2;
    request.host_budget = UINT64_MAX;
    if (request.pin_offload)
        return request;
    options->choice.offload = 0;
    options->config.n_layer = options->config.n_layer % 4; /* fewer candidates, each with every part */
    options->config.n_layer += options->config.n_layer == 0;
    options->choice.recompute = recompute_uniform(RECOMPUTE_FULL, options->config.n_layer);
    request.pin_loss_chunk = true;
    request.host_budget = (uint64_t)draw(draws, 0, 1 << 22);
    return request;
}

struct judged {
    struct model_options options;
    double seconds;
};

struct judge {
    const struct search_request *request;
    struct judged *at; /* [CANDIDATES_MAX] */
    int32_t count, offload;
};

/* Returns the bytes of the tensors in host memory. */
static uint64_t host_bytes_of(const struct search_request *request, const struct model_options *options)
{
    struct model *model;
    uint64_t bytes = 0;
    if (request->pin_offload)
        return 0;
    ck_assert_int_eq(model_create(mem, options, &model), GT_OK);
    for (int32_t t = TENSOR_FIRST; t < model->graph->tensor_count; t++)
        if (model->graph->tensors[t].base == TENSOR_NONE && model->graph->tensors[t].home == SPACE_HOST)
            bytes += (graph_tensor_bytes(model->graph, t) + 255) / 256 * 256;
    hostmem_free(model);
    return bytes;
}

static double seconds_of(const struct search_request *request, const struct model_options *options)
{
    struct model_options training = *options;
    struct model *model;
    training.evaluate = training.generate = false;
    ck_assert_int_eq(model_create(mem, &training, &model), GT_OK);
    double seconds = search_update_seconds(model, &request->rates, plan_cost_blocks);
    hostmem_free(model);
    return seconds;
}

/* Plans the options if their bound is below `least`; returns the bytes, or UINT64_MAX. */
static uint64_t bytes_of(const struct search_request *request, const struct model_options *options, uint64_t least)
{
    struct model *model;
    struct plan *plan;
    struct plan_options measure = request->plan;
    uint64_t bytes = UINT64_MAX;
    measure.measure_only = true;
    ck_assert_int_eq(model_create(mem, options, &model), GT_OK);
    ck_assert_int_eq(plan_create(mem, model->graph, &measure, &plan), GT_OK);
    if (plan->arena_bytes_bound <= least) {
        hostmem_free(plan);
        ck_assert_int_eq(plan_create(mem, model->graph, &request->plan, &plan), GT_OK);
        bytes = plan->arena_bytes;
    }
    hostmem_free(plan);
    hostmem_free(model);
    return bytes;
}

/* The bound that refuses the requested options without planning them is that of their plan.  That of the update counts
 * the partial sums of one or two blocks only. */
static void bound_check(const struct search_request *request)
{
    struct search_request tight = *request;
    struct search_result result;
    struct model *model;
    struct plan *plan;
    struct plan_options measure = request->plan;
    measure.measure_only = true;
    tight.budget_bytes = 1;
    tight.fit_only = true;
    ck_assert_int_eq(plan_search(mem, &tight, &result), GT_NO_FIT);
    ck_assert(result.bytes_request_least);
    ck_assert_int_eq(model_create(mem, &request->options, &model), GT_OK);
    ck_assert_int_eq(plan_create(mem, model->graph, &measure, &plan), GT_OK);
    const double seconds = seconds_of(request, &request->options);
    const bool lora =
        request->options.config.lora.rank > 0; /* then a probe's first block has no gradient of its input */
    ck_assert_uint_le(result.bytes_request, plan->arena_bytes_bound * (lora ? 51 : 50) / 50);
    ck_assert_uint_ge(result.bytes_request + PARTIALS_BYTES, plan->arena_bytes_bound * (lora ? 49 : 50) / 50);
    ck_assert_double_eq_tol(result.seconds_request, seconds, (lora ? 0.02 : 1e-9) * seconds);
    hostmem_free(plan);
    hostmem_free(model);
}

static void judged_add(struct judge *judge, int32_t micro_batch, int32_t chunk, const struct recompute_mix *mix)
{
    const struct search_request *request = judge->request;
    struct model_options options = request->options;
    const int32_t rows = micro_batch * options.config.block_size, evaluate = options.choice.evaluate_batch;
    search_micro_batch_set(&options, request->samples, micro_batch);
    options.choice.loss_chunk_rows = chunk < rows ? chunk : rows;
    options.choice.recompute = *mix;
    options.choice.offload = judge->offload;
    options.choice.evaluate_batch = !request->pin_evaluate_batch && evaluate > micro_batch ? micro_batch : evaluate;
    ck_assert_int_lt(judge->count, CANDIDATES_MAX);
    if (host_bytes_of(request, &options) <= request->host_budget)
        judge->at[judge->count++] = (struct judged){options, seconds_of(request, &options)};
}

/* Adds all mixes whose first `from` blocks have more than `level`. */
static void mixes_add(struct judge *judge, int32_t micro_batch, int32_t chunk, int level, struct recompute_mix mix)
{
    const struct model_options *asked = &judge->request->options;
    int32_t left = recompute_blocks(&mix, RECOMPUTE_NONE, asked->config.n_layer);
    for (int32_t away = 0; judge->request->pin_recompute && level > RECOMPUTE_NONE; away++) {
        mix = asked->choice.recompute;
        recompute_swap(&mix, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, away);
        judged_add(judge, micro_batch, chunk, &mix);
        if (level < RECOMPUTE_OFFLOAD || mix.blocks[RECOMPUTE_FULL] == 0)
            return;
    }
    if (level == RECOMPUTE_NONE) {
        judged_add(judge, micro_batch, chunk, &mix);
        return;
    }
    for (int32_t blocks = 0; blocks <= left; blocks++) {
        mix.blocks[level] = blocks;
        mixes_add(judge, micro_batch, chunk, level - 1, mix);
    }
}

static int judged_compare(const void *a, const void *b)
{
    const struct judged *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static void judge_open(struct judge *judge, const struct search_request *request)
{
    const struct model_options *asked = &request->options;
    *judge = (struct judge){.request = request, .at = malloc(CANDIDATES_MAX * sizeof(struct judged))};
    ck_assert_ptr_nonnull(judge->at);
    const int32_t parts = request->pin_offload ? 1 : OFFLOAD_ALL + 1, batch = asked->choice.micro_batch;
    const int level = request->pin_offload ? RECOMPUTE_FULL : RECOMPUTE_OFFLOAD;
    for (int32_t i = 0; i < parts * batch; i++) {
        const int32_t b = i / parts + 1, rows = b * asked->config.block_size, chunk = asked->choice.loss_chunk_rows;
        const int32_t most = chunk < rows ? chunk : rows;
        judge->offload = asked->choice.offload + i % parts;
        if (request->pin_micro_batch && b != batch)
            continue;
        mixes_add(judge, b, most, level, (struct recompute_mix){{0}});
        for (int32_t c = CHUNK_STEP; c < most && !request->pin_loss_chunk; c += CHUNK_STEP)
            mixes_add(judge, b, c, level, (struct recompute_mix){{0}});
    }
    qsort(judge->at, (size_t)judge->count, sizeof judge->at[0], judged_compare);
}

/* Nothing that is faster than `seconds` by more than 1 % fits. */
static void fastest_check(const struct judge *judge, double seconds)
{
    const uint64_t budget = judge->request->budget_bytes;
    for (int32_t i = 0; i < judge->count && judge->at[i].seconds < seconds / (1.0 + SLOWER_MAX); i++) {
        char text[SEARCH_OPTIONS_TEXT_MAX];
        uint64_t bytes = bytes_of(judge->request, &judge->at[i].options, budget);
        ck_assert_msg(bytes > budget, "%s takes %g s, the choice %g s",
                      search_options_text(text, &judge->at[i].options), judge->at[i].seconds, seconds);
    }
}

static void smallest_check(const struct judge *judge, uint64_t least)
{
    const uint64_t smaller = (uint64_t)((double)least * (1.0 - LARGER_MAX));
    for (int32_t i = 0; i < judge->count; i++) {
        char text[SEARCH_OPTIONS_TEXT_MAX];
        uint64_t bytes = bytes_of(judge->request, &judge->at[i].options, smaller);
        ck_assert_msg(bytes > smaller, "%s needs less", search_options_text(text, &judge->at[i].options));
    }
}

/* The alternatives fit, none is faster than the choice, and one that another search made is that of a search of its
 * own. */
static void alternatives_check(const struct search_request *request, const struct search_result *result)
{
    struct search_choice choices[SEARCH_CHOICES_MAX];
    struct search_request own = *request;
    int32_t count;
    ck_assert_int_eq(search_choices(mem, request, choices, &count), GT_OK);
    for (int32_t i = 0; i < count; i++) {
        const struct search_choice *choice = &choices[i];
        bool free = request->pin_micro_batch || request->pin_recompute || request->pin_loss_chunk;
        ck_assert_uint_le(choice->arena_bytes, request->budget_bytes);
        if (search_choice_equivalent(choice->kind) && !free && result->fits && !request->pin_evaluate_batch)
            ck_assert_double_ge(choice->seconds, result->found.seconds * (1.0 - 1e-12));
        if (choice->kind == CHOICE_BLOCK_SIZE || choice->kind > CHOICE_STATES)
            continue;
        ck_assert_uint_eq(choice->arena_bytes, bytes_of(request, &choice->options, UINT64_MAX));
        own.options = choice->options;
        ck_assert_double_eq_tol(choice->seconds, seconds_of(&own, &choice->options), 1e-9 * choice->seconds);
    }
}

/* Sets a budget between the smallest plan and the requested one. */
static void budget_draw(struct draws *draws, struct search_request *request)
{
    struct search_result least, asked;
    request->budget_bytes = UINT64_MAX;
    ck_assert_int_eq(plan_search(mem, request, &asked), GT_OK);
    request->budget_bytes = 1;
    ck_assert_int_eq(plan_search(mem, request, &least), GT_NO_FIT);
    ck_assert(!least.arena_least && !least.unplaceable);
    const double ratio = (double)asked.found.arena_bytes / (double)least.found.arena_bytes,
                 share = draw(draws, 0, 1000) / 1000.0;
    request->budget_bytes = (uint64_t)((double)least.found.arena_bytes * pow(ratio, share));
    if (draws->number % 6 == 0)
        request->budget_bytes = least.found.arena_bytes;
    if (draws->number % 6 == 1)
        request->budget_bytes = least.found.arena_bytes - 1 - least.found.arena_bytes / 1000;
}

/* Returns true in `make check-long`. */
static bool is_long(void)
{
    const char *wanted = getenv("CHECK_LONG");
    return wanted != NULL && wanted[0] == '1';
}

TEST_FIXTURE(setup, teardown)
TEST_LIMIT(600)

TEST_LOOP(the_fastest_is_found, is_long() ? CASES_LONG : CASES)
{
    struct draws draws = {.number = (uint32_t)_i};
    struct search_request request = request_draw(&draws);
    struct search_memo memo = {0};
    struct search_result result;
    struct judge judge;
    budget_draw(&draws, &request);
    bound_check(&request);
    request.memo = &memo;
    enum gt_status status = plan_search(mem, &request, &result);
    judge_open(&judge, &request);
    if (status == GT_OK) {
        ck_assert_uint_le(bytes_of(&request, &result.found.options, UINT64_MAX), request.budget_bytes);
        ck_assert_double_eq_tol(seconds_of(&request, &result.found.options), result.found.seconds,
                                1e-9 * result.found.seconds);
        ck_assert(draws.number % 6 != 1 || request.options.config.lora.rank > 0);
    } else {
        ck_assert_int_eq(status, GT_NO_FIT);
        ck_assert_int_eq(draws.number % 6, 1);
        smallest_check(&judge, result.found.arena_bytes);
    }
    fastest_check(&judge, status == GT_OK ? result.found.seconds : INFINITY);
    alternatives_check(&request, &result);
    free(judge.at);
    search_memo_close(&memo);
}
