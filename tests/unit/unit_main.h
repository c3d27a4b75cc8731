/* The main program of every unit test: one suite per program, run by Check (libcheck).
 *
 * A test file ends with UNIT_MAIN(name), which expects `Suite *name_suite(void)`.  The program prints its seed, runs
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

#define UNIT_MAIN(name)                                        \
    Suite *name##_suite(void);                                 \
    int main(int argc, char **argv)                            \
    {                                                          \
        return unit_main_run(argc, argv, #name, name##_suite); \
    }

#endif
