/* Tests of run_learning_rate() against the formula of nanoGPT's get_lr, at its boundaries, and of the other schedules. */
#include <math.h>

#include "tests/unit/unit_main.h"
#include "train/run.h"

static struct config config_make(bool decay, int64_t warmup, int64_t decay_iters)
{
    struct config config = {.lr_schedule = decay ? CONFIG_LR_COSINE : CONFIG_LR_CONSTANT,
                            .warmup_iters = warmup,
                            .lr_decay_iters = decay_iters};
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

TEST(decays_along_a_line)
{
    struct config config = config_make(true, 9, 109);
    config.lr_schedule = CONFIG_LR_LINEAR;
    near(run_learning_rate(&config, 8), 1e-3 * 9 / 10);
    for (int64_t iter = 9; iter <= 109; iter++)
        near(run_learning_rate(&config, iter), 1e-4 + (1.0 - (double)(iter - 9) / 100) * (1e-3 - 1e-4));
    near(run_learning_rate(&config, 200), 1e-4);
}

TEST(stays_then_cools_down)
{
    struct config config = config_make(true, 9, 100);
    config.lr_schedule = CONFIG_LR_WSD;
    config.cooldown_iters = 40;
    near(run_learning_rate(&config, 8), 1e-3 * 9 / 10);
    near(run_learning_rate(&config, 9), 1e-3);
    near(run_learning_rate(&config, 60), 1e-3);
    near(run_learning_rate(&config, 80), 1e-4 + 0.5 * (1e-3 - 1e-4));
    near(run_learning_rate(&config, 100), 1e-4);
    config.cooldown_iters = 95; /* longer than what the warm-up leaves */
    near(run_learning_rate(&config, 9), 1e-3);
    near(run_learning_rate(&config, 100), 1e-4);
    config.cooldown_iters = 0; /* a fifth */
    near(run_learning_rate(&config, 80), 1e-3);
    near(run_learning_rate(&config, 90), 1e-4 + 0.5 * (1e-3 - 1e-4));
}

TEST(momentum_warms_up)
{
    struct config config = {.muon_momentum = 0.95, .muon_momentum_warmup = 300};
    near(run_muon_momentum(&config, 0), 0.85);
    ck_assert(fabs(run_muon_momentum(&config, 150) - 0.9) < 1e-15);
    near(run_muon_momentum(&config, 300), 0.95);
    config.muon_momentum_warmup = 0;
    near(run_muon_momentum(&config, 0), 0.95);
    config = (struct config){.muon_momentum = 0.5, .muon_momentum_warmup = 10}; /* never above its goal */
    near(run_muon_momentum(&config, 0), 0.5);
}
