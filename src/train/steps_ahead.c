/* Updates in flight: slots for their results, their time, and the sum of their losses.
 *
 * The losses of micro-steps are added in their order, in fp64, so that a loss does not depend on
 * when it is read.
 */
#include "train/steps_ahead.h"

#include "base/clock.h"

enum gt_status steps_ahead_create(struct hostmem *mem, int32_t micro_steps, struct steps_ahead *out)
{
    assert(micro_steps > 0);
    *out = (struct steps_ahead){.micro_steps = micro_steps};
    TRY(HOSTMEM_NEW(mem, (size_t)micro_steps * STEPS_AHEAD_MAX, "losses of micro-steps",
                    &out->step[0].loss_sums));
    for (int32_t i = 1; i < STEPS_AHEAD_MAX; i++)
        out->step[i].loss_sums = out->step[0].loss_sums + (int64_t)i * micro_steps;
    return GT_OK;
}

struct step_result *steps_ahead_next(struct steps_ahead *ahead)
{
    assert(ahead->count < STEPS_AHEAD_MAX);
    if (ahead->count == 0)
        ahead->since_ns = clock_monotonic_ns();
    return &ahead->step[ahead->count];
}

double steps_ahead_seconds(const struct steps_ahead *ahead)
{
    assert(ahead->count > 0);
    return (double)(clock_monotonic_ns() - ahead->since_ns) / 1e9 / ahead->count;
}

double steps_ahead_loss_sum(const struct steps_ahead *ahead, const struct step_result *result)
{
    double sum = 0.0;
    for (int32_t k = 0; k < ahead->micro_steps; k++)
        sum += (double)result->loss_sums[k];
    return sum;
}
