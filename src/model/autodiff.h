/* Reverse-mode differentiation of a forward program, op by op, from the ops' backward rules.
 *
 * The backward rules, in the files of src/ops, emit the backward ops.  This file keeps track of
 * which tensor holds which gradient, whether a contribution is the first one (overwrite) or a later
 * one (accumulate), and when a buffer may be shared.  A residual connection passes its gradient on
 * without a copy: both inputs share the buffer until one of them is accumulated into.  If the other
 * gradient has not been read by then, autodiff makes a copy.
 *
 * Recompute: when the backward pass first needs an output of an op marked `recompute`, autodiff
 * emits that op again, along with the marked ops of its layer that it depends on.  The attributes
 * are the same, hence the bits too; the outputs go to new tensors that live only in the backward
 * pass.  An output that another layer reads is always kept.
 *
 * Views that receive gradients must be disjoint and cover their base, and nothing else may read the
 * base.  Loss chunks satisfy this.
 *
 * Loss chunks: ops with chunk c > 0 are followed directly by their backward ops, so that only one
 * chunk's logits exist at a time.
 */
#ifndef GPT_TRAIN_MODEL_AUTODIFF_H
#define GPT_TRAIN_MODEL_AUTODIFF_H

#include "model/graph.h"

struct autodiff;

struct autodiff_parameter {
    int32_t tensor;   /* the parameter */
    int32_t gradient; /* the tensor that receives its gradient */
    bool fresh; /* `gradient` belongs to this program: the first contribution always overwrites */
};

struct autodiff_options {
    /* Before: forward ops only; after: forward and backward ops in execution order. */
    int32_t program;
    const struct autodiff_parameter *parameters; /* those without a gradient are not trained */
    int32_t parameter_count;
    int32_t order, starts;      /* the rows sorted by token id, for embed_backward; see op.h */
    bool accumulate_parameters; /* false: this program's first contribution overwrites (beta = 0) */
};

/* Errors: GT_NO_MEMORY, GT_USAGE (an op without a backward rule on the way to the loss). */
enum gt_status autodiff_run(struct graph *graph, const struct autodiff_options *options);

/* The functions below are for the rules: `differentiate` of struct op_declaration.  A rule reads
 * the gradient of the op's result, asks where each input's gradient goes, and emits the backward
 * op.  It knows nothing of micro-steps, loss chunks, sharing or memory. */

/* Returns the tensor that holds the value of a forward tensor: itself, or its recomputed copy. */
int32_t autodiff_saved(const struct autodiff *ad, int32_t tensor);
/* Sets operand `slot` of a backward op to the tensor that receives a contribution to the gradient
 * of `tensor`, and its bit of attrs.accumulate if the contribution must be added. */
enum gt_status autodiff_target(struct autodiff *ad, int32_t tensor, int32_t slot,
                               union op_arguments *arguments);
/* As above, for an elementwise op that is the last reader of `from`'s gradient.  If no other tensor
 * shares that gradient, the target is the same buffer. */
enum gt_status autodiff_target_in_place(struct autodiff *ad, int32_t from, int32_t tensor,
                                        int32_t slot, union op_arguments *arguments);
/* Contributes the tensor `gradient` itself to the gradient of `tensor`.  A first contribution
 * shares its buffer; a later one is added by a copy op. */
enum gt_status autodiff_share(struct autodiff *ad, int32_t tensor, int32_t gradient);
/* Returns true if the loss's gradient with respect to `tensor` is needed: a parameter that is
 * trained is among the operands from which `tensor` is computed. */
bool autodiff_wants(const struct autodiff *ad, int32_t tensor);
/* Appends a backward op of the forward op `of`. */
enum gt_status autodiff_emit(struct autodiff *ad, const struct op *of, enum op_kind kind,
                             union op_arguments *arguments);
/* Appends a backward op whose operand `slot` is a contribution to the gradient of `tensor`. */
enum gt_status autodiff_contribute(struct autodiff *ad, const struct op *of, int32_t tensor,
                                   enum op_kind kind, int32_t slot, union op_arguments *arguments);
const struct autodiff_options *autodiff_options_get(const struct autodiff *ad);

#endif
