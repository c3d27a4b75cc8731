/* Whole programs on a device and in double: see model_fixture.h.  Random numbers are Philox with
 * separate keys; this file shares no code with data/, train/ or the initial weights of a real run.
 */
#include "tests/model/model_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_registry.h"
#include "base/rng.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/plan_create.h"
#include "session/session.h"
#include "session/values.h"
#include "tests/ops/op_test.h"

#define STREAM_DATA 1000000

void rig_need(bool good, const char *text)
{
    if (good)
        return;
    fprintf(stderr, "model fixture: %s\n", text);
    exit(EXIT_FAILURE);
}

static void *need_memory(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    rig_need(memory != NULL, "out of memory");
    return memory;
}

double rig_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct philox_key key = {{(uint32_t)seed, 0x7e577e57u}};
    struct philox_block counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(seed >> 32)}};
    struct philox_block bits = philox4x32_10(key, counter);
    return ((double)bits.word[0] + 0.5) / 4294967296.0;
}

double rig_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double radius = sqrt(-2.0 * log(rig_uniform(seed, 2 * stream, index)));
    return radius * cos(6.283185307179586 * rig_uniform(seed, 2 * stream + 1, index));
}

struct model_options rig_options(bool bias, float dropout, enum gelu_kind gelu)
{
    return (struct model_options){
        .config = {.n_layer = 2,
                   .n_head = 2,
                   .n_kv_head = 2,
                   .n_embd = 16,
                   .block_size = 8,
                   .vocab_size = 11,
                   .padded_vocab_size = 16,
                   .bias = bias,
                   .dropout = dropout,
                   .gelu = gelu,
                   .norm_epsilon = 1e-5},
        .train = true,
        .evaluate = true,
        .generate = true,
        .choice.micro_batch = 3,
        .micro_steps = 3,
        .choice.remainder_batch = 1,
        .choice.loss_chunk_rows = 7,
        .choice.evaluate_batch = 2,
        .generate_batch = 1,
        .prefill_time = 3,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .weight_decay = 0.1f,
        .muon_weight_decay = 0.1f,
        .rates = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f},
        .grad_clip = 1.0f,
        .adam_epsilon = 1e-8f,
        .correction_rows = 4,
    };
}

#define DRAWN_MAX 99991 /* numbers of a parameter that are drawn before they repeat; a prime */

/* Draws gains near 1 and all other weights near 0; rows beyond the vocabulary are 0. */
static void weights_fill(struct rig *rig)
{
    struct graph *graph = rig->model->graph;
    for (int32_t p = 0; p < rig->model->parameters.count; p++) {
        const struct parameter *parameter = &rig->model->parameters.at[p];
        int64_t count = graph_tensor_elements(graph, parameter->tensor);
        int64_t saved = count / graph->tensors[parameter->tensor].dims[0] * parameter->saved_rows;
        float *values = need_memory((size_t)count, sizeof(float));
        for (int64_t i = 0; i < saved && i < DRAWN_MAX; i++)
            values[i] = (float)((parameter->init == INIT_ONE ? 1.0 : 0.0) +
                                0.3 * rig_normal(rig->seed, (uint64_t)p, (uint64_t)i));
        for (int64_t i = DRAWN_MAX; i < saved; i++)
            values[i] = values[i - DRAWN_MAX];
        int32_t home = model_parameter_home(parameter);
        rig_need(values_upload(rig->exec, graph, home, 0, values, count) == GT_OK, "upload");
        memset(values, 0, (size_t)count * sizeof(float));
        if (parameter->m != TENSOR_NONE)
            rig_need(exec_upload(rig->exec, parameter->m, 0, values, count) == GT_OK, "upload");
        if (parameter->v != TENSOR_NONE)
            rig_need(exec_upload(rig->exec, parameter->v, 0, values, count) == GT_OK, "upload");
        free(values);
    }
    if (rig->model->refresh.program >= 0)
        rig_need(exec_run(rig->exec, rig->model->refresh.program) == GT_OK, "refresh");
}

static void corrections_fill(struct rig *rig)
{
    const struct model_options *options = &rig->model->options;
    for (int32_t row = 0; row < options->correction_rows && options->train; row++) {
        float pair[2] = {(float)(1.0 - pow((double)options->beta1, row + 1)),
                         (float)(1.0 - pow((double)options->beta2, row + 1))};
        rig_need(exec_upload(rig->exec, rig->model->corrections, 2 * (int64_t)row, pair, 2) ==
                     GT_OK,
                 "upload");
    }
}

void rig_open(struct rig *rig, const struct model_options *options, const struct rig_how *how,
              uint64_t seed)
{
    struct backend_open_options open = {.threads = how->threads};
    struct backend_info info;
    *rig = (struct rig){.seed = seed};
    rig_need(hostmem_create(&rig->mem) == GT_OK, "hostmem");
    rig_need(model_create(rig->mem, options, &rig->model) == GT_OK, "model");
    const char *name = getenv("GPT_TRAIN_BACKEND");
    const struct backend_ops *backend = backend_find(name != NULL ? name : "cpu");
    rig_need(backend != NULL && backend->open(&open, &rig->device) == GT_OK, "device");
    rig->device->record = &rig->record;
    rig_need(rig->device->ops->info(rig->device, &info) == GT_OK, "device info");
    struct plan_options plan = {.device = rig->device,
                                .alignment_bytes = info.alignment_bytes,
                                .largest_segment_bytes = info.largest_allocation_bytes,
                                .guard_bytes = how->guard_bytes};
    rig_need(plan_create(rig->mem, rig->model->graph, &plan, &rig->plan) == GT_OK, "plan");
    rig_need(exec_create(rig->mem, rig->device, rig->plan, how->poison, &rig->exec) == GT_OK,
             "exec");
    rig->scalars[SCALAR_LEARNING_RATE].f = 1e-2f;
    rig->scalars[SCALAR_LOSS_GRADIENT].f = 0.02f;
    rig->scalars[SCALAR_UNSCALE].f = 1.0f;
    rig->scalars[SCALAR_STEP].i = 5;
    rig->scalars[SCALAR_SEED_LO].u = (uint32_t)seed;
    weights_fill(rig);
    corrections_fill(rig);
}

void rig_close(struct rig *rig)
{
    hostmem_phase_set(rig->mem, HOSTMEM_CLOSE);
    hostmem_free(rig->exec);
    hostmem_free(rig->plan);
    rig->device->ops->close(rig->device);
    hostmem_free(rig->model);
    hostmem_destroy(rig->mem);
}

void rig_order(const int32_t *ids, int64_t rows, int32_t *order, int32_t *starts)
{
    int32_t id_max = 0, groups = 0;
    int64_t at = 0;
    memset(starts, 0, (size_t)(rows + 2) * sizeof(int32_t));
    for (int64_t i = 0; i < rows; i++)
        id_max = ids[i] > id_max ? ids[i] : id_max;
    for (int32_t id = 0; id <= id_max; id++) {
        int64_t begin = at;
        for (int64_t i = 0; i < rows; i++) {
            if (ids[i] == id)
                order[at++] = (int32_t)i;
        }
        if (at > begin)
            starts[1 + groups++] = (int32_t)begin;
    }
    starts[0] = groups;
    starts[1 + groups] = (int32_t)rows;
}

void rig_rows_upload(struct rig *rig, const struct program_io *io, const int32_t *ids,
                     const int32_t *targets)
{
    int64_t rows = (int64_t)io->batch * io->time;
    int32_t *order = need_memory((size_t)rows, sizeof *order),
            *starts = need_memory((size_t)rows + 2, sizeof *starts);
    int32_t *first = need_memory((size_t)rows, sizeof *first);
    const struct {
        int32_t tensor;
        const int32_t *from;
        int64_t count;
    } parts[] = {{io->ids, ids, rows},
                 {io->targets, targets, rows},
                 {io->first, first, rows},
                 {io->order, order, rows},
                 {io->starts, starts, rows + 2}};
    rig_order(ids, rows, order, starts);
    for (int64_t n = 0; n < rows; n++)
        first[n] = n % io->time == 0       ? 0
                   : ids[n - 1] == RIG_END ? (int32_t)(n % io->time)
                                           : first[n - 1];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        rig_need(parts[i].tensor == TENSOR_NONE ||
                     exec_upload(rig->exec, parts[i].tensor, 0, parts[i].from, parts[i].count) ==
                         GT_OK,
                 "upload of rows");
    free(first);
    free(starts);
    free(order);
}

void rig_feed(struct rig *rig, const struct program_io *io, uint64_t which)
{
    int64_t rows = (int64_t)io->batch * io->time;
    int32_t vocab = rig->model->options.config.vocab_size;
    int32_t *ids = need_memory((size_t)(2 * rows), sizeof *ids), *targets = ids + rows;
    for (int64_t i = 0; i < 2 * rows; i++)
        ids[i] = (int32_t)(rig_uniform(rig->seed, STREAM_DATA + which, (uint64_t)i) * vocab);
    for (int64_t i = 4; i < rows; i += 9)
        targets[i] = -1;
    rig_rows_upload(rig, io, ids, targets);
    free(ids);
}

const struct program_io *rig_step_io(const struct rig *rig, int32_t k)
{
    const struct model *model = rig->model;
    if (k == 0)
        return &model->train_first;
    bool last = k == model->options.micro_steps - 1;
    return last && model->options.choice.remainder_batch > 0 ? &model->train_remainder
                                                             : &model->train_next;
}

void rig_run(struct rig *rig, int32_t program)
{
    int32_t scalars = rig->model->scalars;
    rig_need(exec_upload(rig->exec, scalars, 0, rig->scalars, SCALAR_WORDS) == GT_OK,
             "upload of scalars");
    rig_need(exec_run(rig->exec, program) == GT_OK, "a program fails");
    rig_need(exec_download(rig->exec, scalars, 0, rig->scalars, SCALAR_WORDS) == GT_OK,
             "download of scalars");
}

void *rig_download(struct rig *rig, int32_t tensor)
{
    int64_t count = graph_tensor_elements(rig->model->graph, tensor);
    void *values = need_memory((size_t)count, sizeof(float));
    if (rig->model->graph->tensors[tensor].dtype == DTYPE_I32)
        rig_need(exec_download(rig->exec, tensor, 0, values, count) == GT_OK, "download");
    else
        rig_need(values_download(rig->exec, rig->model->graph, tensor, 0, values, count) == GT_OK,
                 "download");
    return values;
}

void replica_create(const struct graph *graph, struct replica *out)
{
    *out = (struct replica){graph, need_memory((size_t)graph->tensor_count, sizeof(double *))};
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        if (graph->tensors[t].base == TENSOR_NONE)
            out->value[t] = need_memory((size_t)graph_tensor_elements(graph, t), sizeof(double));
    }
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        if (graph->tensors[t].base != TENSOR_NONE)
            out->value[t] = out->value[graph_storage(graph, t)] + graph->tensors[t].view_offset;
    }
}

void replica_destroy(struct replica *replica)
{
    for (int32_t t = TENSOR_FIRST; t < replica->graph->tensor_count; t++) {
        if (replica->graph->tensors[t].base == TENSOR_NONE)
            free(replica->value[t]);
    }
    free(replica->value);
}

void replica_poison(struct replica *replica)
{
    for (int32_t t = TENSOR_FIRST; t < replica->graph->tensor_count; t++) {
        int64_t count = graph_tensor_elements(replica->graph, t);
        for (int64_t i = 0; i < count; i++)
            replica->value[t][i] = (double)NAN;
    }
}

static void replica_op(struct replica *replica, const struct op *op, bool rounds)
{
    struct op_call call;
    struct ref_tensors tensors = {.value = {NULL}};
    const int32_t operands = op_declaration(op->kind)->operands;
    graph_call(replica->graph, op, &call);
    for (int32_t s = 0; s < operands; s++) {
        if (op->operand[s] == TENSOR_NONE)
            continue;
        tensors.value[s] = replica->value[op->operand[s]];
        tensors.term[s] = need_memory((size_t)graph_tensor_elements(replica->graph, op->operand[s]),
                                      sizeof(double));
    }
    ref_run(&call, &tensors);
    for (int32_t s = 0; s < operands; s++) {
        bool stores = rounds && op->operand[s] != TENSOR_NONE &&
                      op_direction(op->kind, &op->attrs, s) != OPERAND_IN;
        for (int64_t k = 0; stores && k < graph_tensor_elements(replica->graph, op->operand[s]);
             k++)
            tensors.value[s][k] = image_rounded(call.operand[s].dtype, tensors.value[s][k]);
        free(tensors.term[s]);
    }
}

void replica_run(struct replica *replica, int32_t program, bool rounds)
{
    const struct program *ops = &replica->graph->programs[program];
    for (int32_t i = 0; i < ops->count; i++)
        replica_op(replica, &ops->ops[i], rounds);
}

/* Converts the block of scalars, whose words have three types. */
static void scalars_load(double *to, const union scalar_word *from)
{
    for (int32_t slot = 0; slot < SCALAR_WORDS; slot++) {
        to[slot] = scalar_is_float(slot) ? (double)from[slot].f : (double)from[slot].i;
        if (slot == SCALAR_SEED_LO || slot == SCALAR_SEED_HI)
            to[slot] = (double)from[slot].u;
    }
}

void replica_load(struct replica *replica, struct rig *rig, int32_t program)
{
    const struct graph *graph = replica->graph;
    struct tensor_range *ranges = need_memory((size_t)graph->tensor_count, sizeof *ranges);
    graph_ranges(graph, program, ranges);
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        bool kept =
            tensor->lifetime != LIFETIME_PROGRAM && tensor->phase == graph->programs[program].phase;
        bool input = tensor->input && ranges[t].first != graph->programs[program].count;
        if (tensor->base != TENSOR_NONE || !(kept || input || tensor->lifetime == LIFETIME_RUN))
            continue;
        void *values = rig_download(rig, t);
        int64_t count = graph_tensor_elements(graph, t);
        for (int64_t i = 0; i < count; i++)
            replica->value[t][i] = tensor->dtype == DTYPE_I32 ? (double)((const int32_t *)values)[i]
                                                              : (double)((const float *)values)[i];
        free(values);
    }
    scalars_load(replica->value[rig->model->scalars], rig->scalars);
    free(ranges);
}

double replica_distance(const float *a, const double *b, int64_t count)
{
    double difference = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return difference == 0.0 ? 0.0 : sqrt(difference / size);
}
