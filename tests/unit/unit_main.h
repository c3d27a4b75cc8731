/* The main program of every unit test: one suite per program, run by Check (libcheck).
 *
 * A test is TEST(name) { ... }, or one of its kin below; writing it registers it.  The program prints its seed, runs the
 * tests in the order of the file, and ends with "checks: P passed, F failed, S skipped".  Exit status: 0 all tests
 * passed, 1 one failed, 77 all were skipped, 2 a bad argument.  Flags: --seed=N.
 */
#ifndef GPT_TRAIN_UNIT_UNIT_MAIN_H
#define GPT_TRAIN_UNIT_UNIT_MAIN_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

/* Runs the suite that `make_suite` builds; returns the exit status of the process.  `name` appears in the output. */
int unit_main_run(int argc, char **argv, const char *name, Suite *(*make_suite)(void));

/* Returns the seed of this run: --seed=N, else the environment's UNIT_SEED, else 1337.  It is printed before the first
 * test. */
uint64_t unit_seed(void);

/* Counts the test as skipped, not as passed; a test that cannot run here calls it and returns.  `name` must be listed
 * in tests/expected-skips, or the skip fails the run in CI; `reason` names the missing requirement. */
void unit_skip(const char *name, const char *reason);

/* Adds a test that runs once for each _i from 0 to `count` - 1; a `signal` other than 0 must end it. */
void unit_test_add(const TTest *test, size_t count, int signal);
/* From the next test on: run each one between setup() and teardown(), both NULL for none. */
void unit_fixture_set(void (*setup)(void), void (*teardown)(void));
/* From the next test on: the time limit of each one, 0 for the default. */
void unit_limit_set(double seconds);

/* Runs code before main(), in the order of the file. */
#define UNIT_BEFORE(name, code)                               \
    __attribute__((constructor)) static void name##_add(void) \
    {                                                         \
        code;                                                 \
    }
#define TEST_SIGNAL(name, count, signal)                                      \
    static void name##_fn(int _i);                                            \
    static const TTest name##_entry = {#name, name##_fn, __FILE__, __LINE__}; \
    UNIT_BEFORE(name, unit_test_add(&name##_entry, count, signal))            \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)
#define TEST_LOOP(name, count) TEST_SIGNAL(name, count, 0)
#define TEST_ROWS(name, table) TEST_SIGNAL(name, sizeof table / sizeof table[0], 0)
#define TEST(name) TEST_SIGNAL(name, 1, 0)
#define TEST_FIXTURE(setup, teardown) UNIT_BEFORE(unit_##setup, unit_fixture_set(setup, teardown))
#define TEST_LIMIT(seconds) UNIT_BEFORE(unit_limit, unit_limit_set(seconds))

/* ---- the same by a list at the end of the file ---- */

/* Makes a suite of one case: `tests` [count] run between setup() and teardown(), both NULL for none. */
Suite *unit_suite(const char *name, void (*setup)(void), void (*teardown)(void), const TTest *const *tests,
                  size_t count);

#define UNIT_TESTS_WITH(name, setup, teardown, ...)                                       \
    static Suite *name##_suite(void)                                                      \
    {                                                                                     \
        const TTest *const tests[] = {__VA_ARGS__};                                       \
        return unit_suite(#name, setup, teardown, tests, sizeof tests / sizeof tests[0]); \
    }                                                                                     \
    int main(int argc, char **argv)                                                       \
    {                                                                                     \
        return unit_main_run(argc, argv, #name, name##_suite);                            \
    }
/* The end of a test file: its name and its tests. */
#define UNIT_TESTS(name, ...) UNIT_TESTS_WITH(name, NULL, NULL, __VA_ARGS__)

/* A test that runs once for each _i from `begin` to `end` - 1; once when both are 0. */
struct unit_loop {
    const TTest *test;
    int begin, end;
};

/* Makes a suite of such tests; limit_s is each one's time limit, 0 for the default. */
Suite *unit_suite_of_loops(const char *name, double limit_s, const struct unit_loop *tests, size_t count);

/* The end of a test file with loops: its name, its time limit, and its tests as {test, begin, end} or {test}. */
#define UNIT_LOOPS(name, limit_s, ...)                                                     \
    static Suite *name##_suite(void)                                                       \
    {                                                                                      \
        const struct unit_loop tests[] = {__VA_ARGS__};                                    \
        return unit_suite_of_loops(#name, limit_s, tests, sizeof tests / sizeof tests[0]); \
    }                                                                                      \
    int main(int argc, char **argv)                                                        \
    {                                                                                      \
        return unit_main_run(argc, argv, #name, name##_suite);                             \
    }

/* For suites with several cases, which `Suite *name_suite(void)` makes. */
#define UNIT_MAIN(name)                                        \
    Suite *name##_suite(void);                                 \
    int main(int argc, char **argv)                            \
    {                                                          \
        return unit_main_run(argc, argv, #name, name##_suite); \
    }

#endif
