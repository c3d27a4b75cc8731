/* The model's configuration, its parameters and the programs that train and use it.
 *
 * Source: nanoGPT model.py (GPT, Block, CausalSelfAttention, MLP); for names and layout Hugging
 * Face's modeling_gpt2.py (Conv1D: weights are [in, out]), modeling_llama.py, modeling_qwen2.py and
 * modeling_qwen3.py (Linear: [out, in]).
 */
#ifndef GPT_TRAIN_MODEL_MODEL_H
#define GPT_TRAIN_MODEL_MODEL_H

#include "base/shape.h"
#include "model/graph.h"
#include "model/plan_choice.h"
#include "model/state_format.h"

/* Adapters of low rank (Hu et al. 2021): a target's matrix W becomes W + alpha / rank B A, with A
 * [rank, in] and B [out, rank].  Only adapters are trained. */
struct lora_config {
    int32_t rank;     /* 0: no adapters */
    bool alone;       /* the parameters are those of the adapters only */
    uint32_t targets; /* a bit for each of model_lora_words */
    double alpha;
};
/* PEFT's names of the targets: the last parts of the names of a block's linear layers. */
extern const char *const model_lora_words[];

/* The shape, whose fields are also fields of this struct, and what a run or a file adds to it. */
struct model_config {
    union {
        struct shape shape;
        struct {
#define SHAPE_FIELD(type, name) type name;
#include "base/shape.def"
            struct rope_config rope;
        };
    };
    int32_t block_size;        /* T */
    int32_t max_positions;     /* the context that a model with rotary positions was made for; 0:
                                  block_size */
    int32_t padded_vocab_size; /* Vp >= V: rows of wte in memory; rows beyond V stay zero */
    float dropout;
    struct lora_config lora;
};

/* INIT_DECAY: the logarithms of numbers up to 16, evenly distributed, then as many ones. */
enum parameter_init { INIT_NORMAL, INIT_ZERO, INIT_ONE, INIT_UNIFORM, INIT_DECAY };
/* The initial values of a new model; see parameters.c. */
enum model_init { MODEL_INIT_GPT2, MODEL_INIT_ZERO };

/* Parameters that share a learning rate. */
enum parameter_group {
    GROUP_MATRIX, /* a matrix of a block that AdamW updates */
    GROUP_MUON,   /* a matrix of a block that Muon updates */
    GROUP_EMBEDDING,
    GROUP_HEAD,   /* an output layer with weights of its own */
    GROUP_VECTOR, /* gains, biases and a delta net's convolution */
    PARAMETER_GROUPS
};

#define PARAMETER_RANGES_MAX 3

/* The rank that has the states of a parameter: its number, or one of these. */
enum {
    OWNER_ALL = -1,   /* each rank has all of them, as a single rank has */
    OWNER_UNITS = -2, /* each rank has those of its units */
};

struct parameter {
    char name[TENSOR_NAME_MAX]; /* see parameters.h: "h.0.attn.c_attn.weight" */
    int32_t tensor;             /* the weight that the ops read */
    int32_t master;         /* fp32 weight that is trained and saved if `tensor` is its rounding; or
                               TENSOR_NONE */
    int32_t gradient, m, v; /* TENSOR_NONE outside training; v also if Muon updates the parameter */
    int32_t part_gradient;  /* that of one part, if an update has several (in the last program); or
                               TENSOR_NONE */
    int32_t scales;         /* of 8-bit m and v; else TENSOR_NONE */
    int64_t saved_rows;     /* rows in a checkpoint: V for wte, else dims[0] */
    /* Elements of all earlier parameters in a checkpoint; see op.h, rounding_*. */
    int64_t index_base;
    enum parameter_init init;
    float init_std; /* for INIT_UNIFORM, the bound */
    int32_t layer;  /* its block; -1 outside the blocks */
    enum parameter_group group;
    enum memory_space states_home;   /* where master, m, v and scales live */
    enum memory_space gradient_home; /* where `gradient` lives */
    int32_t parts, matrices;         /* see parameter_shape */
    int64_t part_rows[PARAMETER_RANGES_MAX];
    int32_t part_of[PARAMETER_RANGES_MAX];
    int32_t units; /* equal ranges of whole blocks of STATE_BLOCK elements, whose squares are summed
                      one by one */
    int32_t owner;
    int64_t first, count, most; /* for OWNER_UNITS, the elements whose states are here; no rank has
                                   more than `most` */
    struct state_dtypes dtypes; /* on the rank that has them */
    bool decays;                /* a tensor of two or more dimensions in files */
    bool frozen;                /* not trained, so without states; adapters are trained instead */
};

struct parameter_list {
    struct parameter *at;
    int32_t count;
};

/* Which of the training programs to build.  A search measures candidates in pieces. */
enum train_programs {
    TRAIN_ALL,
    TRAIN_STEPS, /* only micro-steps, to be measured, without blocks and loss chunks that equal
                    others (left_out.h).  If others follow, the first one is not built, because it
                    differs only in that it overwrites gradients, unless gradients live in host
                    memory */
    TRAIN_UPDATE /* only what an update runs besides its micro-steps */
};

/* The programs to build, and their parameters. */
struct model_options {
    struct model_config config;
    enum dtype dtype; /* storage of weights and activations; statistics and losses are fp32 */
    enum state_format states; /* storage of masters, gradients and moments */
    bool muon; /* Muon for the blocks' matrices, AdamW for the rest; else AdamW for all */
    enum model_init init;
    bool train, evaluate, generate;
    enum train_programs train_programs;
    bool document_mask; /* attention and positions of training and evaluation stay inside a document
                         */
    struct plan_choice choice;
    int32_t parts; /* of an update; their gradients are added in order, in fp32.  0 counts as 1 */
    enum dtype
        reduce_dtype;    /* DTYPE_BF16: a part's fp32 gradients are rounded before they are added */
    int32_t ranks, rank; /* ranks divide `parts`; 0 counts as 1 */
    int32_t micro_steps; /* micro-steps per part, including the remainder */
    int32_t evaluate_time;  /* T of the evaluation program, at most block_size; 0 = block_size */
    int32_t generate_batch; /* sequences sampled at once */
    int32_t prefill_time;   /* tokens per prefill run */
    float beta1, beta2, weight_decay, muon_weight_decay, grad_clip, adam_epsilon;
    float rates[PARAMETER_GROUPS]; /* ratios of the groups' learning rates to the schedule's */
    enum dtype muon_dtype;         /* of Muon's products */
    int32_t correction_rows;       /* rows of the bias correction table */
};

/* The tensors that the host writes before a program and reads after it.  TENSOR_NONE if a program
 * lacks one. */
struct program_io {
    int32_t program; /* -1 if the run has no such program */
    int32_t batch, time;
    int32_t ids, targets, order, starts;
    int32_t first;  /* [N] row of its sample at which the document of a row begins */
    int32_t losses; /* [N] fp32 */
    int32_t logits; /* [B, Vp] of each sequence's last position, generate only */
};

struct model {
    struct model_options options;
    struct graph *graph;
    struct parameter_list parameters;
    int32_t *left_out; /* [n_layer], see left_out.h; NULL: no block is left out */
    int32_t scalars;   /* [SCALAR_WORDS] */
    int32_t angles; /* [block_size, D]: cosines, then sines, of rotary positions; or TENSOR_NONE */
    int32_t local_angles; /* the same of layers with a window, if they have a theta of their own; or
                             TENSOR_NONE */
    int32_t expand[PARAMETER_RANGES_MAX]; /* [k rank, k rank]: alpha / rank times the identity, for
                                            k adapters */
    int32_t corrections; /* [correction_rows, 2]: 1 - beta1^t, 1 - beta2^t for t = 1 .. */
    /* [micro_batch T, C] in host memory, the input of block 0; the next blocks' follow. */
    int32_t inputs;
    int32_t sums; /* if an update is one part: where the micro-steps write the sums of squares of
                     gradients in host memory, an element for each parameter; or TENSOR_NONE */
    struct program_io train_first, train_next, train_remainder, update, evaluate, prefill, decode;
    struct program_io
        refresh; /* weights := their masters, rounded; program is -1 if no weight has a master */
    /* The programs that store the gradients of the first round of parts, and that add those of a
     * later round; or -1. If a part is one micro-step, train_first and train_next do that too. */
    int32_t part_first, part_next;
    /* With several ranks: the program `norm` sums the squares of this rank's units into `squares`;
     * `update` begins with the sums of all units in `partials`.  Both have an element for each unit
     * of each parameter, in order.  The program `gather` gives each rank the weights that the
     * others have updated. */
    int32_t norm, squares, partials, gather;
};

/* Return the parts of an update, the ranks, and the micro-steps of an update. */
static inline int32_t model_parts(const struct model_options *options)
{
    return options->parts > 1 ? options->parts : 1;
}

static inline int32_t model_ranks(const struct model_options *options)
{
    return options->ranks > 1 ? options->ranks : 1;
}

static inline int32_t model_micro_steps(const struct model_options *options)
{
    return model_parts(options) * options->micro_steps;
}

/* Returns true if the programs of micro-steps also add the parts, because each of several parts is
 * one micro-step.  The gradient of a part then lives only from its first contribution to its
 * exchange (ZeRO-2: Rajbhandari et al. 2020). */
static inline bool model_adds_in_step(const struct model_options *options)
{
    return model_parts(options) > 1 && options->micro_steps == 1;
}

#endif
