/* Tests of the search for a plan that fits: its guarantees for any cost model.
 *
 * A result fits, a larger budget is never slower, pinned alternatives stay, the samples of an
 * update stay, and when nothing fits the search reports the least bytes.  Costs are checked for
 * their proportions.
 */
#include <math.h>
#include <string.h>

#include "model/model_create.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_create.h"
#include "plan/plan_search.h"
#include "plan/plan_verify.h"
#include "tests/unit/search_fixture.h"

static struct search_request request_make(void)
{
    struct search_request request = {
        .samples = 26,
        .plan = {.alignment_bytes = 64},
        .rates = plan_rates_of_peaks(1e11, 1e11),
        .options = {.config = {.n_layer = 4,
                               .n_head = 2,
                               .n_kv_head = 2,
                               .n_embd = 32,
                               .block_size = 32,
                               .vocab_size = 65,
                               .padded_vocab_size = 65,
                               .bias = true,
                               .norm_epsilon = 1e-5},
                    .train = true,
                    .evaluate = true,
                    .choice.loss_chunk_rows = 416,
                    .choice.evaluate_batch = 13,
                    .prefill_time = 8,
                    .correction_rows = 1},
    };
    measure_micro_batch_set(&request.options, request.samples, 13);
    return request;
}

/* Returns the bytes of the request without changes. */
static uint64_t bytes_asked(struct search_request *request)
{
    struct search_result result;
    request->share.device_bytes = UINT64_MAX;
    ck_assert_int_eq(plan_search(mem, request, &result), GT_OK);
    ck_assert_int_eq(result.candidates, 1);
    ck_assert_int_eq(result.found.options.choice.micro_batch, request->options.choice.micro_batch);
    return result.found.arena_bytes;
}

TEST_FIXTURE(mem_open, mem_close)
/* A tensor that the device cannot allocate excludes only its candidate: others follow, or nothing
 * fits and the result reports it, with options that can be inspected. */
TEST(the_largest_allocation_limits_candidates)
{
    struct search_request request = request_make();
    struct search_alternative alternatives[SEARCH_ALTERNATIVES_MAX];
    struct search_result result;
    int32_t count;
    uint64_t asked = bytes_asked(&request);
    request.share.device_bytes = 2 * asked;
    request.plan.largest_segment_bytes =
        (uint64_t)13 * 32 * 128 * 4 - 64; /* just below an MLP's inner tensor */
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert(result.fits && !result.unplaceable);
    ck_assert_int_gt(result.candidates, 1);
    ck_assert_int_lt(result.found.options.choice.micro_batch, 13);
    for (int pinned = 0; pinned < 2; pinned++) {
        request.pin_evaluate_batch = pinned == 1;
        request.options.choice.evaluate_batch = pinned == 1 ? 1000 : 13;
        request.plan.largest_segment_bytes = pinned == 1 ? 1 << 16 : 64;
        memset(&result, 0xa5, sizeof result);
        ck_assert_int_eq(plan_search(mem, &request, &result), GT_NO_FIT);
        ck_assert(result.unplaceable && !result.fits);
        ck_assert_int_eq(result.found.options.config.n_layer, 4);
        ck_assert_int_ge(result.found.options.choice.micro_batch, 1);
    }
    request.plan.largest_segment_bytes = 64;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_eq(count, 0);
}

/* That a plan needs more segments than there are is noticed only when it is made.  The search makes
 * a few of such plans, not hundreds. */
TEST(a_search_among_plans_without_a_place_ends)
{
    struct search_request request = request_make();
    struct search_memo memo = {0};
    struct search_result result;
    request.options.config.n_layer = 20;
    request.pin_micro_batch = request.pin_loss_chunk = true;
    measure_micro_batch_set(&request.options, request.samples, 1);
    request.options.choice.loss_chunk_rows = 32;
    request.plan.largest_segment_bytes = (uint64_t)32 << 10;
    request.share.device_bytes = request.share.host_bytes = MEASURE_NEVER - 1;
    request.memo = &memo;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_NO_FIT);
    ck_assert_int_ge(memo.states[STATE_MASTER].plan_count, 3);
    ck_assert_int_le(memo.states[STATE_MASTER].plan_count, 5);
    search_memo_close(&memo);
}

/* The printed number is never below the bytes, and above them by at most its last digit. */
TEST(budgets_are_told_so_that_they_work)
{
    char text[24], unit[8];
    const uint64_t gib = (uint64_t)1 << 30;
    ck_assert_str_eq(search_budget_text(text, 1), "1MiB");
    ck_assert_str_eq(search_budget_text(text, gib), "1.01GiB");
    ck_assert_str_eq(search_budget_text(text, (uint64_t)1023 << 20), "1.01GiB");
    for (uint64_t bytes = 1; bytes < 400 * gib; bytes += 1 + bytes / 61) {
        double number = 0.0;
        ck_assert_int_eq(sscanf(search_budget_text(text, bytes), "%lf%7s", &number, unit), 2);
        double step = strcmp(unit, "GiB") == 0 ? (double)gib : 1048576.0;
        ck_assert_uint_ge((uint64_t)(number * step), bytes);
        ck_assert_double_le(number * step,
                            (double)bytes + (unit[0] == 'G' ? 0.01 * step : step) + 1048576.0);
    }
}

TEST(pinned_choices_stay)
{
    struct search_request request = request_make();
    request.share.device_bytes = bytes_asked(&request) / 10 * 8;
    request.pin_micro_batch = true;
    struct search_result result;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_eq(result.found.options.choice.micro_batch, 13);
    ck_assert_int_eq(result.found.options.choice.evaluate_batch, 13);
    request.pin_micro_batch = false;
    request.pin_recompute = request.pin_loss_chunk = true;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_lt(result.found.options.choice.micro_batch, 13);
    ck_assert_int_eq(recompute_level_of(&result.found.options.choice.recompute, 0), RECOMPUTE_NONE);
    request.pin_micro_batch = true;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_NO_FIT);
}

TEST(a_program_has_at_most_512_loss_chunks)
{
    struct search_request request = request_make();
    struct search_result result;
    request.samples = 1 << 14;
    request.options.choice.loss_chunk_rows = 64;
    measure_micro_batch_set(&request.options, request.samples, 1 << 14);
    for (uint64_t budget = (uint64_t)1 << 20; budget < (uint64_t)1 << 30; budget *= 2) {
        request.share.device_bytes = budget;
        if (plan_search(mem, &request, &result) != GT_OK)
            continue;
        const struct plan_choice *choice = &result.found.options.choice;
        ck_assert_int_le((int64_t)choice->micro_batch * 32, (int64_t)512 * choice->loss_chunk_rows);
    }
    ck_assert(result.fits);
}

/* A larger micro-batch that saves 2 % of the time is not in the grid, however large the budget; one
 * that saves more than 3 % is. */
TEST(larger_micro_batches_do_not_fill_a_card_for_little)
{
    struct search_request request = request_make();
    struct search_result result;
    double seconds[2];
    request.share.device_bytes = UINT64_MAX;
    request.samples = 104;
    for (int i = 0; i < 2; i++) {
        measure_micro_batch_set(&request.options, request.samples, i == 0 ? 52 : 104);
        ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
        seconds[i] = result.found.seconds;
    }
    ck_assert(seconds[1] < seconds[0] && seconds[1] > 0.97 * seconds[0]);
    request.micro_batch_most = 104;
    measure_micro_batch_set(&request.options, request.samples, 52);
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_eq(result.found.options.choice.micro_batch, 52);
    measure_micro_batch_set(&request.options, request.samples, 26);
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_eq(result.found.options.choice.micro_batch, 104);
    ck_assert_double_lt(seconds[1], 0.97 * result.seconds_request);
}

/* States go from wide to lean, each only when no plan of the one before fits, and never when that
 * is not allowed. */
TEST(leaner_states_come_last)
{
    struct search_request request = request_make();
    struct search_result result;
    enum state_format before = STATE_MASTER;
    bool seen[STATE_FORMATS] = {false};
    request.options.dtype = DTYPE_BF16;
    uint64_t asked = bytes_asked(&request);
    request.lean_states = true;
    for (int percent = 100; percent >= 2; percent--) {
        request.share.device_bytes = asked / 100 * (uint64_t)percent;
        if (plan_search(mem, &request, &result) != GT_OK)
            continue;
        ck_assert_uint_le(result.found.arena_bytes, request.share.device_bytes);
        ck_assert_int_ge(result.found.options.states, before);
        before = result.found.options.states;
        seen[before] = true;
        struct search_request wider = request;
        wider.lean_states = false;
        for (int states = STATE_MASTER; states < (int)before; states++) {
            wider.options.states = (enum state_format)states;
            if (states != STATE_SR)
                ck_assert_int_eq(plan_search(mem, &wider, &result), GT_NO_FIT);
        }
    }
    ck_assert(seen[STATE_MASTER] && seen[STATE_SR_BF16] && seen[STATE_SR_8BIT] && !seen[STATE_SR]);
}

/* Budgets of both kinds, the card's from large to small: state and inputs move before anything
 * leaner is tried, never more than the host's budget; a larger budget of either kind is never
 * slower.  A resumed run keeps what its bits depend on if any offload and recompute make it fit. */
TEST(the_state_moves_before_it_becomes_leaner)
{
    struct search_request request = request_make();
    struct search_result result;
    bool seen[OFFLOAD_CLASSES * OFFLOAD_ALL + 1] = {false}, inputs = false;
    int kept = 0;
    double larger[6] = {
        0.0}; /* seconds with the next larger budget of the card, by that of the host */
    request.options.dtype = DTYPE_BF16;
    request.options.config.n_layer = 26;
    const uint64_t asked = bytes_asked(&request);
    struct search_memo memo = {0};
    request.memo = &memo;
    request.lean_states = request.fit_only = true;
    for (int percent = 100; percent >= 5; percent -= 9) {
        double before = INFINITY;
        request.share.device_bytes = asked / 100 * (uint64_t)percent;
        for (uint64_t host = 0; host <= asked / 2; host += asked / 10) {
            request.share.host_bytes = host;
            if (plan_search(mem, &request, &result) != GT_OK)
                continue;
            ck_assert_uint_le(result.found.arena_bytes, request.share.device_bytes);
            ck_assert_uint_le(result.found.host_bytes, host);
            const int32_t away = result.found.options.choice.recompute.blocks[RECOMPUTE_OFFLOAD];
            const int32_t quarters = offload_quarters(&result.found.options.choice.offload);
            ck_assert((quarters == 0 && away == 0) == (result.found.host_bytes == 0));
            if (result.found.options.states != STATE_MASTER)
                continue;
            ck_assert_double_le(result.found.seconds, before * (1.0 + 1e-12));
            ck_assert_double_ge(result.found.seconds, larger[host / (asked / 10)] * (1.0 - 1e-12));
            before = larger[host / (asked / 10)] = result.found.seconds;
            inputs = inputs || away > 0;
            seen[quarters] = true;
        }
        struct search_request pinned = request;
        pinned.pin_micro_batch = pinned.pin_loss_chunk = request.resumed = true;
        pinned.lean_states = false;
        const bool same = plan_search(mem, &pinned, &result) == GT_OK;
        kept += same;
        if (plan_search(mem, &request, &result) == GT_OK && same)
            ck_assert_int_eq(result.found.options.choice.micro_batch,
                             request.options.choice.micro_batch);
        request.resumed = false;
    }
    search_memo_close(&memo);
    ck_assert(seen[0] && seen[1] && seen[OFFLOAD_ALL] && inputs);
    ck_assert(seen[2 * OFFLOAD_ALL] || seen[3 * OFFLOAD_ALL]);
    ck_assert_int_gt(kept, 5);
}

/* Plans a choice again, with the planner itself. */
static uint64_t bytes_planned(const struct search_request *request,
                              const struct model_options *options)
{
    struct model *model;
    struct plan *plan;
    ck_assert_int_eq(model_create(mem, options, &model), GT_OK);
    ck_assert_int_eq(plan_create(mem, model->graph, &request->plan, &plan), GT_OK);
    ck_assert(plan_verify(plan));
    uint64_t bytes = plan->arena_bytes;
    hostmem_free(plan);
    hostmem_free(model);
    return bytes;
}

static void alternatives_check(const struct search_request *request,
                               const struct search_alternative *alternatives, int32_t count)
{
    bool other = false;
    for (int32_t i = 0; i < count; i++) {
        char text[SEARCH_CHANGES_MAX], before[SEARCH_CHANGES_MAX];
        const struct model_options *options = &alternatives[i].options;
        ck_assert_uint_eq(alternatives[i].arena_bytes, bytes_planned(request, options));
        ck_assert_uint_le(alternatives[i].arena_bytes, request->share.device_bytes);
        ck_assert_double_gt(alternatives[i].seconds, 0.0);
        ck_assert_str_ne(search_changes_text(text, options, &request->options), "as configured");
        for (int32_t k = 0; k < i; k++)
            ck_assert_str_ne(
                text, search_changes_text(before, &alternatives[k].options, &request->options));
        bool equivalent = search_alternative_equivalent(alternatives[i].kind);
        ck_assert(!(other && equivalent)); /* alternatives that are not equivalent come last */
        other = other || !equivalent;
        int64_t steps = options->micro_steps - (options->choice.remainder_batch > 0);
        ck_assert_int_eq(steps * options->choice.micro_batch + options->choice.remainder_batch,
                         request->samples);
        const struct model_config *a = &options->config, *b = &request->options.config;
        bool same =
            a->block_size == b->block_size && a->n_layer == b->n_layer && a->n_embd == b->n_embd;
        ck_assert_int_eq(same, equivalent);
    }
}

TEST(alternatives_fit_and_say_what_they_are)
{
    struct search_request request = request_make();
    struct search_alternative alternatives[SEARCH_ALTERNATIVES_MAX];
    int32_t count;
    uint64_t asked = bytes_asked(&request);
    request.share.device_bytes = asked / 2;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_eq(count, 3);
    alternatives_check(&request, alternatives, count);
    for (int32_t i = 0; i < count; i++)
        ck_assert(search_alternative_equivalent(alternatives[i].kind));

    /* Pins that leave no plan: two alternatives would work without them, and one that keeps them.
     */
    request.pin_micro_batch = request.pin_recompute = request.pin_loss_chunk = true;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_eq(count, 3);
    alternatives_check(&request, alternatives, count);
    ck_assert(search_alternative_equivalent(alternatives[0].kind));
    ck_assert_int_eq(alternatives[2].kind, ALTERNATIVE_BLOCK_SIZE);
    ck_assert_int_eq(alternatives[2].options.choice.micro_batch, 13);

    /* So few bytes that only another model fits. */
    struct search_result least;
    request.pin_micro_batch = request.pin_recompute = request.pin_loss_chunk = false;
    request.share.device_bytes = 1;
    request.pin_offload = true;
    ck_assert_int_eq(plan_search(mem, &request, &least), GT_NO_FIT);
    request.share.device_bytes = least.found.arena_bytes * 9 / 10;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_ge(count, 2);
    alternatives_check(&request, alternatives, count);
    ck_assert(!search_alternative_equivalent(alternatives[0].kind));

    /* The same if host memory may be used: as much as the first choice says does. */
    request.pin_offload = false;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_eq(alternatives[0].kind, ALTERNATIVE_HOST);
    request.share.host_bytes = alternatives[0].host_bytes;
    ck_assert_int_eq(plan_search(mem, &request, &least), GT_OK);
    request.share.host_bytes = 0;

    /* State that the user moves, for which the host has no room, stays. */
    request.share.device_bytes = UINT64_MAX;
    request.options.choice.offload.quarters[OFFLOAD_STATES] = OFFLOAD_ALL;
    request.pin_offload = true;
    ck_assert_int_eq(plan_search(mem, &request, &least), GT_NO_FIT);
    ck_assert_uint_gt(least.found.host_bytes, 0);
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_ge(count, 1);
    ck_assert_int_eq(offload_quarters(&alternatives[0].options.choice.offload), 0);
    request.options.choice.offload.quarters[OFFLOAD_STATES] = 0;

    request.share.device_bytes = 1000;
    ck_assert_int_eq(search_alternatives(mem, &request, alternatives, &count), GT_OK);
    ck_assert_int_eq(count, 0);
}

TEST(changes_are_told_as_keys)
{
    struct search_request request = request_make();
    struct model_options other = request.options;
    char text[SEARCH_CHANGES_MAX];
    ck_assert_str_eq(search_changes_text(text, &other, &request.options), "as configured");
    other.choice.recompute = recompute_two(RECOMPUTE_FULL, 3, RECOMPUTE_MLP, 4);
    other.choice.micro_batch = 4;
    other.choice.loss_chunk_rows = 104;
    ck_assert_str_eq(search_changes_text(text, &other, &request.options),
                     "micro_batch 4, recompute full x3 + mlp x1, loss_chunk 104");
}
