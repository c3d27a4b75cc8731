/* opcheck: runs the cases of every op in every dtype on every backend of this build; one line per
 * op, dtype and backend.
 *
 * Options: --seed=N --op=NAME --backend=NAME --except=NAME (a backend to leave out) --dtype=NAME
 * --cases=N --case=N --variant=N --half_sums --separate --bench --support --threads.  Without
 * options it runs all cases in float32, bfloat16 and float16 on all backends, the control, and the
 * mutants.
 * --cases=N runs N cases of each op, spread over all and their options; --case=N runs case N alone;
 * both leave the mutants out.  --bench --op=gemm --cases=N times the first N products of a step.
 * --variant=N selects the N-th way in which the backend launches the ops that have several.
 * --half_sums opens backends with fp16 sums, and judges products accordingly.  --separate, with one
 * op, dtype and case, gives each operand a segment of its own (device.c).  --threads compares the
 * bytes that 1, 2 and 3 threads leave.  --support only opens the backend.  The last line is
 * "checks: P passed, F failed, S skipped"; a case and a mutant are one check each. Exit status: 0
 * passed, 1 failed, 2 bad option, 77 the backend given with --support cannot be opened on this
 * machine.
 */
#include "tests/opcheck/opcheck.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_registry.h"

#define SEED_DEFAULT 20260117u
#define NUMBER_MAX 1000000
#define ALL_CASES (-1)

enum opcheck_mode { MODE_CHECK, MODE_BENCH, MODE_SUPPORT, MODE_THREADS };

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
#define DTYPES_COUNT ((int32_t)(sizeof dtypes / sizeof dtypes[0]))

struct options {
    enum opcheck_mode mode;
    uint64_t seed;
    int32_t cases_max, one_case; /* ALL_CASES when not given */
    int32_t variant;
    bool separate;
    const char *op, *backend, *except, *dtype;
};

static bool option_value(const char *argument, const char *name, const char **out)
{
    size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0 || argument[length] != '=')
        return false;
    *out = argument + length + 1;
    return true;
}

static bool number_parse(const char *text, unsigned long long limit, unsigned long long *out)
{
    char *end = NULL;
    *out = strtoull(text, &end, 0);
    return end != text && *end == '\0' && *out <= limit;
}

static bool option_parse(const char *argument, struct options *options)
{
    static const char *const modes[] = {"", "--bench", "--support", "--threads"};
    const char *value = NULL;
    unsigned long long number = 0;
    for (int i = MODE_BENCH; i <= MODE_THREADS; i++) {
        if (strcmp(argument, modes[i]) == 0) {
            options->mode = (enum opcheck_mode)i;
            return true;
        }
    }
    half_sums_allowed = half_sums_allowed || strcmp(argument, "--half_sums") == 0;
    gemm_tiled =
        half_sums_allowed || options->variant > 0 || strncmp(argument, "--variant", 9) == 0;
    options->separate = options->separate || strcmp(argument, "--separate") == 0;
    if (strcmp(argument, "--separate") == 0 || strcmp(argument, "--half_sums") == 0)
        return true;
    if (option_value(argument, "--op", &options->op) ||
        option_value(argument, "--backend", &options->backend) ||
        option_value(argument, "--except", &options->except) ||
        option_value(argument, "--dtype", &options->dtype))
        return true;
    if (option_value(argument, "--seed", &value)) {
        bool valid = number_parse(value, UINT64_MAX, &number);
        options->seed = number;
        return valid;
    }
    int32_t *target = option_value(argument, "--cases", &value)     ? &options->cases_max
                      : option_value(argument, "--case", &value)    ? &options->one_case
                      : option_value(argument, "--variant", &value) ? &options->variant
                                                                    : NULL;
    if (target == NULL || !number_parse(value, NUMBER_MAX, &number))
        return false;
    *target = (int32_t)number;
    return true;
}

static bool dtype_selected(const struct options *options, enum dtype dtype)
{
    return options->dtype == NULL || strcmp(dtype_name(dtype), options->dtype) == 0;
}

/* No device runs an exchange; it is tried only if it is named. */
static bool op_selected(const struct options *options, int kind)
{
    if (options->op == NULL)
        return kind != OP_EXCHANGE;
    return strcmp(op_declaration((enum op_kind)kind)->name, options->op) == 0;
}

static bool backend_selected(const struct options *options, const struct backend_ops *ops)
{
    if (options->except != NULL && strcmp(ops->name, options->except) == 0)
        return false;
    return options->backend == NULL || strcmp(ops->name, options->backend) == 0;
}

static bool options_valid(const struct options *options)
{
    bool op_known = false, dtype_known = false;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        op_known = op_known || op_selected(options, kind);
    if (!op_known)
        fprintf(stderr, "opcheck: error: no op is named \"%s\" (see src/ops/ops.def)\n",
                options->op);
    for (int32_t i = 0; i < DTYPES_COUNT; i++)
        dtype_known = dtype_known || dtype_selected(options, dtypes[i]);
    if (!dtype_known)
        fprintf(stderr,
                "opcheck: error: --dtype is \"%s\", expected float32, bfloat16 or float16\n",
                options->dtype);
    bool backend_known = options->backend == NULL || backend_find(options->backend) != NULL;
    if (!backend_known)
        fprintf(stderr, "opcheck: error: this build has no backend \"%s\"\n", options->backend);
    return op_known && dtype_known && backend_known;
}

/* Returns the step through so many cases that gives `wanted` of them.  The options of cases
 * alternate with periods whose only prime factors are these, so that a step without them meets each
 * option. */
static int32_t step_of(int32_t cases, int32_t wanted)
{
    int32_t step = (cases + wanted - 1) / wanted;
    while (step % 2 == 0 || step % 3 == 0 || step % 5 == 0 || step % 7 == 0)
        step++;
    return step;
}

static struct case_range range_of(const struct options *options, enum op_kind kind,
                                  enum dtype dtype)
{
    int32_t cases = cases_count(kind, dtype), wanted = options->cases_max;
    if (options->one_case != ALL_CASES)
        return (struct case_range){
            .first = options->one_case, .count = options->one_case < cases, .cases = cases};
    if (wanted == ALL_CASES || wanted >= cases || wanted == 0)
        return (struct case_range){.step = 1, .count = cases, .cases = cases};
    /* Other cases in each dtype: their kernels have the same options. */
    return (struct case_range){
        .first = (int32_t)dtype, .step = step_of(cases, wanted), .count = wanted, .cases = cases};
}

/* Returns the numbers of the products that --bench times; see case_make_bench(). */
static struct case_range products_of(const struct options *options)
{
    const bool several = options->cases_max != ALL_CASES;
    return (struct case_range){
        .first = several, .step = 1, .count = several ? options->cases_max : 1, .cases = INT32_MAX};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t image_bytes_of(const struct device *device, bool made, struct check_case *check)
{
    if (!made || !device_supports(device, &check->call))
        return 0;
    device_layout(device, check);
    return check->image_bytes;
}

/* Returns the size of the largest image of the selection, and the last case of it.  `device` has no
 * arena: it is asked for the sizes of workspaces. */
static size_t arena_bytes_needed(const struct options *options, const struct device *device,
                                 struct check_case *out_last)
{
    size_t needed = options->mode == MODE_BENCH ? 3 * BENCH_TRIAD_BYTES : 1;
    for (int32_t choice = 0; choice < OP_KIND_COUNT * DTYPES_COUNT; choice++) {
        enum op_kind kind = (enum op_kind)(choice / DTYPES_COUNT);
        enum dtype dtype = dtypes[choice % DTYPES_COUNT];
        const bool is_bench = options->mode == MODE_BENCH;
        struct case_range range = is_bench ? products_of(options) : range_of(options, kind, dtype);
        if (!op_selected(options, (int)kind) || !dtype_selected(options, dtype))
            continue;
        for (int32_t i = 0; i < range.count; i++) {
            const int32_t index = case_index(range, i);
            const bool made = is_bench ? case_make_bench(kind, dtype, index, out_last)
                                       : case_make(kind, dtype, index, options->seed, out_last);
            needed = larger(needed, image_bytes_of(device, made, out_last));
        }
    }
    return needed;
}

enum opening { OPENED, NO_DEVICE, NO_ARENA };

static enum opening device_open_sized(const struct options *options, const struct backend_ops *ops,
                                      struct device *out)
{
    struct device asked;
    struct check_case last;
    if (!device_open(ops, 0, 0, NULL, &asked)) {
        printf("SKIP opcheck_%s: it finds no device here\n", ops->name);
        return NO_DEVICE;
    }
    size_t needed = arena_bytes_needed(options, &asked, &last);
    device_close(&asked);
    if (!device_open(ops, 0, needed, options->separate ? &last : NULL, out)) {
        printf("FAIL %s: cannot be opened with an arena of %zu bytes\n", ops->name, needed);
        return NO_ARENA;
    }
    const struct backend_algorithm variant = {.call = 0, .algorithm = (uint64_t)options->variant};
    if (options->variant > 0 &&
        (out->ops->choose == NULL || out->ops->choose(out->backend, &variant, 1) != GT_OK)) {
        printf("FAIL %s: has one way of launching each op, and --variant=%" PRId32
               " was asked for\n",
               ops->name, options->variant);
        device_close(out);
        return NO_ARENA;
    }
    printf("%s: %s; %s\n", ops->name, out->info.device, out->info.detail);
    return OPENED;
}

static void suite_check(const struct options *options, struct suite *suite)
{
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        if (!backend_selected(options, *ops) || suite->devices == DEVICES_MAX)
            continue;
        enum opening opening = device_open_sized(options, *ops, &suite->device[suite->devices]);
        suite->devices += opening == OPENED;
        suite->skipped += opening == NO_DEVICE;
        suite->failed += opening == NO_ARENA;
    }
    for (int32_t choice = 0; choice < OP_KIND_COUNT * DTYPES_COUNT; choice++) {
        enum op_kind kind = (enum op_kind)(choice / DTYPES_COUNT);
        enum dtype dtype = dtypes[choice % DTYPES_COUNT];
        if (op_selected(options, (int)kind) && dtype_selected(options, dtype))
            suite_op(suite, kind, dtype, options->seed, range_of(options, kind, dtype));
    }
    for (int32_t i = 0; i < suite->devices; i++)
        device_close(&suite->device[i]);
    printf("cases on backends: %" PRId64 "\n", suite->backend_cases);
}

static void mutants_check(const struct options *options, struct suite *suite)
{
    int32_t caught = 0, planted = 0;
    for (int32_t choice = 0; choice < OP_KIND_COUNT * DTYPES_COUNT; choice++) {
        enum op_kind kind = (enum op_kind)(choice / DTYPES_COUNT);
        enum dtype dtype = dtypes[choice % DTYPES_COUNT];
        if (op_selected(options, (int)kind) && dtype_selected(options, dtype))
            mutants_run(kind, dtype, options->seed, &caught, &planted);
    }
    printf("mutants: caught %" PRId32 " / planted %" PRId32 "\n", caught, planted);
    suite->passed += caught;
    suite->failed += planted - caught;
}

static int bench(const struct options *options)
{
    int opened = 0;
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        struct device device;
        struct roofs roofs;
        if (!backend_selected(options, *ops) || device_open_sized(options, *ops, &device) != OPENED)
            continue;
        opened++;
        bench_roofs(&device, &roofs);
        for (int32_t choice = 0; choice < OP_KIND_COUNT * DTYPES_COUNT; choice++) {
            enum op_kind kind = (enum op_kind)(choice / DTYPES_COUNT);
            enum dtype dtype = dtypes[choice % DTYPES_COUNT];
            const struct case_range range = products_of(options);
            if (!op_selected(options, (int)kind) || !dtype_selected(options, dtype) ||
                cases_count(kind, dtype) == 0)
                continue;
            for (int32_t i = 0; i < range.count; i++)
                bench_run(&device, kind, dtype, case_index(range, i), &roofs);
        }
        device_close(&device);
    }
    return opened > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int support(const struct options *options)
{
    int opened = 0;
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        struct device device;
        if (!backend_selected(options, *ops) || !device_open(*ops, 0, 0, NULL, &device))
            continue;
        opened++;
        device_close(&device);
    }
    return opened > 0 ? EXIT_SUCCESS : 77;
}

static void threads_check(const struct options *options, struct suite *suite)
{
    struct op_choice choices[OP_KIND_COUNT * DTYPES_COUNT];
    int32_t count = 0;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        for (int32_t i = 0; i < DTYPES_COUNT; i++)
            if (op_selected(options, kind) && dtype_selected(options, dtypes[i]) &&
                cases_count((enum op_kind)kind, dtypes[i]) > 0)
                choices[count++] = (struct op_choice){(enum op_kind)kind, dtypes[i]};
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        int32_t cases = 0, failed = 0;
        if (backend_selected(options, *ops))
            failed = threads_run(*ops, choices, count, options->seed, &cases);
        suite->passed += cases - failed;
        suite->failed += failed;
    }
}

static int check(const struct options *options)
{
    struct suite suite = {.devices = 0};
    bool partial = options->cases_max != ALL_CASES || options->one_case != ALL_CASES;
    printf("opcheck: seed %" PRIu64 ", %s\n", options->seed,
           options->dtype != NULL ? options->dtype : "all dtypes");
    if (options->mode == MODE_THREADS)
        threads_check(options, &suite);
    if (options->mode == MODE_CHECK)
        suite_check(options, &suite);
    if (options->mode == MODE_CHECK && !partial)
        mutants_check(options, &suite);
    printf("checks: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", suite.passed,
           suite.failed, suite.skipped);
    return suite.failed > 0 || suite.passed == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct options options = {
        .mode = MODE_CHECK, .seed = SEED_DEFAULT, .cases_max = ALL_CASES, .one_case = ALL_CASES};
    for (int i = 1; i < argc; i++) {
        if (!option_parse(argv[i], &options)) {
            fprintf(
                stderr,
                "usage: opcheck [--seed=N] [--op=NAME] [--backend=NAME | --except=NAME] "
                "[--dtype=float32|bfloat16|float16] [--cases=N | --case=N] [--variant=N] [--half_sums] [--separate] "
                "[--bench | --support | --threads]; found \"%s\"\n",
                argv[i]);
            return 2;
        }
    }
    if (!options_valid(&options))
        return 2;
    if (options.mode == MODE_SUPPORT)
        return support(&options);
    return options.mode == MODE_BENCH ? bench(&options) : check(&options);
}
