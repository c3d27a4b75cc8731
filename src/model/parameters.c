/* The parameters of a model.
 *
 * Names and layout of GPT-2's blocks are those of Hugging Face's modeling_gpt2.py (Conv1D), of all
 * others those of modeling_llama.py and modeling_qwen3.py (Linear).  Initial values are nanoGPT's
 * (model.py GPT._init_weights): normal with std 0.02, or 0.02 / sqrt(2 L) for the projections into
 * the residual stream; biases 0; norms' gains 1.  Those of MODEL_INIT_ZERO are modded-nanogpt's: 0
 * for these projections and an untied output layer, std 1 for embeddings and 1 / sqrt(3 C) for the
 * other matrices.  Those of adapters are PEFT's (LoraLayer.reset_lora_parameters): A uniform within
 * 1 / sqrt(in), B 0.
 */
#include "model/parameters.h"

#include <math.h>

#include "base/size.h"

#define INIT_STD 0.02

const char *const model_lora_words[] = {
    "q_proj",      "k_proj",    "v_proj",    "o_proj",    "gate_proj", "up_proj",
    "down_proj",   "c_attn",    "c_proj",    "c_fc",      "qkv_proj",  "gate_up_proj",
    "in_proj_qkv", "in_proj_b", "in_proj_a", "in_proj_z", "out_proj",  NULL};

int32_t model_positions(const struct model_config *config)
{
    return config->max_positions > config->block_size ? config->max_positions : config->block_size;
}

int32_t model_head_dim(const struct model_config *config)
{
    return config->head_dim > 0 ? config->head_dim : config->n_embd / config->n_head;
}

int32_t model_turned_dim(const struct model_config *config)
{
    const double share = config->partial_rotary_factor;
    return (int32_t)(model_head_dim(config) * (share > 0.0 ? share : 1.0));
}

int32_t model_inner_width(const struct model_config *config)
{
    return config->n_inner > 0 ? config->n_inner : 4 * config->n_embd;
}

int64_t model_attention_width(const struct model_config *config)
{
    return (int64_t)config->n_head * model_head_dim(config);
}

bool model_is_gpt2(const struct model_config *config)
{
    return arch_of(&config->shape)->family == FAMILY_GPT2;
}

/* ---- the layers ---- */

/* A layer of a block, or the last norm. */
struct layer {
    const char *name;
    const char *part[PARAMETER_RANGES_MAX]; /* the names in files, if not `name` */
    int64_t part_rows[PARAMETER_RANGES_MAX];
    int64_t in, out; /* of a matrix; a vector has `out` elements */
    bool missing, bias;
    bool plain;   /* the names in files end without ".weight" */
    int32_t taps; /* of a convolution */
    enum parameter_init init;
};

/* Replaces the layers of attention by those of a gated delta net. */
static void delta_list(const struct model_config *config, struct layer out[static BLOCK_LAYERS])
{
    const int64_t heads = config->linear_num_value_heads, size = config->linear_value_head_dim,
                  values = heads * size, all = 2 * config->linear_num_key_heads * size + values,
                  taps = config->linear_conv_kernel_dim, c = config->n_embd;
    out[BLOCK_C_ATTN] = (struct layer){
        .name = "linear_attn.in_proj",
        .part = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_b", "linear_attn.in_proj_a"},
        .part_rows = {all, heads, heads},
        .in = c,
        .out = all + 2 * heads};
    out[BLOCK_QK_NORM].missing = true;
    out[BLOCK_GATE] = (struct layer){.name = "linear_attn.in_proj_z", .in = c, .out = values};
    out[BLOCK_CONV] = (struct layer){.name = "linear_attn.conv1d",
                                     .out = all * taps,
                                     .taps = (int32_t)taps,
                                     .init = INIT_NORMAL};
    out[BLOCK_DECAY] = (struct layer){.name = "linear_attn.decay",
                                      .part = {"linear_attn.A_log", "linear_attn.dt_bias"},
                                      .part_rows = {heads, heads},
                                      .out = 2 * heads,
                                      .plain = true,
                                      .init = INIT_DECAY};
    out[BLOCK_GATE_NORM] =
        (struct layer){.name = "linear_attn.norm", .out = size, .init = INIT_ONE};
    out[BLOCK_C_PROJ] = (struct layer){.name = "linear_attn.out_proj", .in = values, .out = c};
}

/* Lists the layers of a block, with a gated delta net or with attention, and the last norm. */
static void layers_list(const struct model_config *config, bool linear,
                        struct layer out[static BLOCK_LAYERS])
{
    const struct arch *arch = arch_of(&config->shape);
    const bool gpt2 = arch->family == FAMILY_GPT2, gated = config->mlp != MLP_GELU;
    const bool norm_bias = config->bias && config->norm == NORM_LAYERNORM;
    const int64_t c = config->n_embd, size = model_head_dim(config),
                  q = model_attention_width(config);
    const int64_t kv = config->n_kv_head * size, inner = model_inner_width(config),
                  queries = config->attn_output_gate ? 2 * q : q; /* with gates */
    const enum parameter_init gain = config->norm_plus_one ? INIT_ZERO : INIT_ONE;
    const bool per_head = config->qk_norm == QK_NORM_HEAD, fused = config->fused_projections,
               four = config->norm_place == NORM_PLACE_BOTH;
    const struct layer layers[BLOCK_LAYERS] = {
        [BLOCK_LN_1] = {.name = arch->norms[0].file, .out = c, .bias = norm_bias, .init = gain},
        [BLOCK_C_ATTN] = {.name = gpt2 ? "attn.c_attn" : "self_attn.qkv_proj",
                          .part = {gpt2 || fused ? NULL : "self_attn.q_proj", "self_attn.k_proj",
                                   "self_attn.v_proj"},
                          .part_rows = {queries, kv, kv},
                          .in = c,
                          .out = queries + 2 * kv,
                          .bias = config->bias || config->qkv_bias},
        [BLOCK_QK_NORM] = {.name = "self_attn.qk_norm",
                           .part = {"self_attn.q_norm", "self_attn.k_norm"},
                           .part_rows = {per_head ? size : q, per_head ? size : kv},
                           .out = per_head ? 2 * size : q + kv,
                           .init = gain,
                           .missing = config->qk_norm == QK_NORM_NONE},
        [BLOCK_GATE] = {.missing = true},
        [BLOCK_CONV] = {.missing = true},
        [BLOCK_DECAY] = {.missing = true},
        [BLOCK_GATE_NORM] = {.missing = true},
        [BLOCK_C_PROJ] = {gpt2 ? "attn.c_proj" : "self_attn.o_proj", .in = q, .out = c,
                          .bias = config->bias},
        [BLOCK_POST_1] = {.name = arch->norms[2].file,
                          .out = c,
                          .bias = norm_bias,
                          .init = gain,
                          .missing = !four},
        [BLOCK_LN_2] = {.name = arch->norms[1].file, .out = c, .bias = norm_bias, .init = gain},
        [BLOCK_C_FC] = {.name = gpt2    ? "mlp.c_fc"
                                : gated ? "mlp.gate_up_proj"
                                        : "mlp.up_proj",
                        .part = {gated && !fused ? "mlp.gate_proj" : NULL, "mlp.up_proj"},
                        .part_rows = {inner, inner},
                        .in = c,
                        .out = gated ? 2 * inner : inner,
                        .bias = config->bias},
        [BLOCK_MLP_PROJ] = {.name = gpt2 ? "mlp.c_proj" : "mlp.down_proj",
                            .in = inner,
                            .out = c,
                            .bias = config->bias},
        [BLOCK_POST_2] = {.name = arch->norms[3].file,
                          .out = c,
                          .bias = norm_bias,
                          .init = gain,
                          .missing = !four},
    };
    memcpy(out, layers, sizeof layers);
    if (linear)
        delta_list(config, out);
}

static struct layer layer_get(const struct model_config *config, bool linear,
                              enum block_layer which)
{
    struct layer layers[BLOCK_LAYERS];
    layers_list(config, linear, layers);
    return layers[which];
}

/* A weight or bias of a block, or of the last norm, or a matrix of the adapters of a weight. */
struct slot {
    enum block_layer which;
    bool bias, absent;
    enum adapter_matrix adapter;
};
#define SLOTS_MAX (4 * BLOCK_LAYERS)

static int parts_of(const struct layer *layer)
{
    return layer->part[0] == NULL ? 1 : layer->part[2] != NULL ? 3 : 2;
}

/* Returns the bit of a part of a layer in lora_config.targets, 0 if it is no matrix. */
static uint32_t target_of(const struct layer *layer, int part)
{
    const char *name = layer->part[0] != NULL ? layer->part[part] : layer->name;
    uint32_t bit = layer->in > 0;
    for (int i = 0; bit != 0 && strcmp(strrchr(name, '.') + 1, model_lora_words[i]) != 0; i++)
        bit <<= 1;
    return bit;
}

/* Returns the bits of the targets that a layer has. */
static uint32_t targets_of(const struct layer *layer)
{
    uint32_t targets = 0;
    for (int part = 0; part < parts_of(layer); part++)
        targets |= target_of(layer, part);
    return targets;
}

uint32_t parameters_lora_targets(const struct model_config *config)
{
    uint32_t targets = 0;
    for (int linear = 0; linear <= (config->full_attention_interval > 1); linear++)
        for (int which = 0; which < BLOCK_LAYERS; which++) {
            const struct layer layer = layer_get(config, linear != 0, (enum block_layer)which);
            targets |= targets_of(&layer);
        }
    return targets;
}

/* Lists the slots of the layers before `end`.  GPT-2's biases are listed even if they are absent.
 */
static size_t slots_list(const struct model_config *config, bool linear, int end,
                         struct slot out[static SLOTS_MAX])
{
    const bool gpt2 = model_is_gpt2(config), alone = config->lora.alone;
    struct layer layers[BLOCK_LAYERS];
    size_t count = 0;
    layers_list(config, linear, layers);
    for (int which = 0; which < end; which++) {
        const struct layer *layer = &layers[which];
        const bool adapted =
            config->lora.rank > 0 && (targets_of(layer) & config->lora.targets) != 0;
        if (!layer->missing && !alone)
            out[count++] = (struct slot){.which = (enum block_layer)which};
        if (!layer->missing && !alone && (layer->bias || gpt2))
            out[count++] = (struct slot){
                .which = (enum block_layer)which, .bias = true, .absent = !layer->bias};
        for (int matrix = ADAPTER_A; adapted && matrix <= ADAPTER_B; matrix++)
            out[count++] = (struct slot){.which = (enum block_layer)which,
                                         .adapter = (enum adapter_matrix)matrix};
    }
    return count;
}

static size_t embeddings_count(const struct model_config *config)
{
    return config->lora.alone ? 0 : config->position == POSITION_LEARNED ? 2 : 1;
}

/* How many entries a block has, by its kind: with attention, with a gated delta net. */
struct kinds {
    size_t of[2];
};

/* Returns how many entries the blocks before `layer` have. */
static size_t kinds_before(const struct model_config *config, const struct kinds *kinds,
                           int32_t layer)
{
    const int32_t full = shape_full_before(&config->shape, layer);
    return (size_t)full * kinds->of[false] + (size_t)(layer - full) * kinds->of[true];
}

/* Returns the block that has entry `index`.  Sets *left to the entry's number in the block. */
static int32_t kinds_find(const struct model_config *config, const struct kinds *kinds,
                          size_t index, size_t *left)
{
    const int32_t interval = config->full_attention_interval;
    const size_t linear = interval > 0 ? (size_t)(interval - 1) : 0,
                 period = linear * kinds->of[true] + kinds->of[false];
    const size_t rest = index % period, within = linear * kinds->of[true];
    const size_t skipped = rest < within ? rest / kinds->of[true] : linear;
    *left = rest - skipped * kinds->of[true];
    return (int32_t)(index / period * (linear + 1) + skipped);
}

static struct kinds slots_count(const struct model_config *config)
{
    struct slot slots[SLOTS_MAX];
    return (struct kinds){{slots_list(config, false, BLOCK_LAYERS, slots),
                           slots_list(config, true, BLOCK_LAYERS, slots)}};
}

size_t parameters_count(const struct model_config *config)
{
    struct slot slots[SLOTS_MAX];
    const struct kinds kinds = slots_count(config);
    assert(config->n_layer >= 0);
    return embeddings_count(config) + kinds_before(config, &kinds, config->n_layer) +
           slots_list(config, false, BLOCK_LN_1 + 1, slots) +
           (config->untied && !config->lora.alone ? 1 : 0);
}

struct parameter_places parameters_places(const struct model_config *config)
{
    struct parameter_places places = {.embeddings = (int32_t)embeddings_count(config)};
    memset(places.at, -1, sizeof places.at);
    memset(places.adapter, -1, sizeof places.adapter);
    for (int linear = 0; linear < 2; linear++) {
        struct slot slots[SLOTS_MAX];
        const size_t count = slots_list(config, linear != 0, BLOCK_LAYERS, slots);
        for (size_t i = 0; i < count; i++) {
            const struct slot *slot = &slots[i];
            int32_t *at = slot->adapter != ADAPTER_NONE
                              ? &places.adapter[linear][slot->which][slot->adapter]
                              : &places.at[linear][slot->which][slot->bias];
            if (!slot->absent)
                *at = places.count[linear]++;
        }
    }
    return places;
}

/* Returns the index of a parameter from its place in a block. */
static int32_t place_index(const struct parameter_places *places, const struct shape *shape,
                           int32_t layer, int32_t place)
{
    const int32_t full = shape_full_before(shape, layer);
    return place < 0 ? -1
                     : places->embeddings + full * places->count[false] +
                           (layer - full) * places->count[true] + place;
}

int32_t parameters_index(const struct parameter_places *places, const struct shape *shape,
                         int32_t layer, enum block_layer which, bool bias)
{
    return place_index(places, shape, layer,
                       places->at[shape_is_linear(shape, layer)][which][bias]);
}

int32_t parameters_adapter(const struct parameter_places *places, const struct shape *shape,
                           int32_t layer, enum block_layer which, enum adapter_matrix matrix)
{
    return place_index(places, shape, layer,
                       places->adapter[shape_is_linear(shape, layer)][which][matrix]);
}

int32_t parameters_head(const struct model_config *config)
{
    const struct parameter_places places = parameters_places(config);
    const int32_t layers = config->n_layer;
    const int32_t gain = parameters_index(&places, &config->shape, layers, BLOCK_LN_1, false),
                  bias = parameters_index(&places, &config->shape, layers, BLOCK_LN_1, true);
    return !config->untied ? PARAMETERS_WTE : bias < 0 ? gain + 1 : bias + 1;
}

/* The parameters of a model in their order, listed once for many look-ups. */
struct listing {
    struct layer layers[2][BLOCK_LAYERS]; /* of a block with attention, with a gated delta net */
    struct slot slots[2][SLOTS_MAX];
    struct kinds kinds;
    size_t embeddings, count;
    int32_t head; /* as parameters_head() */
    bool gpt2;    /* as model_is_gpt2() */
};

static struct listing listing_make(const struct model_config *config)
{
    struct listing listing = {.embeddings = embeddings_count(config),
                              .count = parameters_count(config),
                              .head = parameters_head(config),
                              .gpt2 = model_is_gpt2(config)};
    for (int linear = 0; linear < 2; linear++) {
        layers_list(config, linear != 0, listing.layers[linear]);
        listing.kinds.of[linear] =
            slots_list(config, linear != 0, BLOCK_LAYERS, listing.slots[linear]);
    }
    return listing;
}

/* An embedding, or the output layer, which has the shape of one. */
static void table_shape(const struct model_config *config, const char *name, int64_t rows,
                        struct parameter_shape *out)
{
    *out = (struct parameter_shape){.rank = 2, .dims = {rows, config->n_embd}, .parts = 1};
    graph_name_put(out->name, name, PARAMETER_NAME_MAX - 1);
}

/* Writes "h.3.attn.c_attn.weight". */
static void slot_name(const struct model_config *config, bool gpt2, size_t block,
                      const struct layer *layer, const char *name, const struct slot *slot,
                      char out[static PARAMETER_NAME_MAX])
{
    static const char *const matrices[] = {
        [ADAPTER_NONE] = "", [ADAPTER_A] = "lora_A.", [ADAPTER_B] = "lora_B."};
    const char *kind = slot->bias ? "bias" : "weight", *matrix = matrices[slot->adapter];
    if (block >= (size_t)config->n_layer) {
        NAME_JOIN(out, PARAMETER_NAME_MAX, gpt2 ? "ln_f." : "model.norm.", kind);
        return;
    }
    char *at = NAME_JOIN(out, PARAMETER_NAME_MAX, gpt2 ? "h." : "model.layers.");
    at = graph_name_number(at, (int64_t)block);
    NAME_JOIN(at, (size_t)(out + PARAMETER_NAME_MAX - at), ".", name, layer->plain ? "" : ".",
              matrix, layer->plain ? "" : kind);
}

/* Returns the number of matrices that a weight of a layer consists of: ranges of rows.  GPT-2's
 * weights, which are [in, out], are one matrix. */
static int matrices_of(const struct layer *layer, bool gpt2)
{
    int64_t rows = 0;
    for (int part = 0; part < PARAMETER_RANGES_MAX && !gpt2; part++) {
        rows += layer->part_rows[part];
        if (rows == layer->out)
            return part + 1;
    }
    return 1;
}

/* Gives A `rank` rows for each target, and B the rows of each target's results. */
static void adapter_shape(const struct lora_config *lora, const struct layer *layer,
                          enum adapter_matrix matrix, struct parameter_shape *out)
{
    out->adapter = matrix;
    out->linear = out->residual = false;
    out->parts = 0;
    out->dims[0] = 0;
    out->dims[1] = matrix == ADAPTER_A ? layer->in : lora->rank;
    for (int part = 0; part < parts_of(layer); part++) {
        if ((target_of(layer, part) & lora->targets) == 0)
            continue;
        out->part_of[out->parts] = part;
        out->part_rows[out->parts] = matrix == ADAPTER_A      ? lora->rank
                                     : layer->part[0] != NULL ? layer->part_rows[part]
                                                              : layer->out;
        out->dims[0] += out->part_rows[out->parts++];
    }
    out->matrices = out->parts;
}

static void slot_shape(const struct model_config *config, const struct listing *listing,
                       bool linear, size_t block, const struct slot *slot,
                       struct parameter_shape *out)
{
    const struct layer layer = listing->layers[linear][slot->which];
    const bool matrix = layer.in > 0 && !slot->bias, gpt2 = listing->gpt2;
    *out = (struct parameter_shape){
        .rank = matrix ? 2 : 1,
        .parts = parts_of(&layer),
        .matrices = matrices_of(&layer, gpt2),
        .linear = matrix,
        .residual = matrix && (slot->which == BLOCK_C_PROJ || slot->which == BLOCK_MLP_PROJ),
        .norm = layer.in == 0,
        .taps = layer.taps,
        .init = slot->bias ? INIT_ZERO : layer.init,
        .bias = slot->bias,
        .absent = slot->absent};
    out->dims[0] = matrix && gpt2 ? layer.in : layer.out;
    out->dims[1] = !matrix ? 0 : gpt2 ? layer.out : layer.in;
    memcpy(out->part_rows, layer.part_rows, sizeof out->part_rows);
    for (int part = 0; part < out->parts; part++)
        out->part_of[part] = part;
    slot_name(config, gpt2, block, &layer, layer.name, slot, out->name);
    if (slot->adapter != ADAPTER_NONE)
        adapter_shape(&config->lora, &layer, slot->adapter, out);
}

/* Returns the slot of a parameter, and its block; NULL for embeddings and the output layer. */
static const struct slot *slot_find(const struct model_config *config,
                                    const struct listing *listing, size_t index, size_t *block)
{
    const bool untied = config->untied && !config->lora.alone;
    if (index < listing->embeddings || (untied && index + 1 == listing->count))
        return NULL;
    size_t left;
    const int32_t layer = kinds_find(config, &listing->kinds, index - listing->embeddings, &left);
    *block = (size_t)layer;
    return &listing->slots[shape_is_linear(&config->shape, layer)][left];
}

static void listed_shape(const struct model_config *config, const struct listing *listing,
                         size_t index, struct parameter_shape *out)
{
    size_t block;
    const struct slot *slot = slot_find(config, listing, index, &block);
    const bool gpt2 = listing->gpt2;
    assert(index < listing->count);
    if (slot != NULL) {
        slot_shape(config, listing, shape_is_linear(&config->shape, (int32_t)block), block, slot,
                   out);
    } else if (index == PARAMETERS_WTE) {
        table_shape(config, gpt2 ? "wte.weight" : "model.embed_tokens.weight", config->vocab_size,
                    out);
    } else if (index < listing->embeddings) {
        table_shape(config, gpt2 ? "wpe.weight" : "model.embed_positions.weight",
                    config->block_size, out);
        out->position_table = true;
    } else {
        table_shape(config, "lm_head.weight", config->vocab_size, out);
    }
    out->prefix = gpt2 ? "transformer." : "";
    if (out->adapter != ADAPTER_NONE)
        out->prefix = gpt2 ? "base_model.model.transformer." : "base_model.model.";
    out->whole = (int32_t)index;
}

void parameters_shape(const struct model_config *config, size_t index, struct parameter_shape *out)
{
    const struct listing listing = listing_make(config);
    listed_shape(config, &listing, index, out);
}

/* ---- the tensors of a file ---- */

static struct kinds slots_ranges(const struct model_config *config, const struct listing *listing)
{
    struct kinds parts = {{0, 0}};
    for (int linear = 0; linear < 2; linear++)
        for (size_t i = 0; i < listing->kinds.of[linear]; i++) {
            struct parameter_shape shape;
            slot_shape(config, listing, linear != 0, 0, &listing->slots[linear][i], &shape);
            parts.of[linear] += (size_t)shape.parts;
        }
    return parts;
}

size_t parameters_file_count(const struct model_config *config)
{
    const struct listing listing = listing_make(config);
    const struct kinds parts = slots_ranges(config, &listing);
    return listing.count + kinds_before(config, &parts, config->n_layer) -
           kinds_before(config, &listing.kinds, config->n_layer);
}

/* Narrows a parameter's shape to one of its parts. */
static void part_shape_select(const struct model_config *config, bool gpt2, size_t block,
                              const struct layer *layer, const struct slot *slot, size_t part,
                              struct parameter_shape *shape)
{
    for (size_t i = 0; i < part; i++)
        shape->first +=
            (size_t)shape->part_rows[i] * (shape->rank == 2 ? (size_t)shape->dims[1] : 1);
    shape->dims[0] = shape->part_rows[part];
    if (layer->part[0] != NULL)
        slot_name(config, gpt2, block, layer, layer->part[shape->part_of[part]], slot, shape->name);
}

void parameters_file_shape(const struct model_config *config, size_t index,
                           struct parameter_shape *out)
{
    const struct listing listing = listing_make(config);
    const struct kinds parts = slots_ranges(config, &listing);
    const size_t ranges = kinds_before(config, &parts, config->n_layer),
                 slots = kinds_before(config, &listing.kinds, config->n_layer);
    assert(index < listing.count + ranges - slots);
    if (index < listing.embeddings || index >= listing.embeddings + ranges) {
        listed_shape(config, &listing,
                     index < listing.embeddings ? index : index - (ranges - slots), out);
        return;
    }
    size_t left;
    const int32_t block = kinds_find(config, &parts, index - listing.embeddings, &left);
    const bool linear = shape_is_linear(&config->shape, block);
    const size_t first = listing.embeddings + kinds_before(config, &listing.kinds, block);
    size_t slot = 0;
    for (;; slot++) {
        listed_shape(config, &listing, first + slot, out);
        if (left < (size_t)out->parts)
            break;
        left -= (size_t)out->parts;
    }
    const struct slot *found = &listing.slots[linear][slot];
    if (out->parts > 1 || out->adapter != ADAPTER_NONE)
        part_shape_select(config, listing.gpt2, (size_t)block,
                          &listing.layers[linear][found->which], found, left, out);
}

int32_t parameter_file_dims(const struct parameter_shape *shape, int64_t dims[static 3])
{
    const int32_t taps = shape->taps;
    dims[0] = taps > 0 ? shape->dims[0] / taps : shape->dims[0];
    dims[1] = taps > 0 ? 1 : shape->dims[1];
    dims[2] = taps;
    return taps > 0 ? 3 : shape->rank;
}

size_t parameter_elements(const struct parameter_shape *shape)
{
    return (size_t)shape->dims[0] * (shape->rank == 2 ? (size_t)shape->dims[1] : 1);
}

/* ---- the tensors of a graph ---- */

/* Where parameter_add() puts parameters, and the options that all of them share. */
struct parameter_maker {
    struct graph *graph;
    struct parameter_list *list;
    const struct model_config *config;
    const struct parameter_options *options;
    const struct listing *listing;
    int64_t elements; /* the sum of the saved elements of the parameters added so far */
    int32_t *owner; /* of each parameter, absent ones included, that Muon updates; NULL: one rank */
};

int64_t parameters_unit_first(const struct graph *graph, const struct parameter *parameter,
                              int32_t unit)
{
    const int64_t elements = graph_tensor_elements(graph, parameter->tensor);
    return min_i64(state_blocks(elements) * unit / parameter->units * STATE_BLOCK, elements);
}

struct parameter_range parameters_share(const struct graph *graph,
                                        const struct parameter *parameter, int32_t ranks,
                                        int32_t rank)
{
    struct parameter_range share = {0, 0};
    if (parameter->owner == OWNER_UNITS && rank < ranks) {
        const int32_t each = parameter->units / ranks;
        share.first = parameters_unit_first(graph, parameter, rank * each);
        share.count = parameters_unit_first(graph, parameter, (rank + 1) * each) - share.first;
    } else if (!parameter->frozen && parameter->owner == (rank == ranks ? OWNER_ALL : rank)) {
        share.count = graph_tensor_elements(graph, parameter->tensor);
    }
    return share;
}

enum gt_status parameters_state_add(struct graph *graph, const struct parameter *parameter,
                                    const struct tensor *proto, int32_t *out)
{
    struct tensor state = *proto;
    if (parameter->owner != OWNER_UNITS)
        return graph_tensor_add(graph, &state, out);
    state.rank = 1;
    state.dims[0] = parameter->most; /* so that all ranks make the same plan */
    TRY(graph_tensor_add(graph, &state, out));
    return parameter->count == parameter->most
               ? GT_OK
               : graph_range_add(graph, *out, 0, parameter->count, out);
}

/* Adds a tensor with the shape of a parameter: its master, gradient or moment. */
static enum gt_status state_add(struct graph *graph, const struct parameter *parameter,
                                const char *suffix, enum dtype dtype, enum tensor_category category,
                                int32_t *out)
{
    struct tensor state = graph->tensors[parameter->tensor];
    state.dtype = dtype;
    state.home = category == CATEGORY_GRADIENT ? parameter->gradient_home : parameter->states_home;
    NAME_JOIN(state.name, sizeof state.name, parameter->name, suffix);
    state.category = category;
    state.lifetime =
        category == CATEGORY_GRADIENT && state.home == SPACE_DEVICE ? LIFETIME_PHASE : LIFETIME_RUN;
    state.phase = PHASE_TRAIN;
    if (category == CATEGORY_GRADIENT)
        return graph_tensor_add(graph, &state, out);
    return parameters_state_add(graph, parameter, &state, out);
}

/* Adds the exponents of 8-bit moments. */
static enum gt_status scales_add(struct graph *graph, struct parameter *parameter)
{
    const bool shared = parameter->owner == OWNER_UNITS;
    struct tensor scales = {
        .dtype = DTYPE_U8,
        .rank = 2,
        .dims = {2, state_blocks(shared ? parameter->most
                                        : graph_tensor_elements(graph, parameter->tensor))},
        .category = CATEGORY_MOMENT,
        .lifetime = LIFETIME_RUN,
        .home = parameter->states_home,
        .phase = PHASE_TRAIN};
    NAME_JOIN(scales.name, sizeof scales.name, parameter->name, ".scales");
    TRY(graph_tensor_add(graph, &scales, &parameter->scales));
    if (!shared || parameter->count == parameter->most)
        return GT_OK;
    scales.base = parameter->scales;
    scales.dims[1] = state_blocks(parameter->count);
    return graph_tensor_add(graph, &scales, &parameter->scales);
}

static enum gt_status states_add(const struct parameter_maker *maker, struct parameter *parameter)
{
    struct graph *graph = maker->graph;
    const struct state_dtypes dtypes =
        state_format_dtypes(maker->options->format, graph->tensors[parameter->tensor].dtype,
                            parameter->group == GROUP_EMBEDDING || parameter->group == GROUP_HEAD);
    assert(parameter->group != GROUP_MUON || dtypes.moment != DTYPE_U8);
    parameter->dtypes = dtypes;
    const bool here = parameter->owner < 0 || parameter->owner == maker->options->rank;
    if (dtypes.master && here)
        TRY(state_add(graph, parameter, ".master", DTYPE_F32, CATEGORY_MASTER, &parameter->master));
    TRY(state_add(graph, parameter, ".grad", dtypes.gradient, CATEGORY_GRADIENT,
                  &parameter->gradient));
    if (!here)
        return GT_OK;
    TRY(state_add(graph, parameter, ".m", dtypes.moment, CATEGORY_MOMENT, &parameter->m));
    if (parameter->group != GROUP_MUON)
        TRY(state_add(graph, parameter, ".v", dtypes.moment, CATEGORY_MOMENT, &parameter->v));
    return dtypes.moment == DTYPE_U8 ? scales_add(graph, parameter) : GT_OK;
}

/* Returns the block of a parameter; -1 for embeddings, the last norm and the output layer. */
static int32_t layer_of(const struct parameter_maker *maker, const struct parameter_shape *shape)
{
    size_t block;
    const struct slot *slot =
        slot_find(maker->config, maker->listing, (size_t)shape->whole, &block);
    return slot == NULL || block >= (size_t)maker->config->n_layer ? -1 : (int32_t)block;
}

/* Returns where a parameter's tensors of a class live.  Vectors are few and stay on the device, and
 * so do adapters, and the embeddings of a model with adapters. */
static enum memory_space home_of(const struct parameter_maker *maker,
                                 const struct parameter_shape *shape, int32_t layer,
                                 enum offload_class class)
{
    const int32_t layers = maker->config->n_layer,
                  quarters = maker->options->offload.quarters[class];
    const bool lora = maker->config->lora.rank > 0;
    const bool stays = lora && (class != OFFLOAD_WEIGHTS || !shape->linear);
    if (shape->rank < 2 || quarters == 0 || stays)
        return SPACE_DEVICE;
    return layer < offload_blocks(quarters, layers) ? SPACE_HOST : SPACE_DEVICE;
}

static enum parameter_group group_of(const struct parameter_maker *maker,
                                     const struct parameter_shape *shape)
{
    if (shape->rank < 2)
        return GROUP_VECTOR;
    if (shape->adapter != ADAPTER_NONE)
        return GROUP_MATRIX;
    if (shape->linear)
        return maker->options->muon ? GROUP_MUON : GROUP_MATRIX;
    return maker->config->untied && maker->list->count == maker->listing->head ? GROUP_HEAD
                                                                               : GROUP_EMBEDDING;
}

/* Chooses the initial values of a matrix. */
static void init_choose(const struct parameter_maker *maker, const struct parameter_shape *shape,
                        struct parameter *parameter)
{
    const struct model_config *config = maker->config;
    if (shape->adapter == ADAPTER_A) {
        parameter->init = INIT_UNIFORM;
        parameter->init_std = (float)(1.0 / sqrt((double)shape->dims[1]));
    } else if (shape->adapter == ADAPTER_B)
        parameter->init = INIT_ZERO;
    else if (maker->options->init == MODEL_INIT_GPT2)
        parameter->init_std =
            (float)(shape->residual ? INIT_STD / sqrt(2.0 * config->n_layer) : INIT_STD);
    else if (shape->residual || parameter->group == GROUP_HEAD)
        parameter->init = INIT_ZERO;
    else
        parameter->init_std =
            (float)(parameter->group == GROUP_EMBEDDING ? 1.0 : 1.0 / sqrt(3.0 * config->n_embd));
}

/* Divides a parameter into as many units as an update has parts, so that every number of ranks that
 * divides them has whole ones.  Vectors, which are few, and Muon's matrices stay whole. */
static void units_divide(const struct parameter_maker *maker, size_t index,
                         struct parameter *parameter)
{
    const int64_t elements = graph_tensor_elements(maker->graph, parameter->tensor),
                  blocks = state_blocks(elements);
    const int32_t ranks = maker->options->ranks, parts = maker->options->parts;
    const bool whole =
        parameter->group == GROUP_VECTOR || parameter->group == GROUP_MUON || blocks < parts;
    parameter->units = whole ? 1 : parts;
    parameter->owner = OWNER_ALL;
    if (ranks > 1 && !parameter->frozen && !whole)
        parameter->owner = OWNER_UNITS;
    else if (parameter->group == GROUP_MUON && maker->owner != NULL)
        parameter->owner = maker->owner[index];
    const struct parameter_range share =
        parameters_share(maker->graph, parameter, ranks,
                         parameter->owner == OWNER_ALL ? ranks : maker->options->rank);
    parameter->first = share.first;
    parameter->count = share.count;
    parameter->most = min_i64(size_ceil_div(blocks, ranks) * STATE_BLOCK, elements);
}

static enum gt_status parameter_add(struct parameter_maker *maker, size_t index,
                                    const struct parameter_shape *shape)
{
    const struct model_config *config = maker->config;
    const bool matrix = shape->rank == 2;
    const int32_t layer = layer_of(maker, shape);
    struct parameter *parameter = &maker->list->at[maker->list->count];
    struct tensor tensor = {.dtype = shape->norm ? DTYPE_F32 : maker->options->dtype,
                            .rank = shape->rank,
                            .dims = {shape->dims[0], shape->dims[1]},
                            .category = CATEGORY_PARAMETER,
                            .lifetime = LIFETIME_RUN,
                            .home = home_of(maker, shape, layer, OFFLOAD_WEIGHTS)};
    *parameter =
        (struct parameter){.init = matrix ? INIT_NORMAL : shape->init,
                           .init_std = (float)INIT_STD,
                           .saved_rows = shape->dims[0],
                           .group = group_of(maker, shape),
                           .states_home = home_of(maker, shape, layer, OFFLOAD_STATES),
                           .gradient_home = home_of(maker, shape, layer, OFFLOAD_GRADIENTS),
                           .parts = shape->parts,
                           .matrices = shape->matrices,
                           .decays = matrix || shape->taps > 0,
                           .frozen = config->lora.rank > 0 && shape->adapter == ADAPTER_NONE,
                           .layer = layer,
                           .index_base = maker->elements};
    memcpy(parameter->part_rows, shape->part_rows, sizeof parameter->part_rows);
    memcpy(parameter->part_of, shape->part_of, sizeof parameter->part_of);
    if (matrix)
        init_choose(maker, shape, parameter);
    if (maker->list->count == PARAMETERS_WTE || maker->list->count == maker->listing->head)
        tensor.dims[0] = config->padded_vocab_size;
    NAME_JOIN(parameter->name, sizeof parameter->name, shape->name);
    memcpy(tensor.name, parameter->name, sizeof tensor.name);
    TRY(graph_tensor_add(maker->graph, &tensor, &parameter->tensor));
    units_divide(maker, index, parameter);
    parameter->master = parameter->gradient = parameter->part_gradient = parameter->m =
        parameter->v = parameter->scales = TENSOR_NONE;
    maker->elements += (int64_t)parameter_elements(shape);
    maker->list->count++;
    return maker->options->states && !parameter->frozen ? states_add(maker, parameter) : GT_OK;
}

/* Distributes the matrices that Muon updates among the ranks, the largest first, each to the rank
 * that has the fewest elements. */
static enum gt_status owners_choose(struct parameter_maker *maker)
{
    const size_t count = maker->listing->count;
    const int32_t ranks = maker->options->ranks;
    int64_t *elements, *load;
    TRY(HOSTMEM_NEW(maker->graph, count, "owners of matrices", &maker->owner));
    TRY(HOSTMEM_NEW(maker->graph, count, "elements of matrices", &elements));
    TRY(HOSTMEM_NEW(maker->graph, (size_t)ranks, "elements of ranks", &load));
    for (size_t i = 0; i < count; i++) {
        struct parameter_shape shape;
        listed_shape(maker->config, maker->listing, i, &shape);
        elements[i] = shape.linear ? (int64_t)parameter_elements(&shape) : 0;
    }
    for (;;) {
        size_t longest = 0;
        int32_t least = 0;
        for (size_t i = 1; i < count; i++)
            longest = elements[i] > elements[longest] ? i : longest;
        if (elements[longest] == 0)
            break;
        for (int32_t r = 1; r < ranks; r++)
            least = load[r] < load[least] ? r : least;
        maker->owner[longest] = least;
        load[least] += elements[longest];
        elements[longest] = 0;
    }
    hostmem_free(elements);
    hostmem_free(load);
    return GT_OK;
}

enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options,
                                 struct parameter_list *out)
{
    const struct listing listing = listing_make(config);
    struct parameter_maker maker = {graph, out, config, options, &listing, 0, NULL};
    if (options->muon && options->states && options->ranks > 1)
        TRY(owners_choose(&maker));
    *out = (struct parameter_list){.count = 0};
    TRY(HOSTMEM_NEW(graph, listing.count, "parameters", &out->at));
    for (size_t i = 0; i < listing.count; i++) {
        struct parameter_shape shape;
        listed_shape(config, &listing, i, &shape);
        if (!shape.absent)
            TRY(parameter_add(&maker, i, &shape));
    }
    hostmem_free(maker.owner);
    return GT_OK;
}

int32_t parameters_units(const struct parameter_list *list)
{
    int32_t units = 0;
    for (int32_t i = 0; i < list->count; i++)
        units += list->at[i].frozen ? 0 : list->at[i].units;
    return units;
}

int64_t model_parameter_count(const struct model_config *config)
{
    struct model_config small = *config;
    const int32_t full = shape_full_before(&config->shape, config->n_layer);
    int64_t counts[3] = {0, 0, 0}; /* of models with no block, with one of each kind */
    for (int kind = 0; kind < 3; kind++) {
        struct parameter_shape shape;
        small.n_layer = kind > 0;
        small.full_attention_interval = kind < 2 ? 0 : config->full_attention_interval;
        for (size_t i = 0; i < parameters_count(&small); i++) {
            parameters_shape(&small, i, &shape);
            counts[kind] += shape.absent ? 0 : (int64_t)parameter_elements(&shape);
        }
    }
    return counts[0] + full * (counts[1] - counts[0]) +
           (config->n_layer - full) * (counts[2] - counts[0]);
}

int64_t model_adapter_count(const struct model_config *config)
{
    struct model_config base = *config;
    base.lora.rank = 0;
    return model_parameter_count(config) - model_parameter_count(&base);
}

int64_t model_parameter_count_no_positions(const struct model_config *config)
{
    const bool has_table = config->position == POSITION_LEARNED;
    return model_parameter_count(config) -
           (has_table ? (int64_t)config->block_size * config->n_embd : 0);
}

int32_t model_parameter_home(const struct parameter *parameter)
{
    return parameter->master != TENSOR_NONE ? parameter->master : parameter->tensor;
}
