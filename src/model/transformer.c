/* The model's builder: one function per part of the model, each of which appends its ops to a
 * program.
 *
 * It defines the computation of GPT-2, in the order of nanoGPT's forward(), and of Llama's family,
 * in that of transformers' modeling_llama.py and its like.  It knows nothing about gradients,
 * memory or devices.  Training, evaluation and generation differ in three places: dropout, the loss
 * after the last layernorm, and the kind of attention.
 */

#include "model/transformer.h"

#include <math.h>

#include "base/size.h"
#include "model/left_out.h"
#include "model/parameters.h"

/* Places where dropout acts; the site number of a mask is layer * SITES + place. */
enum dropout_place {
    PLACE_ATTENTION,
    PLACE_ATTENTION_OUTPUT,
    PLACE_MLP_OUTPUT,
    PLACE_EMBEDDING,
    PLACES
};

struct builder {
    const struct model *model;
    const struct model_config *config;
    const struct program_io *io;
    char prefix[16]; /* "h.3." in block 3, "" outside the blocks */
    int32_t cache;   /* of the first layer; TENSOR_NONE: attend to the program's own rows */
    bool train;      /* apply dropout, and replace the logits by their gradient */
    struct graph_pen pen;
    enum recompute_level level; /* of the current block */
    struct parameter_places places;
};

static bool is_linear(const struct builder *b)
{
    return b->pen.layer >= 0 && shape_is_linear(&b->config->shape, b->pen.layer);
}

static int32_t parameter_tensor(const struct builder *b, int32_t index)
{
    return index < 0 ? TENSOR_NONE : b->model->parameters.at[index].tensor;
}

/* Returns the weight or bias of a layer of the current block, or of ln_f outside the blocks. */
static int32_t layer_tensor(const struct builder *b, enum block_layer which, bool bias)
{
    const int32_t layer = b->pen.layer < 0 ? b->config->n_layer : b->pen.layer;
    return parameter_tensor(b, parameters_index(&b->places, &b->config->shape, layer, which, bias));
}

/* Returns the matrix of adapters of a layer of the current block, or NULL. */
static const struct parameter *layer_adapter(const struct builder *b, enum block_layer which,
                                             enum adapter_matrix matrix)
{
    const int32_t at =
        parameters_adapter(&b->places, &b->config->shape, b->pen.layer, which, matrix);
    return at < 0 ? NULL : &b->model->parameters.at[at];
}

/* Appends an op of a recompute class.  Sets *out, unless `out` is NULL, to the op's result. */
static enum gt_status emit(const struct builder *b, enum op_kind kind, enum recompute_class class,
                           const char *name, union op_arguments *arguments, int32_t *out)
{
    char text[48];
    struct graph_pen pen = b->pen;
    const size_t begin = strlen(b->prefix);
    memcpy(text, b->prefix, begin);
    memcpy(text + begin, name, strlen(name) + 1);
    pen.recompute = recompute_includes(b->level, class);
    return graph_op_add(&pen, kind, text, arguments, out);
}

/* Appends an op whose operands and attributes are named: ADD(GEMM, b, "mlp.c_fc", &y, .a = x, .b =
 * weight). */
#define ADD(KIND, b, name, out, ...) \
    ADD_AS(op_declaration(OP_##KIND)->recompute, KIND, b, name, out, __VA_ARGS__)
/* The same for an op whose recompute class is not that of its kind. */
#define ADD_AS(class, KIND, b, name, out, ...) \
    emit(b, OP_##KIND, class, name, OP_ARGUMENTS(KIND, __VA_ARGS__), out)

static enum gt_status build_dropout(const struct builder *b, enum dropout_place place,
                                    const char *name, int32_t *x)
{
    if (!b->train || b->config->dropout <= 0.0f)
        return GT_OK;
    int32_t layer = b->pen.layer < 0 ? b->config->n_layer : b->pen.layer;
    return ADD(DROPOUT, b, name, x, .x = *x, .scalars = b->model->scalars,
               .attrs.dropout = b->config->dropout, .attrs.site = layer * PLACES + (int32_t)place,
               .attrs.time = b->io->time);
}

/* Multiplies x by one of the model's factors; 0 means that the model has no such factor. */
static enum gt_status build_scale(const struct builder *b, const char *name, double factor,
                                  int32_t *x)
{
    if (factor == 0.0 || factor == 1.0)
        return GT_OK;
    return ADD(BLEND, b, name, x, .x = *x, .z = *x, .attrs.alpha = (float)factor);
}

/* Returns sqrt(n_embd), rounded as Gemma3TextScaledWordEmbedding does. */
static double embedding_scale(const struct builder *b)
{
    const float scale = (float)sqrt((double)b->config->n_embd);
    const enum dtype dtype = b->model->options.dtype;
    const uint16_t half = dtype == DTYPE_F16 ? f16_from_f32(scale) : bf16_from_f32(scale);
    return (double)(dtype == DTYPE_F32 ? scale : dtype_value(dtype, &half, 0));
}

/* Replaces a weight in host memory by a copy on the device.  The backward pass fetches a block's
 * weight again; the output layer's stays for the loss chunks. */
static enum gt_status build_fetch(const struct builder *b, int32_t *weight)
{
    struct graph_pen pen = b->pen;
    const int32_t home = *weight;
    if (home == TENSOR_NONE || pen.graph->tensors[home].home == SPACE_DEVICE)
        return GT_OK;
    pen.recompute = pen.layer >= 0;
    TRY(GRAPH_ADD(FETCH, &pen, "weight", weight, .x = home));
    return GRAPH_ADD(WAIT, &pen, "", NULL, .x = home, .y = *weight);
}

static enum gt_status build_embedding(const struct builder *b, int32_t *x)
{
    int32_t wte = parameter_tensor(b, PARAMETERS_WTE), wpe = TENSOR_NONE;
    if (b->config->position == POSITION_LEARNED)
        wpe = parameter_tensor(b, PARAMETERS_WPE);
    TRY(build_fetch(b, &wte));
    TRY(build_fetch(b, &wpe));
    TRY(ADD(EMBED_FORWARD, b, "embed", x, .ids = b->io->ids, .wte = wte, .wpe = wpe,
            .scalars = b->model->scalars, .first = b->io->first, .attrs.time = b->io->time));
    TRY(build_scale(b, "embed.scale", b->config->embedding_multiplier, x));
    if (b->config->scale_embeddings)
        TRY(build_scale(b, "embed.width", embedding_scale(b), x));
    if (b->config->embed_norm)
        TRY(ADD(RMSNORM_FORWARD, b, "embed.norm", x, .x = *x,
                .attrs.epsilon = (float)b->config->norm_epsilon));
    return build_dropout(b, PLACE_EMBEDDING, "embed.dropout", x);
}

static float gain_offset(const struct builder *b)
{
    return b->config->norm_plus_one ? 1.0f : 0.0f;
}

static enum gt_status build_norm(const struct builder *b, const char *name, enum block_layer which,
                                 int32_t x, int32_t *y)
{
    const int32_t gain = layer_tensor(b, which, false), bias = layer_tensor(b, which, true);
    const float epsilon = (float)b->config->norm_epsilon;
    if (b->config->norm == NORM_RMSNORM)
        return ADD(RMSNORM_FORWARD, b, name, y, .x = x, .gain = gain, .attrs.epsilon = epsilon,
                   .attrs.gain_offset = gain_offset(b));
    return ADD(LAYERNORM_FORWARD, b, name, y, .x = x, .gain = gain, .bias = bias,
               .attrs.epsilon = epsilon);
}

/* Build the norm before and the norm after attention or the MLP, if the model has them. */
static enum gt_status build_norm_before(const struct builder *b, const char *name,
                                        enum block_layer which, int32_t *x)
{
    return b->config->norm_place == NORM_PLACE_POST ? GT_OK : build_norm(b, name, which, *x, x);
}

static enum gt_status build_norm_behind(const struct builder *b, const char *name,
                                        enum block_layer which, int32_t *x)
{
    const bool both = b->config->norm_place == NORM_PLACE_BOTH;
    const enum block_layer second = which == BLOCK_LN_1 ? BLOCK_POST_1 : BLOCK_POST_2;
    return b->config->norm_place == NORM_PLACE_PRE
               ? GT_OK
               : build_norm(b, name, both ? second : which, *x, x);
}

/* Makes one matrix [out, k rank] of the matrices B of a layer's k targets: alpha / rank B in the
 * columns of each, 0 elsewhere. */
static enum gt_status build_adapter_b(const struct builder *b, enum block_layer which,
                                      int64_t columns, int32_t *out)
{
    struct graph *graph = b->pen.graph;
    const int32_t rank = b->config->lora.rank;
    const int32_t at = parameters_index(&b->places, &b->config->shape, b->pen.layer, which, false);
    const struct parameter *weight = &b->model->parameters.at[at];
    const struct parameter *adapter = layer_adapter(b, which, ADAPTER_B);
    struct tensor whole = graph->tensors[adapter->tensor];
    int64_t row = 0, from = 0;
    whole.category = CATEGORY_TEMPORARY;
    whole.lifetime = LIFETIME_PROGRAM;
    whole.phase = graph->programs[b->pen.program].phase;
    whole.dims[1] = columns;
    whole.dims[0] = graph->tensors[weight->tensor].dims[model_is_gpt2(b->config) ? 1 : 0];
    TRY(graph_tensor_add(graph, &whole, out));
    for (int32_t part = 0, next = 0; part < weight->parts; part++) {
        const int64_t rows = weight->parts > 1 ? weight->part_rows[part] : whole.dims[0];
        int32_t target, low, expand;
        TRY(graph_view_add(graph, *out, row, rows, &target));
        row += rows;
        if (next == adapter->parts || adapter->part_of[next] != part) {
            TRY(ADD(FILL, b, "lora.zero", NULL, .y = target));
            continue;
        }
        TRY(graph_view_add(graph, adapter->tensor, from, rows, &low));
        TRY(graph_view_add(graph, b->model->expand[columns / rank - 1], next++ * (int64_t)rank,
                           rank, &expand));
        TRY(ADD(GEMM, b, "lora.b", NULL, .a = low, .b = expand, .d = target));
        from += rows;
    }
    return GT_OK;
}

/* Adds alpha / rank B (A x) to the result of a layer.  Its parts, such as queries, keys and values,
 * are ranges of columns there, and the product with one matrix for all of them needs no other
 * kernel. */
static enum gt_status build_adapters(const struct builder *b, enum block_layer which, int32_t x,
                                     int32_t y)
{
    const int32_t a = layer_adapter(b, which, ADAPTER_A)->tensor;
    int32_t low, wide;
    TRY(ADD(GEMM, b, "lora.a", &low, .a = x, .b = a, .attrs.transpose_b = true));
    TRY(build_adapter_b(b, which, b->pen.graph->tensors[low].dims[1], &wide));
    return ADD(GEMM, b, "lora", NULL, .a = low, .b = wide, .d = y, .attrs.transpose_b = true,
               .attrs.accumulate = 1u << GEMM_D);
}

static enum gt_status build_linear(const struct builder *b, const char *name,
                                   enum block_layer which, int32_t x, int32_t *y)
{
    const enum recompute_class class =
        which == BLOCK_C_ATTN ? RECOMPUTE_CLASS_QKV : op_declaration(OP_GEMM)->recompute;
    int32_t weight = layer_tensor(b, which, false);
    TRY(build_fetch(b, &weight));
    TRY(ADD_AS(class, GEMM, b, name, y, .a = x, .b = weight, .bias = layer_tensor(b, which, true),
               .attrs.transpose_b = !model_is_gpt2(b->config)));
    return layer_adapter(b, which, ADAPTER_A) == NULL ? GT_OK : build_adapters(b, which, x, *y);
}

static enum gt_status build_residual(const struct builder *b, const char *name, int32_t y,
                                     int32_t *x)
{
    const double factor = b->config->residual_multiplier;
    if (factor != 0.0 && factor != 1.0)
        return ADD(BLEND, b, name, x, .x = *x, .z = y, .attrs.alpha = 1.0f,
                   .attrs.beta = (float)factor);
    return ADD(RESIDUAL, b, name, x, .x = *x, .y = y);
}

static enum gt_status build_rope(const struct builder *b, int32_t *qkv)
{
    const struct op_attrs attrs = {.heads = b->config->n_head,
                                   .kv_heads = b->config->n_kv_head,
                                   .time = b->io->time,
                                   .epsilon = (float)b->config->norm_epsilon,
                                   .gain_offset = gain_offset(b),
                                   .gated = b->config->attn_output_gate};
    const bool local =
        b->model->local_angles != TENSOR_NONE && shape_window(&b->config->shape, b->pen.layer) > 0;
    /* The backward pass of the norms needs x, so recomputing y is cheaper than keeping it. */
    const enum recompute_class class = b->config->qk_norm == QK_NORM_NONE
                                           ? op_declaration(OP_ROPE_FORWARD)->recompute
                                           : RECOMPUTE_CLASS_NORM;
    union op_arguments rope = {
        .ROPE_FORWARD = {.x = *qkv,
                         .table = local ? b->model->local_angles : b->model->angles,
                         .scalars = b->model->scalars,
                         .gain = layer_tensor(b, BLOCK_QK_NORM, false),
                         .attrs = attrs}};
    if (rope.ROPE_FORWARD.gain == TENSOR_NONE && !attrs.gated) { /* in place */
        rope.ROPE_FORWARD.x = TENSOR_NONE;
        rope.ROPE_FORWARD.y = *qkv;
        rope.attrs.accumulate = 1u << ROPE_FORWARD_Y;
    }
    return emit(b, OP_ROPE_FORWARD, class, "attn.rope", &rope, qkv);
}

static enum gt_status build_attention_op(const struct builder *b, int32_t qkv, int32_t *y)
{
    const struct model_config *config = b->config;
    const int32_t divisor =
        config->query_pre_attn_scalar > 0 ? config->query_pre_attn_scalar : model_head_dim(config);
    const float usual = 1.0f / sqrtf((float)divisor);
    struct op_attrs attrs = {
        .heads = config->n_head,
        .kv_heads = config->n_kv_head,
        .time = b->io->time,
        .window = shape_window(&config->shape, b->pen.layer),
        .softmax_scale =
            config->attention_multiplier > 0.0 ? (float)config->attention_multiplier : usual,
    };
    if (b->cache != TENSOR_NONE)
        return ADD(ATTENTION_CACHED, b, "attn", y, .qkv = qkv, .scalars = b->model->scalars,
                   .cache = b->cache + b->pen.layer, .attrs = attrs);
    if (b->train && config->dropout > 0.0f) {
        attrs.dropout = config->dropout;
        attrs.site = b->pen.layer * PLACES + PLACE_ATTENTION;
    }
    return ADD(ATTENTION_FORWARD, b, "attn", y, .qkv = qkv, .scalars = b->model->scalars,
               .first = b->io->first, .attrs = attrs);
}

/* Builds the convolution and the delta rule, or with a cache the ops that continue them. */
static enum gt_status build_delta_ops(const struct builder *b, int32_t x, int32_t *y)
{
    const struct model_config *config = b->config;
    const struct op_attrs attrs = {.heads = config->linear_num_value_heads,
                                   .kv_heads = config->linear_num_key_heads,
                                   .time = b->io->time,
                                   .taps = config->linear_conv_kernel_dim};
    const int32_t weight = layer_tensor(b, BLOCK_CONV, false),
                  decay = layer_tensor(b, BLOCK_DECAY, false), layer = b->pen.layer,
                  cache = b->cache + layer,
                  state =
                      b->cache + config->n_layer + layer - shape_full_before(&config->shape, layer);
    int32_t mixed;
    if (b->cache != TENSOR_NONE) {
        TRY(ADD(SHORT_CONV_CACHED, b, "delta.conv", &mixed, .x = x, .weight = weight,
                .scalars = b->model->scalars, .cache = cache, .attrs = attrs));
        return ADD(GATED_DELTA_CACHED, b, "delta", y, .x = mixed, .decay = decay,
                   .scalars = b->model->scalars, .state = state, .attrs = attrs);
    }
    TRY(ADD(SHORT_CONV_FORWARD, b, "delta.conv", &mixed, .x = x, .weight = weight,
            .first = b->io->first, .attrs = attrs));
    return ADD(GATED_DELTA_FORWARD, b, "delta", y, .x = mixed, .decay = decay,
               .first = b->io->first, .attrs = attrs);
}

/* Builds a gated delta net up to the product after it. */
static enum gt_status build_delta(const struct builder *b, int32_t input, int32_t *y)
{
    int32_t x, z;
    TRY(build_linear(b, "delta.in_proj", BLOCK_C_ATTN, input, &x));
    TRY(build_linear(b, "delta.in_proj_z", BLOCK_GATE, input, &z));
    TRY(build_delta_ops(b, x, y));
    return ADD(GATE_FORWARD, b, "delta.gate", y, .x = *y, .z = z,
               .gain = layer_tensor(b, BLOCK_GATE_NORM, false), .attrs.gate = GATE_SILU,
               .attrs.heads = b->config->linear_num_value_heads,
               .attrs.epsilon = (float)b->config->norm_epsilon);
}

/* Builds attention up to the product after it. */
static enum gt_status build_heads(const struct builder *b, int32_t input, int32_t *y)
{
    int32_t qkv, turned;
    TRY(build_linear(b, "attn.c_attn", BLOCK_C_ATTN, input, &qkv));
    turned = qkv;
    if (shape_rotates(&b->config->shape, b->pen.layer))
        TRY(build_rope(b, &turned));
    TRY(build_attention_op(b, turned, y));
    return !b->config->attn_output_gate
               ? GT_OK
               : ADD(GATE_FORWARD, b, "attn.gate", y, .x = *y, .z = qkv, .attrs.gate = GATE_SIGMOID,
                     .attrs.heads = b->config->n_head);
}

static enum gt_status build_attention(const struct builder *b, bool keys_only, int32_t *x)
{
    int32_t input = *x, y, projected;
    TRY(build_norm_before(b, "ln_1", BLOCK_LN_1, &input));
    TRY(is_linear(b) ? build_delta(b, input, &y) : build_heads(b, input, &y));
    if (keys_only)
        return GT_OK;
    TRY(build_linear(b, "attn.c_proj", BLOCK_C_PROJ, y, &projected));
    TRY(build_norm_behind(b, "ln_1.post", BLOCK_LN_1, &projected));
    TRY(build_dropout(b, PLACE_ATTENTION_OUTPUT, "attn.dropout", &projected));
    return build_residual(b, "attn.residual", projected, x);
}

static enum gt_status build_activation(const struct builder *b, int32_t *x)
{
    if (b->config->mlp != MLP_GELU)
        return ADD(SWIGLU_FORWARD, b, "mlp.swiglu", x, .x = *x,
                   .attrs.gate = b->config->mlp == MLP_GEGLU ? GATE_GELU : GATE_SILU);
    return ADD(GELU_FORWARD, b, "mlp.gelu", x, .x = *x, .attrs.gelu = b->config->gelu);
}

static enum gt_status build_mlp(const struct builder *b, int32_t *x)
{
    int32_t input = *x, wide, projected;
    TRY(build_norm_before(b, "ln_2", BLOCK_LN_2, &input));
    TRY(build_linear(b, "mlp.c_fc", BLOCK_C_FC, input, &wide));
    TRY(build_activation(b, &wide));
    TRY(build_linear(b, "mlp.c_proj", BLOCK_MLP_PROJ, wide, &projected));
    TRY(build_norm_behind(b, "ln_2.post", BLOCK_LN_2, &projected));
    TRY(build_dropout(b, PLACE_MLP_OUTPUT, "mlp.dropout", &projected));
    return build_residual(b, "mlp.residual", projected, x);
}

/* Stores a block's input in host memory while the block runs; the backward pass fetches it
 * (autodiff.c). */
static enum gt_status build_block_offloaded(const struct builder *b, int32_t *x)
{
    const int32_t input = *x;
    int32_t kept;
    TRY(graph_view_add(b->pen.graph, b->model->inputs + b->pen.layer, 0,
                       (int64_t)b->io->batch * b->io->time, &kept));
    TRY(ADD(STORE, b, "store", NULL, .x = input, .y = kept));
    TRY(build_attention(b, false, x));
    TRY(build_mlp(b, x));
    return ADD(WAIT, b, "store", NULL, .x = input, .y = kept);
}

/* With `keys_only`, the last block ends once its keys and values are in the cache, and *hidden is
 * not set. */
static enum gt_status build_hidden(struct builder *b, bool keys_only, int32_t *hidden)
{
    int32_t x;
    TRY(build_embedding(b, &x));
    for (int32_t layer = 0; layer < b->config->n_layer; layer++) {
        bool last = keys_only && layer == b->config->n_layer - 1;
        b->pen.left_out = b->model->left_out != NULL ? b->model->left_out[layer] : 0;
        if (b->pen.left_out == BLOCK_LEFT_OUT)
            continue;
        b->pen.layer = layer;
        snprintf(b->prefix, sizeof b->prefix, "h.%" PRId32 ".", layer);
        b->level = b->train ? recompute_level_of(&b->model->options.choice.recompute, layer)
                            : RECOMPUTE_NONE;
        if (b->level == RECOMPUTE_OFFLOAD) {
            TRY(build_block_offloaded(b, &x));
            continue;
        }
        TRY(build_attention(b, last, &x));
        if (!last)
            TRY(build_mlp(b, &x));
    }
    b->pen.layer = -1;
    b->pen.left_out = 0;
    b->prefix[0] = '\0';
    b->level = RECOMPUTE_NONE;
    if (keys_only)
        return GT_OK;
    TRY(build_norm(b, "ln_f", BLOCK_LN_1, x, hidden));
    /* The logits' divisor divides the hidden states, which have fewer elements. */
    const double divisor = b->config->logits_scaling;
    return build_scale(b, "ln_f.scale", divisor != 0.0 ? 1.0 / divisor : 0.0, hidden);
}

static enum gt_status build_head(const struct builder *b, int32_t *head)
{
    *head = parameter_tensor(b, parameters_head(b->config));
    return build_fetch(b, head);
}

static enum gt_status build_logits(const struct builder *b, int32_t hidden, int32_t head,
                                   int32_t *logits)
{
    TRY(ADD(GEMM, b, "lm_head", logits, .a = hidden, .b = head, .attrs.transpose_b = true));
    b->pen.graph->tensors[*logits].category = CATEGORY_LOGITS;
    return GT_OK;
}

/* Appends the loss of rows [first, first + rows): logits, losses and, in training, the gradient in
 * place. */
static enum gt_status build_loss_chunk(const struct builder *b, int32_t hidden, int32_t head,
                                       int64_t first, int64_t rows)
{
    struct graph *graph = b->pen.graph;
    int32_t hidden_rows, targets, losses, logits;
    TRY(graph_view_add(graph, hidden, first, rows, &hidden_rows));
    TRY(graph_view_add(graph, b->io->targets, first, rows, &targets));
    TRY(graph_view_add(graph, b->io->losses, first, rows, &losses));
    TRY(build_logits(b, hidden_rows, head, &logits));
    return ADD(CROSS_ENTROPY, b, "loss", NULL, .targets = targets, .scalars = b->model->scalars,
               .logits = logits, .losses = losses, .attrs.vocab = b->config->vocab_size,
               .attrs.gradient = b->train);
}

static struct builder builder_make(const struct model *model, const struct program_io *io,
                                   int32_t cache, bool train)
{
    const struct model_config *config = &model->options.config;
    struct builder b = {.model = model,
                        .config = config,
                        .io = io,
                        .cache = cache,
                        .train = train,
                        .places = parameters_places(config),
                        .pen = graph_pen_make(model->graph, io->program, PASS_FORWARD)};
    return b;
}

enum gt_status transformer_build_loss(const struct model *model, const struct program_io *io,
                                      bool train)
{
    struct builder b = builder_make(model, io, TENSOR_NONE, train);
    const int64_t rows = (int64_t)io->batch * io->time,
                  chunk = model->options.choice.loss_chunk_rows;
    const int32_t chunks = (int32_t)size_ceil_div(rows, chunk);
    int32_t hidden, head;
    assert(chunk > 0);
    TRY(build_hidden(&b, false, &hidden));
    TRY(build_head(&b, &head));
    for (int64_t first = 0; first < rows; first += chunk * (1 + b.pen.left_out)) {
        b.pen.chunk = (int32_t)(first / chunk) + 1;
        b.pen.left_out = left_out_chunks(model, b.pen.chunk, chunks);
        TRY(build_loss_chunk(&b, hidden, head, first, min_i64(rows - first, chunk)));
    }
    b.pen.chunk = b.pen.left_out = 0;
    return ADD(LOSS_SUM, &b, "loss_sum", NULL, .losses = io->losses, .scalars = model->scalars);
}

enum gt_status transformer_build_generate(const struct model *model, const struct program_io *io,
                                          int32_t cache, int32_t *logits)
{
    struct builder b = builder_make(model, io, cache, false);
    int32_t hidden, head;
    TRY(build_hidden(&b, logits == NULL, &hidden));
    if (logits == NULL)
        return GT_OK;
    TRY(build_head(&b, &head));
    return build_logits(&b, hidden, head, logits);
}
