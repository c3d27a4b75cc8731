/* Checks the oracle itself: its backward ops against central differences of its forward ops, in double.
 *
 * The objective is sum(dy * y) with random dy, so that no gradient vanishes by symmetry, as the sum of a softmax would.
 * With step h the difference has an error of h^2 times the third derivative, and 2^-53/h times the size of the
 * objective.  h = 2^-17 is near the cube root of 2^-53, where both are small.  The comparison allows SIZE times their
 * sum, relative to the gradient's largest element: third derivatives and objectives of these few random numbers are
 * smaller than that.  Each comparison is repeated with one element of the gradient changed by 0.2 %, and must then
 * fail.
 */
#ifndef GPT_TRAIN_TESTS_OPS_SELFTEST_H
#define GPT_TRAIN_TESTS_OPS_SELFTEST_H

#include "tests/ops/op_test.h"

struct selftest {
    double *memory; /* the operands of all calls */
    size_t used;
    struct random random;
    int64_t passed, failed;
};

struct selftest_call {
    struct op_call call;
    struct ref_tensors tensors;
};

double *selftest_take(struct selftest *test, int64_t count);
struct operand selftest_floats(int32_t rank, int64_t a, int64_t b);
struct operand selftest_integers(int64_t count);
/* Infers the outputs and gives every operand random values. */
void selftest_fill(struct selftest *test, struct selftest_call *set);
/* Compares `gradient` with central differences of sum(dy * y) in operand `x`.  The unchanged gradient must agree, the
 * spoiled one must not. */
void selftest_gradient(struct selftest *test, const char *name, const struct selftest_call *forward, int32_t x,
                       int32_t y, const double *dy, double *gradient);
/* Checks a known answer; `difference` may be some roundings. */
void selftest_value(struct selftest *test, const char *name, double difference);
/* Runs the self-tests of all ops; returns the number of failed comparisons. */
int64_t selftest_run(uint64_t seed);

#endif
