/* Tests of session.c: dividing an update into micro-steps, early refusals, initial weights; and of
 * restore_weights.c: conversions of optimizer states. */
#include <math.h>
#include <string.h>

#include "config/config_key.h"
#include "model/parameters.h"
#include "session/restore.h"
#include "session/restore_weights.h"
#include "session/session.h"
#include "session/session_open.h"
#include "session/session_plan.h"
#include "session/session_rates.h"
#include "session/session_start.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct config config_make(void)
{
    struct config config;
    config_defaults(&config, CONFIG_TRAIN);
    config.n_layer = 2;
    config.n_head = 2;
    config.n_embd = 16;
    config.block_size = 8;
    config.vocab_size = 50;
    config.batch_size = 6;
    config.gradient_accumulation_steps = 2;
    config.max_iters = 10;
    config.threads = 1;
    return config;
}

static void model_of(const struct config *config, struct model_config *out)
{
    struct config settled = *config;
    session_model_resolve(&settled, 0, out);
}

/* Opens a session and plans it. */
static void session_begin(const struct config *config, struct session *out)
{
    struct hostmem *mem;
    struct model_options options;
    struct model_config model;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(session_open(mem, config, out), GT_OK);
    model_of(config, &model);
    session_train_options(out, &(struct session_saved){0}, &model, &options);
    ck_assert_int_eq(session_plan(out, &options), GT_OK);
}

static void session_end(struct session *session)
{
    struct hostmem *mem = session->mem;
    struct hostmem_counters counters;
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    session_close(session);
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    hostmem_destroy(mem);
}

TEST(what_a_key_says_wins_over_a_choice)
{
    struct config config = config_make();
    struct model_config model;
    struct model_options options;
    struct session_saved saved = {
        .plan = {.micro_batch = 4, .loss_chunk_rows = 5, .evaluate_batch = 3}};
    const struct session session = {.config = &config, .device.info.host_memory = true};
    model_of(&config, &model);
    session_train_options(&session, &saved, &model, &options);
    ck_assert_int_eq(options.choice.micro_batch, 4);
    ck_assert_int_eq(options.choice.loss_chunk_rows, 5);
    ck_assert_int_eq(options.choice.evaluate_batch, 3);
    config.micro_batch = 2;
    config.loss_chunk = 7;
    config.eval_batch_size = 1;
    session_train_options(&session, &saved, &model, &options);
    ck_assert_int_eq(options.choice.micro_batch, 2);
    ck_assert_int_eq(options.choice.loss_chunk_rows, 7);
    ck_assert_int_eq(options.choice.evaluate_batch, 1);
}

static void weights_get(struct session *session, int32_t index, float *out)
{
    int32_t tensor = session->model->parameters.at[index].tensor;
    int64_t count = graph_tensor_elements(session->model->graph, tensor);
    ck_assert_int_eq(exec_download(session->exec, tensor, 0, out, count), GT_OK);
}

/* The table is uploaded in pieces of SESSION_STAGING_FLOATS: one of more positions has every
 * position's angles. */
TEST(angles_of_a_context_in_pieces)
{
    enum { SIZE = 256, POSITIONS = SESSION_STAGING_FLOATS / SIZE + 5 };
    static float got[POSITIONS][SIZE];
    const struct restore_source scratch = {.checkpoint = NULL};
    struct session session;
    struct config config = config_make();
    config.arch = 1 + ARCH_llama;
    config.n_layer = config.n_head = 1;
    config.n_embd = SIZE;
    config.block_size = POSITIONS;
    config.batch_size = config.gradient_accumulation_steps = 1;
    session_begin(&config, &session);
    ck_assert_int_eq(session_start(&session), GT_OK);
    ck_assert_int_eq(restore_weights(&session, &scratch, 1), GT_OK);
    ck_assert_int_eq(exec_download(session.exec, session.model->angles, 0, &got[0][0],
                                   (int64_t)POSITIONS * SIZE),
                     GT_OK);
    for (int i = 0; i < POSITIONS; i++)
        for (int k = 0; k < SIZE / 2; k++) {
            const double angle = i * pow(1e4, -2.0 * k / SIZE);
            ck_assert_msg(fabs((double)got[i][k] - cos(angle)) <= 0x1p-24 &&
                              fabs((double)got[i][SIZE / 2 + k] - sin(angle)) <= 0x1p-24,
                          "position %d, pair %d: %g and %g", i, k, (double)got[i][k],
                          (double)got[i][SIZE / 2 + k]);
        }
    session_end(&session);
}

TEST(initial_weights_follow_from_the_seed)
{
    struct session session;
    struct config config = config_make();
    float first[50 * 16], again[50 * 16], other[50 * 16];
    session_begin(&config, &session);
    ck_assert_int_eq(session_start(&session), GT_OK);
    ck_assert_int_eq(session_weights_init(&session, 1), GT_OK);
    weights_get(&session, 0, first);
    ck_assert_int_eq(session_weights_init(&session, 2), GT_OK);
    weights_get(&session, 0, other);
    ck_assert_int_eq(session_weights_init(&session, 1), GT_OK);
    weights_get(&session, 0, again);
    ck_assert_int_eq(memcmp(first, again, sizeof first), 0);
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < 800; i++) {
        ck_assert(first[i] != other[i]);
        sum += (double)first[i];
        squares += (double)first[i] * (double)first[i];
    }
    /* 800 draws of N(0, 0.02): the mean and the spread are within 5 of their standard errors. */
    ck_assert(fabs(sum / 800) <= 5 * 0.02 / sqrt(800.0));
    ck_assert(fabs(sqrt(squares / 800) - 0.02) <= 5 * 0.02 / sqrt(1600.0));
    for (int32_t i = 0; i < session.model->parameters.count; i++) {
        const struct parameter *parameter = &session.model->parameters.at[i];
        float values[4];
        if (parameter->init == INIT_NORMAL)
            continue;
        ck_assert_int_eq(exec_download(session.exec, parameter->tensor, 0, values, 4), GT_OK);
        for (int k = 0; k < 4; k++)
            ck_assert(values[k] == (parameter->init == INIT_ONE ? 1.0f : 0.0f));
    }
    session_end(&session);
}

static const struct backend_ops *cpu;
static uint64_t free_limit;

static enum gt_status info_limited(struct backend *backend, struct backend_info *out)
{
    enum gt_status status = cpu->info(backend, out);
    out->free_bytes = free_limit;
    return status;
}

/* Starts the session as if another program left only `free_bytes`. */
static int starts(struct session *session, uint64_t free_bytes, struct log_capture *capture)
{
    static struct backend_ops limited;
    cpu = session->device.backend->ops;
    limited = *cpu;
    limited.info = info_limited;
    free_limit = free_bytes;
    session->device.backend->ops = &limited;
    log_capture_begin(capture);
    int status = session_start(session);
    log_capture_end();
    return status;
}

TEST(memory_that_others_took_since_is_planned_for_once)
{
    const uint64_t margin = (uint64_t)256 << 20; /* left to other processes */
    for (int little = 0; little < 2; little++) {
        struct session session;
        struct log_capture capture;
        struct config config = config_make();
        config.batch_size = 4500;
        config.block_size = 64;
        session_begin(&config, &session);
        uint64_t before = session.plan->arena_bytes,
                 left = margin + SESSION_HEADROOM_BYTES + before / 2;
        ck_assert_uint_gt(before, 2 * margin + (margin >> 1));
        int status = starts(&session, little ? SESSION_HEADROOM_BYTES + 65536 : left, &capture);
        ck_assert_int_eq(status, little ? GT_NO_FIT : GT_OK);
        ck_assert_int_eq(session.exec != NULL, !little);
        ck_assert_int_eq(capture.lines,
                         little ? 3
                                : 1); /* planning again, the refusal, and that there is no choice */
        if (!little) {
            ck_assert(strstr(capture.text, "planning again") != NULL);
            ck_assert_uint_le(session.plan->arena_bytes, before / 2);
            ck_assert_int_lt(session.model->options.choice.micro_batch, 4500);
            ck_assert_int_eq(session_weights_init(&session, 1), GT_OK);
        }
        session_end(&session);
    }
}

enum { MOMENTS = 64 * 4 * 64, PORTION = 40 * STATE_BLOCK };

/* Sets out to what the values become in 8 bits and back. */
static void moments_expect(enum state_moment moment, const float *values, float *out)
{
    uint8_t codes[STATE_BLOCK];
    for (int i = 0; i < MOMENTS; i += STATE_BLOCK) {
        const int8_t exponent = state_codes_encode(moment, values + i, STATE_BLOCK, codes);
        state_codes_decode(moment, codes, exponent, STATE_BLOCK, out + i);
    }
}

static void moments_write(struct session *session, int8_t *scales, const void *m, const void *v,
                          enum dtype dtype, int32_t index)
{
    struct restore_arrays parts = {.session = session};
    const size_t size = dtype_size_bytes(dtype);
    if (scales != NULL)
        ck_assert_int_eq(restore_array_write(&parts, CHECKPOINT_SCALES, index, 0,
                                             2 * MOMENTS / STATE_BLOCK, scales, DTYPE_U8),
                         GT_OK);
    for (size_t at = 0; at < MOMENTS; at += PORTION) {
        const size_t count = MOMENTS - at < PORTION ? MOMENTS - at : PORTION;
        ck_assert_int_eq(restore_array_write(&parts, CHECKPOINT_M, index, at, count,
                                             (const char *)m + at * size, dtype),
                         GT_OK);
        ck_assert_int_eq(restore_array_write(&parts, CHECKPOINT_V, index, at, count,
                                             (const char *)v + at * size, dtype),
                         GT_OK);
    }
    hostmem_free(parts.exponents);
}

static void piece_get(struct session *session, enum checkpoint_array part, int32_t index,
                      size_t count, void *out)
{
    ck_assert_int_eq(exec_download(session->exec, restore_array_tensor(session, part, index), 0,
                                   out, (int64_t)count),
                     GT_OK);
}

/* fp32 moments become 8 bits and fp32 again, each with the exponents of its own blocks. */
TEST(converted_moments_keep_their_values)
{
    static float m[MOMENTS], v[MOMENTS], m_expected[MOMENTS], v_expected[MOMENTS];
    static uint8_t m_codes[MOMENTS], v_codes[MOMENTS];
    int8_t scales[2 * MOMENTS / STATE_BLOCK];
    struct session session;
    struct config config = config_make();
    config.n_embd = 64;
    config.dtype = CONFIG_DTYPE_BFLOAT16;
    for (int i = 0; i < MOMENTS; i++) {
        m[i] = sinf((float)i) * ldexpf(1.0f, -(i / STATE_BLOCK) % 9);
        v[i] = (1.0f + cosf((float)i)) * ldexpf(1.0f, -30 + (i / STATE_BLOCK) % 7);
    }
    moments_expect(STATE_MOMENT_M, m, m_expected);
    moments_expect(STATE_MOMENT_V, v, v_expected);
    config.state_format = CONFIG_STATES_SR_8BIT_FULL;
    session_begin(&config, &session);
    ck_assert_int_eq(session_start(&session), GT_OK);
    const struct model_config *model = &session.model->options.config;
    const struct parameter_places places = parameters_places(model);
    const int32_t index = parameters_index(&places, &model->shape, 0, BLOCK_C_FC, false);
    moments_write(&session, NULL, m, v, DTYPE_F32, index);
    piece_get(&session, CHECKPOINT_SCALES, index, sizeof scales, scales);
    piece_get(&session, CHECKPOINT_M, index, MOMENTS, m_codes);
    piece_get(&session, CHECKPOINT_V, index, MOMENTS, v_codes);
    session_end(&session);
    config.state_format = CONFIG_STATES_MASTER;
    session_begin(&config, &session);
    ck_assert_int_eq(session_start(&session), GT_OK);
    moments_write(&session, scales, m_codes, v_codes, DTYPE_U8, index);
    piece_get(&session, CHECKPOINT_M, index, MOMENTS, m);
    piece_get(&session, CHECKPOINT_V, index, MOMENTS, v);
    session_end(&session);
    ck_assert_mem_eq(m, m_expected, sizeof m);
    ck_assert_mem_eq(v, v_expected, sizeof v);
}
