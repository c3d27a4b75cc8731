/* The main program of the unit tests: reads --seed, runs one Check suite, counts, and prints the
 * closing line.
 *
 * Check forks one process per test, so the count of skips lives in a page that parent and children
 * share.  Tests have no time limits, because sanitizers and a busy machine are slow: run_test.sh
 * ends a program that hangs.  Tests must not depend on each other; CK_FORK=no in the environment
 * runs them in one process, for a debugger.
 */
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT_SEED_DEFAULT 1337
#define UNIT_EXIT_SKIPPED 77
#define UNIT_TESTS_MAX 64

struct unit_state {
    uint64_t seed;
    volatile int *skips; /* shared with the forked tests */
};

static struct unit_state unit_state = {.seed = UNIT_SEED_DEFAULT};

struct unit_test {
    const TTest *test;
    size_t count;
    int signal;
    void (*setup)(void), (*teardown)(void);
};

/* `next` holds the settings of the next test. */
static struct {
    struct unit_test tests[UNIT_TESTS_MAX], next;
    size_t count;
} unit_registered;

void unit_test_add(const TTest *test, size_t count, int signal)
{
    if (unit_registered.count == UNIT_TESTS_MAX)
        abort();
    struct unit_test *added = &unit_registered.tests[unit_registered.count++];
    *added = unit_registered.next;
    added->test = test;
    added->count = count;
    added->signal = signal;
}

void unit_fixture_set(void (*setup)(void), void (*teardown)(void))
{
    unit_registered.next.setup = setup;
    unit_registered.next.teardown = teardown;
}

static Suite *unit_suite_registered(void)
{
    Suite *suite = suite_create("all");
    for (size_t i = 0; i < unit_registered.count; i++) {
        const struct unit_test *test = &unit_registered.tests[i];
        TCase *one = tcase_create(test->test->name);
        if (test->setup != NULL)
            tcase_add_checked_fixture(one, test->setup, test->teardown);
        tcase_add_loop_test_raise_signal(one, test->test, test->signal, 0, (int)test->count);
        suite_add_tcase(suite, one);
    }
    return suite;
}

static int unit_seed_parse(const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0') {
        fprintf(stderr, "seed: expected an integer, found \"%s\"\n", text);
        return -1;
    }
    unit_state.seed = value;
    return 0;
}

static int unit_arguments_read(int argc, char **argv)
{
    const char *environment = getenv("UNIT_SEED");
    if (environment != NULL && unit_seed_parse(environment) != 0)
        return -1;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--seed=", 7) != 0) {
            fprintf(stderr, "usage: %s [--seed=N]; found \"%s\"\n", argv[0], argv[i]);
            return -1;
        }
        if (unit_seed_parse(argv[i] + 7) != 0)
            return -1;
    }
    return 0;
}

static int unit_result_print(int run, int failed, int skipped)
{
    printf("checks: %d passed, %d failed, %d skipped\n", run - failed - skipped, failed, skipped);
    fflush(stdout);
    if (failed > 0 || run == 0)
        return EXIT_FAILURE;
    return skipped == run ? UNIT_EXIT_SKIPPED : EXIT_SUCCESS;
}

static int unit_main_run(int argc, char **argv, const char *name)
{
    if (unit_arguments_read(argc, argv) != 0)
        return 2;
    void *page = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        fprintf(stderr, "%s: mmap: %s\n", name, strerror(errno));
        return EXIT_FAILURE;
    }
    unit_state.skips = page;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("CK_DEFAULT_TIMEOUT", "0", 0);
    printf("%s: seed %llu\n", name, (unsigned long long)unit_state.seed);
    fflush(stdout);

    SRunner *runner = srunner_create(unit_suite_registered());
    srunner_run_all(runner, CK_NORMAL);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return unit_result_print(run, failed, *unit_state.skips);
}

uint64_t unit_seed(void)
{
    return unit_state.seed;
}

void unit_skip(const char *name, const char *reason)
{
    static bool is_counted; /* of this process, which is one test */
    if (is_counted)
        return;
    is_counted = true;
    printf("SKIP %s: %s\n", name, reason);
    fflush(stdout);
    if (unit_state.skips != NULL)
        ++*unit_state.skips;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash != NULL ? slash + 1 : argv[0];
    return unit_main_run(argc, argv, strncmp(name, "check_", 6) == 0 ? name + 6 : name);
}
