/* Central differences, and the loop over the self-tests of all ops.
 *
 * All operands come from one block of memory of SPACE doubles; the program aborts when a test needs more.
 */
#include "tests/ops/selftest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define U64 0x1p-53
#define STEP 0x1p-17
#define SIZE 1024.0
#define AGREEMENT (SIZE * (STEP * STEP + U64 / STEP))
#define ROUNDINGS (128.0 * U64) /* of several operations on values of order 1 */
#define SPACE 65536

double *selftest_take(struct selftest *test, int64_t count)
{
    double *taken = test->memory + test->used;
    test->used += (size_t)count;
    if (test->used > SPACE)
        abort();
    return taken;
}

struct operand selftest_floats(int32_t rank, int64_t a, int64_t b)
{
    struct operand operand = {.present = true, .dtype = DTYPE_F32, .rank = rank, .dims = {a, b}};
    return operand;
}

struct operand selftest_integers(int64_t count)
{
    struct operand operand = {.present = true, .dtype = DTYPE_I32, .rank = 1, .dims = {count}};
    return operand;
}

void selftest_fill(struct selftest *test, struct selftest_call *set)
{
    if (!op_infer(&set->call))
        abort();
    for (int32_t slot = 0; slot < op_declaration(set->call.kind)->operands; slot++) {
        int64_t count = operand_elements(&set->call.operand[slot]);
        if (!set->call.operand[slot].present)
            continue;
        set->tensors.value[slot] = selftest_take(test, count);
        set->tensors.term[slot] = selftest_take(test, count);
        for (int64_t i = 0; i < count; i++)
            set->tensors.value[slot][i] = set->call.operand[slot].dtype == DTYPE_I32
                                              ? (double)random_below(&test->random, 5)
                                              : random_normal(&test->random);
    }
}

/* Returns sum(dy * y) of a forward set. */
static double objective(const struct selftest_call *forward, int32_t y, const double *dy)
{
    double sum = 0.0;
    ref_run(&forward->call, &forward->tensors);
    for (int64_t i = 0; i < operand_elements(&forward->call.operand[y]); i++)
        sum += dy[i] * forward->tensors.value[y][i];
    return sum;
}

/* Returns the largest difference between `gradient` and central differences in operand `x`, relative to the largest
 * gradient. */
static double disagreement(const struct selftest_call *forward, int32_t x, int32_t y, const double *dy,
                           const double *gradient)
{
    double worst = 0.0, largest = 0.0, *value = forward->tensors.value[x];
    for (int64_t i = 0; i < operand_elements(&forward->call.operand[x]); i++) {
        double kept = value[i];
        value[i] = kept + STEP;
        double above = objective(forward, y, dy);
        value[i] = kept - STEP;
        double difference = (above - objective(forward, y, dy)) / (2.0 * STEP);
        value[i] = kept;
        worst = fmax(worst, fabs(difference - gradient[i]));
        largest = fmax(largest, fabs(gradient[i]));
    }
    objective(forward, y, dy); /* restores the outputs */
    return largest > 0.0 ? worst / largest : (double)INFINITY;
}

void selftest_gradient(struct selftest *test, const char *name, const struct selftest_call *forward, int32_t x,
                       int32_t y, const double *dy, double *gradient)
{
    int64_t count = operand_elements(&forward->call.operand[x]), peak = 0;
    double honest = disagreement(forward, x, y, dy, gradient);
    for (int64_t i = 0; i < count; i++)
        peak = fabs(gradient[i]) > fabs(gradient[peak]) ? i : peak;
    gradient[peak] *= 1.002;
    double spoiled = disagreement(forward, x, y, dy, gradient);
    gradient[peak] /= 1.002;
    bool passed = honest <= AGREEMENT && !(spoiled <= AGREEMENT);
    printf("%-28s %6" PRId64 " elements, differs by %.2e, spoiled by %.2e%s\n", name, count, honest, spoiled,
           passed ? "" : "  FAILED");
    test->passed += passed;
    test->failed += !passed;
}

void selftest_value(struct selftest *test, const char *name, double difference)
{
    bool passed = difference <= ROUNDINGS;
    printf("%-28s differs by %.2e%s\n", name, difference, passed ? "" : "  FAILED");
    test->passed += passed;
    test->failed += !passed;
}

int64_t selftest_run(uint64_t seed)
{
    struct selftest test = {.memory = calloc(SPACE, sizeof(double)), .random.seed = seed};
    if (test.memory == NULL)
        abort();
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (op_test((enum op_kind)kind)->selftest != NULL)
            op_test((enum op_kind)kind)->selftest(&test);
    }
    free(test.memory);
    printf("checks: %" PRId64 " passed, %" PRId64 " failed, 0 skipped\n", test.passed, test.failed);
    return test.failed;
}
