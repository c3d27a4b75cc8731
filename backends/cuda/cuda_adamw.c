/* Host side of adamw and adamw_lean: operands, and the launch of one elementwise kernel.
 *
 * No workspace.  Scalars and corrections stay on the device, where the kernels read them.
 */
#include "backends/cuda/cuda_adamw.h"

#include "backends/cuda/cuda.h"

static struct cuda_adamw_step step_of(const struct op_call *call, const union scalar_word *scalars,
                                      const float *corrections, int64_t rows)
{
    return (struct cuda_adamw_step){
        .scalars = scalars,
        .corrections = corrections,
        .rows = rows,
        .beta1 = call->attrs.beta1,
        .beta2 = call->attrs.beta2,
        .epsilon = call->attrs.epsilon,
        .weight_decay = call->attrs.weight_decay,
    };
}

static enum gt_status adamw_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_adamw_args args = {
        .grad = cuda_floats_of(backend, call, ADAMW_GRAD),
        .param = cuda_floats_of(backend, call, ADAMW_PARAM),
        .master = cuda_floats_of(backend, call, ADAMW_MASTER),
        .first = cuda_floats_of(backend, call, ADAMW_M),
        .second = cuda_floats_of(backend, call, ADAMW_V),
        .step = step_of(call, cuda_operand(backend, call, ADAMW_SCALARS),
                        cuda_operand(backend, call, ADAMW_CORRECTIONS), op_rows(call, ADAMW_CORRECTIONS)),
        .walk = cuda_walk_of(backend, call, ADAMW_PARAM),
    };
    return cuda_check(backend, cuda_launch_adamw(cuda_stream(backend, queue), &args), "adamw");
}

/* Moments and their exponents may be uint8; everything else is as in cuda_operands_converted(). */
static bool lean_supports(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    for (int32_t slot = 0; slot < ADAMW_LEAN_OPERANDS; slot++) {
        const struct operand *operand = &call->operand[slot];
        const bool codes = slot == ADAMW_LEAN_M || slot == ADAMW_LEAN_V || slot == ADAMW_LEAN_SCALES;
        const bool indices = operand->dtype == DTYPE_I32 || (codes && operand->dtype == DTYPE_U8);
        if (operand->present && !indices && !cuda_dtype_is_converted(operand->dtype))
            return false;
    }
    return true;
}

static enum gt_status lean_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    const struct cuda_adamw_lean_args args = {
        .grad = cuda_floats_of(backend, call, ADAMW_LEAN_GRAD),
        .param = cuda_floats_of(backend, call, ADAMW_LEAN_PARAM),
        .first = cuda_floats_of(backend, call, ADAMW_LEAN_M),
        .second = cuda_floats_of(backend, call, ADAMW_LEAN_V),
        .scales = cuda_operand(backend, call, ADAMW_LEAN_SCALES),
        .blocks = state_blocks(op_elements(call, ADAMW_LEAN_PARAM)),
        .index_base = call->attrs.index_base,
        .step = step_of(call, cuda_operand(backend, call, ADAMW_LEAN_SCALARS),
                        cuda_operand(backend, call, ADAMW_LEAN_CORRECTIONS), op_rows(call, ADAMW_LEAN_CORRECTIONS)),
        .walk = cuda_walk_of(backend, call, ADAMW_LEAN_PARAM),
    };
    return cuda_check(backend, cuda_launch_adamw_lean(cuda_stream(backend, queue), &args), "adamw_lean");
}

const struct op_impl cuda_adamw = {.supports = cuda_operands_converted, .run = adamw_run};
const struct op_impl cuda_adamw_lean = {.supports = lean_supports, .run = lean_run};
