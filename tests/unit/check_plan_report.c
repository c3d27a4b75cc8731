/* Tests of plan/plan_report, plan/plan_json and plan/plan_svg: one screen, the right numbers, JSON with the same
 * numbers, and a well-formed picture that shows every category. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/svg.h"
#include "plan/plan_choices.h"
#include "plan/plan_create.h"
#include "plan/plan_json.h"
#include "plan/plan_report.h"
#include "plan/plan_search.h"
#include "plan/plan_svg.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

struct bench {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct plan_report_facts facts;
};

/* One tensor of each category is live at the peak, so that the screen is as full as possible. */
static void bench_create(struct bench *b)
{
    memset(b, 0, sizeof *b);
    ck_assert_int_eq(hostmem_create(&b->mem), GT_OK);
    ck_assert_int_eq(graph_create(b->mem, &b->graph), GT_OK);
    struct graph *g = b->graph;
    int32_t train = fixture_program(g, PROGRAM_TRAIN_FIRST), first = TENSOR_NONE;
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        int32_t t = fixture_tensor(g, "t", 1, 16 * (c + 1), LIFETIME_RUN, (enum tensor_category)c);
        first = c == 0 ? t : first;
    }
    int32_t a = fixture_copy(g, train, first, TENSOR_NONE, false);
    fixture_residual(g, train, a, first, TENSOR_NONE);
    int32_t evaluate = fixture_program(g, PROGRAM_EVALUATE);
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
        .forecast = {.step_seconds = 2.0, .steps = 1000, .evaluation_seconds = 50.0, .evaluations = 10},
    };
}

static void bench_destroy(struct bench *b)
{
    hostmem_free(b->plan);
    hostmem_free(b->graph);
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
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in:\n%.4000s", words, text);
}

TEST(text_is_one_screen)
{
    struct bench b;
    bench_create(&b);
    char *text = text_report(&b);
    printf("%s", text);
    int32_t lines = 0;
    for (char *line = text, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        ck_assert_int_le(end - line, 80);
        ck_assert(end == line || end[-1] != ' ');
        lines++;
    }
    ck_assert_int_le(lines, 24);
    free(text);
    bench_destroy(&b);
}

TEST(text_says_what_the_plan_says)
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
    contains(text, "Peak      train_first, op 1 of 2 (residual, writing p0.1.r)");
    contains(text, "this plan is 0.00 % above it");
    contains(text, "train ");
    contains(text, "evaluate ");
    ck_assert_ptr_null(strstr(text, "generate"));
    contains(text, "Forecast  41 min 40 s in all, until ");
    contains(text, "1000 steps of 2.0 s, 10 evaluations of 50.0 s (20.0 %)");
    free(text);
    b.facts.free_bytes = 4000;
    b.facts.forecast.step_seconds = 0.0;
    text = text_report(&b);
    contains(text, "DOES NOT FIT, 648 B short");
    contains(text, "Forecast  unknown");
    free(text);
    bench_destroy(&b);
}

static int64_t integer_at(const json_t *object, const char *name)
{
    int64_t value = -1;
    ck_assert_int_eq(json_get_int(object, "report", name, 0, INT64_MAX, &value), GT_OK);
    return value;
}

TEST(json_says_what_the_plan_says)
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

TEST(an_end_beyond_all_dates_is_none)
{
    struct bench b;
    const json_t *forecast;
    bench_create(&b);
    b.facts.forecast.step_seconds = 1e300;
    b.facts.forecast.now_wall_s = 1700000000;
    json_t *report = json_report(&b);
    ck_assert_int_eq(json_get_object(report, "report", "forecast", &forecast), GT_OK);
    ck_assert_int_gt(integer_at(forecast, "end_time"), 1000000000000000);
    json_decref(report);
    char *text = text_report(&b);
    contains(text, "Forecast  unknown in all");
    free(text);
    bench_destroy(&b);
}

TEST(json_that_cannot_be_written_fails)
{
    struct bench b;
    bench_create(&b);
    struct log_capture capture;
    log_capture_begin(&capture);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        ck_assert_int_eq(plan_print_json(b.plan, &b.facts, full), GT_IO);
        fclose(full);
    }
    log_capture_end();
    bench_destroy(&b);
}

TEST(json_is_valid_whatever_the_texts_are)
{
    struct bench b;
    bench_create(&b);
    b.facts.device = "not \xff UTF-8, \"quoted\" \\ \n \u00e9";
    b.facts.forecast.step_seconds = 1e-7;
    json_t *report = json_report(&b);
    ck_assert_str_eq(json_string_value(json_object_get(report, "device")), "not \ufffd UTF-8, \"quoted\" \\ \n \u00e9");
    ck_assert_double_eq(json_number_value(json_object_get(json_object_get(report, "forecast"), "seconds_per_step")),
                        1e-7);
    json_decref(report);
    bench_destroy(&b);
}

TEST(an_empty_plan_prints)
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

/* A search that found a smaller plan, with three choices, the last of another kind. */
struct found {
    struct search_request request;
    struct search_result search;
    struct search_choice choices[SEARCH_CHOICES_MAX], front[4];
};

static void found_make(struct found *found, struct plan_report_facts *facts)
{
    *found = (struct found){.request = {.samples = 8, .share.device_bytes = 3700}};
    struct model_options *asked = &found->request.options;
    asked->config = (struct model_config){.n_layer = 4, .n_head = 2, .n_embd = 8, .block_size = 16};
    asked->choice.loss_chunk_rows = 64;
    measure_micro_batch_set(asked, 8, 4);
    asked->choice.evaluate_batch = 4;
    found->search = (struct search_result){.found = {.options = *asked, .seconds = 2.2},
                                           .bytes_request = 9000,
                                           .seconds_request = 2.0,
                                           .candidates = 9,
                                           .fits = true};
    measure_micro_batch_set(&found->search.found.options, 8, 3);
    for (int32_t i = 0; i < SEARCH_CHOICES_MAX; i++)
        found->choices[i] =
            (struct search_choice){.kind = i < 2 ? (enum choice_kind)(CHOICE_MICRO_BATCH + i) : CHOICE_STATES,
                                   .options = *asked,
                                   .arena_bytes = 3600,
                                   .seconds = 2.0 + i};
    measure_micro_batch_set(&found->choices[0].options, 8, 3);
    found->choices[1].options.choice.recompute = recompute_two(RECOMPUTE_FULL, 1, RECOMPUTE_MLP, 4);
    found->choices[2].options.config.block_size = 8;
    for (int32_t i = 0; i < 4; i++)
        found->front[i] =
            (struct search_choice){.options = *asked, .arena_bytes = (uint64_t)1000 << i, .seconds = 5.0 - i};
    facts->request = &found->request;
    facts->search = &found->search;
    facts->choices = found->choices;
    facts->choice_count = SEARCH_CHOICES_MAX;
}

TEST(text_says_what_was_changed_and_what_else_fits)
{
    struct bench b;
    struct found found;
    bench_create(&b);
    found_make(&found, &b.facts);
    char *text = text_report(&b);
    printf("%s", text);
    contains(text, "Requested 8.8 KiB; 3.6 KiB is available: 5.2 KiB short");
    contains(text, "Changed   micro_batch 3: +10.0 % time (estimated), same samples and mathematics");
    contains(text, "    3.5 KiB       2.0 s  fastest  micro_batch 3\n");
    contains(text, "    3.5 KiB       3.0 s  +50.0 %  recompute full x1 + mlp x3\n");
    contains(text, "\nAlternatives that fit (memory, time per update, settings)\n");
    contains(text, "    3.5 KiB       4.0 s           block_size 8\n");
    ck_assert(strstr(text, "\nAlternatives that fit but change results (") > strstr(text, "recompute full"));
    free(text);
    found.search.fits = false;
    found.search.bytes_request_least = true;
    b.facts.choice_count = 0;
    text = text_report(&b);
    contains(text, "Requested at least 8.8 KiB; 3.6 KiB is available: at least 5.2 KiB short");
    contains(text, "Smallest  the plan above, still too large: micro_batch 3");
    contains(text, "Alternatives: nothing smaller fits either");
    free(text);
    bench_destroy(&b);
}

TEST(json_has_choices_and_on_demand_the_front)
{
    struct bench b;
    struct found found;
    const json_t *search, *chosen;
    bench_create(&b);
    json_t *report = json_report(&b);
    ck_assert(json_is_null(json_object_get(report, "search")));
    ck_assert_uint_eq(json_array_size(json_object_get(report, "choices")), 0);
    json_decref(report);
    found_make(&found, &b.facts);
    report = json_report(&b);
    ck_assert_int_eq(json_get_object(report, "report", "search", &search), GT_OK);
    ck_assert_int_eq(integer_at(search, "arena_asked"), 9000);
    ck_assert_int_eq(integer_at(search, "arena_budget"), 3700);
    ck_assert_double_eq_tol(json_number_value(json_object_get(search, "time_ratio_modelled")), 1.1, 1e-12);
    ck_assert_int_eq(json_get_object(search, "report", "chosen", &chosen), GT_OK);
    ck_assert_int_eq(integer_at(chosen, "remainder_batch"), 2);
    const json_t *choices = json_object_get(report, "choices");
    ck_assert_uint_eq(json_array_size(choices), 3);
    ck_assert(json_is_true(json_object_get(json_array_get(choices, 1), "equivalent")));
    ck_assert(json_is_false(json_object_get(json_array_get(choices, 2), "equivalent")));
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(choices, 2), "kind")), "states");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(choices, 2), "state_format")), "master");
    const json_t *recompute = json_object_get(json_array_get(choices, 1), "recompute");
    ck_assert_uint_eq(json_array_size(recompute), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(recompute, 0), "level")), "full");
    ck_assert_int_eq(integer_at(json_array_get(recompute, 1), "blocks"), 3);
    ck_assert_ptr_null(json_object_get(report, "pareto"));
    json_decref(report);
    b.facts.front = found.front;
    b.facts.front_count = 4;
    report = json_report(&b);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "pareto")), 4);
    json_decref(report);
    bench_destroy(&b);
}

static char *svg_report(const struct bench *b)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(plan_print_svg(b->mem, b->plan, &b->facts, out), GT_OK);
    fclose(out);
    return text;
}

/* Checks that tags are closed in order, attributes quoted and every & an entity; returns the number of elements. */
static int32_t xml_elements(const char *text)
{
    char open[32][16];
    int32_t depth = 0, elements = 0;
    ck_assert_int_eq(strncmp(text, "<?xml ", 6), 0);
    for (const char *c = strchr(text, '\n'); *c != '\0'; c++) {
        ck_assert_msg(*c != '&' || strncmp(c, "&amp;", 5) == 0 || strncmp(c, "&lt;", 4) == 0 ||
                          strncmp(c, "&gt;", 4) == 0,
                      "a bare & at %.20s", c);
        ck_assert(*c == '\n' || ((unsigned char)*c >= ' ' && (unsigned char)*c < 0x7f));
        if (*c != '<')
            continue;
        const char *end = strchr(c, '>');
        ck_assert_ptr_nonnull(end);
        size_t length = strcspn(c + 1 + (c[1] == '/'), " />\n"), quotes = 0;
        const char *name = c + 1 + (c[1] == '/');
        ck_assert(length > 0 && length < sizeof open[0]);
        for (const char *q = c; q < end; q++)
            quotes += *q == '"';
        ck_assert_uint_eq(quotes % 2, 0);
        if (c[1] == '/') {
            ck_assert_int_gt(depth, 0);
            depth--;
            ck_assert_msg(strlen(open[depth]) == length && strncmp(open[depth], name, length) == 0, "%.*s closes %s",
                          (int)length, name, open[depth]);
        } else if (end[-1] != '/') {
            ck_assert_int_lt(depth, 32);
            memcpy(open[depth], name, length);
            open[depth++][length] = '\0';
        }
        elements += c[1] != '/';
        c = end;
    }
    ck_assert_int_eq(depth, 0);
    return elements;
}

TEST(svg_is_well_formed_and_shows_every_category)
{
    struct bench b;
    struct found found;
    bench_create(&b);
    b.facts.device = "<script>&\xff\x01";
    char *text = svg_report(&b);
    ck_assert_int_gt(xml_elements(text), 40);
    contains(text, "&lt;script&gt;&amp;??");
    const char *legend = strstr(text, "<g id=\"legend\">");
    ck_assert_ptr_nonnull(legend);
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        char rectangle[64];
        snprintf(rectangle, sizeof rectangle, "<rect class=\"%s\"", tensor_category_name((enum tensor_category)c));
        contains(text, rectangle);
        contains(legend, tensor_category_name((enum tensor_category)c));
        contains(legend, svg_colours[c]);
        for (int32_t other = 0; other < c; other++)
            ck_assert_str_ne(svg_colours[c], svg_colours[other]);
    }
    contains(text, "train_first, ops 0 .. 1");
    contains(text, "float32[1,16], temporaries");
    contains(text, "id=\"peak\"");
    contains(text, "available 8.8 KiB");
    ck_assert_ptr_null(strstr(text, "id=\"front\""));
    free(text);
    found_make(&found, &b.facts);
    b.facts.front = found.front;
    b.facts.front_count = 4;
    text = svg_report(&b);
    xml_elements(text);
    contains(text, "id=\"front\"");
    contains(text, "Memory against time (estimated)");
    contains(text, "Changed to fit the budget: micro_batch 3");
    int32_t points = 0;
    for (const char *c = text; (c = strstr(c, "<circle")) != NULL; c++)
        points++;
    ck_assert_int_eq(points, 5); /* the front, and this plan */
    free(text);
    bench_destroy(&b);
}

/* Twenty thousand ops, each with a separate tensor, give a small file. */
TEST(svg_of_many_ops_stays_small)
{
    struct bench b = {0};
    ck_assert_int_eq(hostmem_create(&b.mem), GT_OK);
    ck_assert_int_eq(graph_create(b.mem, &b.graph), GT_OK);
    int32_t program = fixture_program(b.graph, PROGRAM_TRAIN_FIRST);
    int32_t a = fixture_tensor(b.graph, "a", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    for (int32_t i = 0; i < 20000; i++)
        a = fixture_copy(b.graph, program, a, TENSOR_NONE, false);
    struct plan_options options = {.alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b.mem, b.graph, &options, &b.plan), GT_OK);
    char *text = svg_report(&b);
    xml_elements(text);
    ck_assert_uint_lt(strlen(text), 1000000);
    contains(text, "<g id=\"small\"");
    contains(text, "class=\"temporaries\"");
    free(text);
    bench_destroy(&b);
}

TEST(svg_that_cannot_be_made_or_written_fails)
{
    struct bench b;
    bench_create(&b);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        ck_assert_int_eq(plan_print_svg(b.mem, b.plan, &b.facts, full), GT_IO);
        fclose(full);
    }
    for (size_t n = 1; n <= 4; n++) {
        hostmem_fail_at(b.mem, n);
        ck_assert_int_eq(plan_print_svg(b.mem, b.plan, &b.facts, stdout), GT_NO_MEMORY);
    }
    bench_destroy(&b);
}
