/* Tests of feed.c: the contents of the data tensors, and a pass over a whole split. */
#include <math.h>

#include "config/config_key.h"
#include "session/restore.h"
#include "session/restore_weights.h"
#include "session/session_open.h"
#include "session/session_plan.h"
#include "session/session_start.h"
#include "tests/unit/data_fixture.h"
#include "train/feed.h"

#define TOKENS 100
#define TIME 8

struct rig {
    struct data_fixture data;
    struct config config;
    struct session session;
    struct mixture mixture;
    struct feed feed;
};

/* Token i of train is i; that of val is (3 i) mod 100. */
static void rig_open(struct rig *rig)
{
    uint16_t ids[TOKENS];
    struct model_config model;
    struct model_options options;
    struct session_choices choices = {0};
    fixture_open(&rig->data);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint16_t)i;
    fixture_write(&rig->data, "train.bin", ids, sizeof ids);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint16_t)(3 * i % TOKENS);
    fixture_write(&rig->data, "val.bin", ids, sizeof ids);
    config_defaults(&rig->config, CONFIG_TRAIN);
    rig->config.n_layer = rig->config.n_head = 1;
    rig->config.n_embd = 8;
    rig->config.block_size = TIME;
    rig->config.vocab_size = TOKENS;
    rig->config.batch_size = 3;
    rig->config.gradient_accumulation_steps = 1;
    rig->config.eval_iters = 2;
    rig->config.eval_batch_size = 4;
    rig->config.threads = 1;
    session_model_resolve(&rig->config, 0, &model);
    ck_assert_int_eq(session_open(rig->data.mem, &rig->config, &rig->session), GT_OK);
    session_train_options(&rig->session, &choices, &model, &options);
    ck_assert_int_eq(session_plan(&rig->session, &options), GT_OK);
    ck_assert_int_eq(session_start(&rig->session), GT_OK);
    ck_assert_int_eq(session_weights_init(&rig->session, 1), GT_OK);
    ck_assert_int_eq(mixture_parse(rig->data.folder, &rig->mixture), GT_OK);
    ck_assert_int_eq(feed_open(rig->data.mem, &rig->config, &rig->mixture, TOKENS, 4, &rig->feed), GT_OK);
}

static void rig_close(struct rig *rig)
{
    session_close(&rig->session);
    fixture_drop(&rig->data);
}

static void download(struct rig *rig, int32_t tensor, int32_t *out, int64_t count)
{
    ck_assert_int_eq(exec_download(rig->session.exec, tensor, 0, out, count), GT_OK);
}

TEST(a_micro_step_gets_its_samples)
{
    struct rig rig;
    const struct program_io *io;
    int32_t ids[3 * TIME], targets[3 * TIME], order[3 * TIME], starts[3 * TIME + 2];
    rig_open(&rig);
    io = &rig.session.model->train_first;
    for (int64_t iter = 0; iter < 5; iter++) {
        ck_assert_int_eq(feed_train(&rig.feed, &rig.session, io, iter, 0), GT_OK);
        download(&rig, io->ids, ids, 3 * TIME);
        download(&rig, io->targets, targets, 3 * TIME);
        download(&rig, io->order, order, 3 * TIME);
        download(&rig, io->starts, starts, 3 * TIME + 2);
        for (int64_t s = 0; s < 3; s++) {
            int64_t position = sampler_position(rig.feed.parts[0].sampler[TOKEN_TRAIN], iter, s);
            for (int64_t t = 0; t < TIME; t++) {
                ck_assert_int_eq(ids[s * TIME + t], position + t);
                ck_assert_int_eq(targets[s * TIME + t], position + t + 1);
            }
        }
        for (int i = 1; i < 3 * TIME; i++)
            ck_assert_int_le(ids[order[i - 1]], ids[order[i]]);
        ck_assert_int_eq(starts[1 + starts[0]], 3 * TIME);
    }
    rig_close(&rig);
}

TEST(an_evaluation_that_is_not_full_ignores_the_rest)
{
    struct rig rig;
    int32_t targets[4 * TIME];
    rig_open(&rig);
    const struct program_io *io = &rig.session.model->evaluate;
    const struct evaluation evaluation = {.session = &rig.session, .feed = &rig.feed, .samples = 2, .iter = 7};
    ck_assert_int_eq(feed_evaluate(&evaluation, TOKEN_VAL, 0, 2), GT_OK);
    download(&rig, io->targets, targets, 4 * TIME);
    for (int64_t s = 0; s < 2; s++) {
        int64_t position = sampler_position_eval(rig.feed.parts[0].sampler[TOKEN_VAL], TOKEN_VAL, 7, s);
        for (int64_t t = 0; t < TIME; t++)
            ck_assert_int_eq(targets[s * TIME + t], 3 * (position + t + 1) % TOKENS);
    }
    for (int i = 2 * TIME; i < 4 * TIME; i++)
        ck_assert_int_eq(targets[i], BATCH_TARGET_IGNORED);
    rig_close(&rig);
}

/* With weights that make all logits 0, every loss is log V: any target counted twice or not at all changes the mean. */
static void mean_is_log_vocab(struct rig *rig, enum token_split split, int64_t samples, int64_t targets)
{
    struct progress progress = {0};
    struct evaluation evaluation = {
        .session = &rig->session, .feed = &rig->feed, .progress = &progress, .samples = samples};
    struct evaluation_sum sum;
    ck_assert_int_eq(evaluation_split_sum(&evaluation, split, "evaluate", &sum), GT_OK);
    ck_assert_int_eq(sum.targets, targets);
    ck_assert_msg(fabs(sum.loss / (double)sum.targets - log(100.0)) <= 1e-6, "loss %.9g", sum.loss);
}

TEST(a_whole_split_counts_every_target_once)
{
    struct rig rig;
    rig_open(&rig);
    ck_assert_int_eq(exec_zero(rig.session.exec, rig.session.model->parameters.at[0].tensor), GT_OK);
    mean_is_log_vocab(&rig, TOKEN_TRAIN, 0, TOKENS - 1);
    mean_is_log_vocab(&rig, TOKEN_VAL, 0, TOKENS - 1);
    mean_is_log_vocab(&rig, TOKEN_VAL, 9, 9 * TIME); /* in batches of 4 */
    rig_close(&rig);
}

TEST(bad_folders_leave_nothing_open)
{
    struct rig rig;
    struct feed feed;
    struct mixture absent;
    rig_open(&rig);
    ck_assert_int_eq(mixture_parse("./absent-folder", &absent), GT_OK);
    ck_assert_int_eq(feed_open(rig.data.mem, &rig.config, &absent, TOKENS, 4, &feed), GT_DATA);
    ck_assert_ptr_nonnull(strstr(rig.data.line, "absent-folder"));
    ck_assert_int_eq(unlink(fixture_path(&rig.data, "train.bin")), 0);
    ck_assert_int_eq(feed_open(rig.data.mem, &rig.config, &rig.mixture, TOKENS, 4, &feed), GT_DATA);
    ck_assert_ptr_nonnull(strstr(rig.data.line, "train"));
    rig_close(&rig);
}

/* After gpt-prepare --val-fraction=0 the training tokens serve both purposes, and a line reports it. */
TEST(without_val_the_training_tokens_are_evaluated)
{
    struct rig rig;
    struct feed feed;
    char train[DATA_DIGEST_MAX], val[DATA_DIGEST_MAX];
    rig_open(&rig);
    ck_assert_int_eq(unlink(fixture_path(&rig.data, "val.bin")), 0);
    ck_assert_int_eq(feed_open(rig.data.mem, &rig.config, &rig.mixture, TOKENS, 4, &feed), GT_OK);
    ck_assert_ptr_nonnull(strstr(rig.data.line, "has no val.bin: val loss is measured on training tokens"));
    ck_assert_int_eq(feed_digest(&feed, TOKEN_TRAIN, train), GT_OK);
    ck_assert_int_eq(feed_digest(&feed, TOKEN_VAL, val), GT_OK);
    ck_assert_str_eq(train, val);
    rig_close(&rig);
}
