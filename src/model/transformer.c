/* The model's builder: one function per part of the model, each of which appends its ops to a program.
 *
 * It defines the computation of GPT-2, in the order of nanoGPT's forward(), and of Llama's family, in that of
 * transformers' modeling_llama.py and modeling_qwen3.py.  It knows nothing about gradients, memory or
 * devices.  Training, evaluation and generation differ in three places: dropout, the loss after the last layernorm, and
 * the kind of attention.
 */
#include "model/model.h"

#include <math.h>

#include "base/size.h"
#include "model/parameters.h"

#define QKV_NAME "attn.c_attn"

/* Places where dropout acts; the site number of a mask is layer * SITES + place. */
enum dropout_place { PLACE_ATTENTION, PLACE_ATTENTION_OUTPUT, PLACE_MLP_OUTPUT, PLACE_EMBEDDING, PLACES };

struct builder {
    const struct model *model;
    const struct model_config *config;
    const struct program_io *io;
    char prefix[16]; /* "h.3." in block 3, "" outside the blocks */
    int32_t cache;   /* TENSOR_NONE: attend to the program's own rows */
    bool train;      /* apply dropout, and replace the logits by their gradient */
    struct graph_pen pen;
    enum recompute_level level;             /* of the current block */
    int32_t first[BLOCK_LAYERS][2], stride; /* parameters_index() of the first block, and from block to block */
};

static int32_t parameter_tensor(const struct builder *b, int32_t index)
{
    return index < 0 ? TENSOR_NONE : b->model->parameters.at[index].tensor;
}

/* Returns the weight or bias of a layer of the current block, or of ln_f outside the blocks. */
static int32_t layer_tensor(const struct builder *b, enum block_layer which, bool bias)
{
    const int32_t layer = b->pen.layer < 0 ? b->config->n_layer : b->pen.layer, first = b->first[which][bias];
    return parameter_tensor(b, first < 0 ? first : first + layer * b->stride);
}

/* Appends an op.  Sets *out to operand `slot`, which is the op's result. */
static enum gt_status emit(const struct builder *b, enum op_kind kind, const struct op_attrs *attrs, const char *name,
                           int32_t *operands, int32_t slot, int32_t *out)
{
    char text[48];
    struct graph_pen pen = b->pen;
    const size_t begin = strlen(b->prefix);
    memcpy(text, b->prefix, begin);
    memcpy(text + begin, name, strlen(name) + 1);
    enum recompute_class op_class = op_declaration(kind)->recompute;
    if (strcmp(name, QKV_NAME) == 0)
        op_class = RECOMPUTE_CLASS_QKV;
    else if (kind == OP_ROPE_FORWARD && b->config->qk_norm != QK_NORM_NONE)
        op_class = RECOMPUTE_CLASS_NORM; /* its backward pass needs x, so y is cheaper computed again than kept */
    pen.recompute = recompute_includes(b->level, op_class);
    TRY(graph_op_add(&pen, kind, attrs, text, operands));
    *out = operands[slot];
    return GT_OK;
}

static enum gt_status build_dropout(const struct builder *b, enum dropout_place place, const char *name, int32_t *x)
{
    if (!b->train || b->config->dropout <= 0.0f)
        return GT_OK;
    int32_t layer = b->pen.layer < 0 ? b->config->n_layer : b->pen.layer;
    struct op_attrs attrs = {
        .dropout = b->config->dropout, .site = layer * PLACES + (int32_t)place, .time = b->io->time};
    int32_t operands[DROPOUT_OPERANDS] = {
        [DROPOUT_X] = *x, [DROPOUT_SCALARS] = b->model->scalars, [DROPOUT_Y] = TENSOR_NONE};
    return emit(b, OP_DROPOUT, &attrs, name, operands, DROPOUT_Y, x);
}

static enum gt_status build_embedding(const struct builder *b, int32_t *x)
{
    struct op_attrs attrs = {.time = b->io->time};
    int32_t operands[EMBED_FORWARD_OPERANDS] = {
        [EMBED_FORWARD_IDS] = b->io->ids,
        [EMBED_FORWARD_WTE] = parameter_tensor(b, PARAMETERS_WTE),
        [EMBED_FORWARD_WPE] = parameter_tensor(b, b->config->position == POSITION_LEARNED ? PARAMETERS_WPE : -1),
        [EMBED_FORWARD_SCALARS] = b->model->scalars,
        [EMBED_FORWARD_Y] = TENSOR_NONE,
        [EMBED_FORWARD_FIRST] = b->io->first,
    };
    TRY(emit(b, OP_EMBED_FORWARD, &attrs, "embed", operands, EMBED_FORWARD_Y, x));
    if (b->config->embed_norm) {
        struct op_attrs norm = {.epsilon = (float)b->config->norm_epsilon};
        int32_t rms[RMSNORM_FORWARD_OPERANDS] = {[RMSNORM_FORWARD_X] = *x,
                                                 [RMSNORM_FORWARD_GAIN] = TENSOR_NONE,
                                                 [RMSNORM_FORWARD_Y] = TENSOR_NONE,
                                                 [RMSNORM_FORWARD_RSTD] = TENSOR_NONE};
        TRY(emit(b, OP_RMSNORM_FORWARD, &norm, "embed.norm", rms, RMSNORM_FORWARD_Y, x));
    }
    return build_dropout(b, PLACE_EMBEDDING, "embed.dropout", x);
}

static enum gt_status build_norm(const struct builder *b, const char *name, enum block_layer which, int32_t x,
                                 int32_t *y)
{
    struct op_attrs attrs = {.epsilon = (float)b->config->norm_epsilon};
    const bool rms = b->config->norm == NORM_RMSNORM;
    int32_t operands[LAYERNORM_FORWARD_OPERANDS] = {
        [LAYERNORM_FORWARD_X] = x,
        [LAYERNORM_FORWARD_GAIN] = layer_tensor(b, which, false),
        [LAYERNORM_FORWARD_BIAS] = layer_tensor(b, which, true),
        [LAYERNORM_FORWARD_Y] = TENSOR_NONE,
        [LAYERNORM_FORWARD_MEAN] = TENSOR_NONE,
        [LAYERNORM_FORWARD_RSTD] = TENSOR_NONE,
    }; /* those of rmsnorm come first */
    return emit(b, rms ? OP_RMSNORM_FORWARD : OP_LAYERNORM_FORWARD, &attrs, name, operands, LAYERNORM_FORWARD_Y, y);
}

/* Makes the matrix [out, k rank] of the B of a layer's k targets: alpha / rank B in the columns of each, else 0. */
static enum gt_status build_adapter_b(const struct builder *b, enum block_layer which, int64_t columns, int32_t *out)
{
    struct graph *graph = b->pen.graph;
    const int32_t layer = b->pen.layer, rank = b->config->lora.rank;
    const struct parameter *weight = &b->model->parameters.at[parameters_index(b->config, layer, which, false)];
    const struct parameter *adapter = &b->model->parameters.at[parameters_adapter(b->config, layer, which, ADAPTER_B)];
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
        int32_t gemm[GEMM_OPERANDS] = {[GEMM_BIAS] = TENSOR_NONE}, fill[FILL_OPERANDS], made;
        TRY(graph_view_add(graph, *out, row, rows, &gemm[GEMM_D]));
        fill[FILL_Y] = gemm[GEMM_D];
        row += rows;
        if (next == adapter->parts || adapter->part_of[next] != part) {
            TRY(emit(b, OP_FILL, NULL, "lora.zero", fill, FILL_Y, &made));
            continue;
        }
        TRY(graph_view_add(graph, adapter->tensor, from, rows, &gemm[GEMM_A]));
        TRY(graph_view_add(graph, b->model->expand[columns / rank - 1], next++ * (int64_t)rank, rank, &gemm[GEMM_B]));
        TRY(emit(b, OP_GEMM, NULL, "lora.b", gemm, GEMM_D, &made));
        from += rows;
    }
    return GT_OK;
}

/* Adds alpha / rank B (A x) to the result of a layer.  Its parts, such as queries, keys and values, are ranges of
 * columns there, and the product with one matrix for all of them needs no other kernel. */
static enum gt_status build_adapters(const struct builder *b, enum block_layer which, int32_t x, int32_t y)
{
    struct op_attrs narrow = {.transpose_b = true}, add = {.transpose_b = true, .accumulate = 1u << GEMM_D};
    const int32_t a = parameter_tensor(b, parameters_adapter(b->config, b->pen.layer, which, ADAPTER_A));
    int32_t gemm[GEMM_OPERANDS] = {[GEMM_A] = x, [GEMM_B] = a, [GEMM_BIAS] = TENSOR_NONE, [GEMM_D] = TENSOR_NONE};
    int32_t low, wide;
    TRY(emit(b, OP_GEMM, &narrow, "lora.a", gemm, GEMM_D, &low));
    TRY(build_adapter_b(b, which, b->pen.graph->tensors[low].dims[1], &wide));
    int32_t sum[GEMM_OPERANDS] = {[GEMM_A] = low, [GEMM_B] = wide, [GEMM_BIAS] = TENSOR_NONE, [GEMM_D] = y};
    return emit(b, OP_GEMM, &add, "lora", sum, GEMM_D, &y);
}

/* Replaces a weight in host memory by a copy on the device.  The backward pass fetches it again. */
static enum gt_status build_fetch(const struct builder *b, int32_t *weight)
{
    struct graph_pen pen = b->pen;
    int32_t operands[FETCH_OPERANDS] = {[FETCH_X] = *weight, [FETCH_Y] = TENSOR_NONE};
    if (pen.graph->tensors[*weight].home == SPACE_DEVICE)
        return GT_OK;
    pen.recompute = true;
    TRY(graph_op_add(&pen, OP_FETCH, NULL, "lora.base", operands));
    *weight = operands[FETCH_Y];
    return graph_op_add(&pen, OP_WAIT, NULL, "", operands);
}

static enum gt_status build_linear(const struct builder *b, const char *name, enum block_layer which, int32_t x,
                                   int32_t *y)
{
    struct op_attrs attrs = {.transpose_b = !model_is_gpt2(b->config)};
    int32_t weight = layer_tensor(b, which, false);
    TRY(build_fetch(b, &weight));
    int32_t operands[GEMM_OPERANDS] = {
        [GEMM_A] = x, [GEMM_B] = weight, [GEMM_BIAS] = layer_tensor(b, which, true), [GEMM_D] = TENSOR_NONE};
    TRY(emit(b, OP_GEMM, &attrs, name, operands, GEMM_D, y));
    return parameters_adapter(b->config, 0, which, ADAPTER_A) < 0 ? GT_OK : build_adapters(b, which, x, *y);
}

static enum gt_status build_residual(const struct builder *b, const char *name, int32_t y, int32_t *x)
{
    int32_t operands[RESIDUAL_OPERANDS] = {[RESIDUAL_X] = *x, [RESIDUAL_Y] = y, [RESIDUAL_R] = TENSOR_NONE};
    return emit(b, OP_RESIDUAL, NULL, name, operands, RESIDUAL_R, x);
}

static enum gt_status build_rope(const struct builder *b, int32_t *qkv)
{
    struct op_attrs attrs = {.heads = b->config->n_head,
                             .kv_heads = b->config->n_kv_head,
                             .time = b->io->time,
                             .epsilon = (float)b->config->norm_epsilon};
    int32_t operands[ROPE_FORWARD_OPERANDS] = {[ROPE_FORWARD_X] = *qkv,
                                               [ROPE_FORWARD_TABLE] = b->model->angles,
                                               [ROPE_FORWARD_SCALARS] = b->model->scalars,
                                               [ROPE_FORWARD_GAIN] = layer_tensor(b, BLOCK_QK_NORM, false),
                                               [ROPE_FORWARD_Y] = TENSOR_NONE};
    return emit(b, OP_ROPE_FORWARD, &attrs, "attn.rope", operands, ROPE_FORWARD_Y, qkv);
}

static enum gt_status build_attention_op(const struct builder *b, int32_t qkv, int32_t *y)
{
    const struct model_config *config = b->config;
    struct op_attrs attrs = {
        .heads = config->n_head,
        .kv_heads = config->n_kv_head,
        .time = b->io->time,
        .softmax_scale = 1.0f / sqrtf((float)model_head_dim(config)),
    };
    if (b->cache != TENSOR_NONE) {
        int32_t cache;
        TRY(graph_view_add(b->pen.graph, b->cache, 2 * (int64_t)b->pen.layer, 2, &cache));
        int32_t operands[ATTENTION_CACHED_OPERANDS] = {
            [ATTENTION_CACHED_QKV] = qkv,
            [ATTENTION_CACHED_SCALARS] = b->model->scalars,
            [ATTENTION_CACHED_CACHE] = cache,
            [ATTENTION_CACHED_Y] = TENSOR_NONE,
        };
        return emit(b, OP_ATTENTION_CACHED, &attrs, "attn", operands, ATTENTION_CACHED_Y, y);
    }
    if (b->train && config->dropout > 0.0f) {
        attrs.dropout = config->dropout;
        attrs.site = b->pen.layer * PLACES + PLACE_ATTENTION;
    }
    int32_t operands[ATTENTION_FORWARD_OPERANDS] = {
        [ATTENTION_FORWARD_QKV] = qkv,
        [ATTENTION_FORWARD_SCALARS] = b->model->scalars,
        [ATTENTION_FORWARD_Y] = TENSOR_NONE,
        [ATTENTION_FORWARD_LSE] = TENSOR_NONE,
        [ATTENTION_FORWARD_FIRST] = b->io->first,
    };
    return emit(b, OP_ATTENTION_FORWARD, &attrs, "attn", operands, ATTENTION_FORWARD_Y, y);
}

static enum gt_status build_attention(const struct builder *b, bool keys_only, int32_t *x)
{
    int32_t normed, qkv, y, projected;
    TRY(build_norm(b, "ln_1", BLOCK_LN_1, *x, &normed));
    TRY(build_linear(b, QKV_NAME, BLOCK_C_ATTN, normed, &qkv));
    if (b->config->position == POSITION_ROPE)
        TRY(build_rope(b, &qkv));
    TRY(build_attention_op(b, qkv, &y));
    if (keys_only)
        return GT_OK;
    TRY(build_linear(b, "attn.c_proj", BLOCK_C_PROJ, y, &projected));
    TRY(build_dropout(b, PLACE_ATTENTION_OUTPUT, "attn.dropout", &projected));
    return build_residual(b, "attn.residual", projected, x);
}

static enum gt_status build_activation(const struct builder *b, int32_t *x)
{
    struct op_attrs attrs = {.gelu = b->config->gelu};
    int32_t gelu[GELU_FORWARD_OPERANDS] = {[GELU_FORWARD_X] = *x, [GELU_FORWARD_Y] = TENSOR_NONE};
    int32_t swiglu[SWIGLU_FORWARD_OPERANDS] = {[SWIGLU_FORWARD_X] = *x, [SWIGLU_FORWARD_Y] = TENSOR_NONE};
    if (b->config->mlp == MLP_SWIGLU)
        return emit(b, OP_SWIGLU_FORWARD, NULL, "mlp.swiglu", swiglu, SWIGLU_FORWARD_Y, x);
    return emit(b, OP_GELU_FORWARD, &attrs, "mlp.gelu", gelu, GELU_FORWARD_Y, x);
}

static enum gt_status build_mlp(const struct builder *b, int32_t *x)
{
    int32_t normed, wide, projected;
    TRY(build_norm(b, "ln_2", BLOCK_LN_2, *x, &normed));
    TRY(build_linear(b, "mlp.c_fc", BLOCK_C_FC, normed, &wide));
    TRY(build_activation(b, &wide));
    TRY(build_linear(b, "mlp.c_proj", BLOCK_MLP_PROJ, wide, &projected));
    TRY(build_dropout(b, PLACE_MLP_OUTPUT, "mlp.dropout", &projected));
    return build_residual(b, "mlp.residual", projected, x);
}

/* Stores a block's input in host memory while the block runs; the backward pass fetches it (autodiff.c). */
static enum gt_status build_block_offloaded(const struct builder *b, int32_t *x)
{
    int32_t kept, operands[STORE_OPERANDS] = {[STORE_X] = *x};
    TRY(graph_view_add(b->pen.graph, b->model->inputs + b->pen.layer, 0, (int64_t)b->io->batch * b->io->time, &kept));
    operands[STORE_Y] = kept;
    TRY(emit(b, OP_STORE, NULL, "store", operands, STORE_Y, &kept));
    TRY(build_attention(b, false, x));
    TRY(build_mlp(b, x));
    return emit(b, OP_WAIT, NULL, "store", operands, WAIT_Y, &kept);
}

/* With `keys_only`, the last block ends once its keys and values are in the cache, and *hidden is not set. */
static enum gt_status build_hidden(struct builder *b, bool keys_only, int32_t *hidden)
{
    int32_t x;
    TRY(build_embedding(b, &x));
    for (int32_t layer = 0; layer < b->config->n_layer; layer++) {
        bool last = keys_only && layer == b->config->n_layer - 1;
        b->pen.layer = layer;
        snprintf(b->prefix, sizeof b->prefix, "h.%" PRId32 ".", layer);
        b->level = b->train ? recompute_level_of(&b->model->options.choice.recompute, layer) : RECOMPUTE_NONE;
        if (b->level == RECOMPUTE_OFFLOAD) {
            TRY(build_block_offloaded(b, &x));
            continue;
        }
        TRY(build_attention(b, last, &x));
        if (!last)
            TRY(build_mlp(b, &x));
    }
    b->pen.layer = -1;
    b->prefix[0] = '\0';
    b->level = RECOMPUTE_NONE;
    if (keys_only)
        return GT_OK;
    return build_norm(b, "ln_f", BLOCK_LN_1, x, hidden);
}

static enum gt_status build_logits(const struct builder *b, int32_t hidden, int32_t *logits)
{
    struct op_attrs attrs = {.transpose_b = true};
    int32_t operands[GEMM_OPERANDS] = {[GEMM_A] = hidden,
                                       [GEMM_B] = parameter_tensor(b, parameters_head(b->config)),
                                       [GEMM_BIAS] = TENSOR_NONE,
                                       [GEMM_D] = TENSOR_NONE};
    TRY(emit(b, OP_GEMM, &attrs, "lm_head", operands, GEMM_D, logits));
    b->pen.graph->tensors[*logits].category = CATEGORY_LOGITS;
    return GT_OK;
}

/* Appends the loss of rows [first, first + rows): logits, losses and, in training, the gradient in place. */
static enum gt_status build_loss_chunk(const struct builder *b, int32_t hidden, int64_t first, int64_t rows)
{
    struct graph *graph = b->pen.graph;
    int32_t hidden_rows, targets, losses, logits;
    TRY(graph_view_add(graph, hidden, first, rows, &hidden_rows));
    TRY(graph_view_add(graph, b->io->targets, first, rows, &targets));
    TRY(graph_view_add(graph, b->io->losses, first, rows, &losses));
    TRY(build_logits(b, hidden_rows, &logits));
    struct op_attrs attrs = {.vocab = b->config->vocab_size, .gradient = b->train};
    int32_t operands[CROSS_ENTROPY_OPERANDS] = {
        [CROSS_ENTROPY_TARGETS] = targets,
        [CROSS_ENTROPY_SCALARS] = b->model->scalars,
        [CROSS_ENTROPY_LOGITS] = logits,
        [CROSS_ENTROPY_LOSSES] = losses,
    };
    return emit(b, OP_CROSS_ENTROPY, &attrs, "loss", operands, CROSS_ENTROPY_LOGITS, &logits);
}

static struct builder builder_make(const struct model *model, const struct program_io *io, int32_t cache, bool train)
{
    const struct model_config *config = &model->options.config;
    struct builder b = {.model = model,
                        .config = config,
                        .io = io,
                        .cache = cache,
                        .train = train,
                        .pen = {model->graph, io->program, PASS_FORWARD, -1, 0, false}};
    for (int which = 0; which < 2 * BLOCK_LAYERS; which++)
        b.first[which / 2][which % 2] = parameters_index(config, 0, (enum block_layer)(which / 2), which % 2 != 0);
    b.stride = parameters_index(config, 1, BLOCK_LN_1, false) - b.first[BLOCK_LN_1][false];
    return b;
}

enum gt_status transformer_build_loss(const struct model *model, const struct program_io *io, bool train)
{
    struct builder b = builder_make(model, io, TENSOR_NONE, train);
    const int64_t rows = (int64_t)io->batch * io->time, chunk = model->options.choice.loss_chunk_rows;
    int32_t hidden;
    assert(chunk > 0);
    TRY(build_hidden(&b, false, &hidden));
    for (int64_t first = 0; first < rows; first += chunk) {
        b.pen.chunk = (int32_t)(first / chunk) + 1;
        TRY(build_loss_chunk(&b, hidden, first, min_i64(rows - first, chunk)));
    }
    b.pen.chunk = 0;
    int32_t operands[LOSS_SUM_OPERANDS] = {[LOSS_SUM_LOSSES] = io->losses, [LOSS_SUM_SCALARS] = model->scalars};
    return emit(&b, OP_LOSS_SUM, NULL, "loss_sum", operands, LOSS_SUM_LOSSES, &hidden);
}

enum gt_status transformer_build_generate(const struct model *model, const struct program_io *io, int32_t cache,
                                          int32_t *logits)
{
    struct builder b = builder_make(model, io, cache, false);
    int32_t hidden;
    TRY(build_hidden(&b, logits == NULL, &hidden));
    return logits ? build_logits(&b, hidden, logits) : GT_OK;
}
