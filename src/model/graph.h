/* Tensors and programs: the form of a model before memory is planned.
 *
 * A graph owns all tensors and programs of one run.  A program is a flat list of ops over tensor
 * indices; training, evaluation and sampling are programs of one graph.  A tensor has a shape, a
 * dtype, a category (its role, for the report) and a lifetime (how long its bytes must survive, for
 * the planner), but never an address.  Recompute and loss chunking change the programs; they are
 * not flags for kernels.
 *
 * Invariants: every operand of an op is a valid tensor; views lie inside their base; a
 * program-lifetime tensor is used by one program only and is written before it is read, unless it
 * is an input.
 */
#ifndef GPT_TRAIN_MODEL_GRAPH_H
#define GPT_TRAIN_MODEL_GRAPH_H

#include "base/hostmem.h"
#include "ops/op.h"

#define TENSOR_NAME_MAX 96
/* Tensors are numbered from TENSOR_FIRST, so that an index left at zero is no tensor. */
#define TENSOR_NONE 0
#define TENSOR_FIRST 1

/* The role of a tensor; the memory report groups by it. */
enum tensor_category {
    CATEGORY_PARAMETER,  /* weights as the ops read them */
    CATEGORY_MASTER,     /* fp32 copies of 16-bit weights */
    CATEGORY_MOMENT,     /* Adam's m and v */
    CATEGORY_GRADIENT,   /* gradients of parameters */
    CATEGORY_ACTIVATION, /* made by the forward pass and read by the backward pass */
    CATEGORY_LOGITS,     /* chunk of vocabulary-wide rows */
    CATEGORY_TEMPORARY,  /* everything else that lives within a program */
    CATEGORY_WORKSPACE,  /* scratch memory of one op in a backend */
    CATEGORY_CACHE,      /* keys and values while sampling */
    CATEGORY_DATA,       /* token ids and tables that the host writes */
    CATEGORY_COUNT
};

/* How long the bytes must survive. */
enum tensor_lifetime {
    LIFETIME_RUN,     /* from start to end: parameters, moments, scalars */
    LIFETIME_PHASE,   /* between the programs of one phase: gradients, the key-value cache */
    LIFETIME_PROGRAM, /* between the first and the last op that touch it */
};

/* Phases alternate at update boundaries.  Their memory overlaps, so the peak is that of the largest
 * phase. */
enum program_phase { PHASE_TRAIN, PHASE_EVALUATE, PHASE_GENERATE, PHASE_COUNT };

/* The part of a step that an op belongs to, for the trace and the report. */
enum op_pass { PASS_FORWARD, PASS_BACKWARD, PASS_UPDATE };

struct tensor {
    char name[TENSOR_NAME_MAX]; /* "h.3.ln_1.y", "h.3.attn.c_attn.weight.grad" */
    enum dtype dtype;
    int32_t rank;
    int64_t dims[OP_RANK_MAX];
    enum tensor_category category;
    enum tensor_lifetime lifetime;
    enum program_phase phase; /* of PHASE and PROGRAM lifetimes */
    int32_t base;             /* the tensor that this is a view of, or TENSOR_NONE */
    int64_t view_offset;      /* elements from the base's start; views are contiguous */
    enum memory_space home;   /* where the bytes are; a view's are its base's */
    bool input;               /* the host writes it before the program runs: live from its start */
    bool output;              /* the host reads it after the program ran: live to its end */
};

struct op {
    enum op_kind kind;
    enum op_pass pass;
    struct op_attrs attrs;
    int32_t operand[OP_OPERANDS_MAX]; /* tensor index or TENSOR_NONE */
    int32_t layer;                    /* 0 .. L-1, or -1 outside the blocks */
    int32_t chunk;                    /* loss chunk, 1 ..; 0 outside the loss */
    bool recompute; /* forward op: the backward pass recomputes its outputs instead of keeping them
                     */
    int32_t left_out; /* in a program that is only measured: how many equal ops, of other blocks or
                         loss chunks, it does not contain (left_out.h) */
};

/* What a program does; see struct model and struct program_io (model.h). */
enum program_kind {
    PROGRAM_TRAIN_FIRST,
    PROGRAM_TRAIN_NEXT,
    PROGRAM_TRAIN_REMAINDER,
    PROGRAM_PART_FIRST,
    PROGRAM_PART_NEXT,
    PROGRAM_NORM,
    PROGRAM_UPDATE,
    PROGRAM_GATHER,
    PROGRAM_REFRESH,
    PROGRAM_EVALUATE,
    PROGRAM_PREFILL,
    PROGRAM_DECODE,
    PROGRAM_KINDS
};

struct program {
    enum program_kind kind;
    enum program_phase phase;
    struct op *ops;
    int32_t count;
};

#define GRAPH_PROGRAMS_MAX PROGRAM_KINDS

struct graph {
    struct tensor *tensors; /* [tensor_count]; the first one is not a tensor */
    int32_t tensor_count;
    struct program programs[GRAPH_PROGRAMS_MAX];
    int32_t program_count;
};

/* Errors: GT_NO_MEMORY. */
enum gt_status graph_create(const void *owner, struct graph **out);

/* Adds a copy of `proto`.  Errors: GT_NO_MEMORY; GT_USAGE when its size in bytes does not fit 63
 * bits. */
enum gt_status graph_tensor_add(struct graph *graph, const struct tensor *proto, int32_t *out);
/* Adds a view of `rows` rows (of the first dimension) of `base`, from `first_row`, with the name of
 * `base` + "[first:+rows]". */
enum gt_status graph_view_add(struct graph *graph, int32_t base, int64_t first_row, int64_t rows,
                              int32_t *out);
/* Adds a view of `count` elements of `base`, from element `first`, as a vector that is named
 * likewise. */
enum gt_status graph_range_add(struct graph *graph, int32_t base, int64_t first, int64_t count,
                               int32_t *out);
/* Writes at most `most` characters of a text; returns the end.  snprintf() is too slow for the
 * search for a plan, which builds many graphs. */
char *graph_name_put(char *at, const char *text, size_t most);
/* Writes a number that is not negative.  Returns the end. */
char *graph_name_number(char *at, int64_t number);
/* Writes texts, up to a NULL, one after another, in at most `size` bytes.  Returns the end. */
char *graph_name_join(char *at, size_t size, const char *const *texts);
#define NAME_JOIN(at, size, ...) graph_name_join(at, size, (const char *const[]){__VA_ARGS__, NULL})
/* Adds an empty program in the phase of its kind. */
enum gt_status graph_program_add(struct graph *graph, enum program_kind kind, int32_t *out);

/* Returns the tensor that owns the bytes: the base of a view, else the tensor itself. */
int32_t graph_storage(const struct graph *graph, int32_t tensor);
int64_t graph_tensor_elements(const struct graph *graph, int32_t tensor);
uint64_t graph_tensor_bytes(const struct graph *graph, int32_t tensor);
/* Fills in a call (not the addresses) from an op. */
void graph_call(const struct graph *graph, const struct op *op, struct op_call *out);

/* The builder's pen: the program and the attributes that new ops get. */
struct graph_pen {
    struct graph *graph;
    int32_t program;
    enum op_pass pass;
    int32_t layer;
    int32_t chunk;
    bool recompute;
    int32_t left_out;
};

/* Returns a pen for ops outside the blocks and the loss. */
static inline struct graph_pen graph_pen_make(struct graph *graph, int32_t program,
                                              enum op_pass pass)
{
    return (struct graph_pen){.graph = graph, .program = program, .pass = pass, .layer = -1};
}

/* The operands and attributes of an op that is to be added, by name and by index: arguments.GEMM.a
 * is arguments.operand[GEMM_A].  All members have the layout of the first. */
union op_arguments {
    struct {
        int32_t operand[OP_OPERANDS_MAX]; /* tensor indices */
        struct op_attrs attrs;
    };
#define OPERAND(INDEX, name) int32_t name;
#define OP(KIND, name, operands)              \
    struct {                                  \
        union {                               \
            struct {                          \
                operands                      \
            };                                \
            int32_t padding[OP_OPERANDS_MAX]; \
        };                                    \
        struct op_attrs attrs;                \
    } KIND;
#include "ops/ops.def"
#undef OP
#undef OPERAND
};

/* Arguments as graph_op_add() takes them: OP_ARGUMENTS(GEMM, .a = x, .b = w, .attrs.transpose_b =
 * true). */
#define OP_ARGUMENTS(KIND, ...) (&(union op_arguments){.KIND = {__VA_ARGS__}})

/* Appends an op.  For each required OUT operand that is TENSOR_NONE, a CATEGORY_TEMPORARY tensor of
 * program lifetime with the inferred shape is added, named `name` + "." + the operand's name; its
 * index is written to `arguments`. Optional operands may stay TENSOR_NONE.  *out, unless `out` is
 * NULL, is the op's result (op_result()).  Errors: GT_NO_MEMORY; GT_USAGE when the shapes do not
 * fit (logged by op_infer). */
enum gt_status graph_op_add(const struct graph_pen *pen, enum op_kind kind, const char *name,
                            union op_arguments *arguments, int32_t *out);
/* Appends a complete op, taken from another place or program.  Errors: GT_NO_MEMORY. */
enum gt_status graph_op_append(struct graph *graph, int32_t program, const struct op *op);
/* graph_op_add() with the arguments written out: GRAPH_ADD(FETCH, &pen, "w", &copy, .x = weight).
 */
#define GRAPH_ADD(KIND, pen, name, out, ...) \
    graph_op_add(pen, OP_##KIND, name, OP_ARGUMENTS(KIND, __VA_ARGS__), out)

/* The first and the last op of a program that touch a storage.  If none does, first = count and
 * last = -1.  Otherwise an input has first = -1, and an output last = count. */
struct tensor_range {
    int32_t first, last;
};
/* Writes the range of every tensor's storage to ranges[tensor_count]; views get that of their base.
 */
void graph_ranges(const struct graph *graph, int32_t program, struct tensor_range *ranges);

/* Adds a tensor of a training program, on the device, with the dtype and shape of `like`. */
enum gt_status graph_temporary_add(struct graph *graph, int32_t like, int32_t *out);

/* Moves each op count + k of `program` to directly after op after[k] < count.  Ops moved after the
 * same op keep their order.  A moved op gets the layer and `left_out` of op after[k], and its loss
 * chunk if the op that followed it has the same one.  Errors: GT_NO_MEMORY. */
enum gt_status graph_ops_move(struct graph *graph, int32_t program, int32_t count,
                              const int32_t *after);

const char *tensor_category_name(enum tensor_category category);
const char *program_phase_name(enum program_phase phase);
/* Returns "train_first", "evaluate", ...: for messages, reports and names of tensors. */
const char *program_kind_name(enum program_kind kind);
enum program_phase program_kind_phase(enum program_kind kind);

/* Prints one line per op: index, pass, name, operands with shapes; then the tensors with categories
 * and live ranges. */
void graph_print(const struct graph *graph, int32_t program, FILE *out);

#endif
