/* Tests of schedule_learning_rate() against the formula of nanoGPT's get_lr, at its boundaries, of
 * the other schedules, and of the lines about what a schedule does not reach. */
#include <math.h>

#include "config/config_key.h"
#include "session/run.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"
#include "train/schedule.h"

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
        ck_assert(schedule_learning_rate(&config, iter) == 1e-3);
}

TEST(warms_up_then_decays)
{
    struct config config = config_make(true, 9, 109);
    near(schedule_learning_rate(&config, 0), 1e-3 * 1 / 10);
    near(schedule_learning_rate(&config, 8), 1e-3 * 9 / 10);
    near(schedule_learning_rate(&config, 9), 1e-3);
    near(schedule_learning_rate(&config, 59), 1e-4 + 0.5 * (1e-3 - 1e-4));
    near(schedule_learning_rate(&config, 109), 1e-4);
    near(schedule_learning_rate(&config, 110), 1e-4);
    near(schedule_learning_rate(&config, 1000000000000), 1e-4);
    for (int64_t iter = 10; iter <= 109; iter++)
        ck_assert(schedule_learning_rate(&config, iter) <
                  schedule_learning_rate(&config, iter - 1));
}

TEST(a_warmup_or_decay_may_be_empty)
{
    struct config none = config_make(true, 0, 10), equal = config_make(true, 10, 10),
                  crossed = config_make(true, 10, 5);
    near(schedule_learning_rate(&none, 0), 1e-3);
    near(schedule_learning_rate(&equal, 10), 1e-4);
    near(schedule_learning_rate(&crossed, 7), 1e-3 * 8 / 11);
    near(schedule_learning_rate(&crossed, 10), 1e-4);
}

TEST(warms_up_and_stays)
{
    struct config config = config_make(true, 9, 20);
    config.lr_schedule = CONFIG_LR_CONSTANT_WITH_WARMUP;
    near(schedule_learning_rate(&config, 8), 1e-3 * 9 / 10);
    near(schedule_learning_rate(&config, 9), 1e-3);
    near(schedule_learning_rate(&config, 1000), 1e-3);
}

TEST(decays_along_a_line)
{
    struct config config = config_make(true, 9, 109);
    config.lr_schedule = CONFIG_LR_LINEAR;
    near(schedule_learning_rate(&config, 8), 1e-3 * 9 / 10);
    for (int64_t iter = 9; iter <= 109; iter++)
        near(schedule_learning_rate(&config, iter),
             1e-4 + (1.0 - (double)(iter - 9) / 100) * (1e-3 - 1e-4));
    near(schedule_learning_rate(&config, 200), 1e-4);
}

TEST(stays_then_cools_down)
{
    struct config config = config_make(true, 9, 100);
    config.lr_schedule = CONFIG_LR_WSD;
    config.cooldown_iters = 40;
    near(schedule_learning_rate(&config, 8), 1e-3 * 9 / 10);
    near(schedule_learning_rate(&config, 9), 1e-3);
    near(schedule_learning_rate(&config, 60), 1e-3);
    near(schedule_learning_rate(&config, 80), 1e-4 + 0.5 * (1e-3 - 1e-4));
    near(schedule_learning_rate(&config, 100), 1e-4);
    config.cooldown_iters = 95; /* longer than what the warm-up leaves */
    near(schedule_learning_rate(&config, 9), 1e-3);
    near(schedule_learning_rate(&config, 100), 1e-4);
    config.cooldown_iters = 0; /* a fifth */
    near(schedule_learning_rate(&config, 80), 1e-3);
    near(schedule_learning_rate(&config, 90), 1e-4 + 0.5 * (1e-3 - 1e-4));
}

TEST(momentum_warms_up)
{
    struct config config = {.muon_momentum = 0.95, .muon_momentum_warmup = 300};
    near(schedule_muon_momentum(&config, 0), 0.85);
    ck_assert(fabs(schedule_muon_momentum(&config, 150) - 0.9) < 1e-15);
    near(schedule_muon_momentum(&config, 300), 0.95);
    config.muon_momentum_warmup = 0;
    near(schedule_muon_momentum(&config, 0), 0.95);
    config = (struct config){.muon_momentum = 0.5,
                             .muon_momentum_warmup = 10}; /* never above its goal */
    near(schedule_muon_momentum(&config, 0), 0.5);
}

/* ---- schedules that never arrive ---- */

static void said(const struct config *config, int64_t iter, enum log_level level, const char *words)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    schedule_check(config, iter);
    log_capture_end();
    ck_assert_msg(capture.lines == (words != NULL), "%d lines, the last: %.400s", capture.lines,
                  capture.text);
    ck_assert(words == NULL || capture.level == level);
    ck_assert_msg(words == NULL || strstr(capture.text, words) != NULL, "\"%s\" is not in: %.400s",
                  words, capture.text);
}

/* A run of nanoGPT's defaults, of which only these keys are set. */
static struct config defaults_with(int64_t max_iters, int64_t warmup, int64_t decay_iters)
{
    static const struct config_origin typed = {.source = "--key=value"};
    struct config config;
    config_defaults(&config, CONFIG_TRAIN);
    config.max_iters = max_iters;
    config.origin[CONFIG_KEY_max_iters] = typed;
    config.warmup_iters = warmup;
    config.lr_decay_iters = decay_iters;
    if (decay_iters != 600000)
        config.origin[CONFIG_KEY_lr_decay_iters] = typed;
    return config;
}

TEST(ends_inside_the_warm_up)
{
    struct config config = defaults_with(100, 2000, 600000);
    config.learning_rate = 0.01;
    said(
        &config, 0, LOG_WARNING,
        "the run ends inside the warm-up (max_iters=100, warmup_iters=2000): the learning rate reaches 0.0005 of 0.01; "
        "--warmup_iters=5 would let it reach that");
    said(&config, 50, LOG_WARNING, "inside the warm-up"); /* resumed */
    said(&config, 101, LOG_NOTE, NULL);                   /* nothing is left to do */
    config.min_lr = 0.01;
    said(&config, 0, LOG_WARNING, "inside the warm-up");
    config.lr_decay_iters = 50; /* one line, though the decay would be over too */
    said(&config, 0, LOG_WARNING, "inside the warm-up");
    config.eval_only = true;
    said(&config, 0, LOG_NOTE, NULL);
    config = defaults_with(100, 2000, 600000);
    config.lr_schedule = CONFIG_LR_CONSTANT;
    said(&config, 0, LOG_NOTE, NULL);
    config = defaults_with(1999, 2000, 1999);
    said(&config, 0, LOG_WARNING, "reaches 0.0005997 of 0.0006;");
    config = defaults_with(2000, 2000, 2000); /* the last update has min_lr */
    said(&config, 0, LOG_WARNING, "reaches 0.0005997 of 0.0006;");
    config = defaults_with(2000, 2000, 2001); /* arrives with the last update */
    said(&config, 0, LOG_NOTE, NULL);
}

TEST(updates_that_change_nothing)
{
    struct config config = config_make(false, 0, 0);
    config.max_iters = 100;
    said(&config, 0, LOG_NOTE, NULL);
    config.learning_rate = 0.0;
    said(&config, 0, LOG_WARNING, "learning_rate=0.0 (the default): no update changes a weight");
    config.head_learning_rate = 1e-3;
    said(&config, 0, LOG_NOTE, NULL);
    config.adam_epsilon = 1e-8;
    config.grad_clip = 1e-3;
    said(&config, 0, LOG_NOTE, NULL);
    config.grad_clip = 1e-9;
    said(&config, 0, LOG_WARNING, "scales gradients so far down that updates change little");
}

TEST(stays_at_the_lowest_rate)
{
    struct config config = defaults_with(150, 5, 100);
    said(&config, 0, LOG_NOTE, NULL); /* a tail at min_lr may be wanted */
    config.origin[CONFIG_KEY_lr_decay_iters].line =
        3; /* a file's length was raised on the command line */
    said(&config, 0, LOG_NOTE, "from iter 100 on, the learning rate stays at min_lr=6e-05");
    config.origin[CONFIG_KEY_lr_decay_iters].line = 0;
    said(
        &config, 101, LOG_NOTE,
        "iter 101 is beyond lr_decay_iters=100: the learning rate stays at min_lr=6e-05; --lr_decay_iters=150 decays "
        "until the end");
    said(&config, 90, LOG_NOTE, NULL); /* both were typed */
    config.origin[CONFIG_KEY_lr_decay_iters] =
        (struct config_origin){.source = "s", .checkpoint = true};
    said(&config, 90, LOG_NOTE,
         "from iter 100 on, the learning rate stays at min_lr=6e-05; --lr_decay_iters=150");
    config.origin[CONFIG_KEY_max_iters].checkpoint = true; /* the run goes on as it was */
    said(&config, 90, LOG_NOTE, NULL);
    config.min_lr = config.learning_rate;
    said(&config, 101, LOG_NOTE, NULL);
    config = defaults_with(100, 0, 0);
    said(&config, 0, LOG_WARNING, "the rate is min_lr from the start");
}

TEST(ends_before_the_decay)
{
    struct config config = defaults_with(5000, 100, 600000);
    said(
        &config, 0, LOG_NOTE,
        "the run ends before the learning rate has decayed (max_iters=5000, lr_decay_iters=600000): it ends at 0.0005999, "
        "not at min_lr=6e-05; --lr_decay_iters=5000 decays until the end");
    config.lr_schedule = CONFIG_LR_WSD;
    said(&config, 0, LOG_NOTE, "--lr_decay_iters=5000 decays");
    config = defaults_with(5000, 100, 6000); /* a part of a longer run */
    said(&config, 0, LOG_NOTE, NULL);
    config.origin[CONFIG_KEY_lr_decay_iters] =
        (struct config_origin){.source = "x.py", .line = 3, .column = 1};
    said(&config, 0, LOG_NOTE,
         "--lr_decay_iters=5000 decays"); /* the file's length was shortened on the command line */
    config.origin[CONFIG_KEY_max_iters] =
        config.origin[CONFIG_KEY_lr_decay_iters]; /* the file says both */
    said(&config, 0, LOG_NOTE, NULL);
    config = defaults_with(600000, 2000, 600000);
    said(&config, 0, LOG_NOTE, NULL);
}

TEST(unusual_ends_of_the_decay_are_reported)
{
    struct config config = defaults_with(600000, 2000, 600000);
    config.learning_rate = 1e-5;
    config.origin[CONFIG_KEY_learning_rate] =
        (struct config_origin){.source = "x.py", .line = 1, .column = 1};
    said(&config, 0, LOG_WARNING,
         "min_lr=6e-05 (the default) is above learning_rate=1e-05 (x.py:1:1)");
    config.lr_schedule = CONFIG_LR_CONSTANT;
    said(&config, 0, LOG_NOTE, NULL);
    config = defaults_with(600000, 2000, 100);
    said(&config, 0, LOG_WARNING, "after the warm-up the rate drops to min_lr at once");
}

TEST(momentum_that_does_not_arrive)
{
    struct config config = defaults_with(100, 10, 100);
    config.optimizer = CONFIG_OPTIMIZER_MUON;
    config.muon_momentum_warmup = 300;
    said(
        &config, 0, LOG_WARNING,
        "the run ends inside the warm-up of Muon's momentum (max_iters=100, muon_momentum_warmup=300): it reaches "
        "0.8833 of 0.95; --muon_momentum_warmup=5 would let it reach that");
    config.optimizer = CONFIG_OPTIMIZER_ADAMW;
    said(&config, 0, LOG_NOTE, NULL);
}
