/* Checks the programs of a small GPT as a whole: against the oracle in double, with dead bytes
 * poisoned, over a sweep of shapes.
 *
 *   oracle     train (first, next, remainder), update and evaluate on the device agree with the
 *              oracle run of the same op lists: losses, and every parameter's gradient within 1e-5
 *              of its norm (doc/numerics.md), with dropout on and off
 *   16 bits    losses and gradients are at most 1.5 times as far from the oracle as those of the
 *              oracle that rounds the outputs of each op; weights are their masters, rounded
 *   poison     dead bytes filled with NaN and guard bands around every tensor change no bit of any
 *              program's results; nor does it if each op spoils what it is the last to use
 *   documents  a document in a packed row has the losses and gradients that it has in a row of its
 *              own
 *   plans      plan_verify accepts batches, chunks, remainders, biases and dropout; the device
 *              agrees with each of them
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/parameters.h"
#include "plan/plan_verify.h"
#include "tests/model/model_fixture.h"
#include "tests/ops/op_test.h"
#include "tests/unit/unit_main.h"

#define PARTS 3
#define GRADIENT_BOUND 1e-5

/* In 16 bits the reference is the error of a plain implementation that rounds where this one
 * stores.  Both errors are estimates from n elements, so that their ratio varies by 1/sqrt(n); the
 * test allows two such deviations in addition to the factor. */
#define ROUNDED_FACTOR 1.5
#define DEVIATIONS 2.0
#define LOSS_SCALE 4096.0f

struct variant {
    bool bias;
    float dropout;
    enum gelu_kind gelu;
    enum dtype dtype;
};

static const struct variant variants[] = {
    {true, 0.0f, GELU_ERF, DTYPE_F32},   {false, 0.0f, GELU_TANH, DTYPE_F32},
    {true, 0.2f, GELU_TANH, DTYPE_F32},  {false, 0.3f, GELU_ERF, DTYPE_F32},
    {true, 0.0f, GELU_TANH, DTYPE_BF16}, {false, 0.2f, GELU_ERF, DTYPE_BF16},
    {false, 0.0f, GELU_ERF, DTYPE_F16},  {true, 0.3f, GELU_TANH, DTYPE_F16}};
#define VARIANTS_F32 4
#define VARIANTS ((int)(sizeof variants / sizeof variants[0]))

static void rig_variant(struct rig *rig, int index, const struct rig_how *how)
{
    const struct variant *variant = &variants[index];
    struct model_options options = rig_options(variant->bias, variant->dropout, variant->gelu);
    options.dtype = variant->dtype;
    options.document_mask = !variant->bias;
    rig_open(rig, &options, how, unit_seed() + (uint64_t)index);
    if (variant->dtype == DTYPE_F16) {
        rig->scalars[SCALAR_LOSS_GRADIENT].f *= LOSS_SCALE;
        rig->scalars[SCALAR_UNSCALE].f /= LOSS_SCALE;
    }
}

/* Runs a program on both sides from the device's state.  Compares the loss and, when `gradients` is
 * true, the gradients. */
static double both_run(struct rig *rig, const struct program_io *io, bool gradients)
{
    struct replica replica;
    double worst = 0.0;
    replica_create(rig->model->graph, &replica);
    replica_poison(&replica);
    rig->scalars[SCALAR_LOSS_SUM].f = 0.0f;
    replica_load(&replica, rig, io->program);
    rig_run(rig, io->program);
    replica_run(&replica, io->program, false);
    double loss = (double)rig->scalars[SCALAR_LOSS_SUM].f,
           expected = replica.value[rig->model->scalars][SCALAR_LOSS_SUM];
    ck_assert_msg(fabs(loss - expected) <= 1e-6 * fabs(expected), "loss %.9g, oracle %.9g", loss,
                  expected);
    for (int32_t p = 0; gradients && p < rig->model->parameters.count; p++) {
        const struct parameter *parameter = &rig->model->parameters.at[p];
        int64_t count = graph_tensor_elements(rig->model->graph, parameter->gradient);
        float *ours = rig_download(rig, parameter->gradient);
        double distance = replica_distance(ours, replica.value[parameter->gradient], count);
        ck_assert_msg(distance <= GRADIENT_BOUND, "gradient of %s: %.3g", parameter->name,
                      distance);
        worst = distance > worst ? distance : worst;
        free(ours);
    }
    replica_destroy(&replica);
    return worst;
}

TEST_LOOP(training_meets_the_oracle, VARIANTS_F32)
{
    struct rig rig;
    rig_variant(&rig, _i, &(struct rig_how){.threads = 2});
    double worst = 0.0;
    int32_t sample = 0;
    for (int32_t k = 0; k < rig.model->options.micro_steps; k++) {
        const struct program_io *io = rig_step_io(&rig, k);
        rig.scalars[SCALAR_SAMPLE_BASE].i = sample;
        rig_feed(&rig, io, (uint64_t)k);
        worst = fmax(worst, both_run(&rig, io, true));
        sample += io->batch;
    }
    printf("bias %d, dropout %.1f: worst gradient %.2g\n", variants[_i].bias,
           (double)variants[_i].dropout, worst);
    rig_close(&rig);
}

/* A program on the device, in the oracle and in the oracle that rounds, from the same state. */
struct trio {
    struct rig *rig;
    struct replica exact, rounded;
    double loss; /* the device's */
};

static void trio_run(struct trio *trio, const struct program_io *io)
{
    struct rig *rig = trio->rig;
    rig->scalars[SCALAR_LOSS_SUM].f = 0.0f;
    replica_create(rig->model->graph, &trio->exact);
    replica_create(rig->model->graph, &trio->rounded);
    replica_load(&trio->exact, rig, io->program);
    replica_load(&trio->rounded, rig, io->program);
    rig_run(rig, io->program);
    trio->loss = (double)rig->scalars[SCALAR_LOSS_SUM].f;
    replica_run(&trio->exact, io->program, false);
    replica_run(&trio->rounded, io->program, true);
}

static void trio_end(struct trio *trio)
{
    replica_destroy(&trio->exact);
    replica_destroy(&trio->rounded);
}

/* Returns the distance of a parameter's gradient from the oracle's, as a share of the allowed
 * distance. */
static double gradient_share(struct trio *trio, const struct parameter *parameter)
{
    int64_t count = graph_tensor_elements(trio->rig->model->graph, parameter->gradient);
    const double *exact = trio->exact.value[parameter->gradient],
                 *rounded = trio->rounded.value[parameter->gradient];
    float *ours = rig_download(trio->rig, parameter->gradient);
    double of_ours = 0.0, of_rounded = 0.0;
    for (int64_t i = 0; i < count; i++) {
        of_ours += ((double)ours[i] - exact[i]) * ((double)ours[i] - exact[i]);
        of_rounded += (rounded[i] - exact[i]) * (rounded[i] - exact[i]);
    }
    free(ours);
    return sqrt(of_ours / of_rounded) / (ROUNDED_FACTOR * (1.0 + DEVIATIONS / sqrt((double)count)));
}

TEST_LOOP(training_in_16_bits_is_as_good_as_a_plain_one, VARIANTS - VARIANTS_F32)
{
    const int variant = VARIANTS_F32 + _i;
    struct rig rig;
    rig_variant(&rig, variant, &(struct rig_how){.threads = 2});
    double worst = 0.0;
    int32_t sample = 0;
    for (int32_t k = 0; k < rig.model->options.micro_steps; k++) {
        const struct program_io *io = rig_step_io(&rig, k);
        struct trio trio = {.rig = &rig};
        rig.scalars[SCALAR_SAMPLE_BASE].i = sample;
        rig_feed(&rig, io, (uint64_t)k);
        trio_run(&trio, io);
        double exact = trio.exact.value[rig.model->scalars][SCALAR_LOSS_SUM],
               rounded = trio.rounded.value[rig.model->scalars][SCALAR_LOSS_SUM],
               u = dtype_unit_roundoff(variants[variant].dtype);
        ck_assert_msg(fabs(trio.loss - exact) <= ROUNDED_FACTOR * fabs(rounded - exact) + u * exact,
                      "loss %.9g, oracle %.9g, rounded %.9g", trio.loss, exact, rounded);
        for (int32_t p = 0; p < rig.model->parameters.count; p++) {
            double share = gradient_share(&trio, &rig.model->parameters.at[p]);
            ck_assert_msg(share <= 1.0, "gradient of %s: %.3g of what is allowed",
                          rig.model->parameters.at[p].name, share);
            worst = fmax(worst, share);
        }
        trio_end(&trio);
        sample += io->batch;
    }
    printf("%s, bias %d, dropout %.1f: worst gradient at %.2f of what is allowed\n",
           dtype_name(variants[variant].dtype), variants[variant].bias,
           (double)variants[variant].dropout, worst);
    rig_close(&rig);
}

/* Runs the micro-steps of one of `parts` parts and, if there are several, the sum; `first` is its
 * first micro-step. */
static void part_run(struct rig *rig, int32_t first)
{
    const struct model *model = rig->model;
    const int32_t steps = model->options.micro_steps;
    for (int32_t k = first; k < first + steps; k++) {
        const bool next = model_adds_in_step(&model->options) && first > 0;
        const struct program_io *io = next ? &model->train_next : rig_step_io(rig, k - first);
        rig->scalars[SCALAR_SAMPLE_BASE].i = 7 * (first / steps) + 3 * (k - first);
        rig->scalars[SCALAR_MICRO_STEP].i = k;
        rig_feed(rig, io, (uint64_t)k);
        rig_run(rig, io->program);
    }
    if (model->part_first >= 0)
        rig_run(rig, first == 0 ? model->part_first : model->part_next);
}

/* The gradients of an update are ((p0 + p1) + p2) in fp32, to the bit, where each p is what a run
 * of that part alone has computed: what another rank would.  If a part is one micro-step, its
 * gradient ends with its program. */
TEST_LOOP(parts_are_added_in_order, 6)
{
    const struct rig_how how = {.threads = 2, .poison = true, .guard_bytes = 64};
    struct model_options options = rig_options(true, 0.2f, GELU_ERF);
    options.dtype = _i % 3 == 0 ? DTYPE_F32 : DTYPE_BF16;
    options.states = _i % 3 == 2 ? STATE_SR_BF16 : STATE_MASTER;
    if (_i >= 3) {
        options.micro_steps = 1;
        options.choice.remainder_batch = 0;
    }
    struct rig alone, all;
    rig_open(&alone, &options, &how, 35);
    options.parts = PARTS;
    rig_open(&all, &options, &how, 35);
    ck_assert(plan_verify(all.plan));
    const int32_t count = all.model->parameters.count;
    ck_assert_int_eq(all.model->graph->tensors[all.model->parameters.at[0].part_gradient].lifetime,
                     _i < 3 ? LIFETIME_PHASE : LIFETIME_PROGRAM);
    float **sum = calloc((size_t)count, sizeof *sum);
    rig_need(sum != NULL, "memory");
    for (int32_t part = 0; part < PARTS; part++) {
        part_run(&alone, part * options.micro_steps);
        part_run(&all, part * options.micro_steps);
        for (int32_t p = 0; p < count; p++) {
            float *values = rig_download(&alone, alone.model->parameters.at[p].gradient);
            const int64_t elements =
                graph_tensor_elements(alone.model->graph, alone.model->parameters.at[p].gradient);
            for (int64_t i = 0; i < elements && part > 0; i++)
                sum[p][i] += values[i];
            if (part == 0)
                sum[p] = values;
            else
                free(values);
        }
    }
    for (int32_t p = 0; p < count; p++) {
        const int32_t gradient = all.model->parameters.at[p].gradient;
        float *values = rig_download(&all, gradient);
        ck_assert_int_eq(all.model->graph->tensors[gradient].dtype, DTYPE_F32);
        ck_assert_mem_eq(values, sum[p],
                         (size_t)graph_tensor_elements(all.model->graph, gradient) * sizeof(float));
        free(values);
        free(sum[p]);
    }
    rig_run(&all, all.model->update.program);
    ck_assert_int_eq(all.scalars[SCALAR_FOUND_INF].i, 0);
    free(sum);
    rig_close(&alone);
    rig_close(&all);
}

TEST_LOOP(weights_in_16_bits_are_their_masters_rounded, VARIANTS - VARIANTS_F32)
{
    const int variant = VARIANTS_F32 + _i;
    struct rig rig;
    rig_variant(&rig, variant, &(struct rig_how){.threads = 2});
    rig_feed(&rig, &rig.model->train_first, 0);
    rig_run(&rig, rig.model->train_first.program);
    for (int round = 0; round < 2; round++) {
        int32_t masters = 0;
        for (int32_t p = 0; p < rig.model->parameters.count; p++) {
            const struct parameter *parameter = &rig.model->parameters.at[p];
            int64_t count = graph_tensor_elements(rig.model->graph, parameter->tensor);
            bool vector = strstr(parameter->name, "ln_") != NULL;
            ck_assert_int_eq(parameter->master == TENSOR_NONE, vector);
            ck_assert_int_eq(rig.model->graph->tensors[parameter->tensor].dtype,
                             vector ? DTYPE_F32 : variants[variant].dtype);
            if (vector)
                continue;
            float *weights = rig_download(&rig, parameter->tensor),
                  *master = rig_download(&rig, parameter->master);
            for (int64_t i = 0; i < count; i++) {
                uint16_t half;
                float expected;
                dtype_convert(&half, variants[variant].dtype, &master[i], DTYPE_F32, 1);
                dtype_convert(&expected, DTYPE_F32, &half, variants[variant].dtype, 1);
                ck_assert(weights[i] == expected);
            }
            free(master);
            free(weights);
            masters++;
        }
        ck_assert_int_gt(masters, 4);
        rig_run(&rig, rig.model->update.program);
        ck_assert_int_eq(rig.scalars[SCALAR_ADAM_STEP].i, round + 1);
    }
    rig_close(&rig);
}

TEST_LOOP(update_meets_the_oracle, VARIANTS)
{
    struct rig rig;
    struct replica replica;
    rig_variant(&rig, _i, &(struct rig_how){.threads = 2});
    rig_feed(&rig, &rig.model->train_first, 0);
    rig_run(&rig, rig.model->train_first.program);
    replica_create(rig.model->graph, &replica);
    replica_load(&replica, &rig, rig.model->update.program);
    rig_run(&rig, rig.model->update.program);
    replica_run(&replica, rig.model->update.program, false);
    const double *scalars = replica.value[rig.model->scalars];
    double norm = (double)rig.scalars[SCALAR_GRAD_NORM].f;
    ck_assert_msg(fabs(norm - scalars[SCALAR_GRAD_NORM]) <= 1e-6 * norm, "norm %.9g, %.9g", norm,
                  scalars[SCALAR_GRAD_NORM]);
    ck_assert_int_eq(rig.scalars[SCALAR_ADAM_STEP].i, 1);
    ck_assert_int_eq(rig.scalars[SCALAR_FOUND_INF].i, 0);
    for (int32_t p = 0; p < rig.model->parameters.count; p++) {
        const struct parameter *parameter = &rig.model->parameters.at[p];
        int64_t count = graph_tensor_elements(rig.model->graph, parameter->tensor);
        const int32_t tensors[3] = {model_parameter_home(parameter), parameter->m, parameter->v};
        for (int k = 0; k < 3; k++) {
            float *ours = rig_download(&rig, tensors[k]);
            double distance = replica_distance(ours, replica.value[tensors[k]], count);
            ck_assert_msg(distance <= GRADIENT_BOUND, "%s of %s: %.3g",
                          k == 0   ? "value"
                          : k == 1 ? "m"
                                   : "v",
                          parameter->name, distance);
            free(ours);
        }
    }
    replica_destroy(&replica);
    rig_close(&rig);
}

#define DOCUMENTS 5
static const int32_t lengths[DOCUMENTS] = {3, 5, 8, 1, 6};

/* Trains with the documents, each in a row of its own or one after the other where they fit.
 * place[d] is the row n where document d begins. */
static void documents_train(struct rig *rig, bool packed, int32_t place[static DOCUMENTS])
{
    const struct program_io *io = &rig->model->train_first;
    int32_t ids[DOCUMENTS * 8] = {0}, targets[DOCUMENTS * 8], at = 0;
    for (int32_t n = 0; n < io->batch * io->time; n++)
        targets[n] = -1;
    for (int32_t d = 0; d < DOCUMENTS; d++) {
        if (!packed || io->time - at % io->time < lengths[d])
            at = (at + io->time - 1) / io->time * io->time;
        place[d] = at;
        for (int32_t t = 0; t < lengths[d]; t++, at++) {
            ids[at] = t + 1 < lengths[d] ? 1 + (3 * d + 7 * t) % 10 : RIG_END;
            targets[at] = t + 1 < lengths[d] ? (5 * d + 2 * t) % 11 : -1;
        }
    }
    rig_rows_upload(rig, io, ids, targets);
    rig_run(rig, io->program);
}

static void documents_compare(struct rig *packed, struct rig *apart)
{
    int32_t place[2][DOCUMENTS];
    documents_train(packed, true, place[0]);
    documents_train(apart, false, place[1]);
    float *losses[2] = {rig_download(packed, packed->model->train_first.losses),
                        rig_download(apart, apart->model->train_first.losses)};
    for (int d = 0; d < DOCUMENTS; d++)
        for (int32_t t = 0; t < lengths[d]; t++) {
            const float one = losses[0][place[0][d] + t], other = losses[1][place[1][d] + t];
            ck_assert_msg(fabsf(one - other) <= 1e-6f * other,
                          "document %d, token %d: loss %.9g, alone %.9g", d, (int)t, (double)one,
                          (double)other);
        }
    for (int32_t p = 0; p < packed->model->parameters.count; p++) {
        const struct parameter *parameter = &packed->model->parameters.at[p];
        const int64_t count = graph_tensor_elements(packed->model->graph, parameter->gradient);
        float *ours = rig_download(packed, parameter->gradient);
        float *alone = rig_download(apart, apart->model->parameters.at[p].gradient);
        double *exact = malloc((size_t)count * sizeof *exact);
        rig_need(exact != NULL, "out of memory");
        for (int64_t i = 0; i < count; i++)
            exact[i] = (double)alone[i];
        const double distance = replica_distance(ours, exact, count);
        ck_assert_msg(distance <= GRADIENT_BOUND, "gradient of %s: %.3g", parameter->name,
                      distance);
        free(exact);
        free(alone);
        free(ours);
    }
    free(losses[1]);
    free(losses[0]);
}

/* Learned and rotary positions. */
TEST_LOOP(a_packed_row_equals_separate_rows, 2)
{
    struct model_options options = rig_options(true, 0.0f, GELU_TANH);
    struct rig packed, apart;
    if (_i == 1) {
        options.config.position = POSITION_ROPE;
        options.config.rope.theta = 1e4;
    }
    options.document_mask = true;
    options.micro_steps = 1;
    options.choice.remainder_batch = 0;
    rig_open(&packed, &options, &(struct rig_how){.threads = 2}, unit_seed());
    options.document_mask = false;
    options.choice.micro_batch = DOCUMENTS;
    rig_open(&apart, &options, &(struct rig_how){.threads = 2}, unit_seed());
    packed.scalars[SCALAR_LOSS_GRADIENT].f = apart.scalars[SCALAR_LOSS_GRADIENT].f;
    documents_compare(&packed, &apart);
    rig_close(&apart);
    rig_close(&packed);
}

TEST_LOOP(evaluation_meets_the_oracle, VARIANTS_F32)
{
    struct rig rig;
    rig_variant(&rig, _i, &(struct rig_how){.threads = 2});
    rig_feed(&rig, &rig.model->evaluate, 3);
    both_run(&rig, &rig.model->evaluate, false);
    rig_close(&rig);
}

TEST(a_gradient_that_is_not_finite_changes_nothing)
{
    struct rig rig;
    float infinite = INFINITY;
    rig_variant(&rig, 0, &(struct rig_how){.threads = 2});
    rig_feed(&rig, &rig.model->train_first, 0);
    rig_run(&rig, rig.model->train_first.program);
    const struct parameter *parameter = &rig.model->parameters.at[2];
    rig_need(exec_upload(rig.exec, parameter->gradient, 1, &infinite, 1) == GT_OK, "upload");
    int64_t count = graph_tensor_elements(rig.model->graph, parameter->tensor);
    float *before = rig_download(&rig, parameter->tensor);
    rig_run(&rig, rig.model->update.program);
    float *after = rig_download(&rig, parameter->tensor), *m = rig_download(&rig, parameter->m);
    ck_assert_int_eq(rig.scalars[SCALAR_FOUND_INF].i, 1);
    ck_assert_int_eq(rig.scalars[SCALAR_ADAM_STEP].i, 0);
    ck_assert_int_eq(memcmp(before, after, (size_t)count * sizeof(float)), 0);
    for (int64_t i = 0; i < count; i++)
        ck_assert(m[i] == 0.0f);
    free(m);
    free(after);
    free(before);
    rig_close(&rig);
}

static enum gt_status look(void *context, int32_t program, int32_t index)
{
    int32_t *seen = context;
    (void)program;
    ck_assert_int_eq(index, (*seen)++);
    return *seen == 3 ? GT_STOPPED : GT_OK;
}

/* What the callback returns ends the program. */
TEST(a_look_ends_a_program)
{
    struct rig rig;
    int32_t seen = 0;
    rig_variant(&rig, 0, &(struct rig_how){.threads = 1});
    rig_feed(&rig, &rig.model->train_first, 0);
    exec_callback_set(rig.exec, look, &seen);
    ck_assert_int_eq(exec_start(rig.exec, rig.model->train_first.program), GT_STOPPED);
    ck_assert_int_eq(seen, 3);
    exec_callback_set(rig.exec, NULL, NULL);
    rig_run(&rig, rig.model->train_first.program);
    rig_close(&rig);
}

/* The bits of everything that the host reads in a run of all programs. */
struct bits {
    float *at;
    size_t count;
};

static void bits_add(struct bits *bits, struct rig *rig, int32_t tensor)
{
    size_t count = (size_t)graph_tensor_elements(rig->model->graph, tensor);
    float *values = rig_download(rig, tensor);
    bits->at = realloc(bits->at, (bits->count + count) * sizeof(float));
    rig_need(bits->at != NULL, "out of memory");
    memcpy(bits->at + bits->count, values, count * sizeof(float));
    bits->count += count;
    free(values);
}

static void everything_run(struct rig *rig, struct bits *bits)
{
    const struct model *model = rig->model;
    for (int round = 0; round < 2; round++) {
        for (int32_t k = 0; k < model->options.micro_steps; k++) {
            const struct program_io *io = rig_step_io(rig, k);
            rig_feed(rig, io, (uint64_t)(10 * round + k));
            rig_run(rig, io->program);
            bits_add(bits, rig, io->losses);
        }
        for (int32_t p = 0; p < model->parameters.count; p++)
            bits_add(bits, rig, model->parameters.at[p].gradient);
        rig_run(rig, model->update.program);
        rig_feed(rig, &model->evaluate, 50);
        rig_run(rig, model->evaluate.program);
        bits_add(bits, rig, model->evaluate.losses);
        rig->scalars[SCALAR_POSITION].i = 0;
        rig_feed(rig, &model->prefill, 60);
        rig_run(rig, model->prefill.program);
        rig->scalars[SCALAR_POSITION].i = 3;
        rig_feed(rig, &model->decode, 61);
        rig_run(rig, model->decode.program);
        bits_add(bits, rig, model->decode.logits);
        rig->scalars[SCALAR_POSITION].i = 0;
        for (int32_t p = 0; p < model->parameters.count; p++) {
            bits_add(bits, rig, model->parameters.at[p].tensor);
            bits_add(bits, rig, model->parameters.at[p].m);
            bits_add(bits, rig, model->parameters.at[p].v);
        }
    }
}

static void bits_same(const struct bits *a, const struct bits *b, const char *what)
{
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        ck_assert_msg(!isnan(a->at[i]), "%s: number %zu is a NaN", what, i);
        ck_assert_msg(memcmp(&a->at[i], &b->at[i], sizeof(float)) == 0,
                      "%s: number %zu is %.9g, else %.9g", what, i, (double)a->at[i],
                      (double)b->at[i]);
    }
}

/* The device's backend, where each op spoils what it is the last to use. */
static const struct backend_ops *plain;
static int32_t spoiled;

static enum gt_status run_and_spoil(struct backend *backend, const struct op_call *calls,
                                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TRY(plain->run(backend, &calls[i], 1));
        for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
            const struct operand *operand = &calls[i].operand[s];
            if (!operand->last)
                continue;
            const size_t bytes = operand_bytes(operand);
            memset(plain->memory(backend, operand->at, bytes), 0xff, bytes);
            spoiled++;
        }
    }
    return GT_OK;
}

TEST_LOOP(poison_and_threads_change_no_bit, VARIANTS)
{
    static const struct rig_how ways[] = {{.threads = 1},
                                          {.threads = 1, .poison = true, .guard_bytes = 256},
                                          {.threads = 2},
                                          {.threads = 3},
                                          {.threads = 1}};
    struct bits first = {NULL, 0};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct rig rig;
        struct bits bits = {NULL, 0};
        rig_variant(&rig, _i, &ways[w]);
        ck_assert(plan_verify(rig.plan));
        struct backend_ops spoiling = *(plain = rig.device->ops);
        spoiling.run = run_and_spoil;
        if (w + 1 == sizeof ways / sizeof ways[0])
            rig.device->ops = &spoiling;
        everything_run(&rig, &bits);
        rig_close(&rig);
        if (w == 0) {
            first = bits;
            bits_same(&first, &first, "plain");
        } else {
            bits_same(&bits, &first, ways[w].poison ? "poisoned" : "threads, or spoiled");
            free(bits.at);
        }
    }
    ck_assert_int_gt(spoiled, 0);
    free(first.at);
}

/* Runs one shape of the sweep; the loss of a step must not depend on its micro-batches. */
static double swept_loss(const struct model_options *options)
{
    struct rig rig;
    double loss = 0.0;
    rig_open(&rig, options, &(struct rig_how){.threads = 2, .poison = true, .guard_bytes = 256},
             unit_seed());
    ck_assert(plan_verify(rig.plan));
    for (int32_t k = 0; k < options->micro_steps; k++) {
        const struct program_io *io = rig_step_io(&rig, k);
        rig.scalars[SCALAR_LOSS_SUM].f = 0.0f;
        rig_feed(&rig, io, (uint64_t)k);
        rig_run(&rig, io->program);
        loss += (double)rig.scalars[SCALAR_LOSS_SUM].f;
    }
    rig_run(&rig, rig.model->update.program);
    ck_assert_int_eq(rig.scalars[SCALAR_FOUND_INF].i, 0);
    rig_close(&rig);
    return loss;
}

TEST_LOOP(every_shape_has_a_plan_that_holds, VARIANTS)
{
    static const int32_t batches[][3] = {{1, 1, 0}, {1, 3, 0}, {3, 2, 1}, {5, 1, 0}, {4, 3, 3}};
    static const int32_t chunks[] = {1, 5, 8, 1000};
    int shapes = 0;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        double first = 0.0;
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
            struct model_options options =
                rig_options(variants[_i].bias, variants[_i].dropout, variants[_i].gelu);
            options.choice.micro_batch = batches[b][0];
            options.micro_steps = batches[b][1];
            options.choice.remainder_batch = batches[b][2];
            options.choice.loss_chunk_rows = chunks[c];
            options.dtype = variants[_i].dtype;
            double loss = swept_loss(&options);
            ck_assert(loss > 0.0);
            if (c == 0)
                first = loss;
            ck_assert_msg(fabs(loss - first) <= 1e-6 * first,
                          "loss %.9g with chunks of %d, %.9g with 1", loss, (int)chunks[c], first);
            shapes++;
        }
    }
    ck_assert_int_eq(shapes, 20);
}
