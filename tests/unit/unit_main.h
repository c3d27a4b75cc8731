/* The main program of every unit test: one suite per program, run by Check (libcheck).
 *
 * A test is TEST(name) { ... }, or one of its kin below; writing it registers it.  The program
 * prints its seed, runs the tests in the order of the file, and ends with "checks: P passed, F
 * failed, S skipped".  Exit status: 0 all tests passed, 1 one failed, 77 all were skipped, 2 a bad
 * argument.  Flags: --seed=N.
 */
#ifndef GPT_TRAIN_UNIT_UNIT_MAIN_H
#define GPT_TRAIN_UNIT_UNIT_MAIN_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

/* Check's own records each assertion that holds in a file, which takes longer than what loops
 * compare. */
#undef ck_assert_msg
#define ck_assert_msg(expr, ...) \
    ((expr)                      \
         ? (void)0               \
         : _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", ##__VA_ARGS__))

/* Returns the seed of this run: --seed=N, else the environment's UNIT_SEED, else 1337.  It is
 * printed before the first test. */
uint64_t unit_seed(void);

/* Counts the test as skipped, not as passed; a test that cannot run here calls it and returns.
 * `name` must be listed in tests/expected-skips, or the skip fails the run in CI; `reason` names
 * the missing requirement. */
void unit_skip(const char *name, const char *reason);

/* Adds a test that runs once for each _i from 0 to `count` - 1; a `signal` other than 0 must end
 * it. */
void unit_test_add(const TTest *test, size_t count, int signal);
/* From the next test on: run each one between setup() and teardown(), both NULL for none. */
void unit_fixture_set(void (*setup)(void), void (*teardown)(void));

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
#define TEST(name) TEST_SIGNAL(name, 1, 0)
#define TEST_FIXTURE(setup, teardown) UNIT_BEFORE(unit_##setup, unit_fixture_set(setup, teardown))

#endif
