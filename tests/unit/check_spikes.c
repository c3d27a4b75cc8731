/* Tests of diagnose.c: updates that stand out from the ones before, and updates that do not. */
#include "train/diagnose.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/unit/unit_main.h"

/* Counts the alarms for a loss that falls from 11 to 3 with the given noise, and a norm. */
static int64_t alarms(int64_t updates, double noise, struct spikes *spikes)
{
    int64_t count = 0;
    struct spike spike;
    for (int64_t i = 0; i < updates; i++) {
        const struct philox_block counter = {{(uint32_t)i, 0, 0, 0}};
        float normals[4];
        philox_normals(philox_key_make(unit_seed(), RNG_INIT), counter, 4, normals);
        const double loss = 3.0 + 8.0 * exp(-(double)i / 100.0) + noise * (double)normals[0];
        count += spikes_add(spikes, i, loss, exp(0.3 * (double)normals[1]), &spike);
    }
    return count;
}

TEST(a_noisy_course_is_no_spike)
{
    struct spikes spikes = {.count = 0};
    ck_assert_int_eq(alarms(20000, 0.1, &spikes), 0);
}

TEST_LOOP(a_rise_is_a_spike_once, 2)
{
    struct spikes spikes = {.count = 0};
    struct spike spike = {0};
    ck_assert_int_eq(alarms(1000, 0.05, &spikes), 0);
    if (_i == 0) {
        ck_assert(spikes_add(&spikes, 1000, 4.5, 1.0, &spike));
    } else {
        ck_assert(spikes_add(&spikes, 1000, 3.0, 20.0, &spike));
        ck_assert_double_eq(spike.norm, 20.0);
    }
    ck_assert_double_eq_tol(spike.usual_loss, 3.0, 0.05);
    ck_assert_double_eq_tol(spike.usual_norm, 1.05, 0.2);
    ck_assert(!spikes_add(&spikes, 1001, 1e3, 1e3, &spike)); /* so soon after */
}

TEST(nothing_stands_out_before_the_window_is_full)
{
    struct spikes spikes = {.count = 0};
    struct spike spike;
    for (int64_t i = 0; i < SPIKES_WINDOW - 1; i++)
        ck_assert(!spikes_add(&spikes, i, 3.0, 1.0, &spike));
    ck_assert(!spikes_add(&spikes, SPIKES_WINDOW - 1, 100.0, 100.0, &spike));
    for (int64_t i = SPIKES_WINDOW; i < 3 * SPIKES_WINDOW; i++)
        ck_assert(!spikes_add(&spikes, i, 3.0, 1.0, &spike));
    ck_assert(
        !spikes_add(&spikes, 3 * SPIKES_WINDOW, 3.2, 1.9, &spike)); /* the rise is too small */
    ck_assert(spikes_add(&spikes, 3 * SPIKES_WINDOW + 1, 3.4, 1.0, &spike));
}
