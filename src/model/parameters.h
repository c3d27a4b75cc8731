/* The parameters of a model: their names, shapes and order, in memory and in files, and their
 * indices for the builder.
 *
 * Queries, keys and values are one matrix, and so are the MLP's gate and its other factor, so that
 * each is one product. Llama's files have the rows of such a matrix, or of a vector, as several
 * tensors.
 */
#ifndef GPT_TRAIN_MODEL_PARAMETERS_H
#define GPT_TRAIN_MODEL_PARAMETERS_H

#include "model/model.h"

#define PARAMETER_NAME_MAX 128

enum adapter_matrix { ADAPTER_NONE, ADAPTER_A, ADAPTER_B };

/* A parameter, or a tensor of a model's file.  Weights of linear layers are [in, out] in GPT-2
 * (Conv1D), else [out, in]. */
struct parameter_shape {
    char name[PARAMETER_NAME_MAX]; /* "h.3.attn.c_attn.weight",
                                      "model.layers.3.self_attn.q_proj.weight" */
    const char
        *prefix;  /* a prefix that our files add and other files may add: "transformer." or "" */
    int32_t rank; /* 1 or 2 */
    int64_t dims[2];
    int32_t parts;    /* tensors of a model's file that it consists of */
    int32_t matrices; /* separate matrices for Muon, which a file may have as one */
    int64_t
        part_rows[PARAMETER_RANGES_MAX]; /* the rows of each part or matrix, if there are several */
    /* Of adapters: which part of the layer each part adapts. */
    int32_t part_of[PARAMETER_RANGES_MAX];
    int32_t whole; /* for a tensor of a file, the parameter that it is a part of */
    size_t first;  /* and its first element in that parameter */
    bool linear;   /* the weight of a linear layer of a block */
    bool residual; /* of a layer whose result is added to the residual stream */
    bool norm;     /* a norm's gain or bias */
    bool bias;     /* of a linear layer or a norm */
    int32_t taps;  /* of a convolution, whose tensor in a file is [dims[0] / taps, 1, taps] */
    enum parameter_init init; /* of a vector */
    bool absent;         /* a bias that the model does not have; GPT-2's files have zeros for it */
    bool position_table; /* may be read in part, for a shorter block_size */
    enum adapter_matrix adapter;
};

/* The parameters, absent ones included, in the order of the model's modules: the embeddings, the
 * blocks, the last norm, the output layer; adapters follow the layer that they adapt.  This is the
 * order of checkpoints. */
size_t parameters_count(const struct model_config *config);
void parameters_shape(const struct model_config *config, size_t index, struct parameter_shape *out);
/* The tensors of a model's file, in the same order. */
size_t parameters_file_count(const struct model_config *config);
void parameters_file_shape(const struct model_config *config, size_t index,
                           struct parameter_shape *out);
size_t parameter_elements(const struct parameter_shape *shape);
/* Writes the shape that a tensor has in a model's file; returns its rank. */
int32_t parameter_file_dims(const struct parameter_shape *shape, int64_t dims[static 3]);

/* The layers of a block.  BLOCK_C_FC is the MLP's first matrix: of GELU, or of a gate and its other
 * factor.  BLOCK_C_ATTN and BLOCK_C_PROJ are also the products before and after a gated delta net.
 */
enum block_layer {
    BLOCK_LN_1,
    BLOCK_C_ATTN,
    BLOCK_QK_NORM,   /* its weight: the gains of the queries, then of the keys */
    BLOCK_GATE,      /* gated delta net: the gates of its result */
    BLOCK_CONV,      /* gated delta net: the convolution */
    BLOCK_DECAY,     /* gated delta net: A_log and dt_bias */
    BLOCK_GATE_NORM, /* gated delta net: the norm of its result */
    BLOCK_C_PROJ,
    BLOCK_POST_1, /* the norms after attention and the MLP, if a block has four */
    BLOCK_LN_2,
    BLOCK_C_FC,
    BLOCK_MLP_PROJ,
    BLOCK_POST_2,
    BLOCK_LAYERS
};
/* The parameters of a block of GPT-2, absent ones included. */
#define GPT2_BLOCK_PARAMETERS 12

/* Where a block's parameters are, by its kind: with attention, with a gated delta net.  -1: it has
 * no such parameter. */
struct parameter_places {
    int32_t at[2][BLOCK_LAYERS][2]; /* weights and biases */
    int32_t adapter[2][BLOCK_LAYERS][ADAPTER_B + 1];
    int32_t count[2];
    int32_t embeddings; /* before the first block */
};
struct parameter_places parameters_places(const struct model_config *config);

/* Return indices into parameter_list.at of a model.  A layer's is -1 if the model has no such
 * weight or bias; layer n_layer is the last norm, as BLOCK_LN_1.  parameters_head() is wte unless
 * the model is untied. */
enum { PARAMETERS_WTE, PARAMETERS_WPE };
int32_t parameters_index(const struct parameter_places *places, const struct shape *shape,
                         int32_t layer, enum block_layer which, bool bias);
int32_t parameters_head(const struct model_config *config);
/* Returns the index of a matrix of a layer's adapters, whose parts are the targets; -1 if it has
 * none. */
int32_t parameters_adapter(const struct parameter_places *places, const struct shape *shape,
                           int32_t layer, enum block_layer which, enum adapter_matrix matrix);
/* Returns the bits of all targets that the blocks have. */
uint32_t parameters_lora_targets(const struct model_config *config);

/* Return the number of parameters: all of them, those of adapters, and all without wpe (the figure
 * that nanoGPT prints). */
int64_t model_parameter_count(const struct model_config *config);
int64_t model_adapter_count(const struct model_config *config);
int64_t model_parameter_count_no_positions(const struct model_config *config);

struct parameter_options {
    enum dtype dtype; /* of weights and linear layers' biases */
    bool states;      /* also add gradients, moments and masters in `format` */
    enum state_format format;
    bool muon; /* matrices of the blocks have one moment, and no 8-bit codes */
    struct offload_mix offload;
    int32_t parts, ranks, rank; /* as in struct model_options, at least 1 */
    enum model_init init;
};

/* Adds the parameters.  Norms' gains and biases are few and are used with fp32 statistics, so they
 * stay fp32 with fp32 states.  Errors: GT_NO_MEMORY. */
enum gt_status parameters_create(struct graph *graph, const struct model_config *config,
                                 const struct parameter_options *options,
                                 struct parameter_list *out);

/* Returns the first element of a unit of a parameter; the number of its elements if there is no
 * such unit. */
int64_t parameters_unit_first(const struct graph *graph, const struct parameter *parameter,
                              int32_t unit);
/* Returns the number of units of all parameters that are trained. */
int32_t parameters_units(const struct parameter_list *list);
/* The elements of a parameter whose states one of `ranks` ranks has and the others do not.
 * Elements whose states every rank has belong to `rank` = ranks. */
struct parameter_range {
    int64_t first, count;
};
struct parameter_range parameters_share(const struct graph *graph,
                                        const struct parameter *parameter, int32_t ranks,
                                        int32_t rank);
/* Adds a tensor like `proto`, which has a parameter's shape, for this rank's elements.  Errors:
 * GT_NO_MEMORY. */
enum gt_status parameters_state_add(struct graph *graph, const struct parameter *parameter,
                                    const struct tensor *proto, int32_t *out);

/* Returns the longest context: the larger of max_positions and block_size. */
int32_t model_positions(const struct model_config *config);
/* Return D, how many of a head's dimensions rotary positions rotate, F and H D. */
int32_t model_head_dim(const struct model_config *config);
int32_t model_turned_dim(const struct model_config *config);
int32_t model_inner_width(const struct model_config *config);
int64_t model_attention_width(const struct model_config *config);
/* Returns true if the architecture's class is GPT-2's, whose weights have its names and layout in
 * memory and in files; all others have Llama's. */
bool model_is_gpt2(const struct model_config *config);

/* Returns the tensor that is initialised, loaded and saved: the master if there is one, else the
 * weight. */
int32_t model_parameter_home(const struct parameter *parameter);

#endif
