/* The search for a plan that fits: what it may promise whatever the cost model says.
 *
 * A result fits, a larger budget is never slower, pinned choices stay, the samples of an update stay, and where nothing
 * fits the least is told.  Costs are checked for their proportions.
 */
#include "plan/plan_search.h"

#include "tests/unit/unit_main.h"

static struct hostmem *mem;

static void setup(void)
{
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
}

static void teardown(void)
{
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

static struct search_request request_make(void)
{
    struct search_request request = {
        .samples = 26,
        .plan = {.alignment_bytes = 64},
        .rates = plan_rates_of_peak(1e11),
        .options = {.config = {.n_layer = 4,
                               .n_head = 2,
                               .n_kv_head = 2,
                               .n_embd = 32,
                               .block_size = 32,
                               .vocab_size = 65,
                               .padded_vocab_size = 65,
                               .bias = true,
                               .layernorm_epsilon = 1e-5f},
                    .train = true,
                    .evaluate = true,
                    .loss_chunk_rows = 416,
                    .evaluate_batch = 13,
                    .prefill_time = 8,
                    .correction_rows = 1},
    };
    search_micro_batch_set(&request.options, request.samples, 13);
    return request;
}

/* Bytes of the request as it stands. */
static uint64_t bytes_asked(struct search_request *request)
{
    struct search_result result;
    request->budget_bytes = UINT64_MAX;
    ck_assert_int_eq(plan_search(mem, request, &result), GT_OK);
    ck_assert_int_eq(result.candidates, 1);
    ck_assert_int_eq(result.options.micro_batch, request->options.micro_batch);
    return result.arena_bytes;
}

START_TEST(larger_budgets_are_never_slower)
{
    struct search_request request = request_make();
    uint64_t asked = bytes_asked(&request);
    double seconds_before = 0.0;
    int fitted = 0;
    for (int percent = 100; percent >= 5; percent--) {
        struct search_result result;
        request.budget_bytes = asked / 100 * (uint64_t)percent;
        enum gt_status status = plan_search(mem, &request, &result);
        if (status != GT_OK) {
            ck_assert_int_eq(status, GT_NO_FIT);
            ck_assert_uint_gt(result.arena_bytes, request.budget_bytes);
            continue;
        }
        fitted++;
        ck_assert_uint_le(result.arena_bytes, request.budget_bytes);
        ck_assert_double_ge(result.seconds, seconds_before * (1.0 - 1e-12));
        seconds_before = result.seconds;
        const struct model_options *options = &result.options;
        int64_t steps = options->micro_steps - (options->remainder_batch > 0);
        ck_assert_int_eq(steps * options->micro_batch + options->remainder_batch, request.samples);
    }
    ck_assert_int_gt(fitted, 20);
}
END_TEST

START_TEST(pinned_choices_stay)
{
    struct search_request request = request_make();
    request.budget_bytes = bytes_asked(&request) / 10 * 8;
    request.pin_micro_batch = true;
    struct search_result result;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_eq(result.options.micro_batch, 13);
    ck_assert_int_eq(result.options.evaluate_batch, 13);
    request.pin_micro_batch = false;
    request.pin_recompute = request.pin_loss_chunk = true;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert_int_lt(result.options.micro_batch, 13);
    ck_assert_int_eq(result.options.recompute.rest, RECOMPUTE_NONE);
    ck_assert_int_eq(result.options.recompute.first_layers, 0);
    request.pin_micro_batch = true;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_NO_FIT);
}
END_TEST

START_TEST(a_hopeless_request_is_not_planned)
{
    struct search_request request = request_make();
    struct search_result result;
    request.samples = 1 << 20;
    request.options.loss_chunk_rows = 64;
    search_micro_batch_set(&request.options, request.samples, 1 << 20); /* two million ops, were it built */
    request.budget_bytes = 4 << 20;
    ck_assert_int_eq(plan_search(mem, &request, &result), GT_OK);
    ck_assert(result.bytes_request_least);
    ck_assert_uint_le(result.arena_bytes, request.budget_bytes);
}
END_TEST

START_TEST(failing_allocations_are_passed_on)
{
    struct search_request request = request_make();
    struct search_result result;
    request.budget_bytes = bytes_asked(&request) / 2;
    for (size_t n = 1; n < 4000; n += 97) {
        hostmem_fail_at(mem, n);
        enum gt_status status = plan_search(mem, &request, &result);
        hostmem_fail_at(mem, 0);
        ck_assert(status == GT_OK || status == GT_NO_MEMORY || status == GT_FAILURE);
    }
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
}
END_TEST

START_TEST(costs_grow_with_work)
{
    struct search_request request = request_make();
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        struct model *model;
        search_micro_batch_set(&request.options, 26, i == 0 ? 4 : 8);
        ck_assert_int_eq(model_create(mem, &request.options, &model), GT_OK);
        seconds[i] = plan_cost_seconds(model->graph, model->train_first.program, &request.rates);
        ck_assert_double_eq(plan_cost_seconds(model->graph, -1, &request.rates), 0.0);
        model_destroy(model);
    }
    ck_assert_double_gt(seconds[0], 0.0);
    ck_assert_double_gt(seconds[1], 1.3 * seconds[0]);
    ck_assert_double_lt(seconds[1], 2.0 * seconds[0]);
}
END_TEST

START_TEST(choices_are_told)
{
    struct search_request request = request_make();
    char text[192];
    request.options.recompute = (struct recompute_mix){3, RECOMPUTE_FULL, RECOMPUTE_MLP};
    ck_assert_str_eq(search_options_text(text, &request.options),
                     "micro-batch 13, recompute full in 3 of 4 blocks, mlp in the others, loss in chunks of 416 rows");
    request.options.recompute = (struct recompute_mix){0, RECOMPUTE_NONE, RECOMPUTE_GELU};
    ck_assert_str_eq(search_options_text(text, &request.options),
                     "micro-batch 13, recompute gelu, loss in chunks of 416 rows");
}
END_TEST

static Suite *plan_search_suite(void)
{
    Suite *suite = suite_create("plan_search");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, larger_budgets_are_never_slower);
    tcase_add_test(tests, pinned_choices_stay);
    tcase_add_test(tests, a_hopeless_request_is_not_planned);
    tcase_add_test(tests, failing_allocations_are_passed_on);
    tcase_add_test(tests, costs_grow_with_work);
    tcase_add_test(tests, choices_are_told);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(plan_search)
