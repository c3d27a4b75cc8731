/* The model: the parameters and programs of one run, in one graph.
 *
 * The same forward builder makes every program, with different sizes; the training programs then go
 * through autodiff. Nothing here knows about memory: the planner decides which programs share it.
 */

#include "model/model_create.h"

#include <math.h>

#include "base/heads.h"
#include "base/size.h"
#include "model/left_out.h"
#include "model/micro_step.h"
#include "model/parameters.h"
#include "model/parts.h"
#include "model/transformer.h"
#include "model/update.h"

#define HEAD_DIM_MAX 65536 /* as in keys.def */

static bool complain(bool bad, const char *text, int64_t value)
{
    if (bad)
        log_error("%s (it is %" PRId64 ")", text, value);
    return bad;
}

enum gt_status model_config_check(const struct model_config *config)
{
    bool bad = false;
    bad |= complain(config->n_layer < 1 || config->n_layer > 16383,
                    "n_layer must be between 1 and 16383", config->n_layer);
    bad |= complain(config->n_head < 1 || config->n_head > 32767,
                    "n_head must be between 1 and 32767", config->n_head);
    bad |= complain(config->n_embd < 1, "n_embd must be at least 1", config->n_embd);
    bad |= complain(config->block_size < 1, "block_size must be at least 1", config->block_size);
    bad |= complain(config->vocab_size < 1, "vocab_size must be at least 1", config->vocab_size);
    bad |= complain(config->padded_vocab_size < config->vocab_size,
                    "the padded vocabulary must not be smaller than "
                    "vocab_size",
                    config->padded_vocab_size);
    bad |= complain(!(config->dropout >= 0.0f && config->dropout < 1.0f),
                    "dropout must be in [0, 1), in percent", (int64_t)(config->dropout * 100.0f));
    if (!bad && config->head_dim == 0 && config->n_embd % config->n_head != 0) {
        struct heads_shape shape = {config->n_layer, config->n_head, config->n_embd,
                                    config->vocab_size, config->bias};
        char nearest[HEADS_TEXT_MAX];
        log_error("n_embd (%" PRId32 ") must be a multiple of n_head (%" PRId32 "): %s",
                  config->n_embd, config->n_head, heads_nearest_text(nearest, &shape));
        bad = true;
    }
    if (!bad && (config->n_kv_head < 1 || config->n_head % config->n_kv_head != 0)) {
        log_error("n_head (%" PRId32 ") must be a multiple of n_kv_head (%" PRId32 ")",
                  config->n_head, config->n_kv_head);
        bad = true;
    }
    if (!bad && config->full_attention_interval > 0) {
        const int32_t heads = config->linear_num_value_heads,
                      key_heads = config->linear_num_key_heads;
        bad |= complain(key_heads < 1 || heads < 1 || heads % key_heads != 0,
                        "linear_num_value_heads must be a multiple of linear_num_key_heads, and "
                        "not 0",
                        heads);
        bad |= complain(config->linear_value_head_dim < 1,
                        "linear_value_head_dim must be at least 1", config->linear_value_head_dim);
        bad |= complain(config->linear_conv_kernel_dim < 2 ||
                            config->linear_conv_kernel_dim > OP_CONV_TAPS,
                        "linear_conv_kernel_dim must be 2 to 8", config->linear_conv_kernel_dim);
    }
    const int32_t size = bad ? 0 : model_head_dim(config);
    const int64_t keys = bad ? 0 : config->n_kv_head * (int64_t)size,
                  least = min_i64(config->n_embd, keys);
    bad |= complain(!bad && config->lora.rank > min_i64(least, model_inner_width(config)),
                    "lora_rank must not be above a dimension of a matrix that it adapts",
                    config->lora.rank);
    bad |= complain(config->position == POSITION_ROPE && (size % 2 != 0 || size > HEAD_DIM_MAX),
                    "rotary positions need an even head_dim of at most 65536", size);
    if (bad || config->position != POSITION_ROPE)
        return bad ? GT_USAGE : GT_OK;
    const int32_t turned = model_turned_dim(config);
    bad |=
        complain(turned < 2 || turned > size || turned % 2 != 0,
                 "partial_rotary_factor must rotate an even number of a head's dimensions", turned);
    bad |=
        complain(config->rope.scaling == ROPE_SCALING_LONGROPE && config->rope.pairs != turned / 2,
                 "rope_scaling's longrope must have a divisor for each pair of a head, twice",
                 config->rope.pairs);
    return bad ? GT_USAGE : GT_OK;
}

double model_bytes_per_parameter(const struct model *model)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *p = &model->parameters.at[i];
        const int32_t tensors[] = {p->gradient, p->tensor, p->master, p->part_gradient,
                                   p->m,        p->v,      p->scales};
        /* An update's gradient that takes the place of the part's is counted once. */
        const bool in_place = p->part_gradient != TENSOR_NONE && p->gradient != TENSOR_NONE &&
                              graph_storage(model->graph, p->gradient) == p->part_gradient;
        for (size_t k = in_place ? 1 : 0; k < sizeof tensors / sizeof tensors[0]; k++)
            if (tensors[k] != TENSOR_NONE &&
                model->graph->tensors[tensors[k]].lifetime != LIFETIME_PROGRAM)
                bytes += (double)graph_tensor_bytes(model->graph, tensors[k]);
    }
    return bytes / (double)model_parameter_count(&model->options.config);
}

/* Returns the number of tokens for which attention costs as many FLOPs as the gated delta rule:
 * three products with S, and twice as many in the backward pass. */
static double delta_seen(const struct model_config *config)
{
    const double size = config->linear_value_head_dim,
                 products = 18.0 * size * size * config->linear_num_value_heads;
    return products / (12.0 * (double)model_attention_width(config));
}

double model_flops_per_token(const struct model_config *config)
{
    double seen = 0.0; /* tokens, in all layers */
    for (int32_t layer = 0; layer < config->n_layer; layer++) {
        const int32_t window = shape_window(&config->shape, layer);
        if (shape_is_linear(&config->shape, layer)) {
            seen += delta_seen(config);
            continue;
        }
        seen += window > 0 && window < config->block_size ? window : config->block_size;
    }
    const double attention = 12.0 * (double)model_attention_width(config) * seen;
    const double lookup = config->untied ? (double)config->vocab_size * config->n_embd
                                         : 0.0; /* a lookup is no product */
    const double used = (double)model_parameter_count_no_positions(config) - lookup;
    const double frozen = config->lora.rank > 0 ? used - (double)model_adapter_count(config) : 0.0;
    return 6.0 * used - 2.0 * frozen + attention;
}

int32_t model_runs(const struct model_options *options, enum program_kind program)
{
    const int32_t rounds = model_parts(options) / model_ranks(options);
    const bool in_step = model_adds_in_step(options);
    switch (program) {
    case PROGRAM_TRAIN_FIRST:
        return in_step ? 1 : rounds;
    case PROGRAM_TRAIN_NEXT:
        return in_step
                   ? rounds - 1
                   : rounds * (options->micro_steps - 1 - (options->choice.remainder_batch > 0));
    case PROGRAM_TRAIN_REMAINDER:
        return rounds;
    case PROGRAM_PART_NEXT:
        return rounds - 1;
    case PROGRAM_REFRESH:
        return 0;
    default:
        return 1;
    }
}

int32_t model_correction_rows(float beta1, float beta2, int64_t updates)
{
    int32_t rows = 1;
    while (rows < updates && rows < INT32_MAX / 2) {
        float first = (float)(1.0 - pow((double)beta1, rows)),
              second = (float)(1.0 - pow((double)beta2, rows));
        if (first == 1.0f && second == 1.0f)
            break;
        rows++;
    }
    return rows;
}

/* Adds a vector that the host writes before a program, or reads after it if not `input`. */
static enum gt_status data_add(struct graph *graph, enum program_kind program, const char *name,
                               int64_t count, bool input, int32_t *out)
{
    struct tensor tensor = {.dtype = input ? DTYPE_I32 : DTYPE_F32,
                            .rank = 1,
                            .dims = {count},
                            .category = input ? CATEGORY_DATA : CATEGORY_TEMPORARY,
                            .phase = program_kind_phase(program),
                            .lifetime = LIFETIME_PROGRAM,
                            .input = input,
                            .output = !input};
    snprintf(tensor.name, sizeof tensor.name, "%s.%s", program_kind_name(program), name);
    return graph_tensor_add(graph, &tensor, out);
}

/* Adds a program that computes losses: its tensors and its forward ops. */
static enum gt_status loss_program_build(struct model *model, enum program_kind kind, int32_t batch,
                                         struct program_io *io)
{
    struct graph *graph = model->graph;
    int32_t most = model->options.config.block_size, requested = model->options.evaluate_time;
    io->batch = batch;
    io->time = kind == PROGRAM_EVALUATE && requested > 0 && requested < most ? requested : most;
    int64_t rows = (int64_t)batch * io->time;
    TRY(graph_program_add(graph, kind, &io->program));
    TRY(data_add(graph, kind, "ids", rows, true, &io->ids));
    TRY(data_add(graph, kind, "targets", rows, true, &io->targets));
    if (model->options.document_mask)
        TRY(data_add(graph, kind, "first", rows, true, &io->first));
    TRY(data_add(graph, kind, "losses", rows, false, &io->losses));
    return transformer_build_loss(model, io, kind != PROGRAM_EVALUATE);
}

/* Adds part gradients, like those of part_gradients_add(), for the one program that adds them up.
 */
static enum gt_status program_gradients_add(struct model *model, enum program_kind program)
{
    for (int32_t i = 0; i < model->parameters.count; i++) {
        struct parameter *parameter = &model->parameters.at[i];
        if (parameter->part_gradient == TENSOR_NONE)
            continue;
        struct tensor own = model->graph->tensors[parameter->part_gradient];
        NAME_JOIN(own.name, sizeof own.name, program_kind_name(program), ".", parameter->name,
                  ".part_grad");
        TRY(graph_tensor_add(model->graph, &own, &parameter->part_gradient));
    }
    return GT_OK;
}

/* Builds the program of a micro-step.  `first`: it is the first of the update if it is a whole
 * part, else the first of its part. */
static enum gt_status train_program_build(struct model *model, enum program_kind kind,
                                          int32_t batch, bool first, struct program_io *io)
{
    const bool in_step = model_adds_in_step(&model->options);
    struct graph *graph = model->graph;
    int64_t rows = (int64_t)batch * model->options.config.block_size;
    if (model->options.config.lora.rank == 0) { /* else the embedding has no backward pass */
        TRY(data_add(graph, kind, "order", rows, true, &io->order));
        TRY(data_add(graph, kind, "starts", rows + 2, true, &io->starts));
    }
    TRY(loss_program_build(model, kind, batch, io));
    if (in_step)
        TRY(program_gradients_add(model, kind));
    TRY(micro_step_backward(model, kind, first || in_step, io));
    return in_step ? parts_insert(model, io->program, first) : GT_OK;
}

/* Adds the gradients of one part.  The update's gradients, their sums, are fp32; a rank has those
 * whose states it has.  If each rank computes one part, its own fp32 gradient becomes the sum in
 * place, unless it lives only within its program. */
static enum gt_status part_gradients_add(struct model *model)
{
    struct graph *graph = model->graph;
    const bool in_step = model_adds_in_step(&model->options);
    const bool once = !in_step && model_parts(&model->options) == model_ranks(&model->options);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        struct parameter *parameter = &model->parameters.at[i];
        const int32_t part = parameter->part_gradient = parameter->gradient;
        if (part == TENSOR_NONE)
            continue;
        struct tensor sum = graph->tensors[part];
        NAME_JOIN(graph->tensors[part].name, sizeof sum.name, parameter->name, ".part_grad");
        if (in_step) { /* only a pattern for those of the programs */
            graph->tensors[part].lifetime = LIFETIME_PROGRAM;
            graph->tensors[part].home = SPACE_DEVICE;
        }
        if (parameter->owner >= 0 && parameter->owner != model->options.rank)
            parameter->gradient = TENSOR_NONE;
        else if (!once || sum.dtype != DTYPE_F32) {
            sum.dtype = DTYPE_F32;
            TRY(parameters_state_add(graph, parameter, &sum, &parameter->gradient));
        } else if (parameter->owner == OWNER_UNITS)
            TRY(graph_range_add(graph, part, parameter->first, parameter->count,
                                &parameter->gradient));
    }
    return GT_OK;
}

bool model_moves_gradients(const struct model *model)
{
    bool any = false;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        any |= !parameter->frozen && parameter->gradient_home == SPACE_HOST;
    }
    return any;
}

/* Adds the sums of squares of gradients in host memory, if any is there and an update is one part.
 */
static enum gt_status sums_add(struct model *model)
{
    const struct tensor sums = {.name = "gradient.squares",
                                .dtype = DTYPE_F32,
                                .rank = 1,
                                .dims = {parameters_units(&model->parameters)},
                                .phase = PHASE_TRAIN,
                                .category = CATEGORY_GRADIENT,
                                .lifetime = LIFETIME_PHASE};
    return model_moves_gradients(model) && model_parts(&model->options) == 1
               ? graph_tensor_add(model->graph, &sums, &model->sums)
               : GT_OK;
}

/* Builds the programs of micro-steps. */
static enum gt_status steps_build(struct model *model)
{
    const struct model_options *options = &model->options;
    const int32_t batch = options->choice.micro_batch, rest = options->choice.remainder_batch;
    const bool has_next = model_runs(options, PROGRAM_TRAIN_NEXT) > 0;
    if (options->train_programs == TRAIN_ALL || !has_next || model_moves_gradients(model))
        TRY(train_program_build(model, PROGRAM_TRAIN_FIRST, batch, true, &model->train_first));
    if (has_next)
        TRY(train_program_build(model, PROGRAM_TRAIN_NEXT, batch, false, &model->train_next));
    return rest == 0 ? GT_OK
                     : train_program_build(model, PROGRAM_TRAIN_REMAINDER, rest, false,
                                           &model->train_remainder);
}

static enum gt_status train_build(struct model *model)
{
    const struct model_options *options = &model->options;
    assert(options->micro_steps > (options->choice.remainder_batch > 0));
    if (model_parts(options) > 1)
        TRY(part_gradients_add(model));
    TRY(sums_add(model));
    if (options->train_programs != TRAIN_UPDATE)
        TRY(steps_build(model));
    if (options->train_programs == TRAIN_STEPS)
        return GT_OK;
    TRY(parts_build(model));
    TRY(update_build(model));
    TRY(gather_build(model));
    return refresh_build(model);
}

static enum gt_status generate_program_build(struct model *model, enum program_kind kind,
                                             int32_t time, int32_t cache, bool logits,
                                             struct program_io *io)
{
    struct graph *graph = model->graph;
    io->batch = model->options.generate_batch;
    io->time = time;
    TRY(graph_program_add(graph, kind, &io->program));
    TRY(data_add(graph, kind, "ids", (int64_t)io->batch * time, true, &io->ids));
    TRY(transformer_build_generate(model, io, cache, logits ? &io->logits : NULL));
    if (logits)
        graph->tensors[io->logits].output = true;
    return GT_OK;
}

int64_t model_cache_rows(const struct model_config *config, int32_t prefill_time, int32_t layer)
{
    return op_cache_rows(shape_window(&config->shape, layer), prefill_time, config->block_size);
}

/* Adds the tensor in which a layer keeps earlier tokens: keys and values, or the last rows that a
 * convolution reads; with `state`, S of the gated delta rule. */
static enum gt_status cache_add(struct model *model, int32_t layer, bool state)
{
    const struct model_config *config = &model->options.config;
    const int64_t batch = model->options.generate_batch, size = config->linear_value_head_dim;
    const bool linear = shape_is_linear(&config->shape, layer);
    struct tensor cache = {.dtype = state ? DTYPE_F32 : model->options.dtype,
                           .rank = linear ? 3 : 4,
                           .category = CATEGORY_CACHE,
                           .lifetime = LIFETIME_PHASE,
                           .phase = PHASE_GENERATE,
                           .dims = {2, batch,
                                    model_cache_rows(config, model->options.prefill_time, layer),
                                    (int64_t)config->n_kv_head * model_head_dim(config)}};
    const int64_t rows[4] = {batch, config->linear_conv_kernel_dim - 1,
                             (2 * config->linear_num_key_heads + config->linear_num_value_heads) *
                                 size,
                             0},
                  states[4] = {batch * config->linear_num_value_heads, size, size, 0};
    if (linear)
        memcpy(cache.dims, state ? states : rows, sizeof cache.dims);
    int32_t t;
    snprintf(cache.name, sizeof cache.name, "h.%" PRId32 ".%s", layer, state ? "state" : "cache");
    return graph_tensor_add(model->graph, &cache, &t);
}

static enum gt_status generate_build(struct model *model)
{
    const struct model_config *config = &model->options.config;
    const int32_t first = model->graph->tensor_count, time = model->options.prefill_time;
    for (int32_t layer = 0; layer < config->n_layer; layer++)
        TRY(cache_add(model, layer, false));
    for (int32_t layer = 0; layer < config->n_layer; layer++)
        if (shape_is_linear(&config->shape, layer))
            TRY(cache_add(model, layer, true));
    TRY(generate_program_build(model, PROGRAM_PREFILL, time, first, false, &model->prefill));
    return generate_program_build(model, PROGRAM_DECODE, 1, first, true, &model->decode);
}

/* Adds a table of the whole run; 0 columns: a vector. */
static enum gt_status table_add(struct graph *graph, const char *name, int64_t rows,
                                int64_t columns, int32_t *out)
{
    struct tensor table = {.dtype = DTYPE_F32,
                           .rank = columns > 0 ? 2 : 1,
                           .dims = {rows, columns},
                           .category = CATEGORY_DATA,
                           .lifetime = LIFETIME_RUN};
    snprintf(table.name, sizeof table.name, "%s", name);
    return graph_tensor_add(graph, &table, out);
}

/* Adds tensors in host memory for the inputs of the blocks at RECOMPUTE_OFFLOAD, which are the
 * first. */
static enum gt_status inputs_add(struct model *model)
{
    const struct model_options *options = &model->options;
    const int64_t rows = (int64_t)options->choice.micro_batch * options->config.block_size;
    model->inputs = model->graph->tensor_count;
    for (int32_t layer = 0, t; layer < options->choice.recompute.blocks[RECOMPUTE_OFFLOAD];
         layer++) {
        char name[24];
        snprintf(name, sizeof name, "h.%" PRId32 ".input", layer);
        TRY(table_add(model->graph, name, rows, options->config.n_embd, &t));
        struct tensor *input = &model->graph->tensors[t];
        input->dtype = options->dtype;
        input->category = CATEGORY_ACTIVATION;
        input->home = SPACE_HOST;
    }
    return GT_OK;
}

static enum gt_status tables_add(struct model *model)
{
    const struct model_config *config = &model->options.config;
    for (int32_t parts = 1; config->lora.rank > 0 && parts <= PARAMETER_RANGES_MAX; parts++) {
        int32_t *table = &model->expand[parts - 1];
        TRY(table_add(model->graph, "expand", parts * config->lora.rank, parts * config->lora.rank,
                      table));
        model->graph->tensors[*table].dtype = model->options.dtype;
    }
    TRY(table_add(model->graph, "scalars", SCALAR_WORDS, 0, &model->scalars));
    if (config->position == POSITION_ROPE)
        TRY(table_add(model->graph, "angles", config->block_size, model_turned_dim(config),
                      &model->angles));
    if (config->position == POSITION_ROPE && config->rope_local_theta > 0.0 &&
        config->sliding_window > 0)
        TRY(table_add(model->graph, "local_angles", config->block_size, model_head_dim(config),
                      &model->local_angles));
    if (model->options.train)
        TRY(table_add(model->graph, "corrections", model->options.correction_rows, 2,
                      &model->corrections));
    return model->options.train ? inputs_add(model) : GT_OK;
}

/* Lets copies from host memory begin earlier, so that they run during computing: where the second
 * copy before has ended, but in a micro-step not before the block that runs before the copy's own.
 * A block's copy does not begin during the loss, whose logits leave little room.  Programs of
 * update.c have an order of their own. */
static void fetches_advance(const struct graph *graph, struct program *program)
{
    struct op *ops = program->ops;
    int32_t ended[2] = {0, 0}; /* the places after the last wait but one, and after the last */
    for (int32_t i = 0, block = 0, begin = 0, layer = -1; i < program->count; i++) {
        const struct op op = ops[i];
        if (op.layer != layer) {
            begin = layer < 0 && op.layer >= 0 ? i : block;
            block = i;
            layer = op.layer;
        }
        const int32_t to = ended[0] > begin ? ended[0] : begin;
        if (op.kind == OP_FETCH) {
            memmove(&ops[to + 1], &ops[to], (size_t)(i - to) * sizeof *ops);
            ops[to] = op;
        }
        if (op.kind == OP_WAIT && !op.attrs.exchanged && op.operand[WAIT_X] != TENSOR_NONE &&
            graph->tensors[op.operand[WAIT_X]].home == SPACE_HOST) {
            ended[0] = ended[1];
            ended[1] = i + 1;
        }
    }
}

static enum gt_status programs_build(struct model *model)
{
    const struct model_options *options = &model->options;
    const struct parameter_options parameters = {.dtype = options->dtype,
                                                 .states = options->train,
                                                 .format = options->states,
                                                 .muon = options->muon,
                                                 .offload = options->choice.offload,
                                                 .parts = model_parts(options),
                                                 .ranks = model_ranks(options),
                                                 .rank = options->rank,
                                                 .init = options->init};
    assert(!state_format_is_lean(options->states) || options->dtype == DTYPE_BF16);
    TRY(parameters_create(model->graph, &options->config, &parameters, &model->parameters));
    TRY(tables_add(model));
    if (options->train && options->train_programs == TRAIN_STEPS)
        TRY(left_out_find(model));
    if (options->train)
        TRY(train_build(model));
    if (options->evaluate)
        TRY(loss_program_build(model, PROGRAM_EVALUATE, options->choice.evaluate_batch,
                               &model->evaluate));
    if (options->generate)
        TRY(generate_build(model));
    for (int32_t p = 0; p < model->graph->program_count; p++) {
        struct program *program = &model->graph->programs[p];
        if (program->kind != PROGRAM_UPDATE && program->kind != PROGRAM_REFRESH)
            fetches_advance(model->graph, program);
    }
    return GT_OK;
}

enum gt_status model_create(const void *owner, const struct model_options *options,
                            struct model **out)
{
    TRY(model_config_check(&options->config));
    struct model *model;
    TRY(HOSTMEM_NEW(owner, 1, "model", &model));
    model->options = *options;
    const struct program_io none = {.program = -1};
    model->train_first = model->train_next = model->train_remainder = none;
    model->update = model->evaluate = model->prefill = model->decode = model->refresh = none;
    model->part_first = model->part_next = model->norm = model->gather = -1;
    enum gt_status status = graph_create(model, &model->graph);
    THEN(status, programs_build(model));
    return FINISH(status, out, model, hostmem_free);
}
