/* The model: parameters and the programs of one run over one graph.
 *
 * Every program is the same forward builder with other sizes; the training programs then go through autodiff.  Nothing
 * here knows about memory: which programs share what is the planner's business.
 */
#include "model/model.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/size.h"
#include "model/autodiff.h"
#include "model/gpt2.h"
#include "model/parameters.h"

static bool complain(bool bad, const char *text, int64_t value)
{
    if (bad)
        log_error("%s (it is %" PRId64 ")", text, value);
    return bad;
}

enum gt_status model_config_check(const struct model_config *config)
{
    bool bad = false;
    bad |= complain(config->n_layer < 1 || config->n_layer > 16383, "n_layer must be between 1 and 16383",
                    config->n_layer);
    bad |= complain(config->n_head < 1 || config->n_head > 32767, "n_head must be between 1 and 32767", config->n_head);
    bad |= complain(config->n_embd < 1, "n_embd must be at least 1", config->n_embd);
    bad |= complain(config->block_size < 1, "block_size must be at least 1", config->block_size);
    bad |= complain(config->vocab_size < 1, "vocab_size must be at least 1", config->vocab_size);
    bad |= complain(config->padded_vocab_size < config->vocab_size,
                    "the padded vocabulary must not be smaller than "
                    "vocab_size",
                    config->padded_vocab_size);
    bad |= complain(!(config->dropout >= 0.0f && config->dropout < 1.0f), "dropout must be in [0, 1), in percent",
                    (int64_t)(config->dropout * 100.0f));
    if (!bad && config->n_embd % config->n_head != 0) {
        log_error("n_embd (%" PRId32 ") must be a multiple of n_head (%" PRId32 ")", config->n_embd, config->n_head);
        bad = true;
    }
    if (!bad && (config->n_kv_head < 1 || config->n_head % config->n_kv_head != 0)) {
        log_error("n_head (%" PRId32 ") must be a multiple of n_kv_head (%" PRId32 ")", config->n_head,
                  config->n_kv_head);
        bad = true;
    }
    return bad ? GT_USAGE : GT_OK;
}

int64_t model_parameter_count_no_positions(const struct model_config *config)
{
    int64_t c = config->n_embd, qkv = model_qkv_width(config), bias = config->bias;
    int64_t block = (2 + 2 * bias) * c + c * qkv + c * c + 8 * c * c + bias * (qkv + c + 4 * c + c);
    return config->vocab_size * c + config->n_layer * block + (1 + bias) * c;
}

int64_t model_parameter_count(const struct model_config *config)
{
    return model_parameter_count_no_positions(config) + (int64_t)config->block_size * config->n_embd;
}

double model_flops_per_token(const struct model_config *config)
{
    double attention = 12.0 * config->n_layer * (double)config->n_embd * config->block_size;
    return 6.0 * (double)model_parameter_count_no_positions(config) + attention;
}

int32_t model_correction_rows(float beta1, float beta2, int64_t updates)
{
    int32_t rows = 1;
    while (rows < updates && rows < INT32_MAX / 2) {
        float first = (float)(1.0 - pow((double)beta1, rows)), second = (float)(1.0 - pow((double)beta2, rows));
        if (first == 1.0f && second == 1.0f)
            break;
        rows++;
    }
    return rows;
}

static enum gt_status data_add(struct graph *graph, const char *program, const char *name, enum program_phase phase,
                               int64_t count, int32_t *out)
{
    struct tensor tensor = {.dtype = DTYPE_I32,
                            .rank = 1,
                            .dims = {count},
                            .category = CATEGORY_DATA,
                            .phase = phase,
                            .lifetime = LIFETIME_PROGRAM,
                            .base = TENSOR_NONE,
                            .input = true};
    snprintf(tensor.name, sizeof tensor.name, "%s.%s", program, name);
    return graph_tensor_add(graph, &tensor, out);
}

/* The tensors of a program that computes losses, and its forward ops. */
static enum gt_status loss_program_build(struct model *model, const char *name, enum program_phase phase, int32_t batch,
                                         struct program_io *io)
{
    struct graph *graph = model->graph;
    int64_t rows = (int64_t)batch * model->options.config.block_size;
    io->batch = batch;
    io->time = model->options.config.block_size;
    TRY(graph_program_add(graph, name, phase, &io->program));
    TRY(data_add(graph, name, "ids", phase, rows, &io->ids));
    TRY(data_add(graph, name, "targets", phase, rows, &io->targets));
    struct tensor losses = {.dtype = DTYPE_F32,
                            .rank = 1,
                            .dims = {rows},
                            .category = CATEGORY_TEMPORARY,
                            .phase = phase,
                            .lifetime = LIFETIME_PROGRAM,
                            .base = TENSOR_NONE,
                            .output = true};
    snprintf(losses.name, sizeof losses.name, "%s.losses", name);
    TRY(graph_tensor_add(graph, &losses, &io->losses));
    struct gpt2_build build = {
        .model = model,
        .program = io->program,
        .batch = batch,
        .time = io->time,
        .ids = io->ids,
        .targets = io->targets,
        .losses = io->losses,
        .cache = TENSOR_NONE,
        .train = phase == PHASE_TRAIN,
    };
    return gpt2_build_loss(&build);
}

static enum gt_status train_program_build(struct model *model, const char *name, int32_t batch, bool first,
                                          struct program_io *io)
{
    struct graph *graph = model->graph;
    int64_t rows = (int64_t)batch * model->options.config.block_size;
    TRY(data_add(graph, name, "order", PHASE_TRAIN, rows, &io->order));
    TRY(data_add(graph, name, "starts", PHASE_TRAIN, rows + 2, &io->starts));
    TRY(loss_program_build(model, name, PHASE_TRAIN, batch, io));
    void *array;
    int32_t count = model->parameters.count;
    TRY(hostmem_alloc(graph->mem, (size_t)count, sizeof(struct autodiff_parameter), "autodiff parameters", &array));
    struct autodiff_parameter *parameters = array;
    for (int32_t i = 0; i < count; i++)
        parameters[i] = (struct autodiff_parameter){model->parameters.at[i].tensor, model->parameters.at[i].gradient};
    struct autodiff_options options = {
        .program = io->program,
        .parameters = parameters,
        .parameter_count = count,
        .order = io->order,
        .starts = io->starts,
        .accumulate_parameters = !first,
    };
    enum gt_status status = autodiff_run(graph, &options);
    hostmem_free(graph->mem, array);
    return status;
}

static enum gt_status adamw_add(const struct graph_pen *pen, const struct model *model,
                                const struct parameter *parameter)
{
    const struct model_options *options = &model->options;
    struct op_attrs attrs = {
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->adam_epsilon,
        .weight_decay = parameter->decay ? options->weight_decay : 0.0f,
    };
    int32_t operands[ADAMW_OPERANDS] = {
        [ADAMW_GRAD] = parameter->gradient, [ADAMW_SCALARS] = model->scalars, [ADAMW_CORRECTIONS] = model->corrections,
        [ADAMW_PARAM] = parameter->tensor,  [ADAMW_M] = parameter->m,         [ADAMW_V] = parameter->v,
    };
    return graph_op_add(pen, OP_ADAMW, &attrs, parameter->name, operands);
}

/* The update: the norm of all gradients, the clip factor, AdamW for every parameter. */
static enum gt_status update_build(struct model *model)
{
    struct graph *graph = model->graph;
    struct program_io *io = &model->update;
    int32_t count = model->parameters.count, partials;
    TRY(graph_program_add(graph, "update", PHASE_TRAIN, &io->program));
    struct graph_pen pen = {graph, io->program, PASS_UPDATE, -1, 0, false};
    struct tensor tensor = {.name = "update.partials",
                            .dtype = DTYPE_F32,
                            .rank = 1,
                            .dims = {count},
                            .phase = PHASE_TRAIN,
                            .category = CATEGORY_TEMPORARY,
                            .lifetime = LIFETIME_PROGRAM,
                            .base = TENSOR_NONE};
    TRY(graph_tensor_add(graph, &tensor, &partials));
    for (int32_t i = 0; i < count; i++) {
        struct op_attrs attrs = {0};
        int32_t operands[SUM_OF_SQUARES_OPERANDS] = {[SUM_OF_SQUARES_X] = model->parameters.at[i].gradient};
        TRY(graph_view_add(graph, partials, i, 1, &operands[SUM_OF_SQUARES_PARTIAL]));
        TRY(graph_op_add(&pen, OP_SUM_OF_SQUARES, &attrs, model->parameters.at[i].name, operands));
    }
    struct op_attrs clip = {.clip_max = model->options.grad_clip};
    int32_t operands[CLIP_FACTOR_OPERANDS] = {
        [CLIP_FACTOR_PARTIALS] = partials, [CLIP_FACTOR_SCALARS] = model->scalars};
    TRY(graph_op_add(&pen, OP_CLIP_FACTOR, &clip, "clip", operands));
    for (int32_t i = 0; i < count; i++)
        TRY(adamw_add(&pen, model, &model->parameters.at[i]));
    return GT_OK;
}

static enum gt_status train_build(struct model *model)
{
    const struct model_options *options = &model->options;
    int32_t whole_steps = options->micro_steps - (options->remainder_batch > 0);
    assert(whole_steps >= 1);
    TRY(train_program_build(model, "train_first", options->micro_batch, true, &model->train_first));
    if (whole_steps > 1)
        TRY(train_program_build(model, "train_next", options->micro_batch, false, &model->train_next));
    if (options->remainder_batch > 0)
        TRY(train_program_build(model, "train_remainder", options->remainder_batch, false, &model->train_remainder));
    return update_build(model);
}

static enum gt_status generate_program_build(struct model *model, const char *name, int32_t time, int32_t cache,
                                             bool logits, struct program_io *io)
{
    struct graph *graph = model->graph;
    io->batch = model->options.generate_batch;
    io->time = time;
    TRY(graph_program_add(graph, name, PHASE_GENERATE, &io->program));
    TRY(data_add(graph, name, "ids", PHASE_GENERATE, (int64_t)io->batch * time, &io->ids));
    struct gpt2_build build = {
        .model = model,
        .program = io->program,
        .batch = io->batch,
        .time = time,
        .ids = io->ids,
        .targets = TENSOR_NONE,
        .losses = TENSOR_NONE,
        .cache = cache,
    };
    TRY(gpt2_build_generate(&build, logits ? &io->logits : NULL));
    if (logits)
        graph->tensors[io->logits].output = true;
    return GT_OK;
}

static enum gt_status generate_build(struct model *model)
{
    const struct model_config *config = &model->options.config;
    int64_t head_size = config->n_embd / config->n_head;
    struct tensor cache = {.name = "cache",
                           .dtype = DTYPE_F32,
                           .rank = 4,
                           .category = CATEGORY_CACHE,
                           .base = TENSOR_NONE,
                           .lifetime = LIFETIME_PHASE,
                           .phase = PHASE_GENERATE,
                           .dims = {2 * (int64_t)config->n_layer, model->options.generate_batch, config->block_size,
                                    config->n_kv_head * head_size}};
    int32_t tensor;
    TRY(graph_tensor_add(model->graph, &cache, &tensor));
    TRY(generate_program_build(model, "prefill", model->options.prefill_time, tensor, false, &model->prefill));
    return generate_program_build(model, "decode", 1, tensor, true, &model->decode);
}

/* The tensors that live from start to end beside the parameters. */
static enum gt_status tables_add(struct model *model)
{
    struct tensor scalars = {.name = "scalars",
                             .dtype = DTYPE_F32,
                             .rank = 1,
                             .dims = {SCALAR_WORDS},
                             .base = TENSOR_NONE,
                             .category = CATEGORY_DATA,
                             .lifetime = LIFETIME_RUN};
    TRY(graph_tensor_add(model->graph, &scalars, &model->scalars));
    model->corrections = TENSOR_NONE;
    if (!model->options.train)
        return GT_OK;
    struct tensor corrections = {.name = "corrections",
                                 .dtype = DTYPE_F32,
                                 .rank = 2,
                                 .base = TENSOR_NONE,
                                 .dims = {model->options.correction_rows, 2},
                                 .category = CATEGORY_DATA,
                                 .lifetime = LIFETIME_RUN};
    return graph_tensor_add(model->graph, &corrections, &model->corrections);
}

static enum gt_status programs_build(struct model *model)
{
    const struct model_options *options = &model->options;
    TRY(parameters_create(model->graph, &options->config, options->train, &model->parameters));
    TRY(tables_add(model));
    if (options->train)
        TRY(train_build(model));
    if (options->evaluate)
        TRY(loss_program_build(model, "evaluate", PHASE_EVALUATE, options->evaluate_batch, &model->evaluate));
    if (options->generate)
        TRY(generate_build(model));
    return GT_OK;
}

enum gt_status model_create(struct hostmem *mem, const struct model_options *options, struct model **out)
{
    TRY(model_config_check(&options->config));
    void *pointer;
    TRY(hostmem_alloc(mem, 1, sizeof(struct model), "model", &pointer));
    struct model *model = pointer;
    model->options = *options;
    struct program_io none = {-1, 0, 0, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    model->train_first = model->train_next = model->train_remainder = none;
    model->update = model->evaluate = model->prefill = model->decode = none;
    enum gt_status status = graph_create(mem, &model->graph);
    if (status != GT_OK) {
        hostmem_free(mem, model);
        return status;
    }
    status = programs_build(model);
    if (status != GT_OK) {
        model_destroy(model);
        return status;
    }
    if (!graph_check(model->graph)) {
        model_destroy(model);
        return GT_FAILURE;
    }
    *out = model;
    return GT_OK;
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    struct hostmem *mem = model->graph->mem;
    parameters_destroy(model->graph, &model->parameters);
    graph_destroy(model->graph);
    hostmem_free(mem, model);
}
