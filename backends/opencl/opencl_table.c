/* The op table, expanded from ops.def over the list of those that have kernels.
 *
 * The table's own functions are the same for all ops: they look up the op's, answer for those that have none, and put each
 * operand into a memory of its own around run() where that was asked for (opencl_shadow.h).
 */
#include "backends/opencl/opencl_table.h"

#include "backends/opencl/opencl_shadow.h"
#include "base/log.h"

static const struct op_impl *const impls[OP_KIND_COUNT] = {
#define OPENCL_OP(KIND, name) [OP_##KIND] = &opencl_##name,
#include "backends/opencl/opencl_ops.def"
#undef OPENCL_OP
};

bool opencl_operands_supported(const struct op_call *call)
{
    const unsigned dtypes = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16 | 1u << DTYPE_I32 | 1u << DTYPE_U8;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && (dtypes >> operand->dtype & 1u) == 0)
            return false;
    }
    return true;
}

static bool table_supports(const struct backend *backend, const struct op_call *call)
{
    const struct op_impl *impl = impls[call->kind];
    return impl != NULL && impl->run != NULL && (impl->supports == NULL || impl->supports(backend, call));
}

static size_t table_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct op_impl *impl = impls[call->kind];
    return impl != NULL && impl->workspace_bytes != NULL ? impl->workspace_bytes(backend, call) : 0;
}

static enum gt_status run_shadowed(struct backend *backend, int32_t queue, const struct op_call *call)
{
    struct opencl_backend *cl = opencl_own(backend);
    TRY(opencl_shadow_begin(cl, call));
    const enum gt_status status = impls[call->kind]->run(backend, queue, call);
    const enum gt_status ended = opencl_shadow_end(cl);
    return status != GT_OK ? status : ended;
}

static enum gt_status table_run(struct backend *backend, int32_t queue, const struct op_call *call)
{
    if (impls[call->kind] == NULL) {
        log_error("opencl: there is no kernel for %s", op_declaration(call->kind)->name);
        return GT_UNSUPPORTED;
    }
    if (opencl_own(backend)->shadow != NULL && !opencl_own(backend)->is_dry)
        return run_shadowed(backend, queue, call);
    return impls[call->kind]->run(backend, queue, call);
}

#define OP(KIND, name, ...) [OP_##KIND] = {table_supports, table_workspace_bytes, table_run},
const struct op_impl opencl_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP
