/* metrics.c: whole JSON lines at full precision, and what a resume cuts off. */
#include <math.h>

#include "base/json.h"
#include "tests/unit/io_fixture.h"
#include "train/metrics.h"

struct fixture {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct log_capture log;
};

static void begin(struct fixture *fixture)
{
    io_folder_make(fixture->folder);
    io_path(fixture->path, fixture->folder, METRICS_NAME);
    log_capture_begin(&fixture->log);
}

static void end(struct fixture *fixture)
{
    log_capture_end();
    io_folder_empty(fixture->folder);
    ck_assert_int_eq(rmdir(fixture->folder), 0);
}

static void text_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void text_is(const char *path, const char *expected)
{
    char *text;
    size_t count;
    ck_assert_int_eq(file_read_all(path, 100000, &text, &count), GT_OK);
    ck_assert_str_eq(text, expected);
    free(text);
}

static struct metrics_step step_make(int64_t iter)
{
    return (struct metrics_step){.iter = iter,
                                 .loss = 1.0 / 3.0,
                                 .lr = 6e-4,
                                 .grad_norm = 2.5,
                                 .time_ms = 33.1,
                                 .tokens_per_s = 1e4,
                                 .mfu = 0.41,
                                 .skipped = 2,
                                 .planned_bytes = UINT64_C(1) << 40,
                                 .allocated_bytes = 7};
}

START_TEST(lines_are_whole_json_at_full_precision)
{
    struct fixture fixture;
    struct metrics metrics;
    struct metrics_step step = step_make(3);
    begin(&fixture);
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 0, true), GT_OK);
    ck_assert_int_eq(metrics_step_write(&metrics, &step), GT_OK);
    metrics_close(&metrics);
    metrics_close(&metrics);
    json_t *line = json_load_file(fixture.path, 0, NULL);
    ck_assert_ptr_nonnull(line);
    ck_assert_uint_eq(json_object_size(line), 10);
    ck_assert(json_real_value(json_object_get(line, "loss")) == 1.0 / 3.0);
    ck_assert(json_real_value(json_object_get(line, "lr")) == 6e-4);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "iter")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "skipped")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "planned_bytes")), INT64_C(1) << 40);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "allocated_bytes")), 7);
    json_decref(line);
    end(&fixture);
}
END_TEST

START_TEST(what_is_not_finite_becomes_null)
{
    struct fixture fixture;
    struct metrics metrics;
    begin(&fixture);
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 0, true), GT_OK);
    ck_assert_int_eq(metrics_evaluation_write(&metrics, 5, (double)NAN, (double)INFINITY), GT_OK);
    metrics_close(&metrics);
    text_is(fixture.path, "{\"iter\":5,\"train_loss\":null,\"val_loss\":null}\n");
    end(&fixture);
}
END_TEST

#define STEP(n) "{\"iter\":" #n ",\"loss\":1.5}\n"
#define EVALUATION(n) "{\"iter\":" #n ",\"train_loss\":1,\"val_loss\":2}\n"

START_TEST(a_resume_cuts_back)
{
    static const struct {
        int64_t iter;
        const char *before, *after;
    } cases[] = {
        {0, STEP(0) STEP(1), ""},
        {2, STEP(0) STEP(1) STEP(2) STEP(3), STEP(0) STEP(1)},
        /* The evaluation of the iteration that a checkpoint was saved at is part of it; its step is not. */
        {2, STEP(1) EVALUATION(2) STEP(2) STEP(3), STEP(1) EVALUATION(2)},
        {2, STEP(1) EVALUATION(3), STEP(1)},
        {9, STEP(0) "{\"iter\":1,\"lo", STEP(0)},
        {9, STEP(0) "rubbish\n" STEP(1), STEP(0)},
        {9, STEP(0) STEP(1), STEP(0) STEP(1)},
        {5, "", ""},
    };
    struct fixture fixture;
    struct metrics metrics;
    begin(&fixture);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text_write(fixture.path, cases[i].before);
        ck_assert_int_eq(metrics_open(&metrics, fixture.folder, cases[i].iter, true), GT_OK);
        metrics_close(&metrics);
        text_is(fixture.path, cases[i].after);
    }
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 9, true), GT_OK);
    ck_assert_int_eq(metrics_evaluation_write(&metrics, 9, 1.0, 2.0), GT_OK);
    metrics_close(&metrics);
    text_is(fixture.path, EVALUATION(9));
    ck_assert_int_eq(fixture.log.lines, 0);
    end(&fixture);
}
END_TEST

START_TEST(what_cannot_be_written)
{
    struct fixture fixture;
    struct metrics metrics, none = {.fd = -1}, full;
    struct metrics_step step = step_make(0);
    char missing[FILE_PATH_MAX];
    begin(&fixture);
    io_path(missing, fixture.folder, "absent");
    ck_assert_int_eq(metrics_open(&metrics, missing, 0, true), GT_IO);
    log_capture_one_error(&fixture.log, "absent/metrics.jsonl");
    ck_assert_int_eq(metrics_step_write(&none, &step), GT_OK);
    full.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full.fd >= 0) {
        ck_assert_int_eq(metrics_step_write(&full, &step), GT_IO);
        ck_assert_int_eq(fixture.log.lines, 1);
        ck_assert_int_eq(fixture.log.level, LOG_WARNING);
        ck_assert_int_eq(metrics_step_write(&full, &step), GT_OK); /* said once, and then left alone */
        ck_assert_int_eq(fixture.log.lines, 1);
    }
    end(&fixture);
}
END_TEST

Suite *metrics_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = tcase_create("metrics");
    tcase_add_test(tests, lines_are_whole_json_at_full_precision);
    tcase_add_test(tests, what_is_not_finite_becomes_null);
    tcase_add_test(tests, a_resume_cuts_back);
    tcase_add_test(tests, what_cannot_be_written);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(metrics)
