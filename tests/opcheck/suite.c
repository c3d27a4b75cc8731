/* One op in one dtype: every case once, judged for the control and every device.
 *
 * The control is the oracle's own results, rounded to the dtypes; they must pass.  Values are made
 * once per case, and laid out for each device by its alignment and workspace.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tests/opcheck/opcheck.h"

#define FAILURES_SHOWN 5
#define TRIVIAL_ONE_IN 20

/* One line of output per op, dtype and implementation. */
struct line {
    const char *name;
    int32_t cases, failed, trivial, unsupported;
    double worst_ratio;
};

static void verdict_count(const struct check_case *check, const struct verdict *verdict,
                          struct line *line)
{
    char text[OPCHECK_TEXT_MAX];
    if (verdict->passed && verdict->trivial) {
        line->trivial++;
        return;
    }
    line->cases++;
    line->worst_ratio =
        verdict->worst_ratio > line->worst_ratio ? verdict->worst_ratio : line->worst_ratio;
    if (verdict->passed || line->failed++ >= FAILURES_SHOWN)
        return;
    case_text(check, text);
    printf("FAIL %s: %s: %s\n", line->name, text, verdict->reason);
}

static void control_check(struct check_case *check, struct case_data *data, struct line *control)
{
    struct verdict verdict;
    image_layout(check, 0, 64);
    case_images_make(check, data);
    judge(check, data, data->ideal, &verdict);
    verdict_count(check, &verdict, control);
    case_images_free(data);
}

static void device_check(struct device *device, struct check_case *check, struct case_data *data,
                         struct line *line)
{
    struct verdict verdict = {.passed = false, .reason = "the backend reported a failure"};
    if (!device_supports(device, &check->call)) {
        line->unsupported++;
        return;
    }
    device_layout(device, check);
    case_images_make(check, data);
    if (device_run(device, check, data->before, data->after))
        judge(check, data, data->after, &verdict);
    verdict_count(check, &verdict, line);
    case_images_free(data);
}

/* `whole`: all cases of the op ran, so that the share of trivial ones is meaningful. */
static void line_close(struct suite *suite, enum op_kind kind, enum dtype dtype, bool whole,
                       struct line *line)
{
    if (line->cases + line->trivial + line->unsupported == 0)
        return;
    printf("%-9s %-8s %-20s %4" PRId32 " cases, worst error/bound %.3f", line->name,
           dtype_name(dtype), op_declaration(kind)->name, line->cases, line->worst_ratio);
    if (line->trivial > 0)
        printf(", %" PRId32 " trivial ones not counted", line->trivial);
    if (whole && line->trivial * TRIVIAL_ONE_IN > line->cases)
        line->failed++;
    if (line->unsupported > 0)
        printf(", %" PRId32 " not supported", line->unsupported);
    printf("%s\n", line->failed > 0 ? "  FAILED" : "");
    fflush(stdout);
    suite->passed += line->cases > line->failed ? line->cases - line->failed : 0;
    suite->failed += line->failed;
    suite->skipped += line->unsupported;
}

void suite_op(struct suite *suite, enum op_kind kind, enum dtype dtype, uint64_t seed,
              struct case_range range)
{
    struct line control = {.name = "control"}, line[DEVICES_MAX] = {{.cases = 0}};
    bool whole = range.count == cases_count(kind, dtype);
    for (int32_t i = 0; i < suite->devices; i++)
        line[i].name = suite->device[i].ops->name;
    for (int32_t i = 0; i < range.count; i++) {
        const int32_t index = case_index(range, i);
        struct check_case check;
        struct case_data data;
        if (!case_make(kind, dtype, index, seed, &check)) { /* op_infer() has logged why */
            control.cases++;
            control.failed++;
            continue;
        }
        case_values_make(&check, &data);
        control_check(&check, &data, &control);
        for (int32_t d = 0; d < suite->devices; d++)
            device_check(&suite->device[d], &check, &data, &line[d]);
        case_data_free(&data);
    }
    line_close(suite, kind, dtype, whole, &control);
    for (int32_t i = 0; i < suite->devices; i++) {
        suite->backend_cases += line[i].cases;
        line_close(suite, kind, dtype, whole, &line[i]);
    }
}
