/* The main program of every unit test: one suite per program, run by Check (libcheck).
 *
 * A test file ends with UNIT_TESTS(name, tests...).  The program prints its seed, runs
 * the suite, and closes with "checks: P passed, F failed, S skipped".  Exit status: 0 all passed, 1 a failure, 77 all
 * tests were skipped, 2 a bad argument.  Flags: --seed=N.
 */
#ifndef GPT_TRAIN_UNIT_UNIT_MAIN_H
#define GPT_TRAIN_UNIT_UNIT_MAIN_H

#include <check.h>
#include <stdint.h>

/* Runs the suite that `make_suite` builds; returns the exit status of the process.  `name` appears in the output. */
int unit_main_run(int argc, char **argv, const char *name, Suite *(*make_suite)(void));

/* Returns the seed of this run: --seed=N, else the environment's UNIT_SEED, else 1337.  It is printed before the first
 * test. */
uint64_t unit_seed(void);

/* Counts the test as skipped, not as passed; a test that cannot run here calls it and returns.  `name` must be listed
 * in tests/expected-skips, or the skip fails the run in CI; `reason` names the missing requirement. */
void unit_skip(const char *name, const char *reason);

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

/* Makes a suite of such tests, run between setup() and teardown(), both NULL for none; limit_s is each one's time limit,
 * 0 for the default. */
Suite *unit_suite_of_loops(const char *name, double limit_s, void (*setup)(void), void (*teardown)(void),
                           const struct unit_loop *tests, size_t count);

/* The end of a test file with loops: its name, its time limit, and its tests as {test, begin, end} or {test}. */
#define UNIT_LOOPS_WITH(name, limit_s, setup, teardown, ...)                                                \
    static Suite *name##_suite(void)                                                                        \
    {                                                                                                       \
        const struct unit_loop tests[] = {__VA_ARGS__};                                                     \
        return unit_suite_of_loops(#name, limit_s, setup, teardown, tests, sizeof tests / sizeof tests[0]); \
    }                                                                                                       \
    int main(int argc, char **argv)                                                                         \
    {                                                                                                       \
        return unit_main_run(argc, argv, #name, name##_suite);                                              \
    }
#define UNIT_LOOPS(name, limit_s, ...) UNIT_LOOPS_WITH(name, limit_s, NULL, NULL, __VA_ARGS__)

/* For suites with several cases, which `Suite *name_suite(void)` makes. */
#define UNIT_MAIN(name)                                        \
    Suite *name##_suite(void);                                 \
    int main(int argc, char **argv)                            \
    {                                                          \
        return unit_main_run(argc, argv, #name, name##_suite); \
    }

#endif
