/* Tests of metrics.c: complete JSON lines at full precision, and the lines that a resume cuts off.
 */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/json.h"
#include "report/run_record.h"
#include "tests/unit/io_fixture.h"
#include "train/metrics.h"
#include "train/samples.h"

#define STEP(n) "{\"iter\":" #n ",\"loss\":1.5}\n"
#define EVALUATION(n) "{\"iter\":" #n ",\"train_loss\":1.0,\"val_loss\":2.0}\n"
#define START(n) "{\"iter\":" #n ",\"start\":\"run\"}\n"

struct fixture {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct log_capture log;
};

static void begin(struct fixture *fixture)
{
    scratch_make(fixture->folder);
    io_path(fixture->path, fixture->folder, METRICS_NAME);
    log_capture_begin(&fixture->log);
}

static void end(struct fixture *fixture)
{
    log_capture_end();
    scratch_remove(fixture->folder);
}

static void text_is(const char *path, const char *expected)
{
    char *text;
    size_t count;
    ck_assert_int_eq(file_read_all(path, 100000, &text, &count), GT_OK);
    ck_assert_str_eq(text, expected);
    free(text);
}

static enum gt_status evaluation_write(struct metrics *metrics, int64_t iter, double train_loss,
                                       double val_loss)
{
    json_put(metrics_line(metrics, iter, NULL), "train_loss:f val_loss:f", train_loss, val_loss);
    return metrics_line_write(metrics);
}

TEST(lines_are_whole_json_at_full_precision)
{
    struct fixture fixture;
    struct metrics metrics;
    begin(&fixture);
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 0, true, true), GT_OK);
    json_put(metrics_line(&metrics, 3, "kind"),
             "loss:f lr:f skipped:i planned_bytes:u none:s keys:{ time:f yes:b", 1.0 / 3.0, 6e-4,
             INT64_C(2), UINT64_C(1) << 40, NULL, 1795633200.125, true);
    ck_assert_int_eq(metrics_line_write(&metrics), GT_OK);
    metrics_close(&metrics);
    metrics_close(&metrics);
    json_t *line = json_load_file(fixture.path, 0, NULL);
    ck_assert_ptr_nonnull(line);
    ck_assert_uint_eq(json_object_size(line), 8);
    ck_assert(json_real_value(json_object_get(line, "loss")) == 1.0 / 3.0);
    ck_assert(json_real_value(json_object_get(line, "lr")) == 6e-4);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "iter")), 3);
    ck_assert_str_eq(json_string_value(json_object_get(line, "start")), "kind");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "skipped")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "planned_bytes")), INT64_C(1) << 40);
    ck_assert(json_is_null(json_object_get(line, "none")));
    const json_t *keys = json_object_get(line, "keys");
    ck_assert(json_real_value(json_object_get(keys, "time")) == 1795633200.125);
    ck_assert(json_is_true(json_object_get(keys, "yes")));
    json_decref(line);
    end(&fixture);
}

TEST(what_is_not_finite_becomes_null)
{
    struct fixture fixture;
    struct metrics metrics;
    begin(&fixture);
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 0, true, true), GT_OK);
    ck_assert_int_eq(evaluation_write(&metrics, 5, (double)NAN, (double)INFINITY), GT_OK);
    metrics_close(&metrics);
    text_is(fixture.path, "{\"iter\":5,\"train_loss\":null,\"val_loss\":null}\n");
    end(&fixture);
}

TEST(a_resume_cuts_back)
{
    static const struct {
        int64_t iter;
        const char *before, *after;
    } cases[] = {
        {0, STEP(0) STEP(1), ""},
        {2, STEP(0) STEP(1) STEP(2) STEP(3), STEP(0) STEP(1)},
        /* A checkpoint includes the evaluation of the iteration at which it was saved, but not the
           step. */
        {2, STEP(1) EVALUATION(2) STEP(2) STEP(3), STEP(1) EVALUATION(2)},
        {2, STEP(1) EVALUATION(3), STEP(1)},
        {9, STEP(0) "{\"iter\":1,\"lo", STEP(0)},
        {9, STEP(0) "rubbish\n" STEP(1), STEP(0)},
        {9, STEP(0) STEP(1), STEP(0) STEP(1)},
        /* Start lines stay with the lines that follow them. */
        {2, START(0) STEP(0) START(1) EVALUATION(2) STEP(2),
         START(0) STEP(0) START(1) EVALUATION(2)},
        {2, START(0) STEP(0) STEP(1) START(1) START(1) STEP(2), START(0) STEP(0) STEP(1)},
        {5, "", ""},
    };
    struct fixture fixture;
    struct metrics metrics;
    begin(&fixture);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_put(fixture.folder, METRICS_NAME, cases[i].before);
        ck_assert_int_eq(
            metrics_open(&metrics, fixture.folder, cases[i].iter, true, cases[i].iter == 0), GT_OK);
        metrics_close(&metrics);
        text_is(fixture.path, cases[i].after);
    }
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 9, true, false), GT_OK);
    ck_assert_int_eq(evaluation_write(&metrics, 9, 1.0, 2.0), GT_OK);
    metrics_close(&metrics);
    text_is(fixture.path, EVALUATION(9));
    ck_assert_int_eq(fixture.log.lines, 0);
    end(&fixture);
}

/* The disk is full for a while: the partial line is cut off, and later lines follow. */
TEST(a_torn_line_is_cut_off)
{
    struct fixture fixture;
    struct metrics metrics;
    struct rlimit before, small;
    begin(&fixture);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(metrics_open(&metrics, fixture.folder, 0, true, true), GT_OK);
    ck_assert_int_eq(evaluation_write(&metrics, 1, 1.0, 2.0), GT_OK);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = sizeof EVALUATION(1) + 9;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert_int_eq(evaluation_write(&metrics, 2, 1.0, 2.0), GT_IO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(evaluation_write(&metrics, 3, 1.0, 2.0), GT_OK);
    metrics_close(&metrics);
    text_is(fixture.path, EVALUATION(1) EVALUATION(3));
    ck_assert_int_eq(fixture.log.lines, 1);
    end(&fixture);
}

/* The median of the last steps; lines without a rate and damaged ones do not count. */
TEST(recent_steps_have_a_rate)
{
    struct fixture fixture;
    char text[4096] = "";
    begin(&fixture);
    ck_assert(metrics_rate_recent(fixture.folder) == 0.0);
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"iter\":%d,\"tokens_per_s\":%d}\n", i, i < 20 ? 7000 : 100 + i);
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "{\"iter\":40,\"val_loss\":1}\n{\"tokens_per_s\":null}\n{\"tokens_per_s\":\n");
    scratch_put(fixture.folder, METRICS_NAME, text);
    ck_assert_double_eq(metrics_rate_recent(fixture.folder), 134.0);
    ck_assert_int_eq(fixture.log.lines, 0);
    end(&fixture);
}
