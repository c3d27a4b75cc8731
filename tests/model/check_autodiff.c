/* Checks autodiff against central differences, both in double through the oracle, and on the
 * device.
 *
 *   toy       a block made by hand, unlike GPT-2's, with everything that makes bookkeeping hard: a
 *             tensor with three consumers, one used twice by one op, residual sums of residual
 *             sums, a weight used by two ops, an embedding tied to the head or not, heads that
 *             share keys and values or not, views, loss chunks of unequal length, an op that
 *             nothing depends on.  No line of plan, exec or train is specific to it
 *   gpt       the training programs of a small GPT, with and without biases and dropout
 * In double, the rules must agree with the differences to 1e-6; this also proves the oracle's
 * backward ops, against which every backend is checked.  On the device, in fp32, the gradients must
 * agree with those of the oracle within 1e-5 of their norm, with dead bytes poisoned.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend_registry.h"
#include "model/autodiff.h"
#include "plan/plan_create.h"
#include "plan/plan_verify.h"
#include "tests/model/model_fixture.h"
#include "tests/unit/unit_main.h"

#define DIFFERENCE 1e-5
#define DIFFERENCE_BOUND 1e-6
#define GRADIENT_BOUND 1e-5

enum { SAMPLES = 2, TIME = 5, ROWS = SAMPLES * TIME, CHANNELS = 4, VOCAB = 7, TURNED = 2 };
enum toy_parameter {
    TOY_WTE,
    TOY_WPE,
    TOY_GAIN,
    TOY_BIAS,
    TOY_TWICE,
    TOY_QKV,
    TOY_HEAD,
    TOY_CONV, /* these three of the tied toy only */
    TOY_DECAY,
    TOY_GATE,
    TOY_PARAMETERS
};

struct toy {
    struct hostmem *mem;
    struct graph *graph;
    int32_t program;
    int32_t scalars, ids, targets, order, starts, losses, table, first;
    struct autodiff_parameter parameter[TOY_PARAMETERS];
    bool tied; /* the head is the embedding, and TOY_HEAD is not used; else pairs of heads share
                  keys and values */
};

static int32_t toy_tensor(struct toy *toy, const char *name, enum dtype dtype, int64_t rows,
                          int64_t columns, enum tensor_lifetime lifetime)
{
    struct tensor tensor = {.dtype = dtype,
                            .rank = columns > 0 ? 2 : 1,
                            .dims = {rows, columns > 0 ? columns : 0},
                            .category =
                                lifetime == LIFETIME_PROGRAM ? CATEGORY_DATA : CATEGORY_PARAMETER,
                            .lifetime = lifetime,
                            .phase = PHASE_TRAIN,
                            .input = lifetime == LIFETIME_PROGRAM};
    int32_t out;
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    rig_need(graph_tensor_add(toy->graph, &tensor, &out) == GT_OK, "tensor");
    return out;
}

/* Adds one op with its operands in the order of the declaration; returns the operand `result`. */
static int32_t toy_op(struct toy *toy, int32_t chunk, enum op_kind kind, struct op_attrs attrs,
                      const int32_t *operands, int32_t result)
{
    struct graph_pen pen = {.graph = toy->graph,
                            .program = toy->program,
                            .pass = PASS_FORWARD,
                            .layer = -1,
                            .chunk = chunk};
    union op_arguments arguments = {.attrs = attrs};
    memcpy(arguments.operand, operands,
           (size_t)op_declaration(kind)->operands * sizeof operands[0]);
    const char *name = op_declaration(kind)->name;
    rig_need(graph_op_add(&pen, kind, name, &arguments, NULL) == GT_OK, name);
    return arguments.operand[result];
}

static int32_t toy_gemm(struct toy *toy, int32_t chunk, int32_t a, int32_t b, bool transpose_b)
{
    const int32_t operands[] = {a, b, TENSOR_NONE, TENSOR_NONE};
    return toy_op(toy, chunk, OP_GEMM, (struct op_attrs){.transpose_b = transpose_b}, operands,
                  GEMM_D);
}

static int32_t toy_residual(struct toy *toy, int32_t x, int32_t y)
{
    const int32_t operands[] = {x, y, TENSOR_NONE};
    return toy_op(toy, 0, OP_RESIDUAL, (struct op_attrs){0}, operands, RESIDUAL_R);
}

static int32_t toy_rmsnorm(struct toy *toy, int32_t x, int32_t gain)
{
    const int32_t operands[] = {x, gain, TENSOR_NONE, TENSOR_NONE};
    return toy_op(toy, 0, OP_RMSNORM_FORWARD,
                  (struct op_attrs){.epsilon = 1e-5f, .gain_offset = 1.0f}, operands,
                  RMSNORM_FORWARD_Y);
}

static int32_t toy_rope(struct toy *toy, struct op_attrs attrs, int32_t x, int32_t gain)
{
    const bool in_place = gain == TENSOR_NONE && !attrs.gated;
    const int32_t operands[] = {in_place ? TENSOR_NONE : x, toy->table, toy->scalars, gain,
                                in_place ? x : TENSOR_NONE};
    attrs.accumulate = in_place ? 1u << ROPE_FORWARD_Y : 0;
    return toy_op(toy, 0, OP_ROPE_FORWARD, attrs, operands, ROPE_FORWARD_Y);
}

static int32_t toy_gelu(struct toy *toy, int32_t x, enum gelu_kind kind)
{
    const int32_t operands[] = {x, TENSOR_NONE};
    return toy_op(toy, 0, OP_GELU_FORWARD, (struct op_attrs){.gelu = kind}, operands,
                  GELU_FORWARD_Y);
}

static bool toy_uses(const struct toy *toy, int parameter)
{
    return parameter < TOY_HEAD || (parameter == TOY_HEAD) != toy->tied;
}

static void toy_parameters_add(struct toy *toy)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } shapes[TOY_PARAMETERS] = {{"wte", VOCAB, CHANNELS},      {"wpe", TIME, CHANNELS},
                                {"gain", CHANNELS, 0},         {"bias", CHANNELS, 0},
                                {"twice", CHANNELS, CHANNELS}, {"qkv", CHANNELS, 3 * CHANNELS},
                                {"head", VOCAB, CHANNELS},     {"conv", 4 * CHANNELS, 0},
                                {"decay", CHANNELS, 0},        {"gate", CHANNELS / 2, 0}};
    for (int p = 0; p < TOY_PARAMETERS; p++) {
        const int64_t columns = p == TOY_QKV && !toy->tied ? 2 * CHANNELS : shapes[p].columns;
        char name[32];
        snprintf(name, sizeof name, "%s.grad", shapes[p].name);
        toy->parameter[p].tensor =
            toy_tensor(toy, shapes[p].name, DTYPE_F32, shapes[p].rows, columns, LIFETIME_RUN);
        toy->parameter[p].fresh = false;
        toy->parameter[p].gradient =
            toy_tensor(toy, name, DTYPE_F32, shapes[p].rows, columns, LIFETIME_PHASE);
    }
    toy->scalars = toy_tensor(toy, "scalars", DTYPE_F32, SCALAR_WORDS, 0, LIFETIME_RUN);
    toy->ids = toy_tensor(toy, "ids", DTYPE_I32, ROWS, 0, LIFETIME_PROGRAM);
    toy->targets = toy_tensor(toy, "targets", DTYPE_I32, ROWS, 0, LIFETIME_PROGRAM);
    toy->order = toy_tensor(toy, "order", DTYPE_I32, ROWS, 0, LIFETIME_PROGRAM);
    toy->starts = toy_tensor(toy, "starts", DTYPE_I32, ROWS + 2, 0, LIFETIME_PROGRAM);
    toy->table = toy_tensor(toy, "table", DTYPE_F32, TIME, TURNED, LIFETIME_PROGRAM);
    toy->first = toy_tensor(toy, "first", DTYPE_I32, ROWS, 0, LIFETIME_PROGRAM);
    toy->losses = toy_tensor(toy, "losses", DTYPE_F32, ROWS, 0, LIFETIME_PROGRAM);
    toy->graph->tensors[toy->losses].input = false;
    toy->graph->tensors[toy->losses].output = true;
}

/* What the rule gives is small after a few tokens, so that with epsilon 1e-5 the loss bends too
 * much for a difference of 1e-5: its error is 1.6e-6, and a fourth of that at 5e-6.  With 1e-3 it
 * is 2.4e-8. */
static int32_t toy_gate(struct toy *toy, enum gate_kind kind, int32_t x, int32_t z, int32_t gain)
{
    const int32_t operands[] = {x, z, gain, TENSOR_NONE};
    return toy_op(toy, 0, OP_GATE_FORWARD,
                  (struct op_attrs){.heads = 2, .gate = kind, .epsilon = 1e-3f}, operands,
                  GATE_FORWARD_Y);
}

/* Attention with gates, and a gated delta net; each gives [N, C]. */
static int32_t toy_gated(struct toy *toy, int32_t n)
{
    const struct autodiff_parameter *at = toy->parameter;
    struct op_attrs heads = {.heads = 2,
                             .kv_heads = 1,
                             .time = TIME,
                             .softmax_scale = 0.7f,
                             .epsilon = 1e-5f,
                             .gated = true,
                             .taps = 2};
    const int32_t wide = toy_gemm(toy, 0, n, at[TOY_QKV].tensor, false),
                  attention[] = {toy_rope(toy, heads, wide, at[TOY_GAIN].tensor), toy->scalars,
                                 TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    const int32_t mixed =
        toy_op(toy, 0, OP_ATTENTION_FORWARD, heads, attention, ATTENTION_FORWARD_Y);
    const int32_t conv[] = {toy_gemm(toy, 0, n, at[TOY_QKV].tensor, false), at[TOY_CONV].tensor,
                            TENSOR_NONE, toy->first};
    const int32_t delta[] = {
        toy_op(toy, 0, OP_SHORT_CONV_FORWARD, heads, conv, SHORT_CONV_FORWARD_Y),
        at[TOY_DECAY].tensor, TENSOR_NONE, TENSOR_NONE, toy->first};
    const int32_t y = toy_op(toy, 0, OP_GATED_DELTA_FORWARD, heads, delta, GATED_DELTA_FORWARD_Y);
    return toy_residual(toy, toy_gate(toy, GATE_SIGMOID, mixed, wide, TENSOR_NONE),
                        toy_gate(toy, GATE_SILU, y,
                                 toy_gemm(toy, 0, n, at[TOY_TWICE].tensor, false),
                                 at[TOY_GATE].tensor));
}

/* Adds the body, which computes [N, C] from ids. */
static int32_t toy_body(struct toy *toy)
{
    const struct autodiff_parameter *at = toy->parameter;
    const int32_t embed[] = {toy->ids,           at[TOY_WTE].tensor,
                             at[TOY_WPE].tensor, toy->scalars,
                             TENSOR_NONE,        toy->tied ? TENSOR_NONE : toy->first};
    int32_t x =
        toy_op(toy, 0, OP_EMBED_FORWARD, (struct op_attrs){.time = TIME}, embed, EMBED_FORWARD_Y);
    const int32_t norm[] = {x,           at[TOY_GAIN].tensor, TENSOR_NONE,
                            TENSOR_NONE, at[TOY_BIAS].tensor, TENSOR_NONE};
    int32_t n = toy_op(toy, 0, OP_LAYERNORM_FORWARD, (struct op_attrs){.epsilon = 1e-5f}, norm,
                       LAYERNORM_FORWARD_Y);
    int32_t a = toy_gemm(toy, 0, n, at[TOY_TWICE].tensor, false),
            u = toy_gemm(toy, 0, n, at[TOY_TWICE].tensor, true);
    int32_t sum = toy_residual(toy, toy_residual(toy, a, u), x);
    struct op_attrs heads = {.heads = toy->tied ? 2 : 4,
                             .kv_heads = 2,
                             .time = TIME,
                             .softmax_scale = 0.7f,
                             .dropout = 0.2f,
                             .site = 3,
                             .epsilon = 1e-5f,
                             .gain_offset = 1.0f};
    int32_t qkv = toy_gemm(toy, 0, x, at[TOY_QKV].tensor, false);
    if (toy->tied) /* the heads then have two elements */
        qkv = toy_rope(toy, heads, toy_rope(toy, heads, qkv, TENSOR_NONE), at[TOY_GAIN].tensor);
    const int32_t attention[] = {qkv, toy->scalars, TENSOR_NONE, TENSOR_NONE, toy->first};
    int32_t mixed = toy_op(toy, 0, OP_ATTENTION_FORWARD, heads, attention, ATTENTION_FORWARD_Y);
    if (!toy->tied) { /* qkv then has an even number of pairs of columns */
        const int32_t tokens[] = {toy->ids,     at[TOY_WTE].tensor, TENSOR_NONE,
                                  toy->scalars, TENSOR_NONE,        TENSOR_NONE};
        mixed = toy_residual(toy, mixed,
                             toy_op(toy, 0, OP_EMBED_FORWARD, (struct op_attrs){.time = TIME},
                                    tokens, EMBED_FORWARD_Y));
        mixed = toy_rmsnorm(toy, toy_rmsnorm(toy, mixed, at[TOY_GAIN].tensor), TENSOR_NONE);
        for (int gate = GATE_SILU; gate <= GATE_GELU; gate++) {
            const int32_t gated[] = {toy_gemm(toy, 0, n, at[TOY_QKV].tensor, false), TENSOR_NONE};
            mixed = toy_residual(toy, mixed,
                                 toy_op(toy, 0, OP_SWIGLU_FORWARD,
                                        (struct op_attrs){.gate = (enum gate_kind)gate}, gated,
                                        SWIGLU_FORWARD_Y));
        }
    }
    if (toy->tied)
        mixed = toy_residual(toy, mixed, toy_gated(toy, n));
    int32_t both = toy_residual(toy, sum, mixed), twice = toy_residual(toy, both, both);
    const int32_t drop[] = {toy_gelu(toy, twice, GELU_TANH), toy->scalars, TENSOR_NONE};
    int32_t dropped =
        toy_op(toy, 0, OP_DROPOUT, (struct op_attrs){.dropout = 0.3f, .site = 9, .time = TIME},
               drop, DROPOUT_Y);
    (void)toy_gelu(toy, sum, GELU_ERF); /* nothing depends on this one */
    return toy_residual(toy, dropped, toy_residual(toy, both, x));
}

static void toy_loss(struct toy *toy, int32_t hidden)
{
    static const int64_t rows[] = {3, 5, 2};
    int64_t first = 0;
    for (int32_t c = 0; c < 3; c++) {
        int32_t part, targets = TENSOR_NONE, losses = TENSOR_NONE;
        enum gt_status status = graph_view_add(toy->graph, hidden, first, rows[c], &part);
        if (status == GT_OK)
            status = graph_view_add(toy->graph, toy->targets, first, rows[c], &targets);
        if (status == GT_OK)
            status = graph_view_add(toy->graph, toy->losses, first, rows[c], &losses);
        rig_need(status == GT_OK, "views");
        const int32_t operands[] = {
            targets, toy->scalars,
            toy_gemm(toy, c + 1, part, toy->parameter[toy->tied ? TOY_WTE : TOY_HEAD].tensor, true),
            losses};
        struct op_attrs attrs = {.vocab = VOCAB, .gradient = true};
        (void)toy_op(toy, c + 1, OP_CROSS_ENTROPY, attrs, operands, CROSS_ENTROPY_LOSSES);
        first += rows[c];
    }
    const int32_t sum[] = {toy->losses, toy->scalars};
    (void)toy_op(toy, 0, OP_LOSS_SUM, (struct op_attrs){0}, sum, LOSS_SUM_SCALARS);
}

static void toy_open(struct toy *toy, bool accumulate, bool tied)
{
    toy->tied = tied;
    rig_need(hostmem_create(&toy->mem) == GT_OK, "hostmem");
    rig_need(graph_create(toy->mem, &toy->graph) == GT_OK, "graph");
    rig_need(graph_program_add(toy->graph, PROGRAM_TRAIN_FIRST, &toy->program) == GT_OK, "program");
    toy_parameters_add(toy);
    toy_loss(toy, toy_body(toy));
    struct autodiff_options options = {.program = toy->program,
                                       .parameters = toy->parameter,
                                       .parameter_count = TOY_PARAMETERS,
                                       .order = toy->order,
                                       .starts = toy->starts,
                                       .accumulate_parameters = accumulate};
    ck_assert_int_eq(autodiff_run(toy->graph, &options), GT_OK);
}

static void toy_close(struct toy *toy)
{
    hostmem_free(toy->graph);
    hostmem_destroy(toy->mem);
}

/* The host data of a toy: the same numbers for the replica and for the device. */
struct toy_host {
    int32_t ids[ROWS], targets[ROWS], order[ROWS], starts[ROWS + 2], first[ROWS];
    float weights[TOY_PARAMETERS][CHANNELS * 3 * CHANNELS];
    float gradients[TOY_PARAMETERS][CHANNELS * 3 * CHANNELS]; /* before */
    union scalar_word scalars[SCALAR_WORDS];
    float table[TIME * TURNED];
};

static void toy_host_fill(struct toy_host *host, uint64_t seed)
{
    memset(host, 0, sizeof *host);
    for (uint64_t i = 0; i < ROWS; i++) {
        host->first[i] = i % TIME < 3 ? 0 : 3; /* a document of three rows, one of two */
        host->ids[i] = (int32_t)(rig_uniform(seed, 100, i) * VOCAB);
        host->targets[i] = i == 6 ? -1 : (int32_t)(rig_uniform(seed, 101, i) * VOCAB);
    }
    rig_order(host->ids, ROWS, host->order, host->starts);
    for (int t = 0; t < TIME; t++) {
        host->table[t * TURNED] = (float)cos(1.0 + t);
        host->table[t * TURNED + 1] = (float)sin(1.0 + t);
    }
    for (uint64_t p = 0; p < TOY_PARAMETERS; p++) {
        for (uint64_t i = 0; i < CHANNELS * 3 * CHANNELS; i++) {
            host->weights[p][i] =
                (float)((p == TOY_GAIN ? 1.0 : 0.0) + 0.5 * rig_normal(seed, p, i));
            host->gradients[p][i] = (float)rig_normal(seed, 50 + p, i);
        }
    }
    host->scalars[SCALAR_LOSS_GRADIENT].f = 0.125f;
    host->scalars[SCALAR_STEP].i = 4;
    host->scalars[SCALAR_SEED_LO].u = 99;
    host->scalars[SCALAR_SAMPLE_BASE].i = 6;
}

static void toy_fill(const struct toy *toy, const struct toy_host *host, struct replica *replica)
{
    replica_poison(replica);
    for (int i = 0; i < ROWS; i++) {
        replica->value[toy->ids][i] = host->ids[i];
        replica->value[toy->targets][i] = host->targets[i];
        replica->value[toy->order][i] = host->order[i];
        replica->value[toy->first][i] = host->first[i];
    }
    for (int i = 0; i < ROWS + 2; i++)
        replica->value[toy->starts][i] = host->starts[i];
    for (int i = 0; i < TIME * TURNED; i++)
        replica->value[toy->table][i] = (double)host->table[i];
    for (int p = 0; p < TOY_PARAMETERS; p++) {
        if (!toy_uses(toy, p))
            continue;
        int64_t count = graph_tensor_elements(toy->graph, toy->parameter[p].tensor);
        for (int64_t i = 0; i < count; i++) {
            replica->value[toy->parameter[p].tensor][i] = (double)host->weights[p][i];
            replica->value[toy->parameter[p].gradient][i] = (double)host->gradients[p][i];
        }
    }
    double *scalars = replica->value[toy->scalars];
    memset(scalars, 0, SCALAR_WORDS * sizeof *scalars);
    scalars[SCALAR_LOSS_GRADIENT] = (double)host->scalars[SCALAR_LOSS_GRADIENT].f;
    scalars[SCALAR_STEP] = host->scalars[SCALAR_STEP].i;
    scalars[SCALAR_SEED_LO] = host->scalars[SCALAR_SEED_LO].u;
    scalars[SCALAR_SAMPLE_BASE] = host->scalars[SCALAR_SAMPLE_BASE].i;
}

/* Returns the loss that the gradients belong to, with one element of one parameter moved by `by`.
 */
static double toy_loss_at(const struct toy *toy, const struct toy_host *host,
                          struct replica *replica, int parameter, int64_t element, double by)
{
    toy_fill(toy, host, replica);
    replica->value[toy->parameter[parameter].tensor][element] += by;
    replica_run(replica, toy->program, false);
    return replica->value[toy->scalars][SCALAR_LOSS_SUM] *
           (double)host->scalars[SCALAR_LOSS_GRADIENT].f;
}

TEST_LOOP(toy_meets_the_differences, 4)
{
    bool accumulate = _i % 2 == 1;
    struct toy toy;
    struct toy_host host;
    struct replica replica, moved;
    toy_open(&toy, accumulate, _i < 2);
    toy_host_fill(&host, unit_seed());
    replica_create(toy.graph, &replica);
    replica_create(toy.graph, &moved);
    toy_fill(&toy, &host, &replica);
    replica_run(&replica, toy.program, false);
    double worst = 0.0;
    for (int p = 0; p < TOY_PARAMETERS; p++) {
        if (!toy_uses(&toy, p))
            continue;
        int64_t count = graph_tensor_elements(toy.graph, toy.parameter[p].tensor);
        for (int64_t i = 0; i < count; i++) {
            double up = toy_loss_at(&toy, &host, &moved, p, i, DIFFERENCE);
            double slope =
                (up - toy_loss_at(&toy, &host, &moved, p, i, -DIFFERENCE)) / (2.0 * DIFFERENCE);
            double gradient = replica.value[toy.parameter[p].gradient][i];
            if (accumulate)
                gradient -= (double)host.gradients[p][i];
            worst = fabs(gradient - slope) > worst ? fabs(gradient - slope) : worst;
            ck_assert_msg(fabs(gradient - slope) <= DIFFERENCE_BOUND,
                          "parameter %d, element %d: rule %.9g, difference %.9g", p, (int)i,
                          gradient, slope);
        }
    }
    printf("toy: worst %.2g\n", worst);
    replica_destroy(&moved);
    replica_destroy(&replica);
    toy_close(&toy);
}

static void toy_upload(struct exec *exec, const struct toy *toy, const struct toy_host *host)
{
    const struct {
        int32_t tensor;
        const void *from;
        int64_t count;
    } parts[] = {{toy->table, host->table, TIME * TURNED},   {toy->ids, host->ids, ROWS},
                 {toy->targets, host->targets, ROWS},        {toy->order, host->order, ROWS},
                 {toy->starts, host->starts, ROWS + 2},      {toy->first, host->first, ROWS},
                 {toy->scalars, host->scalars, SCALAR_WORDS}};
    bool good = true;
    for (size_t i = toy->tied ? 0 : 1; i < sizeof parts / sizeof parts[0];
         i++) /* only the tied toy reads the table */
        good =
            good && exec_upload(exec, parts[i].tensor, 0, parts[i].from, parts[i].count) == GT_OK;
    for (int p = 0; p < TOY_PARAMETERS; p++) {
        if (!toy_uses(toy, p))
            continue;
        int64_t count = graph_tensor_elements(toy->graph, toy->parameter[p].tensor);
        good = good &&
               exec_upload(exec, toy->parameter[p].tensor, 0, host->weights[p], count) == GT_OK &&
               exec_upload(exec, toy->parameter[p].gradient, 0, host->gradients[p], count) == GT_OK;
    }
    rig_need(good, "upload");
}

TEST_LOOP(toy_runs_on_the_device, 4)
{
    struct toy toy;
    struct toy_host host;
    struct replica replica;
    struct backend *device;
    struct backend_info info;
    struct plan *plan;
    struct exec *exec;
    toy_open(&toy, _i % 2 == 1, _i < 2);
    toy_host_fill(&host, unit_seed());
    rig_need(backend_find("cpu")->open(&(struct backend_open_options){.threads = 2}, &device) ==
                 GT_OK,
             "device");
    rig_need(device->ops->info(device, &info) == GT_OK, "device info");
    struct plan_options options = {
        .device = device, .alignment_bytes = info.alignment_bytes, .guard_bytes = 256};
    ck_assert_int_eq(plan_create(toy.mem, toy.graph, &options, &plan), GT_OK);
    ck_assert(plan_verify(plan));
    ck_assert_int_eq(exec_create(toy.mem, device, plan, true, &exec), GT_OK);
    toy_upload(exec, &toy, &host);
    ck_assert_int_eq(exec_run(exec, toy.program), GT_OK);
    replica_create(toy.graph, &replica);
    toy_fill(&toy, &host, &replica);
    replica_run(&replica, toy.program, false);
    for (int p = 0; p < TOY_PARAMETERS; p++) {
        if (!toy_uses(&toy, p))
            continue;
        float ours[CHANNELS * 3 * CHANNELS];
        int64_t count = graph_tensor_elements(toy.graph, toy.parameter[p].gradient);
        ck_assert_int_eq(exec_download(exec, toy.parameter[p].gradient, 0, ours, count), GT_OK);
        double distance = replica_distance(ours, replica.value[toy.parameter[p].gradient], count);
        ck_assert_msg(distance <= GRADIENT_BOUND, "parameter %d: %.3g", p, distance);
    }
    replica_destroy(&replica);
    hostmem_phase_set(toy.mem, HOSTMEM_CLOSE);
    hostmem_free(exec);
    hostmem_free(plan);
    device->ops->close(device);
    toy_close(&toy);
}

/* Returns the slope of the loss along a random direction in one parameter. */
static double gpt_slope(const struct replica *start, struct replica *moved, struct rig *rig,
                        int32_t program, int32_t p, double by)
{
    const struct graph *graph = rig->model->graph;
    int32_t tensor = rig->model->parameters.at[p].tensor;
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        if (graph->tensors[t].base == TENSOR_NONE)
            memcpy(moved->value[t], start->value[t],
                   (size_t)graph_tensor_elements(graph, t) * sizeof(double));
    }
    for (int64_t i = 0; i < graph_tensor_elements(graph, tensor); i++)
        moved->value[tensor][i] += by * rig_normal(unit_seed(), 900 + (uint64_t)p, (uint64_t)i);
    replica_run(moved, program, false);
    return moved->value[rig->model->scalars][SCALAR_LOSS_SUM] *
           moved->value[rig->model->scalars][SCALAR_LOSS_GRADIENT];
}

TEST_LOOP(gpt_meets_the_differences, 4)
{
    struct rig rig;
    struct replica start, run, moved;
    struct model_options options =
        rig_options(_i % 2 == 0, _i < 2 ? 0.0f : 0.25f, _i % 2 == 0 ? GELU_TANH : GELU_ERF);
    rig_open(&rig, &options, &(struct rig_how){.threads = 1}, unit_seed());
    int32_t program = rig.model->train_first.program;
    rig_feed(&rig, &rig.model->train_first, 1);
    replica_create(rig.model->graph, &start);
    replica_create(rig.model->graph, &run);
    replica_create(rig.model->graph, &moved);
    replica_poison(&start);
    replica_load(&start, &rig, program);
    replica_poison(&run);
    replica_load(&run, &rig, program);
    replica_run(&run, program, false);
    double worst = 0.0;
    for (int32_t p = 0; p < rig.model->parameters.count; p++) {
        const struct parameter *parameter = &rig.model->parameters.at[p];
        double along = 0.0;
        for (int64_t i = 0; i < graph_tensor_elements(rig.model->graph, parameter->tensor); i++)
            along += run.value[parameter->gradient][i] *
                     rig_normal(unit_seed(), 900 + (uint64_t)p, (uint64_t)i);
        double up = gpt_slope(&start, &moved, &rig, program, p, DIFFERENCE);
        double slope =
            (up - gpt_slope(&start, &moved, &rig, program, p, -DIFFERENCE)) / (2.0 * DIFFERENCE);
        worst = fabs(along - slope) > worst ? fabs(along - slope) : worst;
        ck_assert_msg(fabs(along - slope) <= DIFFERENCE_BOUND, "%s: rule %.9g, difference %.9g",
                      parameter->name, along, slope);
        ck_assert_msg(fabs(slope) > 1e-6, "%s does nothing", parameter->name);
    }
    printf("gpt %d: worst %.2g\n", _i, worst);
    replica_destroy(&moved);
    replica_destroy(&run);
    replica_destroy(&start);
    rig_close(&rig);
}

/* The toy needs four copies: `both` gets its own gradient, because x still reads the shared one,
 * and three are added to another (x in `sum`, and `both` twice in `twice`).  Only an embedding that
 * is not tied must start at zero. */
TEST_LOOP(gradients_are_copied_where_they_must_be, 4)
{
    struct toy toy;
    int copies = 0, fills = 0;
    toy_open(&toy, _i % 2 == 1, _i < 2);
    const struct program *program = &toy.graph->programs[toy.program];
    for (int32_t i = 0; i < program->count; i++) {
        copies += program->ops[i].kind == OP_COPY;
        fills += program->ops[i].kind == OP_FILL;
    }
    ck_assert_int_eq(copies, 4);
    ck_assert_int_eq(fills, _i == 2);
    toy_close(&toy);
}
