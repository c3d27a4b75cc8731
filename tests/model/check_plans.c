/* Runs plans that the search makes.
 *
 *   sweep    60 random plans of small models (shape, micro-batch, remainder, recompute mix, loss
 *            chunk, sampling or not): plan_verify accepts each, the device is asked for the planned
 *            bytes in one call, the distance to the lower bound is at most 0.1 % on average and 1 %
 *            at worst, and one step of every program runs with dead bytes poisoned and guard bands
 *            around every tensor
 *   offload  two updates give the same bits wherever the optimizer state lives, in every format and
 *            with Muon, also where it moves in several slices
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_measure.h"
#include "plan/plan_verify.h"
#include "tests/model/model_fixture.h"
#include "tests/unit/unit_main.h"

#define SWEEP_PLANS 60
#define SWEEP_PARTS 4
#define DISTANCE_MEAN_MAX 2e-3
#define DISTANCE_MAX 2e-2 /* copies under way are large beside models of a few kilobytes */

/* Returns a number in [low, high]. */
static int32_t draw(uint64_t plan, uint64_t *index, int32_t low, int32_t high)
{
    double share = rig_uniform(unit_seed() + plan, 77, (*index)++);
    int32_t value = low + (int32_t)(share * (high - low + 1));
    return value > high ? high : value;
}

static struct model_options options_draw(uint64_t plan)
{
    uint64_t at = 0;
    struct model_options options =
        rig_options(draw(plan, &at, 0, 1), draw(plan, &at, 0, 1) ? 0.1f : 0.0f, GELU_ERF);
    struct model_config *config = &options.config;
    config->n_layer = draw(plan, &at, 1, 4);
    config->n_head = config->n_kv_head = draw(plan, &at, 1, 3);
    config->n_embd = config->n_head * 4 * draw(plan, &at, 1, 4);
    config->block_size = draw(plan, &at, 1, 24);
    config->vocab_size = draw(plan, &at, 3, 90);
    config->padded_vocab_size = config->vocab_size + draw(plan, &at, 0, 9);
    int32_t samples = draw(plan, &at, 1, 12), micro_batch = draw(plan, &at, 1, samples);
    measure_micro_batch_set(&options, samples, micro_batch);
    options.choice.loss_chunk_rows = draw(plan, &at, 1, micro_batch * config->block_size + 3);
    for (int level = RECOMPUTE_OFFLOAD, left = config->n_layer; level > RECOMPUTE_NONE; level--) {
        options.choice.recompute.blocks[level] = draw(plan, &at, 0, left);
        left -= options.choice.recompute.blocks[level];
    }
    options.choice.evaluate_batch = draw(plan, &at, 1, micro_batch);
    options.generate = draw(plan, &at, 0, 1);
    options.prefill_time = draw(plan, &at, 1, config->block_size);
    for (int class = 0; class < OFFLOAD_CLASSES; class ++)
        options.choice.offload.quarters[class] = draw(plan, &at, 0, OFFLOAD_ALL);
    return options;
}

/* Runs one step of every program. */
static void everything_run(struct rig *rig)
{
    const struct model *model = rig->model;
    for (int32_t k = 0; k < model->options.micro_steps; k++) {
        const struct program_io *io = rig_step_io(rig, k);
        rig_feed(rig, io, (uint64_t)k);
        rig->scalars[SCALAR_LOSS_SUM].f = 0.0f;
        rig_run(rig, io->program);
        ck_assert(rig->scalars[SCALAR_LOSS_SUM].f >= 0.0f); /* false for a NaN */
    }
    rig_run(rig, model->update.program);
    ck_assert_int_eq(rig->scalars[SCALAR_FOUND_INF].i, 0);
    rig_feed(rig, &model->evaluate, 50);
    rig_run(rig, model->evaluate.program);
    if (!model->options.generate)
        return;
    rig->scalars[SCALAR_POSITION].i = 0;
    rig_feed(rig, &model->prefill, 60);
    rig_run(rig, model->prefill.program);
    rig_feed(rig, &model->decode, 61);
    rig_run(rig, model->decode.program);
    float *logits = rig_download(rig, model->decode.logits);
    for (int64_t i = 0; i < graph_tensor_elements(model->graph, model->decode.logits); i++)
        ck_assert_msg(isfinite(logits[i]), "logit %d is %g", (int)i, (double)logits[i]);
    free(logits);
}

TEST_LOOP(random_plans_hold, SWEEP_PARTS)
{
    static const uint32_t guards[] = {64, 256};
    double sum = 0.0, worst = 0.0;
    int plans = 0;
    for (uint64_t plan = (uint64_t)_i; plan < SWEEP_PLANS; plan += SWEEP_PARTS) {
        struct model_options options = options_draw(plan);
        struct rig rig;
        rig_open(&rig, &options,
                 &(struct rig_how){.threads = 1, .poison = true, .guard_bytes = guards[plan % 2]},
                 unit_seed() + plan);
        ck_assert_msg(plan_verify(rig.plan), "plan %d", (int)plan);
        ck_assert_uint_eq(rig.record.arena_bytes, rig.plan->arena_bytes + rig.plan->host_bytes);
        ck_assert_uint_ge(rig.plan->arena_bytes, rig.plan->arena_bytes_bound);
        double distance = (double)rig.plan->arena_bytes / (double)rig.plan->arena_bytes_bound - 1.0;
        ck_assert_msg(distance <= DISTANCE_MAX, "plan %d is %.3f %% above the bound", (int)plan,
                      100.0 * distance);
        sum += distance;
        worst = distance > worst ? distance : worst;
        everything_run(&rig);
        rig_close(&rig);
        plans++;
    }
    printf("%d plans: %.4f %% above the bound on average, %.4f %% at worst\n", plans,
           100.0 * sum / plans, 100.0 * worst);
    ck_assert_int_eq(plans, SWEEP_PLANS / SWEEP_PARTS);
    ck_assert_msg(sum / plans <= DISTANCE_MEAN_MAX, "%.4f %% on average", 100.0 * sum / plans);
}

/* ---- offload ---- */

/* Few rows of so many channels end where a block of 8-bit moments does. */
#define SLICED_CHANNELS 24
/* Enough rows for three slices of the embedding, the last one short. */
#define SLICED_VOCAB (2 * (4 << 20) / SLICED_CHANNELS + 16)

static const struct {
    enum dtype dtype;
    enum state_format states;
    bool muon, sliced; /* sliced: also with that many rows; one format for each width of states */
} offload_cases[] = {
    {DTYPE_F32, STATE_MASTER, false, true},    {DTYPE_BF16, STATE_MASTER, false, false},
    {DTYPE_BF16, STATE_SR, false, false},      {DTYPE_BF16, STATE_SR_BF16, false, true},
    {DTYPE_BF16, STATE_SR_8BIT, false, false}, {DTYPE_BF16, STATE_SR_8BIT_FULL, false, true},
    {DTYPE_BF16, STATE_MASTER, true, false},   {DTYPE_BF16, STATE_SR_BF16, true, false}};

static const struct offload_mix offload_mixes[] = {
    {{1, 0, 0}}, {{3, 2, 1}}, {{0, 4, 0}}, {{0, 0, 4}}, {{4, 4, 4}}};

/* Runs the refresh, which rounds the masters, and two updates from gradients drawn from the seed.
 */
static void offload_run(struct rig *rig, const struct model_options *options)
{
    rig_open(rig, options, &(struct rig_how){.threads = 1}, 7);
    ck_assert(plan_verify(rig->plan));
    rig->scalars[SCALAR_LEARNING_RATE].f = 1e-2f;
    rig->scalars[SCALAR_MUON_MOMENTUM].f = 0.95f;
    if (rig->model->refresh.program >= 0)
        rig_run(rig, rig->model->refresh.program);
    for (int32_t step = 0; step < 2; step++) {
        rig->scalars[SCALAR_STEP].i = step;
        for (int32_t k = 0; k < rig->model->options.micro_steps; k++) {
            rig_feed(rig, rig_step_io(rig, k), (uint64_t)(step + k));
            rig_run(rig, rig_step_io(rig, k)->program);
        }
        rig_run(rig, rig->model->update.program);
    }
}

/* Returns the bytes of a tensor; the caller calls free(). */
static void *tensor_bytes(struct rig *rig, int32_t tensor)
{
    void *bytes = malloc((size_t)graph_tensor_bytes(rig->model->graph, tensor));
    rig_need(bytes != NULL, "out of memory");
    ck_assert_int_eq(exec_download(rig->exec, tensor, 0, bytes,
                                   graph_tensor_elements(rig->model->graph, tensor)),
                     GT_OK);
    return bytes;
}

static void states_compare(struct rig *rig, struct rig *other, const char *what)
{
    for (int32_t p = 0; p < rig->model->parameters.count; p++) {
        const struct parameter *a = &rig->model->parameters.at[p],
                               *b = &other->model->parameters.at[p];
        const int32_t own[] = {a->tensor, a->master, a->m, a->v, a->scales};
        const int32_t of[] = {b->tensor, b->master, b->m, b->v, b->scales};
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            if (own[i] == TENSOR_NONE)
                continue;
            void *x = tensor_bytes(rig, own[i]), *y = tensor_bytes(other, of[i]);
            ck_assert_msg(memcmp(x, y, (size_t)graph_tensor_bytes(rig->model->graph, own[i])) == 0,
                          "%s: %s differs", what, rig->model->graph->tensors[own[i]].name);
            free(x);
            free(y);
        }
    }
}

TEST_LOOP(offload_keeps_every_bit, sizeof offload_cases / sizeof offload_cases[0])
{
    struct model_options options = rig_options(true, 0.0f, GELU_TANH);
    options.config.n_embd = SLICED_CHANNELS;
    options.generate = false;
    options.dtype = options.muon_dtype = offload_cases[_i].dtype;
    options.states = offload_cases[_i].states;
    options.muon = offload_cases[_i].muon;
    options.choice.loss_chunk_rows = 1;
    const int32_t last = offload_cases[_i].sliced ? SLICED_VOCAB : 16;
    for (int32_t vocab = 16; vocab <= last; vocab += SLICED_VOCAB - 16) {
        struct rig resident;
        options.config.vocab_size = vocab - 5;
        options.config.padded_vocab_size = vocab;
        if (vocab > 16) { /* few rows: each meets the whole vocabulary */
            options.config.block_size = options.prefill_time = 2;
            measure_micro_batch_set(&options, 1, 1);
        }
        options.choice.offload = (struct offload_mix){.quarters = {0}};
        offload_run(&resident, &options);
        ck_assert_uint_eq(resident.plan->host_bytes, 0);
        const size_t step = vocab == 16 ? 1 : 4; /* slices: of one class, and of all */
        for (size_t i = 0; i < sizeof offload_mixes / sizeof offload_mixes[0]; i += step) {
            struct rig moved;
            char what[96], mix[OFFLOAD_TEXT_MAX];
            options.choice.offload = offload_mixes[i];
            offload_run(&moved, &options);
            snprintf(what, sizeof what, "case %d, vocabulary %d, %s", _i, (int)vocab,
                     offload_text(mix, &offload_mixes[i], false));
            ck_assert_msg(moved.plan->host_bytes > 0, "%s moves nothing", what);
            states_compare(&resident, &moved, what);
            rig_close(&moved);
        }
        rig_close(&resident);
    }
}
