/* Sampling with a key-value cache against whole forward passes, and the draw itself.
 *
 * The reference is the evaluation program, which has no cache: with one sample per word of the
 * vocabulary as the last target, its losses are all the logits of a position up to a constant.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_create.h"
#include "sample/generate.h"
#include "tests/model/model_fixture.h"
#include "tests/unit/unit_main.h"

#define LOSS_BOUND 1e-5
#define TIME 8
#define VOCAB 11

static struct model_options generate_options_make(int variant)
{
    struct model_options options =
        rig_options(variant % 2 == 0, 0.0f, variant % 2 == 0 ? GELU_ERF : GELU_TANH);
    options.train = false;
    options.choice.evaluate_batch = VOCAB;
    options.prefill_time = 1 + variant; /* 1 .. 4: divides the context or not */
    return options;
}

/* Computes losses[j] of word j after tokens[count], count <= TIME, by a whole forward pass. */
static void forward_losses(struct rig *rig, const int32_t *tokens, int64_t count,
                           float losses[VOCAB])
{
    const struct program_io *io = &rig->model->evaluate;
    int32_t ids[VOCAB * TIME] = {0}, targets[VOCAB * TIME];
    float all[VOCAB * TIME];
    for (int32_t word = 0; word < VOCAB; word++) {
        for (int64_t t = 0; t < TIME; t++)
            targets[word * TIME + t] = -1;
        memcpy(ids + word * TIME, tokens, (size_t)count * sizeof *ids);
        targets[word * TIME + count - 1] = word;
    }
    rig_need(exec_upload(rig->exec, io->ids, 0, ids, VOCAB * TIME) == GT_OK, "ids");
    rig_need(exec_upload(rig->exec, io->targets, 0, targets, VOCAB * TIME) == GT_OK, "targets");
    int32_t position = rig->scalars[SCALAR_POSITION].i;
    rig->scalars[SCALAR_POSITION].i = 0;
    rig_run(rig, io->program);
    rig->scalars[SCALAR_POSITION].i = position;
    rig_need(exec_download(rig->exec, io->losses, 0, all, VOCAB * TIME) == GT_OK, "losses");
    for (int32_t word = 0; word < VOCAB; word++)
        losses[word] = all[word * TIME + count - 1];
}

static double log_sum_exp(const float *logits)
{
    double largest = -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < VOCAB; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (int32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

static void tokens_draw(uint64_t stream, int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(rig_uniform(unit_seed(), stream, (uint64_t)i) * VOCAB);
}

TEST_LOOP(decoding_equals_a_whole_forward_pass, 4)
{
    struct rig rig;
    struct model_options options = generate_options_make(_i);
    int32_t tokens[TIME];
    float cached[TIME][VOCAB];
    rig_open(&rig, &options, &(struct rig_how){.threads = 2, .poison = true, .guard_bytes = 256},
             unit_seed());
    tokens_draw(77, tokens, TIME);
    /* Evaluation may overwrite the cache, so that all decoding comes first. */
    for (int32_t t = 0; t < TIME; t++) {
        rig.scalars[SCALAR_POSITION].i = t;
        rig_need(exec_upload(rig.exec, rig.model->decode.ids, 0, &tokens[t], 1) == GT_OK, "id");
        rig_run(&rig, rig.model->decode.program);
        rig_need(exec_download(rig.exec, rig.model->decode.logits, 0, cached[t], VOCAB) == GT_OK,
                 "logits");
    }
    for (int32_t t = 0; t < TIME; t++) {
        float losses[VOCAB];
        double sum = log_sum_exp(cached[t]);
        forward_losses(&rig, tokens, t + 1, losses);
        for (int32_t word = 0; word < VOCAB; word++) {
            double loss = sum - (double)cached[t][word];
            ck_assert_msg(fabs(loss - (double)losses[word]) <= LOSS_BOUND,
                          "position %d, word %d: cached %.9g, whole %.9g", (int)t, (int)word, loss,
                          (double)losses[word]);
        }
    }
    rig_close(&rig);
}

/* Generates three contexts from prompts of several lengths: each greedy token is the likeliest
 * after its window. */
TEST_LOOP(generation_sees_its_window, 4)
{
    static const int64_t prompts[] = {1, 2, 5, TIME, TIME + 3, 2 * TIME};
    for (size_t p = 0; p < sizeof prompts / sizeof prompts[0]; p++) {
        struct rig rig;
        struct model_options options = generate_options_make(_i);
        int32_t tokens[3 * TIME];
        struct generator *generator;
        struct generate_options greedy = {.seed = unit_seed(), .temperature = 1.0, .top_k = 1};
        rig_open(&rig, &options, &(struct rig_how){.threads = 2}, unit_seed() + p);
        struct session session = {.mem = rig.mem, .model = rig.model, .exec = rig.exec};
        tokens_draw(p, tokens, prompts[p]);
        ck_assert_int_eq(generator_create(rig.mem, &session, &greedy, 3 * TIME + 1, &generator),
                         GT_OK);
        generator_begin(generator, 0, tokens, prompts[p]);
        for (int64_t i = prompts[p]; i < 3 * TIME; i++)
            ck_assert_int_eq(generator_next(generator, &tokens[i]), GT_OK);
        for (int64_t i = prompts[p]; i < 3 * TIME; i++) {
            int64_t seen = i < TIME ? i : TIME;
            float losses[VOCAB], least = INFINITY;
            forward_losses(&rig, tokens + i - seen, seen, losses);
            for (int32_t word = 0; word < VOCAB; word++)
                least = losses[word] < least ? losses[word] : least;
            ck_assert_int_ge(tokens[i], 0);
            ck_assert_int_lt(tokens[i], VOCAB);
            ck_assert_msg((double)(losses[tokens[i]] - least) <= LOSS_BOUND,
                          "prompt %d, token %d: loss %.9g, least %.9g", (int)prompts[p], (int)i,
                          (double)losses[tokens[i]], (double)least);
        }
        hostmem_free(generator);
        rig_close(&rig);
    }
}

#define RING_BLOCK 128
#define RING_TOKENS (RING_BLOCK + 2)

static struct model_options long_options_make(int32_t prefill_time)
{
    struct model_options options = generate_options_make(1);
    options.evaluate = false;
    options.prefill_time = prefill_time;
    options.config.block_size = RING_BLOCK;
    return options;
}

/* Draws tokens as a conversation does, after a prompt of `prompt` tokens and a message of 9 more
 * later on. */
static void long_draw(const struct model_options *options, int64_t prompt, int32_t *tokens)
{
    struct rig rig;
    struct generator *generator;
    const struct generate_options hot = {.seed = unit_seed(), .temperature = 1.0};
    rig_open(&rig, options, &(struct rig_how){.threads = 1, .poison = true, .guard_bytes = 256},
             unit_seed());
    struct session session = {.mem = rig.mem, .model = rig.model, .exec = rig.exec};
    ck_assert_int_eq(generator_create(rig.mem, &session, &hot, RING_TOKENS + 1, &generator), GT_OK);
    tokens_draw((uint64_t)prompt, tokens, RING_TOKENS);
    generator_begin(generator, 0, tokens, prompt);
    for (int64_t i = prompt; i < RING_TOKENS; i++) {
        if (i == 103) {
            generator_extend(generator, tokens + i, 9);
            i += 9;
        }
        ck_assert_int_eq(generator_next(generator, &tokens[i]), GT_OK);
    }
    hostmem_free(generator);
    rig_close(&rig);
}

/* Every other layer has a window of 20 tokens, whose cache must have `rows` rows. */
static void ring_draw(int32_t prefill_time, int64_t rows, int64_t prompt, int32_t *tokens)
{
    struct model_options options = long_options_make(prefill_time);
    options.config.sliding_window = 20;
    options.config.sliding_window_pattern = 2;
    ck_assert_int_eq(model_cache_rows(&options.config, prefill_time, 0), rows);
    ck_assert_int_eq(model_cache_rows(&options.config, prefill_time, 1), RING_BLOCK);
    long_draw(&options, prompt, tokens);
}

/* A window's cache is a ring: it gives the tokens that a cache of the whole context gives. */
TEST(rings_give_the_same_tokens)
{
    static const int64_t prompts[] = {1, 64, 100};
    for (size_t p = 0; p < sizeof prompts / sizeof prompts[0]; p++) {
        int32_t whole[RING_TOKENS], ring[RING_TOKENS];
        ring_draw(RING_BLOCK, RING_BLOCK, prompts[p], whole);
        for (int32_t prefill_time = 7; prefill_time <= 45; prefill_time += 38) {
            ring_draw(prefill_time, 64, prompts[p], ring);
            for (int64_t i = 0; i < RING_TOKENS; i++)
                ck_assert_msg(ring[i] == whole[i], "prompt %d, prefills of %d: token %d",
                              (int)prompts[p], (int)prefill_time, (int)i);
        }
    }
}

/* A gated delta net reads each token once: pieces of a prompt and tokens alone give the same. */
static void delta_draw(int32_t prefill_time, int64_t prompt, int32_t *tokens)
{
    struct model_options options = long_options_make(prefill_time);
    options.config.full_attention_interval = 2;
    options.config.linear_num_key_heads = 1;
    options.config.linear_num_value_heads = 2;
    options.config.linear_value_head_dim = 6;
    options.config.linear_conv_kernel_dim = 4;
    long_draw(&options, prompt, tokens);
}

TEST(pieces_of_a_prompt_give_the_same_tokens)
{
    static const int64_t prompts[] = {1, 64, 100};
    for (size_t p = 0; p < sizeof prompts / sizeof prompts[0]; p++) {
        int32_t alone[RING_TOKENS], pieces[RING_TOKENS];
        delta_draw(RING_BLOCK, prompts[p], alone);
        for (int32_t prefill_time = 3; prefill_time <= 65; prefill_time += 62) {
            delta_draw(prefill_time, prompts[p], pieces);
            for (int64_t i = 0; i < RING_TOKENS; i++)
                ck_assert_msg(pieces[i] == alone[i], "prompt %d, pieces of %d: token %d",
                              (int)prompts[p], (int)prefill_time, (int)i);
        }
    }
}

/* The definition, by sorting: the logits that may be drawn, and their probabilities. */
struct chance {
    int32_t id;
    float logit;
    double probability;
};

static int by_logit(const void *left, const void *right)
{
    const struct chance *a = left, *b = right;
    return (a->logit < b->logit) - (a->logit > b->logit);
}

static void chances(const struct generate_options *how, const float *logits, int32_t count,
                    struct chance *out)
{
    double all = 0.0, kept = 0.0, before = 0.0;
    for (int32_t i = 0; i < count; i++)
        out[i] = (struct chance){i, logits[i], exp((double)logits[i] / how->temperature)};
    qsort(out, (size_t)count, sizeof *out, by_logit);
    for (int32_t i = 0; i < count; i++) {
        if (how->top_k > 0 && how->top_k < count && out[i].logit < out[how->top_k - 1].logit)
            out[i].probability = 0.0;
        all += out[i].probability;
    }
    for (int32_t i = 0; i < count; i++) {
        bool tied = i > 0 && out[i].logit == out[i - 1].logit && out[i - 1].probability > 0.0;
        double own = out[i].probability;
        if (how->min_p > 0.0 && exp((double)(out[i].logit - out[0].logit) / how->temperature) <
                                    how->min_p * (1.0 - 1e-9))
            out[i].probability = 0.0;
        if (how->top_p > 0.0 && before >= how->top_p * all && !tied)
            out[i].probability = 0.0;
        before += own;
        kept += out[i].probability;
    }
    for (int32_t i = 0; i < count; i++)
        out[i].probability /= kept;
}

/* Compares temperature, top-k, top-p and min-p together with the definition: the share of each
 * logit among evenly spaced draws. */
TEST(limited_draws_follow_the_distribution)
{
    static const double top_ps[] = {0.0, 1e-9, 0.1, 0.35, 0.5, 0.9, 0.999, 1.0};
    enum { COUNT = 40, DRAWS = 20000 };
    float logits[COUNT], scratch[COUNT];
    for (size_t p = 0; p < sizeof top_ps / sizeof top_ps[0]; p++) {
        for (int64_t k = 0; k < COUNT + 2; k += 7) {
            struct generate_options how = {.temperature = 0.3 + (double)p / 4,
                                           .top_k = k,
                                           .top_p = top_ps[p] < 1.0 ? top_ps[p] : 0.0};
            how.min_p = k % 2 != 0 ? 0.0 : 0.02 * (double)p;
            struct chance wanted[COUNT];
            int drawn[COUNT] = {0};
            for (int32_t i = 0; i < COUNT; i++)
                logits[i] =
                    (float)floor(8.0 * rig_uniform(unit_seed(), p, (uint64_t)(k * COUNT + i))) /
                    2.0f;
            chances(&how, logits, COUNT, wanted);
            how.top_p = top_ps[p];
            for (int i = 0; i < DRAWS; i++)
                drawn[generate_draw(&how, logits, COUNT, ((double)i + 0.5) / DRAWS, scratch)]++;
            for (int32_t i = 0; i < COUNT; i++)
                ck_assert_msg(fabs(drawn[wanted[i].id] - DRAWS * wanted[i].probability) <= 1.0,
                              "top_k %d, top_p %g: %d drawn %d times, not %g", (int)k, top_ps[p],
                              (int)wanted[i].id, drawn[wanted[i].id],
                              DRAWS * wanted[i].probability);
        }
    }
}

TEST(a_generator_that_gets_no_memory)
{
    struct rig rig;
    struct model_options options = generate_options_make(0);
    struct generate_options how = {.seed = 1, .temperature = 1.0};
    size_t failures = 0;
    rig_open(&rig, &options, &(struct rig_how){.threads = 1}, unit_seed());
    struct session session = {.mem = rig.mem, .model = rig.model, .exec = rig.exec};
    for (size_t n = 1; n < 20; n++) {
        struct generator *generator = NULL;
        struct hostmem_counters before, after;
        hostmem_counters_get(rig.mem, &before);
        hostmem_fail_at(rig.mem, n);
        enum gt_status status = generator_create(rig.mem, &session, &how, 5, &generator);
        hostmem_fail_at(rig.mem, 0);
        if (status == GT_OK) {
            hostmem_free(generator);
            break;
        }
        failures++;
        ck_assert_int_eq(status, GT_NO_MEMORY);
        ck_assert_ptr_null(generator);
        hostmem_counters_get(rig.mem, &after);
        ck_assert_uint_eq(before.live_bytes, after.live_bytes);
    }
    ck_assert_uint_ge(failures, 4);
    rig_close(&rig);
}
