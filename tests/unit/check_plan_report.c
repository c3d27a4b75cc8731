/* Tests of plan/plan_report and plan/plan_json: one screen, the right numbers, and JSON that says the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plan/plan_internal.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

struct bench {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct plan_report_facts facts;
};

/* One tensor of each category is live at the peak; the screen is as full as it gets. */
static void bench_create(struct bench *b)
{
    memset(b, 0, sizeof *b);
    ck_assert_int_eq(hostmem_create(&b->mem), GT_OK);
    ck_assert_int_eq(graph_create(b->mem, &b->graph), GT_OK);
    struct graph *g = b->graph;
    int32_t train = fixture_program(g, "train_first", PHASE_TRAIN), first = TENSOR_NONE;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        int32_t t = fixture_tensor(g, "t", 1, 16 * (c + 1), LIFETIME_RUN, (enum tensor_category)c);
        first = c == 0 ? t : first;
    }
    int32_t a = fixture_copy(g, train, first, TENSOR_NONE, false);
    fixture_residual(g, train, a, first, TENSOR_NONE);
    int32_t evaluate = fixture_program(g, "evaluate", PHASE_EVALUATE);
    fixture_copy(g, evaluate, first, TENSOR_NONE, false);
    struct plan_options options = {.alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b->mem, g, &options, &b->plan), GT_OK);
    b->facts = (struct plan_report_facts){
        .configuration =
            "gpt2 124M, \"quoted\"\nand a second line that must not come out as one, and more text, and more",
        .device = "a processor, 2 threads",
        .free_bytes = 10000,
        .host_bytes = 500,
        .context_bytes = 300,
        .headroom_bytes = 200,
        .seconds_per_step = 2.0,
        .steps = 1000,
        .evaluation_seconds = 50.0,
        .evaluations = 10,
    };
}

static void bench_destroy(struct bench *b)
{
    plan_destroy(b->plan);
    graph_destroy(b->graph);
    hostmem_destroy(b->mem);
}

static char *text_report(const struct bench *b)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    plan_print_text(b->plan, &b->facts, out);
    fclose(out);
    return text;
}

static json_t *json_report(const struct bench *b)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(plan_print_json(b->plan, &b->facts, out), GT_OK);
    fclose(out);
    json_t *value = NULL;
    ck_assert_int_eq(json_parse(text, size, "report", &value), GT_OK);
    free(text);
    return value;
}

static void contains(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in:\n%s", words, text);
}

START_TEST(text_is_one_screen)
{
    struct bench b;
    bench_create(&b);
    char *text = text_report(&b);
    printf("%s", text);
    int32_t lines = 0;
    for (char *line = text, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        ck_assert_int_le(end - line, 100);
        ck_assert(end == line || end[-1] != ' ');
        lines++;
    }
    ck_assert_int_le(lines, 24);
    free(text);
    bench_destroy(&b);
}
END_TEST

START_TEST(text_says_what_the_plan_says)
{
    struct bench b;
    bench_create(&b);
    /* run: 64 * (1 + ... + 10) = 3520; train: 2 temporaries of 64 at the residual. */
    ck_assert_uint_eq(b.plan->arena_bytes, 3648);
    char *text = text_report(&b);
    contains(text, "gpt2 124M, \"quoted\"?and a second");
    contains(text, "Device    a processor, 2 threads");
    contains(text, "3648 bytes in 1 piece");
    contains(text, "fits, 5.2 KiB to spare");
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        contains(text, tensor_category_name((enum tensor_category)c));
    contains(text, "Peak      train_first, op 1 of 2: residual, which writes p0.1.r");
    contains(text, "this placement is 0.00 % above it");
    contains(text, "train ");
    contains(text, "evaluate ");
    ck_assert_ptr_null(strstr(text, "generate"));
    contains(text, "2.0 s per step (modelled); 1000 steps take 33 min 20 s");
    contains(text, "10 evaluations of 50.0 s, 20.0 % of the time; 41 min 40 s in all, until ");
    free(text);
    b.facts.free_bytes = 4000;
    b.facts.seconds_per_step = 0.0;
    text = text_report(&b);
    contains(text, "DOES NOT FIT, 648 B short");
    contains(text, "Forecast  unknown");
    free(text);
    bench_destroy(&b);
}
END_TEST

static int64_t integer_at(const json_t *object, const char *name)
{
    int64_t value = -1;
    ck_assert_int_eq(json_get_int(object, "report", name, 0, INT64_MAX, &value), GT_OK);
    return value;
}

START_TEST(json_says_what_the_plan_says)
{
    struct bench b;
    bench_create(&b);
    json_t *report = json_report(&b);
    const json_t *bytes, *categories, *forecast;
    ck_assert_int_eq(integer_at(report, "schema"), 1);
    ck_assert_int_eq(json_get_object(report, "report", "bytes", &bytes), GT_OK);
    ck_assert_int_eq(integer_at(bytes, "arena"), 3648);
    ck_assert_int_eq(integer_at(bytes, "arena_bound"), 3648);
    ck_assert_int_eq(integer_at(bytes, "run"), 3520);
    ck_assert_int_eq(integer_at(bytes, "total"), 4648);
    ck_assert(json_is_true(json_object_get(bytes, "fits")));
    ck_assert_int_eq(json_get_object(report, "report", "categories", &categories), GT_OK);
    int64_t sum = integer_at(report, "unused");
    for (int32_t c = 0; c < CATEGORY_COUNT; c++)
        sum += integer_at(categories, tensor_category_name((enum tensor_category)c));
    ck_assert_int_eq(sum, 3648);
    const json_t *programs = json_object_get(report, "programs");
    ck_assert_uint_eq(json_array_size(programs), 2);
    ck_assert_int_eq(integer_at(json_array_get(programs, 0), "bytes"), 128);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(json_array_get(programs, 0), "peak"), "op")),
                     "residual");
    ck_assert_str_eq(json_string_value(json_object_get(report, "peak_program")), "train_first");
    ck_assert_uint_eq(json_array_size(json_object_get(report, "segments")), 1);
    ck_assert_int_eq(json_get_object(report, "report", "forecast", &forecast), GT_OK);
    ck_assert_double_eq(json_number_value(json_object_get(forecast, "total_seconds")), 2500.0);
    ck_assert_double_eq(json_number_value(json_object_get(forecast, "evaluation_share")), 0.2);
    json_decref(report);
    b.facts = (struct plan_report_facts){0};
    report = json_report(&b);
    ck_assert(json_is_null(json_object_get(report, "forecast")));
    ck_assert(json_is_null(json_object_get(report, "device")));
    ck_assert(json_is_null(json_object_get(json_object_get(report, "bytes"), "free")));
    json_decref(report);
    bench_destroy(&b);
}
END_TEST

START_TEST(json_that_cannot_be_made_or_written_fails)
{
    struct bench b;
    bench_create(&b);
    struct log_capture capture;
    log_capture_begin(&capture);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        ck_assert_int_eq(plan_print_json(b.plan, &b.facts, full), GT_IO);
        log_capture_one_error(&capture, "could not be written");
        fclose(full);
    }
    b.facts.device = "not \xff UTF-8";
    ck_assert_int_eq(plan_print_json(b.plan, &b.facts, stdout), GT_NO_MEMORY);
    log_capture_one_error(&capture, "not UTF-8");
    log_capture_end();
    bench_destroy(&b);
}
END_TEST

START_TEST(an_empty_plan_prints)
{
    struct bench b = {0};
    ck_assert_int_eq(hostmem_create(&b.mem), GT_OK);
    ck_assert_int_eq(graph_create(b.mem, &b.graph), GT_OK);
    struct plan_options options = {.alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b.mem, b.graph, &options, &b.plan), GT_OK);
    char *text = text_report(&b);
    contains(text, "0 bytes in 0 pieces");
    contains(text, "Phases    none");
    free(text);
    json_decref(json_report(&b));
    bench_destroy(&b);
}
END_TEST

Suite *plan_report_suite(void)
{
    Suite *suite = suite_create("plan_report");
    TCase *tests = tcase_create("reports");
    tcase_add_test(tests, text_is_one_screen);
    tcase_add_test(tests, text_says_what_the_plan_says);
    tcase_add_test(tests, json_says_what_the_plan_says);
    tcase_add_test(tests, json_that_cannot_be_made_or_written_fails);
    tcase_add_test(tests, an_empty_plan_prints);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(plan_report)
