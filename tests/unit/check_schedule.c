/* Tests of run_learning_rate() against the formula of nanoGPT's get_lr, at its boundaries. */
#include <math.h>

#include "tests/unit/unit_main.h"
#include "train/run.h"

static struct config config_make(bool decay, int64_t warmup, int64_t decay_iters)
{
    struct config config = {.decay_lr = decay, .warmup_iters = warmup, .lr_decay_iters = decay_iters};
    config.learning_rate = 1e-3;
    config.min_lr = 1e-4;
    return config;
}

static void near(double value, double expected)
{
    ck_assert_msg(fabs(value - expected) <= 1e-18, "%.17g is not %.17g", value, expected);
}

TEST(constant_without_decay)
{
    struct config config = config_make(false, 10, 100);
    for (int64_t iter = 0; iter < 200; iter += 7)
        ck_assert(run_learning_rate(&config, iter) == 1e-3);
}

TEST(warms_up_then_decays)
{
    struct config config = config_make(true, 9, 109);
    near(run_learning_rate(&config, 0), 1e-3 * 1 / 10);
    near(run_learning_rate(&config, 8), 1e-3 * 9 / 10);
    near(run_learning_rate(&config, 9), 1e-3);
    near(run_learning_rate(&config, 59), 1e-4 + 0.5 * (1e-3 - 1e-4));
    near(run_learning_rate(&config, 109), 1e-4);
    near(run_learning_rate(&config, 110), 1e-4);
    near(run_learning_rate(&config, 1000000000000), 1e-4);
    for (int64_t iter = 10; iter <= 109; iter++)
        ck_assert(run_learning_rate(&config, iter) < run_learning_rate(&config, iter - 1));
}

TEST(spans_of_nothing)
{
    struct config none = config_make(true, 0, 10), equal = config_make(true, 10, 10),
                  crossed = config_make(true, 10, 5);
    near(run_learning_rate(&none, 0), 1e-3);
    near(run_learning_rate(&equal, 10), 1e-4);
    near(run_learning_rate(&crossed, 7), 1e-3 * 8 / 11);
    near(run_learning_rate(&crossed, 10), 1e-4);
}
