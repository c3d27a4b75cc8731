/* The op table, expanded from ops.def: an op that has no entry of its own does not link.
 *
 * An entry is a constant of another file, which C does not let a constant table copy; so the table holds three small
 * functions for each op, which call the entry's.
 */
#include "backends/cuda/cuda_table.h"

#include "backends/cuda/cuda_backend.h"

#define OP(KIND, name, ...)                                                                              \
    static bool name##_supports(const struct backend *backend, const struct op_call *call)               \
    {                                                                                                    \
        return cuda_##name.supports(backend, call);                                                      \
    }                                                                                                    \
    static size_t name##_workspace_bytes(const struct backend *backend, const struct op_call *call)      \
    {                                                                                                    \
        return cuda_##name.workspace_bytes != NULL ? cuda_##name.workspace_bytes(backend, call) : 0;     \
    }                                                                                                    \
    static enum gt_status name##_run(struct backend *backend, int32_t queue, const struct op_call *call) \
    {                                                                                                    \
        return cuda_##name.run(backend, queue, call);                                                    \
    }
#include "ops/ops.def"
#undef OP

#define OP(KIND, name, ...) [OP_##KIND] = {name##_supports, name##_workspace_bytes, name##_run},
const struct op_impl cuda_table[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP
