/* Reverse-mode differentiation of a forward program, op by op, from the ops' backward rules.
 *
 * The rules (each family's, in src/ops) say what an op's backward needs and emit it; this file keeps the books: which tensor
 * holds the gradient of which, whether a contribution is the first one (overwrite) or a later one (accumulate), and
 * when a buffer may be shared.  A residual connection passes its gradient on without a copy: both of its inputs share
 * the buffer until one of them is accumulated into, and by then the other one's readers have run, else a copy is made.
 *
 * Ops that are marked for it are computed again: when the backward pass first needs an output of one, the op and those
 * marked ones before it in its layer that it depends on are emitted once more, with the same attributes and so the same
 * bits, into new tensors that live in the backward pass only.  An output that another layer reads is kept in any case.
 *
 * Views that receive gradients must be disjoint, cover their base, and be all that reads it; loss chunks are.
 *
 * Loss chunks are differentiated at once: ops with chunk c > 0 are followed directly by their backward, so that only one
 * chunk's logits exist at a time.
 */
#ifndef GPT_TRAIN_MODEL_AUTODIFF_H
#define GPT_TRAIN_MODEL_AUTODIFF_H

#include "base/status.h"
#include "model/graph.h"

struct autodiff;

struct autodiff_parameter {
    int32_t tensor;   /* the parameter */
    int32_t gradient; /* where its gradient accumulates over micro-steps */
    bool fresh;       /* `gradient` is this program's own: the first contribution overwrites in any case */
};

struct autodiff_options {
    int32_t program; /* holds forward ops only; afterwards forward and backward, in the order to run them */
    const struct autodiff_parameter *parameters;
    int32_t parameter_count;
    int32_t order, starts;      /* the rows sorted by token id, for embed_backward; see op.h */
    bool accumulate_parameters; /* false: this program's first contribution overwrites (beta = 0) */
};

/* Errors: GT_NO_MEMORY, GT_USAGE (an op without a backward rule on the way to the loss). */
enum gt_status autodiff_run(struct graph *graph, const struct autodiff_options *options);

/* For the rules: `differentiate` of struct op_declaration.  A rule reads the gradient of the op's output, asks where each
 * input's gradient goes and emits the backward op.  It knows nothing of micro-steps, loss chunks, sharing or memory. */
/* The complete gradient of a tensor that the op produced, or TENSOR_NONE when nothing depends on it. */
int32_t autodiff_gradient(struct autodiff *ad, int32_t tensor);
/* What holds the value of a forward tensor now: itself, or the copy that was computed again. */
int32_t autodiff_saved(const struct autodiff *ad, int32_t tensor);
/* Where to write a contribution to the gradient of `tensor`, and whether to add to what is there. */
enum gt_status autodiff_contribute(struct autodiff *ad, int32_t tensor, int32_t *out, bool *accumulate);
/* The contribution to the gradient of `tensor` is the tensor `gradient` itself: shared where it is the first one,
 * added by a copy op else. */
enum gt_status autodiff_share(struct autodiff *ad, int32_t tensor, int32_t gradient);
/* As autodiff_contribute(), for an elementwise op that reads the gradient of `from` last: where nobody else needs that,
 * its bytes are what is written to. */
enum gt_status autodiff_contribute_in_place(struct autodiff *ad, int32_t from, int32_t tensor, int32_t *out,
                                            bool *accumulate);
/* Appends a backward op named after the forward op `of`. */
enum gt_status autodiff_emit(struct autodiff *ad, const struct op *of, enum op_kind kind, const struct op_attrs *attrs,
                             int32_t *operands);
const struct autodiff_options *autodiff_options_get(const struct autodiff *ad);

/* As autodiff_contribute() and autodiff_contribute_in_place(), for operand `slot` of the op that a rule is making: its
 * tensor, and its bit of attrs->accumulate. */
enum gt_status autodiff_target(struct autodiff *ad, int32_t tensor, int32_t slot, int32_t *operands,
                               struct op_attrs *attrs);
enum gt_status autodiff_target_in_place(struct autodiff *ad, int32_t from, int32_t tensor, int32_t slot,
                                        int32_t *operands, struct op_attrs *attrs);

#endif
