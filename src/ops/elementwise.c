/* The elementwise ops without parameters of a model.
 *
 *   fill      y = value
 *   copy      y (+)= x
 *   fetch     y = x, from the host's memory to the device's; any dtype
 *   store     y = x, from the device's memory to the host's.  In a backend with queues, both only
 *             begin the copy: until its wait, no other op may read or write y, or write x.
 *   wait      waits for the end of the copy of x to y that fetch or store began
 *   gradient_round
 *             y = SR(x, ROUNDING_GRADIENT of the micro-step), or SR(y + x, ...) if it accumulates;
 *             exact (ops/op.h)
 *   residual  r = x + y.  Both inputs have the gradient of the sum, so the backward pass emits no
 *             op for it.
 *   blend     y = alpha x + beta z, rounded to nearest if y has 16 bits; exact (ops/op.h).  y may
 *             be x or z.  With beta = 0, z is not read; models that only scale x pass x.
 *   dropout   y = x / (1 - p) where the mask keeps x, else 0, whatever x is; its own backward.  A
 *             mask bit is a pure function of (seed, step, sample, site, element), which ops/op.h
 *             defines.
 */
#include "model/autodiff.h"
#include "ops/infer.h"

const struct op_declaration op_fill = {
    OP_NAMED(fill, FILL),
    .operand = {[FILL_Y] = {OPERAND_OUT,
                            "*"}}, /* must be bound, because there is no input to infer from */
};

/* For copy and gradient_round, whose first operand is x. */
static double addition_flops(const struct op_call *call)
{
    return call->attrs.accumulate != 0 ? cost_elements(call, COPY_X) : 0.0;
}

const struct op_declaration op_copy = {
    OP_NAMED(copy, COPY),
    .operand = {[COPY_X] = {OPERAND_IN, "*"}, [COPY_Y] = {OPERAND_OUT | OPERAND_ACCUMULATES, "*"}},
    .flops = addition_flops,
};

const struct op_declaration op_gradient_round = {
    OP_NAMED(gradient_round, GRADIENT_ROUND),
    .operand = {[GRADIENT_ROUND_X] = {OPERAND_IN, "*", DTYPES_F32},
                [GRADIENT_ROUND_SCALARS] = SCALARS(OPERAND_IN),
                [GRADIENT_ROUND_Y] = {OPERAND_OUT | OPERAND_ACCUMULATES, "*", DTYPES_BF16}},
    .check = infer_index_base,
    .flops = addition_flops,
};

const struct op_declaration op_fetch = {
    OP_NAMED(fetch, FETCH),
    .queue = QUEUE_IN,
    .operand = {[FETCH_X] = {OPERAND_IN, "*", DTYPES_STATE},
                [FETCH_Y] = {OPERAND_OUT | OPERAND_SAME_DTYPE, "*", DTYPES_STATE}},
};

const struct op_declaration op_store = {
    OP_NAMED(store, STORE),
    .queue = QUEUE_OUT,
    .operand = {[STORE_X] = {OPERAND_IN, "*", DTYPES_STATE},
                [STORE_Y] = {OPERAND_OUT | OPERAND_SAME_DTYPE, "*", DTYPES_STATE}},
};

const struct op_declaration op_wait = {
    OP_NAMED(wait, WAIT),
    .operand = {[WAIT_X] = {OPERAND_IN | OPERAND_OPTIONAL, ".", DTYPES_STATE},
                [WAIT_Y] = {OPERAND_INOUT | OPERAND_OPTIONAL, ".", DTYPES_STATE}},
};

static enum gt_status residual_differentiate(struct autodiff *ad, const struct op *op, int32_t dr)
{
    TRY(autodiff_share(ad, op->operand[RESIDUAL_Y], dr));
    return autodiff_share(ad, op->operand[RESIDUAL_X], dr);
}

const struct op_declaration op_residual = {
    OP_NAMED(residual, RESIDUAL),
    .operand = {[RESIDUAL_X] = {OPERAND_IN, "*"},
                [RESIDUAL_Y] = {OPERAND_IN | OPERAND_SAME_DTYPE, "*"},
                [RESIDUAL_R] = {OPERAND_OUT, "*"}},
    .cost = {1.0, RESIDUAL_R},
    .differentiate = residual_differentiate,
};

/* Adds scale dy to the gradient of an input. */
static enum gt_status blend_input(struct autodiff *ad, const struct op *op, int32_t input,
                                  float scale, int32_t dy)
{
    union op_arguments backward = {.BLEND = {.x = dy, .z = dy, .attrs.alpha = scale}};
    if (scale == 0.0f || !autodiff_wants(ad, input))
        return GT_OK;
    if (scale == 1.0f)
        return autodiff_share(ad, input, dy);
    if (op->attrs.beta == 0.0f) /* the only reader of dy */
        TRY(autodiff_target_in_place(ad, op->operand[BLEND_Y], input, BLEND_Y, &backward));
    else
        TRY(autodiff_target(ad, input, BLEND_Y, &backward));
    if (backward.attrs.accumulate != 0) {
        backward.BLEND.z = backward.BLEND.y;
        backward.attrs.beta = 1.0f;
        backward.attrs.accumulate = 0;
    }
    return autodiff_emit(ad, op, OP_BLEND, &backward);
}

static enum gt_status blend_differentiate(struct autodiff *ad, const struct op *op, int32_t dy)
{
    TRY(blend_input(ad, op, op->operand[BLEND_Z], op->attrs.beta, dy));
    return blend_input(ad, op, op->operand[BLEND_X], op->attrs.alpha, dy);
}

const struct op_declaration op_blend = {
    OP_NAMED(blend, BLEND),
    .operand = {[BLEND_X] = {OPERAND_IN, "*"},
                [BLEND_Z] = {OPERAND_IN | OPERAND_SAME_DTYPE, "*"},
                [BLEND_Y] = {OPERAND_OUT, "*"}},
    .cost = {3.0, BLEND_Y},
    .differentiate = blend_differentiate,
};

static bool dropout_check(const struct op_call *call, struct infer_sizes *sizes)
{
    (void)sizes;
    return infer_time(call, DROPOUT_X) && infer_probability(call);
}

static enum gt_status dropout_differentiate(struct autodiff *ad, const struct op *op, int32_t dy)
{
    union op_arguments backward = {
        .DROPOUT = {.x = dy, .scalars = op->operand[DROPOUT_SCALARS], .attrs = op->attrs}};
    TRY(autodiff_target_in_place(ad, op->operand[DROPOUT_Y], op->operand[DROPOUT_X], DROPOUT_Y,
                                 &backward));
    return autodiff_emit(ad, op, OP_DROPOUT, &backward);
}

const struct op_declaration op_dropout = {
    OP_NAMED(dropout, DROPOUT),
    .operand = {[DROPOUT_X] = {OPERAND_IN, "NC"},
                [DROPOUT_SCALARS] = SCALARS(OPERAND_IN),
                [DROPOUT_Y] = {OPERAND_OUT, "NC"}},
    .check = dropout_check,
    .cost = {1.0, DROPOUT_X},
    .differentiate = dropout_differentiate,
};
