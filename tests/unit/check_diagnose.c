/* Tests of diagnose.c: plants each kind of cause in a small model, and expects it to be named. */
#include "session/bad_value.h"
#include <math.h>
#include <string.h>

#include "config/config_key.h"
#include "session/restore_weights.h"
#include "session/session_open.h"
#include "session/session_plan.h"
#include "session/session_start.h"
#include "train/diagnose.h"
#include "tests/unit/data_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

#define TOKENS 100
#define TIME 8
#define MICRO_STEPS 2

struct rig {
    struct data_fixture data;
    struct config config;
    struct session session;
    struct mixture mixture;
    struct feed feed;
    struct steps_ahead ahead;
    struct progress progress;
    struct diagnosis diagnosis;
};

static void session_make(struct rig *rig)
{
    struct model_config model;
    struct model_options options;
    struct session_choices choices = {.plan.micro_batch = 2};
    config_defaults(&rig->config, CONFIG_TRAIN);
    rig->config.n_layer = rig->config.n_head = 2;
    rig->config.n_embd = 8;
    rig->config.block_size = TIME;
    rig->config.vocab_size = TOKENS;
    rig->config.batch_size = 2;
    rig->config.gradient_accumulation_steps = MICRO_STEPS;
    rig->config.eval_batch_size = 4;
    rig->config.threads = 1;
    session_model_resolve(&rig->config, 0, &model);
    ck_assert_int_eq(session_open(rig->data.mem, &rig->config, &rig->session), GT_OK);
    session_train_options(&rig->session, &choices, &model, &options);
    ck_assert_int_eq(session_plan(&rig->session, &options), GT_OK);
    ck_assert_int_eq(rig->session.model->options.micro_steps, MICRO_STEPS);
    ck_assert_int_eq(session_start(&rig->session), GT_OK);
    ck_assert_int_eq(session_weights_init(&rig->session, 1), GT_OK);
}

/* Opens an update of iteration 7 whose loss was not finite and which was skipped. */
static void rig_open(struct rig *rig)
{
    uint16_t ids[TOKENS];
    memset(rig, 0, sizeof *rig);
    fixture_open(&rig->data);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint16_t)i;
    fixture_write(&rig->data, "train.bin", ids, sizeof ids);
    fixture_write(&rig->data, "val.bin", ids, sizeof ids);
    session_make(rig);
    ck_assert_int_eq(mixture_parse(rig->data.folder, &rig->mixture), GT_OK);
    ck_assert_int_eq(feed_open(rig->data.mem, &rig->config, &rig->mixture, TOKENS, 4, &rig->feed), GT_OK);
    ck_assert_int_eq(steps_ahead_create(rig->data.mem, MICRO_STEPS, &rig->ahead), GT_OK);
    rig->diagnosis = (struct diagnosis){
        .session = &rig->session, .feed = &rig->feed, .ahead = &rig->ahead, .progress = &rig->progress};
    struct step_result *result = &rig->ahead.step[0];
    result->iter = 7;
    result->loss_scale = 1.0;
    result->loss_sums[0] = NAN;
    result->scalars[SCALAR_LOSS_GRADIENT].f = 1.0f / (float)(4 * TIME);
    result->scalars[SCALAR_FOUND_INF].i = 1;
    hostmem_phase_set(rig->data.mem, HOSTMEM_RUN); /* from here on an allocation fails an assert */
}

static void rig_close(struct rig *rig)
{
    hostmem_phase_set(rig->data.mem, HOSTMEM_CLOSE);
    session_close(&rig->session);
    fixture_drop(&rig->data);
}

/* Sets all elements of a parameter to the value. */
static void parameter_fill(struct rig *rig, const char *name, float value)
{
    const struct model *model = rig->session.model;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        if (strcmp(model->parameters.at[i].name, name) != 0)
            continue;
        const int32_t tensor = model->parameters.at[i].tensor;
        for (int64_t e = 0; e < graph_tensor_elements(model->graph, tensor); e++)
            ck_assert_int_eq(exec_upload(rig->session.exec, tensor, e, &value, 1), GT_OK);
        return;
    }
    ck_abort_msg("no parameter %s", name);
}

/* Captures the lines that the diagnosis of the update logs. */
static void said(struct rig *rig, int32_t count, struct log_capture *capture)
{
    union scalar_word before[SCALAR_WORDS];
    memcpy(before, rig->session.scalars, sizeof before);
    log_capture_begin(capture);
    ck_assert_int_eq(diagnose_step(&rig->diagnosis, 0, count, (double)rig->ahead.step[0].loss_sums[0]), GT_OK);
    log_capture_end();
    ck_assert_int_eq(memcmp(before, rig->session.scalars, sizeof before), 0);
}

static void names(struct rig *rig, const char *text)
{
    struct log_capture capture;
    said(rig, 1, &capture);
    ck_assert_int_eq(capture.lines, 1);
    ck_assert_msg(strstr(capture.text, text) != NULL, "'%s' is not '%s'", capture.text, text);
}

TEST(an_overflow_is_named_by_its_op)
{
    struct rig rig;
    rig_open(&rig);
    parameter_fill(&rig, "h.1.mlp.c_fc.weight", 3e38f);
    names(&rig, "iter 7: the first value that is not finite: h.1.mlp.c_fc.d[");
    rig.diagnosis.was_bad = false;
    names(&rig, ", made by gemm of layer 1, micro-step 1 of 2, from inputs up to 3e+38");
    rig_close(&rig);
}

TEST(a_bad_weight_is_named_itself)
{
    struct rig rig;
    rig_open(&rig);
    parameter_fill(&rig, "h.1.ln_2.weight", INFINITY);
    names(&rig,
          "a weight is not finite: h.1.ln_2.weight[0] = inf, read by layernorm_forward of layer 1, micro-step 1 of "
          "2; an earlier update made it so");
    rig.diagnosis.was_bad = false;
    rig.diagnosis.first_iter = 7;
    names(&rig, "; the run began with it");
    rig_close(&rig);
}

static enum gt_status evaluate_again(void *context)
{
    struct rig *rig = context;
    const struct evaluation evaluation = {.session = &rig->session, .feed = &rig->feed, .samples = 1};
    double sum = 0.0;
    ck_assert_int_eq(feed_evaluate(&evaluation, TOKEN_VAL, 0, 1), GT_OK);
    return evaluation_batch_add(&rig->session, &sum);
}

TEST(the_cause_of_a_bad_loss_is_named)
{
    struct log_capture capture;
    struct rig rig;
    rig_open(&rig);
    log_capture_begin(&capture);
    log_capture_refused(&capture, bad_value_explain(&rig.session, "the loss", evaluate_again, &rig), GT_DIVERGED,
                        "the loss is not finite, but computed again every value is");
    parameter_fill(&rig, "h.1.mlp.c_fc.weight", 3e38f);
    log_capture_refused(&capture, bad_value_explain(&rig.session, "the loss", evaluate_again, &rig), GT_DIVERGED,
                        "the loss is not finite; the first value that is not finite: h.1.mlp.c_fc.d[");
    ck_assert_ptr_null(strstr(capture.text, "float16"));
    parameter_fill(&rig, "h.1.ln_2.weight", -NAN);
    log_capture_refused(
        &capture, bad_value_explain(&rig.session, "the loss", evaluate_again, &rig), GT_DIVERGED,
        "a weight is not finite: h.1.ln_2.weight[0] = nan, read by layernorm_forward of layer 1; the model "
        "was loaded with it");
    log_capture_end();
    rig_close(&rig);
}

TEST(a_gradient_beyond_its_norm_is_said)
{
    struct rig rig;
    rig_open(&rig);
    rig.ahead.step[0].scalars[SCALAR_LOSS_GRADIENT].f = 1e22f;
    names(&rig, "the gradient is too large for its norm: ");
    rig_close(&rig);
}

TEST(nothing_found_is_the_machine_or_later_weights)
{
    struct rig rig;
    struct log_capture capture;
    rig_open(&rig);
    names(&rig, "computed again from the same weights and samples, every value is finite");
    rig.diagnosis.was_bad = false;
    said(&rig, 3, &capture); /* the next two updates were not skipped */
    ck_assert_ptr_nonnull(strstr(capture.text, "with the weights of 2 updates later, every value is finite"));
    rig_close(&rig);
}

TEST(a_burst_is_looked_at_once_and_a_run_three_times)
{
    struct rig rig;
    struct log_capture capture;
    rig_open(&rig);
    for (int32_t burst = 0; burst < 4; burst++) {
        rig.ahead.step[0].loss_sums[0] = NAN;
        said(&rig, 1, &capture);
        ck_assert_int_eq(capture.lines, burst < 3);
        said(&rig, 1, &capture);
        ck_assert_int_eq(capture.lines, 0);
        rig.ahead.step[0].loss_sums[0] = 1.0f;
        rig.ahead.step[0].loss_scale = 4.0; /* the search for float16's scale */
        said(&rig, 1, &capture);
        ck_assert_int_eq(capture.lines, 0);
        rig.ahead.step[0].loss_scale = 1.0;
    }
    rig_close(&rig);
}
