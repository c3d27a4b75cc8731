/* opcheck: runs the cases of every op on every backend of this build and prints one line per op.
 *
 * Options: --seed=N --op=NAME --backend=NAME --dtype=NAME --cases=N --list --bench --support --mutants.  Without options:
 * all fp32 cases on all backends, the control, and the mutants.  The last line is "checks: P passed, F failed, S skipped";
 * a case and a mutant are one check each.  Exit status: 0 passed, 1 failed, 2 bad option.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define SEED_DEFAULT 20260117u
#define FAILURES_SHOWN 5
#define TRIVIAL_ONE_IN 20

enum opcheck_mode { MODE_CHECK, MODE_LIST, MODE_BENCH, MODE_SUPPORT, MODE_MUTANTS };

struct options {
    enum opcheck_mode mode;
    uint64_t seed;
    int32_t cases_max; /* per op; 0 = all */
    const char *op, *backend;
    enum dtype dtype;
};

struct totals {
    int64_t passed, failed, skipped;
    int32_t mutants_caught, mutants_planted;
};

/* One line per op and implementation. */
struct line {
    int32_t cases, failed, trivial, unsupported;
    double worst_ratio;
};

static bool option_value(const char *argument, const char *name, const char **out)
{
    size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0 || argument[length] != '=')
        return false;
    *out = argument + length + 1;
    return true;
}

static bool option_parse(const char *argument, struct options *options)
{
    static const char *const modes[] = {"", "--list", "--bench", "--support", "--mutants"};
    const char *value = NULL;
    char *end = NULL;
    for (int i = MODE_LIST; i <= MODE_MUTANTS; i++) {
        if (strcmp(argument, modes[i]) == 0) {
            options->mode = (enum opcheck_mode)i;
            return true;
        }
    }
    if (option_value(argument, "--op", &options->op) || option_value(argument, "--backend", &options->backend))
        return true;
    if (option_value(argument, "--dtype", &value)) {
        bool known = dtype_from_name(value, &options->dtype);
        return known && (options->dtype == DTYPE_F32 || options->dtype == DTYPE_BF16 || options->dtype == DTYPE_F16);
    }
    bool is_seed = option_value(argument, "--seed", &value);
    if (!is_seed && !option_value(argument, "--cases", &value))
        return false;
    unsigned long long number = strtoull(value, &end, 0);
    if (is_seed)
        options->seed = number;
    else
        options->cases_max = number < 1000000 ? (int32_t)number : 0;
    return end != value && *end == '\0';
}

static bool options_valid(const struct options *options)
{
    bool op_known = options->op == NULL;
    for (int kind = 0; kind < OP_KIND_COUNT && !op_known; kind++)
        op_known = strcmp(op_declaration((enum op_kind)kind)->name, options->op) == 0;
    if (!op_known)
        fprintf(stderr, "opcheck: error: no op is named \"%s\" (--list names them)\n", options->op);
    bool backend_known = options->backend == NULL || backend_find(options->backend) != NULL;
    if (!backend_known)
        fprintf(stderr, "opcheck: error: this build has no backend \"%s\"\n", options->backend);
    return op_known && backend_known;
}

static bool op_selected(const struct options *options, int kind)
{
    return options->op == NULL || strcmp(op_declaration((enum op_kind)kind)->name, options->op) == 0;
}

static int32_t cases_selected(const struct options *options, int kind)
{
    int32_t count = cases_count((enum op_kind)kind);
    return options->cases_max > 0 && options->cases_max < count ? options->cases_max : count;
}

static void failure_print(const struct check_case *check, const char *who, const struct verdict *verdict,
                          int32_t earlier)
{
    char text[OPCHECK_TEXT_MAX];
    if (earlier >= FAILURES_SHOWN)
        return;
    case_text(check, text);
    printf("FAIL %s: %s: %s\n", who, text, verdict->reason);
}

/* One case on a device (or, without one, the control: the naive reference's own image). */
static void case_check(struct device *device, struct check_case *check, struct line *line)
{
    struct case_data data;
    struct verdict verdict = {.passed = false, .reason = "the backend reported a failure"};
    if (device != NULL && !device_supports(device, &check->call)) {
        line->unsupported++;
        return;
    }
    if (device != NULL)
        device_layout(device, check);
    else
        image_layout(check, 0, 64);
    case_data_make(check, &data);
    if (device == NULL)
        judge(check, &data, data.naive_image, &verdict);
    else if (device_run(device, check, data.before, data.after))
        judge(check, &data, data.after, &verdict);
    case_data_free(&data);
    if (verdict.passed && verdict.trivial) {
        line->trivial++;
        return;
    }
    line->cases++;
    line->worst_ratio = verdict.worst_ratio > line->worst_ratio ? verdict.worst_ratio : line->worst_ratio;
    if (!verdict.passed)
        failure_print(check, device == NULL ? "control" : device->ops->name, &verdict, line->failed++);
}

static void op_check(const struct options *options, struct device *device, int kind, struct totals *totals)
{
    struct line line = {.cases = 0};
    for (int32_t index = 0; index < cases_selected(options, kind); index++) {
        struct check_case check;
        if (case_make((enum op_kind)kind, options->dtype, index, options->seed, &check)) {
            case_check(device, &check, &line);
            continue;
        }
        line.cases++; /* op_infer() has logged why */
        line.failed++;
    }
    printf("%-8s %-8s %-20s %4" PRId32 " cases, worst error/bound %.3f", device == NULL ? "control" : device->ops->name,
           dtype_name(options->dtype), op_declaration((enum op_kind)kind)->name, line.cases, line.worst_ratio);
    if (line.trivial > 0)
        printf(", %" PRId32 " trivial ones not counted", line.trivial);
    if (line.trivial * TRIVIAL_ONE_IN > line.cases && line.cases >= TRIVIAL_ONE_IN)
        line.failed++;
    if (line.unsupported > 0)
        printf(", %" PRId32 " not supported", line.unsupported);
    printf("%s\n", line.failed > 0 ? "  FAILED" : "");
    fflush(stdout);
    totals->passed += line.cases - line.failed;
    totals->failed += line.failed;
    totals->skipped += line.unsupported;
}

/* The arena must hold the largest image; the backend is opened once without one, to be asked about workspaces. */
static size_t arena_bytes_needed(const struct options *options, const struct backend_ops *ops)
{
    struct device device;
    size_t needed = 0;
    if (!device_open(ops, 0, &device))
        return 0;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        bool bench = options->mode == MODE_BENCH;
        for (int32_t index = 0; index < (bench ? 1 : cases_selected(options, kind)) && op_selected(options, kind);
             index++) {
            struct check_case check;
            bool made = bench ? case_make_bench((enum op_kind)kind, options->dtype, &check)
                              : case_make((enum op_kind)kind, options->dtype, index, options->seed, &check);
            if (!made || !device_supports(&device, &check.call))
                continue;
            device_layout(&device, &check);
            needed = check.image_bytes > needed ? check.image_bytes : needed;
        }
    }
    device_close(&device);
    return needed;
}

static void backend_check(const struct options *options, const struct backend_ops *ops, struct totals *totals)
{
    struct device device;
    size_t needed = arena_bytes_needed(options, ops);
    if (needed == 0) {
        printf("%s: nothing of %s runs here\n", ops->name, dtype_name(options->dtype));
        totals->skipped++;
        return;
    }
    if (!device_open(ops, needed, &device)) {
        printf("FAIL %s: cannot be opened with an arena of %zu bytes\n", ops->name, needed);
        totals->failed++;
        return;
    }
    printf("%s: %s; %s\n", ops->name, device.info.device, device.info.detail);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (op_selected(options, kind) && options->mode == MODE_BENCH)
            bench_run(&device, (enum op_kind)kind, options->dtype);
        else if (op_selected(options, kind))
            op_check(options, &device, kind, totals);
    }
    device_close(&device);
}

static void mutants_check(const struct options *options, struct totals *totals)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (op_selected(options, kind))
            mutants_run((enum op_kind)kind, options->dtype, options->seed, &totals->mutants_caught,
                        &totals->mutants_planted);
    }
    printf("mutants: caught %" PRId32 " / planted %" PRId32 "\n", totals->mutants_caught, totals->mutants_planted);
    totals->passed += totals->mutants_caught;
    totals->failed += totals->mutants_planted - totals->mutants_caught;
}

static void support_print(const struct options *options)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        struct device device;
        if (!device_open(*ops, 0, &device))
            continue;
        for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
            printf("%-8s %-20s", (*ops)->name, op_declaration((enum op_kind)kind)->name);
            for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
                struct check_case check;
                bool runs = case_make((enum op_kind)kind, dtypes[i], 1, options->seed, &check) &&
                            device_supports(&device, &check.call);
                printf(" %s %s", dtype_name(dtypes[i]), runs ? "yes" : "-");
            }
            printf("\n");
        }
        device_close(&device);
    }
}

static void everything(const struct options *options, struct totals *totals)
{
    for (int kind = 0; kind < OP_KIND_COUNT && options->mode == MODE_CHECK; kind++) {
        if (op_selected(options, kind))
            op_check(options, NULL, kind, totals);
    }
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL && options->mode != MODE_MUTANTS;
         ops++) {
        if (options->backend == NULL || strcmp((*ops)->name, options->backend) == 0)
            backend_check(options, *ops, totals);
    }
    if (options->mode != MODE_BENCH)
        mutants_check(options, totals);
}

int main(int argc, char **argv)
{
    struct options options = {.mode = MODE_CHECK, .seed = SEED_DEFAULT, .dtype = DTYPE_F32};
    struct totals totals = {.passed = 0};
    for (int i = 1; i < argc; i++) {
        if (!option_parse(argv[i], &options)) {
            fprintf(
                stderr,
                "usage: opcheck [--seed=N] [--op=NAME] [--backend=NAME] [--dtype=float32|bfloat16|float16] [--cases=N] "
                "[--list | --bench | --support | --mutants]; found \"%s\"\n",
                argv[i]);
            return 2;
        }
    }
    if (!options_valid(&options))
        return 2;
    if (options.mode == MODE_LIST || options.mode == MODE_SUPPORT) {
        for (int kind = 0; kind < OP_KIND_COUNT && options.mode == MODE_LIST; kind++)
            printf("%-20s %s\n", op_declaration((enum op_kind)kind)->name, op_declaration((enum op_kind)kind)->text);
        if (options.mode == MODE_SUPPORT)
            support_print(&options);
        return EXIT_SUCCESS;
    }
    printf("opcheck: seed %" PRIu64 ", %s\n", options.seed, dtype_name(options.dtype));
    everything(&options, &totals);
    printf("checks: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", totals.passed, totals.failed,
           totals.skipped);
    return totals.failed > 0 || (options.mode != MODE_BENCH && totals.passed == 0) ? EXIT_FAILURE : EXIT_SUCCESS;
}
