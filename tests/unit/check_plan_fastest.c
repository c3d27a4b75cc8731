/* Compares the search with brute force over random small models.
 *
 *   grid   12 cases, 60 with CHECK_LONG=1.  The judge lists the candidates of the grid itself:
 *          micro-batches, narrower loss chunks, parts of the optimizer state in host memory, every
 *          rung.  It builds each whole model, as for a run.  What the search measures in parts must
 *          equal that; no candidate that is faster than the choice may have a plan that fits.  Of
 *          models with 9 to 13 blocks one candidate in 101 is judged.
 *   deep   40 random choices, 1,000 with CHECK_LONG=1, for models of 6 to 40 blocks of several
 * kinds: what the search measures, with blocks and loss chunks left out, must equal the whole. wide
 * 3 cases of 8 and more blocks, 10 with CHECK_LONG=1, dense, with adapters and with ranks. The
 * judge lists every micro-batch, chunks in steps of 16 rows, and every rung.  It prints how much
 * slower the choices are than the fastest that fits: 1 % at most on average, 25 % in a tiny model.
 * None is refused that fits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/size.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/device_profile.h"
#include "plan/device_profile_file.h"
#include "plan/plan_create.h"
#include "plan/plan_search.h"
#include "tests/unit/search_fixture.h"

#define CASES 12
#define CASES_LONG 60
/* Bytes need not fall at every rung of a small model, and bisection can pass one over. */
#define GRID_SLOWER_MAX 1e-9
/* Of models with so many blocks more, only one in so many choices is judged. */
#define LAYERS_MORE 8
#define LARGE_STRIDE 101
#define DEEP_CASES 40
#define DEEP_CASES_LONG 1000
#define WIDE_CASES 3
#define WIDE_CASES_LONG 10
#define WIDE_SLOWER_MAX 0.10
#define WIDE_SLOWER_MEAN 0.01
#define CHUNK_STEP 16
#define BATCHES_MAX 32

static struct backend *card;
static struct device_profile profile;

static void setup(void)
{
    mem_open();
    ck_assert_int_eq(device_profile_find("rtx3060-12g", &profile), GT_OK);
    ck_assert_int_eq(profile_device_open(&profile, &card), GT_OK);
}

static void teardown(void)
{
    card->ops->close(card);
    mem_close();
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

static void model_draw(struct draws *draws, int32_t layers, struct model_options *options)
{
    static const int32_t vocabularies[] = {65, 1000, 4096, 16384};
    struct model_config *config = &options->config;
    *options = (struct model_options){
        .train = true, .evaluate = true, .generate_batch = 1, .correction_rows = 1};
    config->n_layer = layers;
    config->n_head = config->n_kv_head = draw(draws, 1, 3);
    config->n_embd = config->n_head * 16 * draw(draws, 1, 3);
    config->block_size = 16 * draw(draws, 1, 4);
    config->vocab_size = config->padded_vocab_size = vocabularies[draw(draws, 0, 3)];
    config->bias = draw(draws, 0, 1) == 1;
    config->dropout = draw(draws, 0, 1) == 1 ? 0.1f : 0.0f;
    config->norm_epsilon = 1e-5;
    options->dtype = draw(draws, 0, 1) == 1 ? DTYPE_BF16 : DTYPE_F32;
    options->states = options->dtype == DTYPE_BF16
                          ? (enum state_format)draw(draws, 0, STATE_FORMATS - 1)
                          : STATE_MASTER;
    options->generate = draw(draws, 0, 2) == 0;
    options->prefill_time = config->block_size / 2;
    options->parts = 1 + (int32_t)(draws->number % 3);
    options->ranks = draws->number % 2 == 0 ? options->parts : 1;
    options->muon = draws->number % 8 == 6 && options->states <= STATE_SR_BF16;
    options->muon_dtype = options->dtype;
    if (draws->number % 4 == 1)
        config->lora = (struct lora_config){
            .rank = 2, .targets = parameters_lora_targets(config), .alpha = 2.0};
}

static void batch_draw(struct draws *draws, int32_t batch, struct search_request *request)
{
    struct model_options *options = &request->options;
    const int32_t rows = batch * options->config.block_size;
    request->samples = (int64_t)batch * draw(draws, 1, 3);
    request->micro_batch_most = draw(draws, 0, 1) == 1 ? request->samples : 0;
    measure_micro_batch_set(options, request->samples, batch);
    options->choice.loss_chunk_rows = draw(draws, 0, 1) == 1 ? rows : (rows + 1) / 2;
    options->choice.evaluate_batch = draw(draws, 1, batch);
    options->choice.recompute = recompute_uniform(RECOMPUTE_NONE, options->config.n_layer);
    if (options->muon && options->ranks > 1)
        ck_assert_int_eq(measure_rank_set(mem, options), GT_OK);
}

static struct search_request request_draw(struct draws *draws)
{
    struct search_request request = {.plan = {.alignment_bytes = 256},
                                     .rates = plan_rates_of_profile(&profile, false)};
    struct plan_choice *choice = &request.options.choice;
    model_draw(draws, draw(draws, 1, 5) + (draws->number % 8 == 4 ? LAYERS_MORE : 0),
               &request.options);
    batch_draw(draws, draw(draws, 1, 7), &request);
    request.pin_micro_batch = draw(draws, 0, 7) == 0;
    request.pin_recompute = draw(draws, 0, 7) == 0;
    request.pin_loss_chunk = draw(draws, 0, 7) == 0;
    request.pin_evaluate_batch = draw(draws, 0, 3) == 0;
    if (request.pin_recompute)
        choice->recompute =
            recompute_two(RECOMPUTE_FULL, 1, RECOMPUTE_GELU, request.options.config.n_layer);
    request.plan.device =
        draw(draws, 0, 1) == 1 ? card : NULL; /* workspaces of 32 MiB outweigh small models */
    request.pin_offload = draws->number % 3 != 2;
    for (int class = 0; request.pin_offload && class < OFFLOAD_CLASSES; class ++)
        choice->offload.quarters[class] = draw(draws, 0, OFFLOAD_ALL);
    request.share.host_bytes = request.pin_offload ? UINT64_MAX : (uint64_t)draw(draws, 0, 1 << 22);
    return request;
}

/* ---- the judge ---- */

/* A choice, as measured in a whole model. */
struct judged {
    double seconds;
    uint64_t bytes, host_bytes; /* of its bound, or placed */
};

/* Builds the whole model of a choice.  The first micro-step counts as the next ones. */
static struct judged judge(const struct search_request *request, const struct plan_choice *choice,
                           bool place)
{
    struct model_options options = request->options;
    struct plan_options how = request->plan;
    struct judged out = {.seconds = 0.0};
    struct model *model;
    struct plan *plan;
    options.choice = *choice;
    measure_micro_batch_set(&options, request->samples, choice->micro_batch);
    how.measure_only = !place;
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(plan_create(mem, model->graph, &how, &plan), GT_OK);
    for (int32_t p = 0; p < model->graph->program_count; p++) {
        const bool as_next = p == model->train_first.program && model->train_next.program >= 0;
        if (model->graph->programs[p].phase == PHASE_TRAIN)
            out.seconds += model_runs(&options, model->graph->programs[p].kind) *
                           plan_cost_blocks(model->graph, as_next ? model->train_next.program : p,
                                            &request->rates);
    }
    out.bytes = place ? plan->arena_bytes : plan->arena_bytes_bound;
    out.host_bytes = plan->host_bytes;
    hostmem_free(plan);
    hostmem_free(model);
    return out;
}

/* Gives the next choice of a list that begins with all 0; returns false at its end. */
struct list {
    const struct search_request *request;
    bool wide;
    bool dropped[BATCHES_MAX]; /* by the rule for micro-batches above the requested one */
    int32_t batch, chunk, offload, rung;
};

static bool batch_is_listed(const struct list *list)
{
    const int32_t asked = list->request->options.choice.micro_batch, b = list->batch;
    if (list->request->pin_micro_batch || b == asked || list->wide)
        return b == asked || !list->request->pin_micro_batch;
    if (b > asked && list->dropped[b])
        return false;
    const int32_t third = b % 3 == 0 ? b / 3 : b;
    return list->request->samples % b == 0 || (b < asked && (third & (third - 1)) == 0);
}

/* Returns the widest chunk of a micro-batch, and the next narrower one, 0 at the end. */
static int32_t chunk_first(const struct list *list)
{
    const int64_t rows = (int64_t)list->batch * list->request->options.config.block_size;
    const int64_t asked = list->request->options.choice.loss_chunk_rows;
    const bool is_larger = list->batch > list->request->options.choice.micro_batch;
    return (int32_t)(is_larger && !list->request->pin_loss_chunk ? search_chunk_even(rows, asked)
                                                                 : min_i64(asked, rows));
}

static int32_t chunk_next(const struct list *list)
{
    const int32_t step = list->chunk > 128 ? 64 : CHUNK_STEP;
    if (list->request->pin_loss_chunk || list->chunk <= CHUNK_STEP)
        return 0;
    const int32_t less = (list->chunk * 3 / 4 + step - 1) / step * step;
    return list->wide                  ? (list->chunk - 1) / CHUNK_STEP * CHUNK_STEP
           : less > list->chunk - step ? (int32_t)max_i64(list->chunk - step, CHUNK_STEP)
                                       : less;
}

static int32_t rungs_of(const struct search_request *request)
{
    const int32_t layers = request->options.config.n_layer;
    if (request->pin_recompute)
        return request->pin_offload ? 0 : request->options.choice.recompute.blocks[RECOMPUTE_FULL];
    return layers * (request->pin_offload || request->share.host_bytes == 0 ? RECOMPUTE_FULL
                                                                            : RECOMPUTE_OFFLOAD);
}

static bool list_next(struct list *list)
{
    const struct search_request *request = list->request;
    const int64_t most = max_i64(request->micro_batch_most, request->options.choice.micro_batch);
    const int32_t offloads = request->pin_offload ? 0 : search_offload_levels(request);
    if (list->batch > 0 && list->rung++ < rungs_of(request))
        return true;
    list->rung = 0;
    if (list->batch > 0 && list->offload++ < offloads)
        return true;
    list->offload = 0;
    list->chunk = list->batch > 0 ? chunk_next(list) : 0;
    if (list->chunk > 0)
        return true;
    do
        list->batch++;
    while (list->batch <= most && !batch_is_listed(list));
    list->chunk = chunk_first(list);
    return list->batch <= most;
}

static struct plan_choice list_choice(const struct list *list)
{
    const struct plan_choice *asked = &list->request->options.choice;
    const int32_t layers = list->request->options.config.n_layer, evaluate = asked->evaluate_batch;
    const int level = (list->rung + layers - 1) / layers;
    struct plan_choice choice = {.micro_batch = list->batch,
                                 .remainder_batch = (int32_t)(list->request->samples % list->batch),
                                 .loss_chunk_rows = list->chunk,
                                 .evaluate_batch = evaluate,
                                 .offload = search_offload_mix(list->request, list->offload),
                                 .recompute = asked->recompute};
    if (!list->request->pin_evaluate_batch && evaluate > list->batch)
        choice.evaluate_batch = list->batch;
    if (list->request->pin_recompute)
        recompute_swap(&choice.recompute, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, list->rung);
    else if (list->rung > 0)
        choice.recompute =
            recompute_two((enum recompute_level)level, list->rung - (level - 1) * layers,
                          (enum recompute_level)(level - 1), layers);
    else
        choice.recompute = recompute_uniform(RECOMPUTE_NONE, layers);
    return choice;
}

/* Drops a micro-batch above the requested one if it saves less than 3 % beside the one before it
 * that stays, without offload and with the most.  A whole part of several stays. */
static void batches_drop(const struct measure *measure, struct list *list)
{
    const struct search_request *request = list->request;
    const int32_t asked = request->options.choice.micro_batch;
    const int32_t most =
        request->pin_offload || request->share.host_bytes == 0 ? 0 : search_offload_levels(request);
    double kept[2] = {INFINITY, INFINITY};
    for (list->batch = asked; list->batch <= request->micro_batch_most; list->batch++) {
        double own[2] = {0.0};
        if (request->pin_micro_batch ||
            (list->batch != asked && request->samples % list->batch != 0) ||
            (list->batch == request->samples && request->options.parts > 1))
            continue;
        list->chunk = chunk_first(list);
        for (int i = 0; i < 2; i++) {
            struct measurement measured;
            list->offload = i == 0 ? 0 : most;
            const struct plan_choice choice = list_choice(list);
            ck_assert_int_eq(measure_choice(measure, &choice, &measured), GT_OK);
            own[i] = measured.seconds;
        }
        list->dropped[list->batch] = own[0] > 0.97 * kept[0] && own[1] > 0.97 * kept[1];
        if (!list->dropped[list->batch])
            memcpy(kept, own, sizeof kept);
    }
    list->batch = list->chunk = list->offload = 0;
}

/* Sets a budget between the smallest plan and the requested one, or a little below the smallest. */
static void budget_draw(struct draws *draws, struct search_request *request, double shares)
{
    struct search_result least, asked;
    request->share.device_bytes = UINT64_MAX;
    ck_assert_int_eq(plan_search(mem, request, &asked), GT_OK);
    request->share.device_bytes = 1;
    ck_assert_int_eq(plan_search(mem, request, &least), GT_NO_FIT);
    ck_assert(!least.unplaceable);
    const double ratio = (double)asked.found.arena_bytes / (double)least.found.arena_bytes,
                 share = draw(draws, 0, 1000) / 1000.0 * shares;
    request->share.device_bytes = (uint64_t)((double)least.found.arena_bytes * pow(ratio, share));
    if (draws->number % 6 == 0)
        request->share.device_bytes = least.found.arena_bytes;
    if (draws->number % 6 == 1 && shares == 1.0)
        request->share.device_bytes = least.found.arena_bytes - 1 - least.found.arena_bytes / 100;
}

/* Returns true in `make check-long`. */
static bool is_long(void)
{
    const char *wanted = getenv("CHECK_LONG");
    return wanted != NULL && wanted[0] == '1';
}

TEST_FIXTURE(setup, teardown)
TEST_LOOP(the_fastest_of_the_grid_is_found, is_long() ? CASES_LONG : CASES)
{
    struct draws draws = {.number = (uint32_t)_i};
    struct search_request request = request_draw(&draws);
    struct search_result result;
    budget_draw(&draws, &request, 1.0);
    const enum gt_status status = plan_search(mem, &request, &result);
    const struct search_alternative *found = &result.found;
    struct measure_memo memo = {0};
    const struct measure measure = {
        mem, &request.options, &request.plan, &request.rates, request.samples, &memo};
    const struct judged own = judge(&request, &found->options.choice, true);
    ck_assert_uint_eq(own.bytes, found->arena_bytes);
    ck_assert_double_eq_tol(own.seconds, found->seconds, 1e-9 * found->seconds);
    ck_assert_int_eq(status == GT_OK, own.bytes <= request.share.device_bytes &&
                                          own.host_bytes <= request.share.host_bytes);
    struct list list = {.request = &request};
    batches_drop(&measure, &list);
    for (int32_t i = 0; list_next(&list); i++) {
        if (request.options.config.n_layer > LAYERS_MORE && i % LARGE_STRIDE != 0)
            continue;
        const struct plan_choice choice = list_choice(&list);
        const struct judged at = judge(&request, &choice, false);
        struct measurement measured;
        char text[PLAN_CHOICE_TEXT_MAX];
        ck_assert_int_eq(measure_choice(&measure, &choice, &measured), GT_OK);
        ck_assert_uint_eq(measured.bytes, at.bytes);
        ck_assert_uint_eq(measured.host_bytes, at.host_bytes);
        ck_assert_double_eq_tol(measured.seconds, at.seconds, 1e-9 * at.seconds);
        const bool fits =
            at.bytes <= request.share.device_bytes && at.host_bytes <= request.share.host_bytes;
        if (!fits ||
            (status == GT_OK && measured.seconds >= found->seconds * (1.0 - GRID_SLOWER_MAX)))
            continue;
        ck_assert_msg(judge(&request, &choice, true).bytes > request.share.device_bytes,
                      "%s takes %.9g s and fits; the choice takes %.9g s",
                      plan_choice_text(text, &choice, request.options.config.n_layer, false),
                      at.seconds, status == GT_OK ? found->seconds : INFINITY);
    }
    measure_memo_close(&memo);
}

/* Gives blocks windows, positions that turn in some of them, or delta nets. */
static void kinds_draw(struct draws *draws, struct model_config *config)
{
    const int32_t pattern = draw(draws, 0, 1) * draw(draws, 2, 6);
    switch (draw(draws, 0, 3)) {
    case 0:
        config->position = POSITION_ROPE;
        config->norm = NORM_RMSNORM;
        config->rope.theta = 10000.0;
        config->no_rope_layer_interval = pattern;
        break;
    case 1:
        config->sliding_window = config->block_size / 2;
        config->sliding_window_pattern = pattern;
        config->max_window_layers = draw(draws, 0, 2) == 0 ? config->n_layer / 2 : 0;
        break;
    case 2:
        config->norm = NORM_RMSNORM;
        config->full_attention_interval = draw(draws, 2, 5);
        config->linear_num_key_heads = 1;
        config->linear_num_value_heads = draw(draws, 1, 2);
        config->linear_value_head_dim = 16;
        config->linear_conv_kernel_dim = 4;
        break;
    }
}

/* A random choice of how much is recomputed, and of what is in host memory. */
static struct plan_choice choice_draw(struct draws *draws, const struct search_request *request)
{
    const int32_t layers = request->options.config.n_layer,
                  rows = request->options.config.block_size;
    const enum recompute_level level = (enum recompute_level)draw(draws, 1, RECOMPUTE_FULL);
    struct plan_choice choice = request->options.choice;
    choice.recompute =
        recompute_two(level, draw(draws, 0, layers), (enum recompute_level)(level - 1), layers);
    if (level == RECOMPUTE_FULL && draw(draws, 0, 1) == 1)
        recompute_swap(&choice.recompute, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD,
                       draw(draws, 0, layers));
    choice.micro_batch = draw(draws, 1, (int32_t)request->samples);
    choice.remainder_batch = (int32_t)(request->samples % choice.micro_batch);
    choice.loss_chunk_rows = draw(draws, 1, 4) * CHUNK_STEP;
    if (choice.loss_chunk_rows > choice.micro_batch * rows)
        choice.loss_chunk_rows = choice.micro_batch * rows;
    for (int class = 0; class < OFFLOAD_CLASSES; class ++)
        if (draw(draws, 0, 1) == 1 &&
            (request->options.config.lora.rank == 0 || class == OFFLOAD_WEIGHTS))
            choice.offload.quarters[class] = draw(draws, 0, OFFLOAD_ALL);
    return choice;
}

TEST(what_is_left_out_counts)
{
    const int cases = is_long() ? DEEP_CASES_LONG : DEEP_CASES;
    for (int i = 0; i < cases; i++) {
        struct draws draws = {.number = 2000 + (uint32_t)i};
        struct search_request request = {.plan = {.alignment_bytes = 256},
                                         .rates = plan_rates_of_profile(&profile, false)};
        struct measure_memo memo = {0};
        struct measurement measured;
        model_draw(&draws, draw(&draws, 6, 40), &request.options);
        kinds_draw(&draws, &request.options.config);
        if (request.options.config.lora.rank > 0)
            request.options.config.lora.targets = parameters_lora_targets(&request.options.config);
        batch_draw(&draws, draw(&draws, 1, 4), &request);
        request.plan.device = draw(&draws, 0, 1) == 1 ? card : NULL;
        const struct plan_choice choice = choice_draw(&draws, &request);
        const struct measure measure = {
            mem, &request.options, &request.plan, &request.rates, request.samples, &memo};
        const struct judged whole = judge(&request, &choice, false);
        ck_assert_int_eq(measure_choice(&measure, &choice, &measured), GT_OK);
        ck_assert_msg(measured.bytes == whole.bytes && measured.host_bytes == whole.host_bytes,
                      "case %d: %" PRIu64 " and %" PRIu64 " bytes, of %" PRIu64 " and %" PRIu64, i,
                      measured.bytes, measured.host_bytes, whole.bytes, whole.host_bytes);
        ck_assert_msg(fabs(measured.seconds - whole.seconds) <= 1e-9 * whole.seconds,
                      "case %d: %.12g s of %.12g", i, measured.seconds, whole.seconds);
        measure_memo_close(&memo);
    }
}

TEST(little_is_lost_beside_all_micro_batches_and_chunks)
{
    const int cases = is_long() ? WIDE_CASES_LONG : WIDE_CASES;
    double sum = 0.0, worst = 0.0;
    for (int i = 0; i < cases; i++) {
        struct draws draws = {.number = 1000 + (uint32_t)i};
        struct search_request request = {.plan = {.alignment_bytes = 256},
                                         .pin_offload = true,
                                         .share.host_bytes = UINT64_MAX,
                                         .rates = plan_rates_of_profile(&profile, false)};
        struct search_result result;
        struct measure_memo memo = {0};
        double fastest = INFINITY;
        model_draw(&draws, draw(&draws, 8, 12), &request.options);
        batch_draw(&draws, draw(&draws, 1, 7), &request);
        request.micro_batch_most = 0;
        budget_draw(&draws, &request, 0.9);
        const enum gt_status status = plan_search(mem, &request, &result);
        const struct measure measure = {
            mem, &request.options, &request.plan, &request.rates, request.samples, &memo};
        for (struct list list = {.request = &request, .wide = true}; list_next(&list);) {
            const struct plan_choice choice = list_choice(&list);
            struct measurement measured;
            ck_assert_int_eq(measure_choice(&measure, &choice, &measured), GT_OK);
            if (measured.bytes <= request.share.device_bytes)
                fastest = fmin(fastest, measured.seconds);
        }
        measure_memo_close(&memo);
        ck_assert_msg(status == GT_OK || !(fastest < INFINITY), "case %d is refused, and fits", i);
        ck_assert_uint_le(status == GT_OK ? result.found.arena_bytes : 0,
                          request.share.device_bytes);
        const double slower = status == GT_OK ? result.found.seconds / fastest - 1.0 : 0.0;
        sum += fmax(slower, 0.0);
        worst = fmax(worst, slower);
        if (slower > 0.05)
            printf("case %d: %.2f %% slower\n", i, 100.0 * slower);
    }
    printf("%d cases: %.3f %% slower on average, %.2f %% at worst\n", cases, 100.0 * sum / cases,
           100.0 * worst);
    ck_assert_double_le(worst, WIDE_SLOWER_MAX);
    ck_assert_double_le(sum / cases, WIDE_SLOWER_MEAN);
}
