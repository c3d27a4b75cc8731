/* Tests of the loss scaler (schedule.c) against GradScaler's rule, and of its state through JSON. */
#include <float.h>

#include "session/loss_scaler.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

TEST(only_float16_is_scaled)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        struct loss_scaler scaler;
        loss_scaler_init(&scaler, (enum dtype)dtype);
        ck_assert_int_eq(scaler.dynamic, dtype == DTYPE_F16);
        ck_assert(scaler.scale == (dtype == DTYPE_F16 ? 65536.0 : 1.0));
        loss_scaler_update(&scaler, true);
        ck_assert(scaler.scale == (dtype == DTYPE_F16 ? 32768.0 : 1.0));
    }
}

TEST(two_thousand_good_updates_double_it)
{
    struct loss_scaler scaler;
    loss_scaler_init(&scaler, DTYPE_F16);
    for (int i = 0; i < 1999; i++)
        loss_scaler_update(&scaler, false);
    ck_assert(scaler.scale == 65536.0);
    ck_assert_int_eq(scaler.growth_tracker, 1999);
    loss_scaler_update(&scaler, false);
    ck_assert(scaler.scale == 131072.0);
    ck_assert_int_eq(scaler.growth_tracker, 0);
    for (int i = 0; i < 1999; i++)
        loss_scaler_update(&scaler, false);
    loss_scaler_update(&scaler, true); /* restarts the count */
    ck_assert(scaler.scale == 65536.0);
    for (int i = 0; i < 1999; i++)
        loss_scaler_update(&scaler, false);
    ck_assert(scaler.scale == 65536.0);
}

TEST(stays_in_the_range_of_fp32)
{
    struct loss_scaler scaler;
    loss_scaler_init(&scaler, DTYPE_F16);
    for (int i = 0; i < 1000; i++)
        loss_scaler_update(&scaler, true);
    ck_assert(scaler.scale >= (double)FLT_MIN && scaler.scale < 2.0 * (double)FLT_MIN);
    for (int64_t i = 0; i < (int64_t)300 * LOSS_SCALE_GROWTH_INTERVAL; i++)
        loss_scaler_update(&scaler, false);
    ck_assert(scaler.scale <= (double)FLT_MAX && scaler.scale > 0.25 * (double)FLT_MAX);
}

TEST(survives_a_checkpoint)
{
    struct loss_scaler scaler, again;
    loss_scaler_init(&scaler, DTYPE_F16);
    for (int i = 0; i < 40; i++)
        loss_scaler_update(&scaler, i % 9 == 0);
    json_t *object = loss_scaler_to_json(&scaler);
    loss_scaler_init(&again, DTYPE_F16);
    ck_assert_int_eq(loss_scaler_from_json(&again, object, "record"), GT_OK);
    ck_assert(again.scale == scaler.scale);
    ck_assert_int_eq(scaler.growth_tracker, 3);
    ck_assert_int_eq(again.growth_tracker, 3);
    loss_scaler_init(&again, DTYPE_F32); /* a run that continues in another dtype does not use it */
    ck_assert_int_eq(loss_scaler_from_json(&again, object, "record"), GT_OK);
    ck_assert(again.scale == 1.0);
    json_decref(object);
    loss_scaler_init(&again, DTYPE_F16);
    ck_assert_int_eq(loss_scaler_from_json(&again, NULL, "record"), GT_OK);
    ck_assert(again.scale == 65536.0);
}

TEST(bad_states_are_refused)
{
    static const char *const bad[] = {"{\"growth_tracker\": 0}",
                                      "{\"scale\": \"1\", \"growth_tracker\": 0}",
                                      "{\"scale\": 0.0, \"growth_tracker\": 0}",
                                      "{\"scale\": -2.0, \"growth_tracker\": 0}",
                                      "{\"scale\": 1e300, \"growth_tracker\": 0}",
                                      "{\"scale\": 2.0}",
                                      "{\"scale\": 2.0, \"growth_tracker\": -1}",
                                      "{\"scale\": 2.0, \"growth_tracker\": 2000}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct loss_scaler scaler;
        struct log_capture capture;
        json_t *object = json_loads(bad[i], 0, NULL);
        loss_scaler_init(&scaler, DTYPE_F16);
        log_capture_begin(&capture);
        log_capture_refused(&capture, loss_scaler_from_json(&scaler, object, "record"), GT_DATA, "record");
        log_capture_end();
        ck_assert(scaler.scale == 65536.0);
        json_decref(object);
    }
}
