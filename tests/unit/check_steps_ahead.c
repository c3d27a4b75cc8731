/* Tests of updates in flight: slots that do not overlap, sums in the order of the micro-steps, time
 * from the first one on. */
#include "train/steps_ahead.h"

#include <check.h>
#include <time.h>

#include "tests/unit/unit_main.h"

enum { MICRO_STEPS = 3 };

/* fp32 would lose the small one, and so would fp64 in the other order. */
TEST(losses_are_added_in_fp64_and_in_order)
{
    struct hostmem *mem;
    struct steps_ahead ahead;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(steps_ahead_create(mem, MICRO_STEPS, &ahead), GT_OK);
    struct step_result *result = steps_ahead_next(&ahead);
    result->loss_sums[0] = 0x1p60f;
    result->loss_sums[1] = -0x1p60f;
    result->loss_sums[2] = 1.0f;
    ck_assert(steps_ahead_loss_sum(&ahead, result) == 1.0);
    hostmem_destroy(mem);
}

TEST(seconds_are_those_of_each_since_the_first)
{
    struct hostmem *mem;
    struct steps_ahead ahead;
    const struct timespec nap = {.tv_nsec = 20000000};
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(steps_ahead_create(mem, 1, &ahead), GT_OK);
    (void)steps_ahead_next(&ahead);
    ahead.count++;
    nanosleep(&nap, NULL);
    const double one = steps_ahead_seconds(&ahead);
    ck_assert(one >= 0.02);
    (void)steps_ahead_next(&ahead);
    ahead.count++;
    ck_assert(steps_ahead_seconds(&ahead) >= one / 2);
    ahead.count = 0;
    (void)steps_ahead_next(&ahead); /* restarts the clock */
    ahead.count++;
    ck_assert(ahead.since_ns > 0 && steps_ahead_seconds(&ahead) < one + 1.0);
    hostmem_destroy(mem);
}
